//! The books of a cgroup or of the node at an instant: what was attributed to processes,
//! objects and files, against what the kernel says is in use. What is left is the residual,
//! a line of its own.

use crate::model::tables::{CachedFileRow, ShmObjectRow};
use crate::model::{Bytes, DurationNs};

/// Whose books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A memory cgroup and the groups below it.
    Cgroup(String),
    /// The machine.
    Node,
}

/// How well an amount is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Nobody shares it: the kernel's counter is the amount.
    Exact,
    /// Measured, and little has moved since.
    Measured,
    /// Measured at another time, and what RSS moved since then added; or never measured, but
    /// others that were forked for the same purpose were.
    Estimated,
    /// Never measured: pages that others share count in full.
    UpperBound,
}

/// What a process holds of anonymous memory, shared pages divided.
#[derive(Clone, Copy, Debug)]
pub struct AnonLine {
    /// Which process.
    pub process: usize,
    /// How much.
    pub bytes: Bytes,
    /// How well that is known.
    pub basis: Basis,
    /// How much earlier than the instant it was measured, below zero when later; `None` when
    /// it needed no measuring, or had none.
    pub age_ns: Option<DurationNs>,
}

/// Parts of the kernel's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPart {
    /// All of it in one: what v1 tells.
    All,
    /// Slab.
    Slab,
    /// Page tables.
    PageTables,
    /// Kernel stacks.
    Stacks,
    /// Per-CPU memory.
    PerCpu,
    /// Socket buffers.
    Sockets,
    /// The pool of hugetlb pages, used or not.
    Hugetlb,
    /// What the kernel counts as its own beyond these.
    Other,
}

/// The books at an instant. The lines add up to `current_bytes` with the residual.
#[derive(Clone, Debug)]
pub struct Balance {
    /// Whose.
    pub scope: Scope,
    /// What the kernel says is in use: memory.current, usage_in_bytes, MemTotal - MemFree.
    pub current_bytes: Option<Bytes>,
    /// How much earlier than the instant that was read.
    pub age_ns: DurationNs,
    /// Anonymous memory by process, the largest first.
    pub anon: Vec<AnonLine>,
    /// Processes in the scope of which nothing is known.
    pub unknown_process_count: usize,
    /// Shared objects in the scope of which no allocation is known.
    pub unknown_object_count: usize,
    /// Anonymous memory of processes that are not recorded. In a cgroup what their counters
    /// say, added up, so that copy-on-write pages count in every sharer; on the node the
    /// kernel's sum less the lines above, where not all processes were recorded; unknown when
    /// the lines above are more than that sum.
    pub other_processes_bytes: Option<Bytes>,
    /// How many those are; `None` for the node, and when they were not counted.
    pub other_process_count: Option<i64>,
    /// Anonymous memory of memtrace itself, where it runs in the scope and is not recorded.
    pub recorder_bytes: Option<Bytes>,
    /// Shared objects, each once, the largest first.
    pub objects: Vec<ShmObjectRow>,
    /// Shared objects of huge pages, the largest first. They are in no line of the books but
    /// the node's hugetlb pool.
    pub huge_objects: Vec<ShmObjectRow>,
    /// Shared memory of no such object, by the kernel's sum; below zero when a part of the
    /// objects is swapped out, or charged to another group.
    pub other_shared_bytes: Option<Bytes>,
    /// Page cache of files that recorded processes use, the largest first.
    pub files: Vec<CachedFileRow>,
    /// Page cache of all other files, by the kernel's sum; below zero when some of the files
    /// above are charged to another group.
    pub other_files_bytes: Option<Bytes>,
    /// The kernel's own memory.
    pub kernel: Vec<(KernelPart, Bytes)>,
    /// What is in use and was not attributed; below zero when too much was.
    pub residual_bytes: Option<Bytes>,
    /// The lowest limit that holds here.
    pub limit_bytes: Option<Bytes>,
    /// What the kernel could take back without swapping: page cache and reclaimable slab.
    pub reclaimable_bytes: Option<Bytes>,
}

impl Balance {
    /// Anonymous memory of recorded processes.
    pub fn anon_bytes(&self) -> Bytes {
        self.anon.iter().map(|line| line.bytes).sum()
    }

    /// Shared objects.
    pub fn objects_bytes(&self) -> Bytes {
        self.objects.iter().filter_map(in_memory).sum()
    }

    /// Files that recorded processes use.
    pub fn files_bytes(&self) -> Bytes {
        self.files.iter().filter_map(|row| row.cached_bytes).sum()
    }

    /// The kernel's own memory.
    pub fn kernel_bytes(&self) -> Bytes {
        self.kernel.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// The residual as a part of what is in use.
    pub fn residual_share(&self) -> Option<f64> {
        let current = self.current_bytes.filter(|current| current.0 > 0)?;
        Some(self.residual_bytes?.0 as f64 / current.0 as f64)
    }

    /// Whether the residual is large and what is in use was read at another time than what
    /// the processes hold. The nearest reading is at most half an interval away, in which much
    /// can come and go.
    pub fn is_of_two_instants(&self, interval: DurationNs) -> bool {
        let is_large = self.residual_share().is_some_and(|part| part.abs() > 0.05);
        is_large && self.age_ns.0.saturating_abs() > interval.0 / 10
    }

    /// The greatest age of a measured line, either way.
    pub fn oldest(&self) -> Option<DurationNs> {
        let ages = self.anon.iter().filter_map(|line| line.age_ns);
        ages.max_by_key(|age| age.0.saturating_abs())
    }

    /// Strikes the balance: what is left when everything is attributed.
    pub(super) fn close(&mut self) {
        let attributed = self.anon_bytes()
            + self.other_processes_bytes.unwrap_or(Bytes(0))
            + self.recorder_bytes.unwrap_or(Bytes(0))
            + self.objects_bytes()
            + self.other_shared_bytes.unwrap_or(Bytes(0))
            + self.files_bytes()
            + self.other_files_bytes.unwrap_or(Bytes(0))
            + self.kernel_bytes();
        self.residual_bytes = self.current_bytes.map(|current| current - attributed);
    }
}

/// What an object takes of memory: what of it is swapped out is told apart where it can be.
pub fn in_memory(row: &ShmObjectRow) -> Option<Bytes> {
    row.resident_bytes.or(row.allocated_bytes)
}
