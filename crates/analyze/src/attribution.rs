//! The ledger of a cgroup or of the node at an instant: what was attributed to processes,
//! objects and files, against what the kernel says is in use. What is left is the residual,
//! a line of its own.

use super::who::Who;
use memtrace_model::keys;
use memtrace_model::labels;
use memtrace_model::tables::{CachedFileRow, MappingKind, ShmFamily, ShmObjectRow};
use memtrace_model::{Bytes, DurationNs, Tgid};
use schemars::JsonSchema;
use serde::Serialize;

/// Whose memory a ledger divides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A memory cgroup and the groups below it.
    Cgroup(String),
    /// The machine as a whole.
    Node,
}

/// What a process holds of anonymous memory, every page once.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AnonLine {
    /// The process that holds it.
    #[serde(flatten)]
    pub who: Who,
    /// The same, as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub process: usize,
    /// How much it holds.
    pub bytes: Bytes,
    /// Whether that is an estimate, in text `estimate`: it was not read in full by then how much a fork had
    /// copied of what it shared.
    pub is_estimate: bool,
}

/// A process that ended up to 20 s before what is in use was read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EndingLine {
    /// The process that ended.
    #[serde(flatten)]
    pub who: Who,
    /// The same, as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub process: usize,
    /// The anonymous memory it held at its end.
    pub bytes: Bytes,
    /// How long before the reading that was.
    pub ago_ns: DurationNs,
}

/// A shared object that takes memory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedObject {
    /// What it is.
    pub kind: Option<MappingKind>,
    /// Its name as the kernel tells it.
    pub name: Option<String>,
    /// Whose it is by its name; `None` when the name says nothing.
    pub family: Option<ShmFamily>,
    /// Device of its file system.
    pub device: String,
    /// Inode; of a System V segment also its id.
    pub inode: i64,
    /// Whether it has no name any more, or never had one.
    pub is_deleted: bool,
    /// Apparent size; `None` when unknown.
    pub size_bytes: Option<Bytes>,
    /// Memory and swap it takes.
    pub allocated_bytes: Option<Bytes>,
    /// Part of that which is in memory, where it is distinguished.
    pub resident_bytes: Option<Bytes>,
    /// Recorded processes that map it.
    pub mapper_count: i64,
    /// Whether others map it; `None` when unknown.
    pub has_other_mapper: Option<bool>,
    /// The id of its creator by its name; `None` when the name says nothing.
    pub creator_pid: Option<Tgid>,
}

impl SharedObject {
    pub(super) fn of(row: &ShmObjectRow) -> Self {
        Self {
            kind: row.kind,
            name: row.name.clone(),
            family: row.family,
            device: row.device.clone(),
            inode: row.inode,
            is_deleted: row.is_deleted,
            size_bytes: row.size_bytes,
            allocated_bytes: row.allocated_bytes,
            resident_bytes: row.resident_bytes,
            mapper_count: row.mapper_count,
            has_other_mapper: row.has_other_mapper,
            creator_pid: row.creator_tgid,
        }
    }

    /// What it takes of memory: what of it is swapped out is distinguished where it can be.
    pub fn in_memory(&self) -> Option<Bytes> {
        self.resident_bytes.or(self.allocated_bytes)
    }
}

/// A file in the page cache.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CachedFile {
    /// Its path as the process sees it.
    pub path: String,
    /// Length of the file.
    pub size_bytes: Bytes,
    /// Part of it that is in the page cache; `None` when unknown.
    pub cached_bytes: Option<Bytes>,
    /// Part of that which is yet to be written to the disk; `None` when unknown.
    pub dirty_bytes: Option<Bytes>,
    /// Recorded processes that had it mapped or open when they were last looked at.
    pub user_count: i64,
}

impl CachedFile {
    pub(super) fn of(row: &CachedFileRow) -> Self {
        Self {
            path: row.path.clone(),
            size_bytes: row.size_bytes,
            cached_bytes: row.cached_bytes,
            dirty_bytes: row.dirty_bytes,
            user_count: row.user_count,
        }
    }
}

/// Objects and files that stand beside the ledger, the largest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Elsewhere {
    /// Shared objects that processes here use and others pay for in part: together they are more
    /// than the kernel's sum for the scope. In no line of the ledger.
    #[serde(rename = "shared_elsewhere")]
    pub objects: Vec<SharedObject>,
    /// Files of which the same is true.
    #[serde(rename = "files_elsewhere")]
    pub files: Vec<CachedFile>,
}

labels! {
    /// Parts of the kernel's own memory.
    pub enum KernelPart {
        /// All of it in one: what v1 tells.
        All = "all",
        /// Slab memory of the kernel.
        Slab = "slab",
        /// Page tables of processes.
        PageTables = "page_tables" | "page tables",
        /// The kernel's stacks of threads.
        Stacks = "stacks",
        /// Memory that the kernel keeps for each CPU.
        PerCpu = "per_cpu" | "per-CPU",
        /// Buffers of network sockets.
        Sockets = "sockets",
        /// The pool of hugetlb pages, used or not.
        Hugetlb = "hugetlb" | "hugetlb pool",
        /// What the kernel counts as its own beyond these.
        Other = "other",
    }
}

