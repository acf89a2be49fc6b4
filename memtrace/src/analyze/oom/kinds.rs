//! What the memory of a group, or of the node, was at a kill and before it: the kernel's own
//! account, kind by kind.

use super::MAX_KILLS_EXAMINED;
use super::Windows;
use crate::analyze::RowSource;
use crate::model::label::labels;
use crate::model::tables::{CgroupMemRow, NodeMemRow, OomRow};
use crate::model::{BootNs, Bytes, DurationNs};

/// A kind that held less than one part in so many of what was in use, and grew by less, is
/// ruled out.
const SMALL_PART: i64 = 20;

/// A reading that is later than the start of a window by less than one part in so many of its
/// length is one of the start.
const PROMPT_PART: i64 = 100;

labels! {
    /// Kinds of memory as the kernel counts them.
    pub enum HeldKind {
        /// Anonymous memory.
        Anonymous = "anonymous" | "anonymous memory",
        /// Shared memory: tmpfs, memfd, System V.
        Shared = "shared" | "shared memory",
        /// Page cache, shared memory aside.
        PageCache = "page_cache" | "page cache",
        /// Slab.
        Slab = "slab",
        /// Page tables.
        PageTables = "page_tables" | "page tables",
        /// The kernel's own: all of it where its parts are not known, else what is none of them.
        Kernel = "kernel" | "other kernel memory",
        /// The pool of hugetlb pages.
        Hugetlb = "hugetlb" | "the hugetlb pool",
        /// What was swapped out, which is no part of what is in use.
        Swap = "swap" | "swap in use",
    }
}

/// One kind at a kill.
#[derive(Clone, Copy, Debug)]
pub struct KindLine {
    /// Which.
    pub kind: HeldKind,
    /// How much.
    pub bytes: Bytes,
    /// What it gained in the window that is told; `None` when it was not known before.
    pub grown_bytes: Option<Bytes>,
    /// Whether that is counted from the first reading after the start of the window, which
    /// knows nothing of what came before it.
    pub is_growth_partial: bool,
    /// Whether it can't be the reason: little was held, and little came.
    pub is_ruled_out: bool,
}

/// The kernel's amounts at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    pub(super) in_use: Option<Bytes>,
    anon: Option<Bytes>,
    shared: Option<Bytes>,
    cache: Option<Bytes>,
    slab: Option<Bytes>,
    slab_reclaimable: Option<Bytes>,
    page_tables: Option<Bytes>,
    kernel: Option<Bytes>,
    /// Whether slab and page tables were known and are no part of `kernel`.
    kernel_without: [bool; 2],
    hugetlb: Option<Bytes>,
    swap: Option<Bytes>,
    limit_hits: Option<i64>,
    waited: [Option<DurationNs>; 2],
    /// Processes in the group that are not recorded, and their anonymous memory.
    other_process_count: Option<i64>,
    other_anon: Option<Bytes>,
}

/// How hard memory was to get before a kill.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// How often the limit was hit.
    pub limit_hit_count: Option<i64>,
    /// For how long some task waited for memory.
    pub some_ns: Option<DurationNs>,
    /// For how long all tasks did.
    pub full_ns: Option<DurationNs>,
}

/// The amounts around one kill.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// The last reading before the kill.
    read: Option<(BootNs, Kinds)>,
    /// The kernel's own account of the instant, from its log.
    logged: Kinds,
    /// The readings at the starts of the windows, the shortest window first.
    before: Vec<Before>,
}

/// What was read around the start of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// From when on a later reading tells the start no more.
    late: BootNs,
    /// The last reading up to the start.
    until: Option<(BootNs, Kinds)>,
    /// The first one after it: at the start of a recording there is no earlier one.
    since: Option<(BootNs, Kinds)>,
    /// Whether that is late in the window: it says which kinds are known, and how many others
    /// there are.
    is_since_late: bool,
}

