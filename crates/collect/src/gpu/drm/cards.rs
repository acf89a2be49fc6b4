//! The DRM cards of this machine, and what sysfs tells of their memory.

use memtrace_model::{Bytes, GpuInfo, Order};
use std::path::{Path, PathBuf};

/// A card whose driver tells of memory by fdinfo.
#[derive(Clone, Debug)]
pub(super) struct Card {
    pub(super) info: GpuInfo,
    pub(super) pdev: String,
    sysfs: PathBuf,
}

/// NVIDIA's memory is NVML's to tell: its driver has no such keys in fdinfo.
const WITHOUT_MEMORY: &str = "nvidia";

/// The cards below `sys`, where sysfs is mounted.
pub(super) fn cards(sys: &Path) -> Vec<Card> {
    let class = sys.join("class/drm");
    let entries = std::fs::read_dir(&class).into_iter().flatten().flatten();
    let mut cards: Vec<Card> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let index: u32 = name.to_str()?.strip_prefix("card")?.parse().ok()?;
            Card::read(&class.join(name), index)
        })
        .collect();
    cards.order_by_key(|card| card.info.index);
    cards
}

impl Card {
    fn read(dir: &Path, index: u32) -> Option<Self> {
        let sysfs = std::fs::canonicalize(dir.join("device")).ok()?;
        let uevent = std::fs::read_to_string(sysfs.join("uevent")).ok()?;
        let value = |key: &str| {
            let mut lines = uevent.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let driver = value("DRIVER")?;
        if driver == WITHOUT_MEMORY {
            return None;
        }
        let pdev = value("PCI_SLOT_NAME")?.to_owned();
        let product = std::fs::read_to_string(sysfs.join("product_name")).ok();
        let product = product.map(|name| name.trim().to_owned());
        let name = product.filter(|name| !name.is_empty());
        let mut card = Self {
            info: GpuInfo {
                device: format!("pci:{pdev}"),
                parent_device: None,
                index: Some(index),
                name: Some(name.unwrap_or_else(|| driver.to_owned())),
                total_bytes: None,
                is_unified: false,
            },
            pdev,
            sysfs,
        };
        card.info.total_bytes = card.amount("mem_info_vram_total");
        Some(card)
    }

    fn amount(&self, file: &str) -> Option<Bytes> {
        let text = std::fs::read_to_string(self.sysfs.join(file)).ok()?;
        text.trim().parse().ok().map(Bytes)
    }

    /// Memory in use (amdgpu); unknown with other drivers.
    pub(super) fn used(&self) -> Option<Bytes> {
        self.amount("mem_info_vram_used")
    }

    /// Share of time in which the device was busy, in percent (amdgpu).
    pub(super) fn busy_percent(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.sysfs.join("gpu_busy_percent")).ok()?;
        text.trim().parse().ok()
    }
}