/// How much a part of the kernel's own memory takes.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct KernelLine {
    /// Which part it is.
    pub part: KernelPart,
    /// How much it takes.
    pub bytes: Bytes,
}

/// The ledger at an instant. `anonymous_bytes`, `other_processes_bytes`, `recorder_bytes`,
/// `shared_bytes`, `other_shared_bytes`, `files_bytes`, `other_files_bytes`, `kernel_bytes` and
/// `residual_bytes` add up to `current_bytes`, what is unknown left out. Lines of
/// processes are of the instant, the others as old as `current_bytes`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Attribution {
    /// Whose ledger it is.
    #[serde(flatten, with = "ScopeKeys")]
    pub scope: Scope,
    /// What the kernel says is in use: memory.current, usage_in_bytes, MemTotal - MemFree.
    pub current_bytes: Option<Bytes>,
    /// How much earlier than the instant that was read; below zero when later; zero where what the
    /// processes gained or gave back in between is in it.
    pub age_ns: DurationNs,
    /// Over how long a time that was read; zero where it was at once.
    pub span_ns: DurationNs,
    /// Anonymous memory of recorded processes; `None` where there are some, and nothing is known
    /// of any.
    pub anonymous_bytes: Option<Bytes>,
    /// The same by process, the largest first.
    #[serde(rename = "anonymous")]
    pub anon: Vec<AnonLine>,
    /// Processes in the scope of which nothing is known.
    pub unknown_process_count: usize,
    /// Shared objects in the scope of which no allocation is known.
    pub unknown_object_count: usize,
    /// How much earlier than the instant the amounts of some objects were reported, below zero when
    /// later; the farthest. `None` where every object could be asked.
    pub objects_age_ns: Option<DurationNs>,
    /// Anonymous memory of processes that are not recorded. In a cgroup what their counters
    /// said when they were counted, added up, so that copy-on-write pages count in every sharer,
    /// and no more than the lines above leave of the group's; on the node the
    /// kernel's sum less the lines above, where not all processes were recorded; unknown when
    /// the lines above are more than the kernel's sum.
    pub other_processes_bytes: Option<Bytes>,
    /// How many those are; `None` for the node, and when they were not counted.
    pub other_process_count: Option<i64>,
    /// Anonymous memory of memtrace itself, where it runs in the scope and is not recorded.
    pub recorder_bytes: Option<Bytes>,
    /// Processes that ended shortly before, and what each held then, the largest first: the
    /// kernel frees an address space after the end is reported, and what is not freed yet is in use
    /// and in the residual.
    pub ending: Vec<EndingLine>,
    /// Shared objects, as far as they were looked at; `None` where there are some, and nothing is
    /// known of any, and where none is known and nobody was looked at.
    pub shared_bytes: Option<Bytes>,
    /// The same by object, each once, the largest first.
    #[serde(rename = "shared")]
    pub objects: Vec<SharedObject>,
    /// Shared objects of huge pages, the largest first. They are in no line of the ledger but
    /// the node's hugetlb pool.
    #[serde(rename = "hugetlb")]
    pub huge_objects: Vec<SharedObject>,
    /// Shared memory of no such object, by the kernel's sum; a little below zero when the
    /// objects were read at another time.
    pub other_shared_bytes: Option<Bytes>,
    /// Page cache of files that recorded processes use, as far as they were looked at; `None` where
    /// none is known and nobody was looked at.
    pub files_bytes: Option<Bytes>,
    /// The same by file, the largest first.
    pub files: Vec<CachedFile>,
    /// Page cache of all other files, by the kernel's sum; a little below zero when the files
    /// were read at another time.
    pub other_files_bytes: Option<Bytes>,
    /// What processes here use and others pay for, in no line of the ledger: objects and files
    /// that are more than the kernel's sum for the scope, or in part swapped out.
    #[serde(flatten)]
    pub elsewhere: Elsewhere,
    /// The kernel's own memory; `None` where it tells nothing of it.
    pub kernel_bytes: Option<Bytes>,
    /// The same by its parts.
    pub kernel: Vec<KernelLine>,
    /// Kernel memory that `current_bytes` leaves out, and so does every line: in the root group of
    /// cgroup v1 that of the groups below; `None` elsewhere.
    pub kernel_outside_bytes: Option<Bytes>,
    /// What is in use and was not attributed; below zero when too much was.
    pub residual_bytes: Option<Bytes>,
    /// The lowest limit that holds here.
    pub limit_bytes: Option<Bytes>,
    /// What the kernel could take back without swapping: page cache and reclaimable slab; `None`
    /// where either is unknown.
    pub reclaimable_bytes: Option<Bytes>,
    /// Whether the mappings of any process in the scope were ever read, which tells its objects and
    /// files.
    #[serde(skip)]
    pub is_looked_at: bool,
}