impl Before {
    fn note(&mut self, (start, kill): (BootNs, BootNs), at: BootNs, kinds: Kinds) {
        if at <= start {
            self.until = Some((at, kinds));
        }
        let length = (kill - start).0;
        let middle = BootNs(start.0 + length / 2);
        self.late = BootNs(start.0 + length / PROMPT_PART);
        if at > start && at <= kill && self.since.is_none() {
            self.since = Some((at, kinds));
            self.is_since_late = at > middle;
        }
    }

    fn kinds(&self) -> Option<Kinds> {
        let since = self.since.filter(|_| !self.is_since_late);
        self.until.or(since).map(|(_, kinds)| kinds)
    }

    /// What the group held at the start of the window, and whether a part of what came since
    /// is missing. One that `is_new` had no recorded process before.
    fn base(&self, is_new: bool) -> (Kinds, bool) {
        match (self.until, self.since) {
            (Some((_, kinds)), _) => (kinds, false),
            (None, Some((_, kinds))) if is_new && kinds.other_process_count == Some(0) => {
                (kinds.emptied(), false)
            }
            (None, Some((at, kinds))) if !self.is_since_late => (kinds, at > self.late),
            (None, _) => (Kinds::default(), false),
        }
    }
}

/// Reads the amounts around every kill that is examined, in the order of the kills.
pub(super) fn read<S: RowSource>(
    source: &S,
    kills: &[OomRow],
    windows: &Windows,
) -> Result<Vec<Around>, S::Error> {
    let examined = kills.iter().take(MAX_KILLS_EXAMINED);
    let mut around: Vec<(&OomRow, Around)> = examined
        .map(|kill| (kill, Around::of(kill, windows)))
        .collect();
    if !around.is_empty() {
        source.scan(&[], |row: CgroupMemRow| {
            for (kill, around) in &mut around {
                if kill.memcg.as_deref() == Some(&row.cgroup) {
                    around.note(kill, windows, row.boot_ns, Kinds::of_cgroup(&row));
                }
            }
        })?;
        source.scan(&[], |row: NodeMemRow| {
            for (kill, around) in &mut around {
                if is_of_node(kill) {
                    around.note(kill, windows, row.boot_ns, Kinds::of_node(&row));
                }
            }
        })?;
    }
    let around = around.into_iter().map(|(_, around)| around);
    Ok(around.collect())
}

/// Whether the whole machine was out of memory.
pub(super) fn is_of_node(kill: &OomRow) -> bool {
    kill.memcg.is_none() && kill.constraint.as_deref() == Some("CONSTRAINT_NONE")
}

impl Kinds {
    fn logged(kill: &OomRow) -> Self {
        let parts = sum(&[kill.memcg_slab_bytes, kill.memcg_pagetables_bytes]);
        Self {
            in_use: kill.memcg_usage_bytes,
            anon: kill.memcg_anon_bytes,
            shared: kill.memcg_shmem_bytes,
            cache: less(kill.memcg_file_bytes, kill.memcg_shmem_bytes),
            slab: kill.memcg_slab_bytes,
            slab_reclaimable: kill.memcg_slab_reclaimable_bytes,
            page_tables: kill.memcg_pagetables_bytes,
            kernel: kill.memcg_kernel_bytes.map(|all| all - parts),
            kernel_without: [
                kill.memcg_slab_bytes.is_some(),
                kill.memcg_pagetables_bytes.is_some(),
            ],
            swap: kill.memcg_swap_bytes,
            ..Self::default()
        }
    }

    fn of_cgroup(row: &CgroupMemRow) -> Self {
        let parts = sum(&[row.slab_bytes, row.pagetables_bytes]);
        Self {
            in_use: row.current_bytes,
            anon: row.anon_bytes,
            shared: row.shmem_bytes,
            cache: less(row.file_bytes, row.shmem_bytes),
            slab: row.slab_bytes,
            slab_reclaimable: row.slab_reclaimable_bytes,
            page_tables: row.pagetables_bytes,
            kernel: row.kernel_bytes.map(|all| all - parts),
            kernel_without: [row.slab_bytes.is_some(), row.pagetables_bytes.is_some()],
            hugetlb: None,
            swap: row.swap_bytes,
            limit_hits: row.max_event_count,
            waited: [row.psi_some_ns, row.psi_full_ns],
            other_process_count: row.other_process_count,
            other_anon: row.other_anon_bytes,
        }
    }

