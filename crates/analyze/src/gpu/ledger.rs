//! The ledger of one device at one instant.

use super::cuda::CudaParts;
use crate::who::Who;
use memtrace_model::tables::GpuUse;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// A GPU's memory at an instant. What processes hold, what is reserved and what nothing
/// explains add up to what is used: the last is what is left over.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GpuLedger {
    /// The device, as `gpu_device` calls it.
    pub device: Arc<str>,
    /// The driver's number for it, as in `gpu_device`; null where it gave none.
    pub device_index: Option<i32>,
    /// Its position among the devices.
    #[serde(skip)]
    pub place: usize,
    /// Whether it is divided into MIG instances: its lines are theirs, and stand in their
    /// ledger too.
    #[serde(skip)]
    pub is_divided: bool,
    /// The instant of the ledger.
    pub at: Instant,
    /// How much earlier the device was read.
    pub age_ns: DurationNs,
    /// Memory in all.
    pub total_bytes: Option<Bytes>,
    /// Memory that is not free; `None` when unknown.
    pub used_bytes: Option<Bytes>,
    /// What processes are reported to hold, each piece of memory once.
    pub processes_bytes: Bytes,
    /// Kept by driver and firmware; `None` where it is not distinguished, and then part of what
    /// nothing explains.
    pub reserved_bytes: Option<Bytes>,
    /// Who holds memory, the largest first, those of unknown size last.
    pub lines: Vec<GpuLine>,
    /// What nothing explains: used, less reserved, less what processes are reported to hold.
    /// Below zero where processes are reported to hold more than is used. `None` where it is not
    /// known what is used.
    pub unattributed_bytes: Option<Bytes>,
    /// What is unattributed, and of each line with `cuda` what neither calls nor its context explain;
    /// absent where no line has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexplained_bytes: Option<Bytes>,
    /// Processes of which it is not known what they hold.
    pub unknown_process_count: usize,
    /// Who has the device open without being reported to hold anything, where memory is
    /// unexplained.
    #[serde(rename = "open_in")]
    #[schemars(with = "Vec<Who>")]
    pub candidates: Vec<GpuHolder>,
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuLine {
    /// Who holds the memory.
    #[serde(flatten)]
    pub holder: GpuHolder,
    /// How much; `None` where the driver can't tell.
    pub bytes: Option<Bytes>,
    /// Memory of the machine that belongs to it, beside that.
    pub host_bytes: Option<Bytes>,
    /// What it uses the device for.
    pub kind: Option<GpuUse>,
    /// Whether the amount is counted in another line: a DRM client that processes share.
    pub is_counted_elsewhere: bool,
    /// What it is made of, by the process's calls of the CUDA driver at the time of the reading; absent
    /// where they were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaParts>,
    /// When the driver reported it.
    #[serde(skip)]
    pub read_boot_ns: BootNs,
}

impl GpuLine {
    /// Whether it is a context for computing: each takes its own share of memory.
    pub(super) fn is_context(&self) -> bool {
        is_context(self.kind)
    }
}

/// Whether a use of a device makes a context for computing.
pub(super) fn is_context(kind: Option<GpuUse>) -> bool {
    matches!(
        kind,
        Some(GpuUse::Compute | GpuUse::ComputeGraphics | GpuUse::Mps)
    )
}

/// A process that holds memory of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct GpuHolder {
    /// Which process. Of one that is not recorded: the id that the driver reported, and the kernel's
    /// name for it; `None` where /proc does not show it.
    #[serde(flatten)]
    pub who: Who,
    /// The same, as an index into [`crate::Analysis::processes`]; `None` for one that is
    /// not recorded.
    #[serde(skip)]
    pub process: Option<usize>,
}

/// What one process has of an amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuPart {
    /// The process that has it.
    #[serde(flatten)]
    pub holder: GpuHolder,
    /// How much; `None` when unknown.
    pub bytes: Option<Bytes>,
}

impl GpuLedger {
    /// What one process holds here. `None` where it holds nothing; `Some(None)` when unknown.
    pub fn held_by(&self, process: usize) -> Option<Option<Bytes>> {
        let mut own = self
            .lines
            .iter()
            .filter(|line| line.holder.process == Some(process))
            .peekable();
        own.peek()?;
        Some(own.map(|line| line.bytes).sum())
    }

    /// Works out what is left unexplained.
    pub(super) fn close(&mut self) {
        self.lines
            .order_by_key(|line| std::cmp::Reverse(line.bytes));
        let counted = self.lines.iter().filter(|line| !line.is_counted_elsewhere);
        self.processes_bytes = counted.filter_map(|line| line.bytes).sum();
        let unknown = self.lines.iter().filter(|line| line.bytes.is_none());
        self.unknown_process_count = unknown.count();
        let reported = self.reserved_bytes.unwrap_or(Bytes(0)) + self.processes_bytes;
        self.unattributed_bytes = self.used_bytes.map(|used| used - reported);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn ledger(
        used: Option<i64>,
        reserved: Option<i64>,
        lines: &[(Option<i64>, bool)],
    ) -> GpuLedger {
        let line = |(place, (bytes, is_shared)): (usize, &(Option<i64>, bool))| GpuLine {
            holder: GpuHolder {
                process: Some(place),
                ..GpuHolder::default()
            },
            bytes: bytes.map(Bytes),
            host_bytes: None,
            kind: None,
            is_counted_elsewhere: *is_shared,
            cuda: None,
            read_boot_ns: BootNs(0),
        };
        let mut ledger = GpuLedger {
            device: Arc::from("GPU-0"),
            device_index: Some(0),
            place: 0,
            is_divided: false,
            at: Instant::default(),
            age_ns: DurationNs(0),
            total_bytes: None,
            used_bytes: used.map(Bytes),
            reserved_bytes: reserved.map(Bytes),
            processes_bytes: Bytes(0),
            lines: lines.iter().enumerate().map(line).collect(),
            unattributed_bytes: None,
            unexplained_bytes: None,
            unknown_process_count: 0,
            candidates: Vec::new(),
        };
        ledger.close();
        ledger
    }

    #[test]
    fn unknown_amounts_are_left_to_what_nothing_explains() {
        let held_on_gpus = ledger(
            Some(100),
            Some(10),
            &[(Some(50), false), (None, false), (Some(50), true)],
        );
        assert_eq!(held_on_gpus.processes_bytes, Bytes(50));
        assert_eq!(held_on_gpus.unattributed_bytes, Some(Bytes(40)));
        assert_eq!(held_on_gpus.unknown_process_count, 1);
        assert_eq!(held_on_gpus.held_by(1), Some(None));
        assert_eq!(held_on_gpus.held_by(7), None);
    }

    #[test]
    fn without_what_is_used_there_is_nothing_to_explain() {
        let held_on_gpus = ledger(None, None, &[(Some(50), false)]);
        assert_eq!(held_on_gpus.unattributed_bytes, None);
    }

    proptest! {
        #[test]
        fn the_books_close_to_the_byte(
            used in 0..1_i64 << 40,
            reserved in proptest::option::of(0..1_i64 << 32),
            lines in proptest::collection::vec(
                (proptest::option::of(0..1_i64 << 38), any::<bool>()), 0..12),
        ) {
            let held_on_gpus = ledger(Some(used), reserved, &lines);
            let sum = held_on_gpus.processes_bytes
                + held_on_gpus.reserved_bytes.unwrap_or(Bytes(0))
                + held_on_gpus.unattributed_bytes.unwrap_or(Bytes(0));
            prop_assert_eq!(sum, Bytes(used));
        }
    }
}