keys! {
    ScopeKeys of scope: Scope {
        /// `cgroup`, or `node`.
        scope: &'static str = match scope {
            Scope::Cgroup(_) => "cgroup",
            Scope::Node => "node",
        },
        /// Its path, of a cgroup.
        cgroup: Option<String> = match scope {
            Scope::Cgroup(path) => Some(path.clone()),
            Scope::Node => None,
        },
    }
}

impl Attribution {
    /// Leaves at most so many lines of each kind.
    pub(super) fn cut(&mut self, top: usize) {
        self.anon.truncate(top);
        self.ending.truncate(top);
        for objects in [
            &mut self.objects,
            &mut self.huge_objects,
            &mut self.elsewhere.objects,
        ] {
            objects.truncate(top);
        }
        self.files.truncate(top);
        self.elsewhere.files.truncate(top);
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
        self.has_large_residual() && (self.age_ns.0, self.span_ns.0) != (0, 0)
    }

    /// Those who ended shortly before, where the residual can be what they have not given back.
    pub fn may_be_ending(&self) -> &[EndingLine] {
        let is_left = self.residual_bytes.is_some_and(|residual| residual.0 > 0);
        match is_left && self.has_large_residual() {
            true => &self.ending,
            false => &[],
        }
    }

    /// Moves out of the ledger what is more than the kernel's sums for the scope: what others pay
    /// for.
    fn set_apart(&mut self) {
        if self.is_too_much(self.other_shared_bytes) {
            let all = sum(&self.objects, SharedObject::in_memory);
            self.other_shared_bytes = self.other_shared_bytes.map(|rest| rest + all);
            self.elsewhere.objects = std::mem::take(&mut self.objects);
        }
        if self.is_too_much(self.other_files_bytes) {
            let all = sum(&self.files, |file| file.cached_bytes);
            self.other_files_bytes = self.other_files_bytes.map(|rest| rest + all);
            self.elsewhere.files = std::mem::take(&mut self.files);
        }
    }

    /// Whether the lines are more than the kernel's sum, of which this is left, by more than may
    /// have moved between two readings.
    fn is_too_much(&self, left: Option<Bytes>) -> bool {
        let slack = self.current_bytes.map_or(0, |current| current.0 / 100);
        left.is_some_and(|left| left.0 < -slack)
    }

    /// Adds up what is attributed so far: the lines of processes, objects and files.
    pub(super) fn add_up(&mut self) {
        let is_known = self.unknown_process_count == 0 || !self.anon.is_empty();
        let anon = sum(&self.anon, |line| Some(line.bytes));
        self.anonymous_bytes = is_known.then_some(anon);
        let beside = &self.elsewhere;
        let is_known = self.unknown_object_count == 0
            && (self.is_looked_at || !beside.objects.is_empty())
            || !self.objects.is_empty();
        let objects = sum(&self.objects, SharedObject::in_memory);
        self.shared_bytes = is_known.then_some(objects);
        let is_known = self.is_looked_at || !self.files.is_empty() || !beside.files.is_empty();
        let files = sum(&self.files, |file| file.cached_bytes);
        self.files_bytes = is_known.then_some(files);
    }

    /// Strikes the balance: what is left when everything is attributed. `anon` is the kernel's
    /// sum of anonymous memory: those that are not recorded hold no more of it than the others
    /// leave, whatever they held when they were counted.
    pub(super) fn close(&mut self, anon: Option<Bytes>) {
        self.set_apart();
        self.add_up();
        if let Some((anon, others)) = anon.zip(self.other_processes_bytes) {
            let own = self.recorder_bytes.unwrap_or_default();
            let left = anon - self.anonymous_bytes.unwrap_or_default() - own;
            // Else some of the lines above are charged elsewhere, and what the others are charged
            // for here is not known.
            let most = (!self.is_too_much(Some(left))).then(|| left.max(Bytes(0)));
            self.other_processes_bytes = most.map(|most| others.min(most));
        }
        let kernel = sum(&self.kernel, |line| Some(line.bytes));
        self.kernel_bytes = (!self.kernel.is_empty()).then_some(kernel);
        let attributed = [
            self.anonymous_bytes,
            self.other_processes_bytes,
            self.recorder_bytes,
            self.shared_bytes,
            self.other_shared_bytes,
            self.files_bytes,
            self.other_files_bytes,
            self.kernel_bytes,
        ];
        let attributed: Bytes = attributed.into_iter().flatten().sum();
        self.residual_bytes = self.current_bytes.map(|current| current - attributed);
    }
}

/// The sum of what is known.
fn sum<T>(all: &[T], amount: impl Fn(&T) -> Option<Bytes>) -> Bytes {
    all.iter().filter_map(amount).sum()
}