    fn of_node(row: &NodeMemRow) -> Self {
        let slab = row.slab_reclaimable_bytes.zip(row.slab_unreclaimable_bytes);
        let buffers = row.buffers_bytes.unwrap_or(Bytes(0));
        let cached = row.cached_bytes.map(|cached| cached + buffers);
        Self {
            in_use: less(row.mem_total_bytes, row.mem_free_bytes),
            anon: row.anon_bytes,
            shared: row.shmem_bytes,
            cache: less(cached, row.shmem_bytes),
            slab: slab.map(|(a, b)| a + b),
            slab_reclaimable: row.slab_reclaimable_bytes,
            page_tables: row.page_tables_bytes,
            kernel: row
                .kernel_stack_bytes
                .zip(row.percpu_bytes)
                .map(|(a, b)| a + b),
            kernel_without: [true; 2],
            hugetlb: row.hugetlb_bytes,
            swap: less(row.swap_total_bytes, row.swap_free_bytes),
            limit_hits: None,
            waited: [row.psi_some_ns, row.psi_full_ns],
            other_process_count: None,
            other_anon: None,
        }
    }

    /// What is known here, and else there.
    fn or(self, other: Self) -> Self {
        Self {
            in_use: self.in_use.or(other.in_use),
            anon: self.anon.or(other.anon),
            shared: self.shared.or(other.shared),
            cache: self.cache.or(other.cache),
            slab: self.slab.or(other.slab),
            slab_reclaimable: self.slab_reclaimable.or(other.slab_reclaimable),
            page_tables: self.page_tables.or(other.page_tables),
            kernel: self.kernel.or(other.kernel),
            kernel_without: match self.kernel {
                Some(_) => self.kernel_without,
                None => other.kernel_without,
            },
            hugetlb: self.hugetlb.or(other.hugetlb),
            swap: self.swap.or(other.swap),
            limit_hits: self.limit_hits.or(other.limit_hits),
            waited: [
                self.waited[0].or(other.waited[0]),
                self.waited[1].or(other.waited[1]),
            ],
            other_process_count: self.other_process_count.or(other.other_process_count),
            other_anon: self.other_anon.or(other.other_anon),
        }
    }

    /// Anonymous memory of the recorded processes; `None` where that of others is in it, and
    /// unknown. Before they were counted there are taken to be none.
    pub(super) fn anon_of_recorded(&self) -> Option<Bytes> {
        let others = match self.other_process_count {
            None | Some(0) => Bytes(0),
            Some(_) => self.other_anon?,
        };
        Some(self.anon? - others)
    }

    /// The same kinds, of which nothing is held.
    fn emptied(self) -> Self {
        let none = |amount: Option<Bytes>| amount.map(|_| Bytes(0));
        Self {
            in_use: none(self.in_use),
            anon: none(self.anon),
            shared: none(self.shared),
            cache: none(self.cache),
            slab: none(self.slab),
            slab_reclaimable: none(self.slab_reclaimable),
            page_tables: none(self.page_tables),
            kernel: none(self.kernel),
            hugetlb: none(self.hugetlb),
            swap: none(self.swap),
            ..self
        }
    }

    fn each(&self) -> [(HeldKind, Option<Bytes>); 8] {
        [
            (HeldKind::Anonymous, self.anon),
            (HeldKind::Shared, self.shared),
            (HeldKind::PageCache, self.cache),
            (HeldKind::Slab, self.slab),
            (HeldKind::PageTables, self.page_tables),
            (HeldKind::Kernel, self.kernel),
            (HeldKind::Hugetlb, self.hugetlb),
            (HeldKind::Swap, self.swap),
        ]
    }
}

