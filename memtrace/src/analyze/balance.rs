//! The books of a cgroup or of the node at an instant: what was attributed to processes,
//! objects and files, against what the kernel says is in use. What is left is the residual,
//! a line of its own.

use crate::model::label::labels;
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

labels! {
    /// How well an amount is known.
    pub enum Basis {
        /// Nobody shares it: the kernel's counter is the amount.
        Exact = "exact",
        /// Measured, and little has moved since.
        Measured = "measured",
        /// Measured at another time, and what RSS moved since then added; or never measured, but
        /// others that were forked for the same purpose were.
        Estimated = "estimated",
        /// Never measured: pages that others share count in full.
        UpperBound = "upper_bound" | "at most",
    }
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

/// A process that ended shortly before what is in use was read.
#[derive(Clone, Copy, Debug)]
pub struct EndingLine {
    /// Which process.
    pub process: usize,
    /// The anonymous memory it held at its end.
    pub bytes: Bytes,
    /// How long before the reading that was.
    pub ago_ns: DurationNs,
}

/// Objects and files that stand beside the books, the largest first.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// Shared objects.
    pub objects: Vec<ShmObjectRow>,
    /// Files.
    pub files: Vec<CachedFileRow>,
}

labels! {
    /// Parts of the kernel's own memory.
    pub enum KernelPart {
        /// All of it in one: what v1 tells.
        All = "all",
        /// Slab.
        Slab = "slab",
        /// Page tables.
        PageTables = "page_tables" | "page tables",
        /// Kernel stacks.
        Stacks = "stacks",
        /// Per-CPU memory.
        PerCpu = "per_cpu" | "per-CPU",
        /// Socket buffers.
        Sockets = "sockets",
        /// The pool of hugetlb pages, used or not.
        Hugetlb = "hugetlb" | "hugetlb pool",
        /// What the kernel counts as its own beyond these.
        Other = "other",
    }
}

/// The books at an instant. The lines add up to `current_bytes` with the residual.
#[derive(Clone, Debug)]
pub struct Balance {
    /// Whose.
    pub scope: Scope,
    /// What the kernel says is in use: memory.current, usage_in_bytes, MemTotal - MemFree.
    pub current_bytes: Option<Bytes>,
    /// How much earlier than the instant that was read; below zero when later.
    pub age_ns: DurationNs,
    /// How much earlier than what the processes hold; zero where both are of the same instant.
    pub skew_ns: DurationNs,
    /// Over how long a time that was read; zero where it was at once.
    pub span_ns: DurationNs,
    /// Anonymous memory by process, the largest first.
    pub anon: Vec<AnonLine>,
    /// Processes in the scope of which nothing is known.
    pub unknown_process_count: usize,
    /// Shared objects in the scope of which no allocation is known.
    pub unknown_object_count: usize,
    /// How much earlier than the instant the amounts of some objects were told, below zero when
    /// later; the farthest. `None` where every object could be asked.
    pub objects_age_ns: Option<DurationNs>,
    /// Anonymous memory of processes that are not recorded. In a cgroup what their counters
    /// say, added up, so that copy-on-write pages count in every sharer; on the node the
    /// kernel's sum less the lines above, where not all processes were recorded; unknown when
    /// the lines above are more than that sum.
    pub other_processes_bytes: Option<Bytes>,
    /// How many those are; `None` for the node, and when they were not counted.
    pub other_process_count: Option<i64>,
    /// Anonymous memory of memtrace itself, where it runs in the scope and is not recorded.
    pub recorder_bytes: Option<Bytes>,
    /// Processes that ended shortly before, and what each held then, the largest first: the
    /// kernel frees an address space after the end is told, and what is not freed yet is in use.
    pub ending: Vec<EndingLine>,
    /// Shared objects, each once, the largest first.
    pub objects: Vec<ShmObjectRow>,
    /// Shared objects of huge pages, the largest first. They are in no line of the books but
    /// the node's hugetlb pool.
    pub huge_objects: Vec<ShmObjectRow>,
    /// Shared memory of no such object, by the kernel's sum; a little below zero when the
    /// objects were read at another time.
    pub other_shared_bytes: Option<Bytes>,
    /// Page cache of files that recorded processes use, the largest first.
    pub files: Vec<CachedFileRow>,
    /// Page cache of all other files, by the kernel's sum; a little below zero when the files
    /// were read at another time.
    pub other_files_bytes: Option<Bytes>,
    /// What processes here use and others pay for, in no line of the books: objects and files
    /// that are more than the kernel's sum for the scope, or in part swapped out.
    pub elsewhere: Elsewhere,
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

    /// The same; `None` where there are some, and nothing is known of any.
    pub fn known_anon_bytes(&self) -> Option<Bytes> {
        let is_known = self.unknown_process_count == 0 || !self.anon.is_empty();
        is_known.then(|| self.anon_bytes())
    }

    /// Shared objects; `None` where there are some, and nothing is known of any.
    pub fn known_objects_bytes(&self) -> Option<Bytes> {
        let is_known = self.unknown_object_count == 0 || !self.objects.is_empty();
        is_known.then(|| self.objects_bytes())
    }

    /// The kernel's own memory; `None` where it tells nothing of it.
    pub fn known_kernel_bytes(&self) -> Option<Bytes> {
        (!self.kernel.is_empty()).then(|| self.kernel_bytes())
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

    /// Whether the residual is more than a ledger may be off by.
    pub fn has_large_residual(&self) -> bool {
        const PART: f64 = 0.01;
        self.residual_share().is_some_and(|part| part.abs() > PART)
    }

    /// Whether the residual is large and what is in use was read at another time than what
    /// the processes hold.
    pub fn is_of_two_instants(&self) -> bool {
        self.has_large_residual() && (self.skew_ns.0, self.span_ns.0) != (0, 0)
    }

    /// Those who ended shortly before, where the residual can be what they have not given back.
    pub fn may_be_ending(&self) -> &[EndingLine] {
        let is_left = self.residual_bytes.is_some_and(|residual| residual.0 > 0);
        match is_left && self.has_large_residual() {
            true => &self.ending,
            false => &[],
        }
    }

    /// Moves out of the books what is more than the kernel's sums for the scope: what others pay
    /// for. What is more by so little that it may have moved between two readings stays.
    pub(super) fn set_apart(&mut self) {
        let slack = self.current_bytes.map_or(0, |current| current.0 / 100);
        let is_beyond = |rest: Option<Bytes>| rest.is_some_and(|rest| rest.0 < -slack);
        if is_beyond(self.other_shared_bytes) {
            let all = self.objects_bytes();
            self.other_shared_bytes = self.other_shared_bytes.map(|rest| rest + all);
            self.elsewhere.objects = std::mem::take(&mut self.objects);
        }
        if is_beyond(self.other_files_bytes) {
            let all = self.files_bytes();
            self.other_files_bytes = self.other_files_bytes.map(|rest| rest + all);
            self.elsewhere.files = std::mem::take(&mut self.files);
        }
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
