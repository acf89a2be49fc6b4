//! What lies on a device: asked once per device, through a mapping or a descriptor of whoever
//! uses it. A container has mounts that no path of ours leads to.

use super::mappings::{Backing, Device, Header};
use memtrace_model::Tgid;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The devices met so far.
#[derive(Debug)]
pub(super) struct Backings {
    root: PathBuf,
    known: HashMap<Device, Backing>,
}

impl Backings {
    /// `root` is where procfs is.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            known: kernel_tmpfs().into_iter().collect(),
        }
    }

    /// What lies on the device of a mapping.
    pub(super) fn of_mapping(&mut self, tgid: Tgid, header: &Header<'_>) -> Backing {
        if header.inode == 0 {
            return Backing::Files;
        }
        let link = self.root.join(format!(
            "{tgid}/map_files/{:x}-{:x}",
            header.start, header.end
        ));
        self.of_device(header.device, &link, header.path)
            .unwrap_or_else(|| {
                // Without the right to follow the link. The name is a fair guess, and kept for
                // this mapping only.
                match header.path.starts_with(SHM) {
                    true => Backing::Tmpfs,
                    false => Backing::Files,
                }
            })
    }

    /// What lies on the device of an open file that `link` leads to; `None` when the kernel
    /// does not tell.
    pub(super) fn of_open_file(
        &mut self,
        device: Device,
        link: &Path,
        path: &str,
    ) -> Option<Backing> {
        self.of_device(device, link, path.as_bytes())
    }

    fn of_device(&mut self, device: Device, link: &Path, path: &[u8]) -> Option<Backing> {
        // File systems without a block device have major 0.
        if device.major != 0 {
            return Some(Backing::Files);
        }
        if let Some(backing) = self.known.get(&device) {
            return Some(*backing);
        }
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let opened = rustix::fs::open(link, flags, rustix::fs::Mode::empty());
        let kind = opened.and_then(rustix::fs::fstatfs).ok()?.f_type;
        const TMPFS: i64 = 0x0102_1994;
        const HUGETLBFS: i64 = 0x9584_58f6;
        #[allow(clippy::unnecessary_cast)]
        let backing = match kind as i64 {
            // Device nodes lie on a tmpfs too.
            TMPFS if path.starts_with(b"/dev/") && !path.starts_with(SHM) => Backing::Devtmpfs,
            TMPFS => Backing::Tmpfs,
            HUGETLBFS => Backing::Hugetlbfs,
            // To the kernel the pages of a ramfs are page cache, and no shared memory.
            _ => Backing::Files,
        };
        self.known.insert(device, backing);
        Some(backing)
    }
}

const SHM: &[u8] = b"/dev/shm/";

/// The device of the tmpfs that the kernel mounts for itself, from a memfd of our own.
fn kernel_tmpfs() -> Option<(Device, Backing)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let own = rustix::fs::memfd_create("memtrace", flags).ok()?;
    let device = rustix::fs::fstat(own).ok()?.st_dev;
    Some((Device::of(device), Backing::KernelTmpfs))
}