impl Around {
    fn of(kill: &OomRow, windows: &Windows) -> Self {
        Self {
            read: None,
            logged: Kinds::logged(kill),
            before: vec![Before::default(); windows.before(kill.boot_ns).len()],
        }
    }

    fn note(&mut self, kill: &OomRow, windows: &Windows, at: BootNs, kinds: Kinds) {
        let kill = kill.boot_ns;
        // A kill frees memory, so what comes after it tells nothing of what was before.
        if at <= kill {
            self.read = Some((at, kinds));
        }
        for (before, start) in self.before.iter_mut().zip(windows.before(kill)) {
            before.note((*start, kill), at, kinds);
        }
    }

    /// The amounts at the kill, and by how much they were read earlier: the kernel's log
    /// tells those of the instant.
    pub(super) fn at_kill(&self, kill: BootNs) -> Option<(Kinds, DurationNs)> {
        match (self.logged.anon, self.read) {
            (Some(_), read) => {
                let read = read.map_or_else(Kinds::default, |(_, kinds)| kinds);
                Some((self.logged.or(read), DurationNs(0)))
            }
            (None, Some((at, kinds))) => Some((kinds, kill - at)),
            (None, None) => None,
        }
    }

    /// The amounts at the start of a window, as far as they were read by then.
    pub(super) fn before(&self, window: usize) -> Option<Kinds> {
        self.before.get(window)?.until.map(|(_, kinds)| kinds)
    }

    /// Every kind that is known, and what it gained since the start of a window, before which
    /// a group that `is_new` had no recorded process.
    pub(super) fn lines(
        &self,
        at_kill: &Kinds,
        window: Option<usize>,
        is_new: bool,
    ) -> Vec<KindLine> {
        let before = window.and_then(|window| self.before.get(window));
        let (before, is_partial) = before.copied().unwrap_or_default().base(is_new);
        let is_kernel_alike = at_kill.kernel_without == before.kernel_without;
        let whole = at_kill.in_use.or(at_kill.anon).unwrap_or(Bytes(0));
        let small = Bytes(whole.0 / SMALL_PART);
        let kinds = at_kill.each().into_iter().zip(before.each());
        kinds
            .filter_map(|((kind, now), (_, before))| {
                let bytes = now?;
                let before = before.filter(|_| kind != HeldKind::Kernel || is_kernel_alike);
                let grown_bytes = before.map(|before| bytes - before);
                // What is left of a fall tells nothing of what came before it.
                let grown_bytes = grown_bytes.filter(|grown| !is_partial || grown.0 > 0);
                Some(KindLine {
                    kind,
                    bytes,
                    grown_bytes,
                    is_growth_partial: is_partial && grown_bytes.is_some(),
                    is_ruled_out: bytes < small && grown_bytes.is_none_or(|grown| grown < small),
                })
            })
            .collect()
    }

    /// What was waited for memory since the start of a window.
    pub(super) fn pressure(&self, window: Option<usize>) -> Option<Pressure> {
        let (_, now) = self.read?;
        let before = self.before.get(window?)?.kinds()?;
        let waited = |place: usize| {
            let (now, before) = (now.waited[place]?, before.waited[place]?);
            Some(DurationNs(now.0 - before.0))
        };
        let hits = now.limit_hits.zip(before.limit_hits);
        Some(Pressure {
            limit_hit_count: hits.map(|(now, before)| now - before),
            some_ns: waited(0),
            full_ns: waited(1),
        })
    }
}

/// What the kernel could have taken back without swapping, by its own account.
pub(super) fn reclaimable(kinds: &Kinds) -> Option<Bytes> {
    Some(kinds.cache? + kinds.slab_reclaimable.unwrap_or(Bytes(0)))
}

fn less(all: Option<Bytes>, part: Option<Bytes>) -> Option<Bytes> {
    Some(all? - part?)
}

fn sum(parts: &[Option<Bytes>]) -> Bytes {
    parts.iter().copied().flatten().sum()
}
