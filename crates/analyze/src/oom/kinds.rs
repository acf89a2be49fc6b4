//! What the memory of a group, or of the node, was at a kill and before it: the kernel's own
//! account, kind by kind.

use super::MAX_KILLS_EXAMINED;
use super::Windows;
use memtrace_model::labels;
use memtrace_model::tables::{CgroupMemRow, NodeMemRow, OomRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Label, RowSource};
use schemars::JsonSchema;
use serde::Serialize;

/// A kind that held less than one part in so many of what was in use, and grew by less, is
/// ruled out.
const SMALL_PART: i64 = 20;

/// A reading that is later than the start of a window by less than one part in so many of its
/// length is one of the start.
const PROMPT_PART: i64 = 100;

labels! {
    /// Account of memory as the kernel counts them.
    pub enum HeldKind {
        /// Anonymous memory; without that of processes that are not recorded, where it is known.
        Anonymous = "anonymous" | "anonymous memory",
        /// Anonymous memory of processes that are not recorded.
        Unrecorded = "unrecorded" | "processes not recorded",
        /// Shared memory: tmpfs, memfd, System V.
        Shared = "shared" | "shared memory",
        /// Page cache, shared memory aside.
        PageCache = "page_cache" | "page cache",
        /// Slab memory of the kernel.
        Slab = "slab",
        /// Page tables of processes.
        PageTables = "page_tables" | "page tables",
        /// Socket buffers; on v1 of the whole machine alone.
        Sockets = "sockets" | "socket buffers",
        /// The kernel's own: all of it where its parts are not known, else what is none of them.
        Kernel = "kernel" | "other kernel memory",
        /// The pool of hugetlb pages.
        Hugetlb = "hugetlb" | "the hugetlb pool",
        /// What was swapped out, which is no part of what is in use.
        Swap = "swap" | "swap in use",
    }
}

/// One kind at a kill.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct KindLine {
    /// Which kind it is.
    pub kind: HeldKind,
    /// How much of it was held.
    pub bytes: Bytes,
    /// What it gained in the window that is reported; `None` when it was not known before.
    pub grown_bytes: Option<Bytes>,
    /// Whether that is counted from the first reading after the start of the window, which
    /// knows nothing of what came before it.
    pub is_growth_partial: bool,
    /// Whether it can't be the reason: little was held, and little came.
    pub is_ruled_out: bool,
}

/// Amounts of each kind, as far as they are known.
type PerHeldKind = [Option<Bytes>; HeldKind::ALL.len()];

/// The kernel's amounts at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) in_use: Option<Bytes>,
    held: PerHeldKind,
    slab_reclaimable: Option<Bytes>,
    /// Whether slab and page tables were known and are no part of the kernel's.
    kernel_without: [bool; 2],
    limit_hits: Option<i64>,
    waited: [Option<DurationNs>; 2],
    /// Processes in the group that are not recorded.
    other_process_count: Option<i64>,
}

/// How hard memory was to get before a kill.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Pressure {
    /// How often the limit was hit in the window that is reported.
    pub limit_hit_count: Option<i64>,
    /// For how long some task waited for memory in it.
    #[serde(rename = "waited_some_ns")]
    pub some_ns: Option<DurationNs>,
    /// For how long all tasks waited at once.
    #[serde(rename = "waited_full_ns")]
    pub full_ns: Option<DurationNs>,
}

/// The amounts around one kill.
#[derive(Clone, Debug, Default)]
pub(super) struct KillReadings {
    /// The last reading before the kill.
    read: Option<(BootNs, Account)>,
    /// The kernel's own account of the instant, from its log.
    logged: Account,
    /// The readings at the starts of the windows, the shortest window first.
    before: Vec<Before>,
}

/// What was read around the start of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// From when on a later reading tells the start no more.
    late: BootNs,
    /// The last reading up to the start.
    until: Option<Account>,
    /// The first one after it: at the start of a recording there is no earlier one.
    since: Option<(BootNs, Account)>,
    /// Whether that is late in the window: it says which kinds are known, and how many others
    /// there are.
    is_since_late: bool,
}

impl Before {
    fn note(&mut self, (start, kill): (BootNs, BootNs), at: BootNs, kinds: Account) {
        if at <= start {
            self.until = Some(kinds);
        }
        let length = (kill - start).0;
        let middle = BootNs(start.0 + length / 2);
        self.late = BootNs(start.0 + length / PROMPT_PART);
        if at > start && at <= kill && self.since.is_none() {
            self.since = Some((at, kinds));
            self.is_since_late = at > middle;
        }
    }

    fn kinds(&self) -> Option<Account> {
        let since = self.since.filter(|_| !self.is_since_late);
        self.until.or(since.map(|(_, kinds)| kinds))
    }

    /// What the group held at the start of the window, and whether a part of what came since
    /// is missing. One that `is_new` had no recorded process before.
    fn base(&self, is_new: bool) -> (Account, bool) {
        match (self.until, self.since) {
            (Some(kinds), _) => (kinds, false),
            (None, Some((_, kinds))) if is_new && kinds.other_process_count == Some(0) => {
                (kinds.emptied(), false)
            }
            (None, Some((at, kinds))) if !self.is_since_late => (kinds, at > self.late),
            (None, _) => (Account::default(), false),
        }
    }
}

/// Reads the amounts around every kill that is examined, in the order of the kills.
pub(super) fn read<S: RowSource>(
    source: &S,
    kills: &[OomRow],
    windows: &Windows,
) -> Result<Vec<KillReadings>, S::Error> {
    let examined = kills.iter().take(MAX_KILLS_EXAMINED);
    let mut around: Vec<(&OomRow, KillReadings)> = examined
        .map(|kill| (kill, KillReadings::of(kill, windows)))
        .collect();
    if !around.is_empty() {
        source.scan(&[], |row: CgroupMemRow| {
            for (kill, around) in &mut around {
                if kill.memcg.as_deref() == Some(&row.cgroup) {
                    around.note(kill, windows, row.boot_ns, Account::of_cgroup(&row));
                }
            }
        })?;
        source.scan(&[], |row: NodeMemRow| {
            for (kill, around) in &mut around {
                if is_of_node(kill) {
                    around.note(kill, windows, row.boot_ns, Account::of_node(&row));
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

impl Account {
    fn logged(kill: &OomRow) -> Self {
        let parts = [kill.memcg_slab_bytes, kill.memcg_pagetables_bytes];
        Self {
            in_use: kill.memcg_usage_bytes,
            held: by_kind(|kind| match kind {
                HeldKind::Anonymous => kill.memcg_anon_bytes,
                HeldKind::Unrecorded => None,
                HeldKind::Shared => kill.memcg_shmem_bytes,
                HeldKind::PageCache => less(kill.memcg_file_bytes, kill.memcg_shmem_bytes),
                HeldKind::Slab => kill.memcg_slab_bytes,
                HeldKind::PageTables => kill.memcg_pagetables_bytes,
                HeldKind::Sockets => None,
                HeldKind::Kernel => kernel_without(kill.memcg_kernel_bytes, parts),
                HeldKind::Hugetlb => None,
                HeldKind::Swap => kill.memcg_swap_bytes,
            }),
            slab_reclaimable: kill.memcg_slab_reclaimable_bytes,
            kernel_without: parts.map(|part| part.is_some()),
            ..Self::default()
        }
    }

    fn of_cgroup(row: &CgroupMemRow) -> Self {
        let parts = [row.slab_bytes, row.pagetables_bytes];
        Self {
            in_use: row.current_bytes,
            held: by_kind(|kind| match kind {
                HeldKind::Anonymous => row.anon_bytes,
                HeldKind::Unrecorded => row.other_anon_bytes,
                HeldKind::Shared => row.shmem_bytes,
                HeldKind::PageCache => less(row.file_bytes, row.shmem_bytes),
                HeldKind::Slab => row.slab_bytes,
                HeldKind::PageTables => row.pagetables_bytes,
                HeldKind::Sockets => row.sock_bytes,
                HeldKind::Kernel => kernel_without(row.kernel_bytes, parts),
                HeldKind::Hugetlb => None,
                HeldKind::Swap => row.swap_bytes,
            }),
            slab_reclaimable: row.slab_reclaimable_bytes,
            kernel_without: parts.map(|part| part.is_some()),
            limit_hits: row.max_event_count,
            waited: [row.psi_some_ns, row.psi_full_ns],
            other_process_count: row.other_process_count,
        }
    }

    fn of_node(row: &NodeMemRow) -> Self {
        let sum = |a: Option<Bytes>, b: Option<Bytes>| Some(a? + b?);
        Self {
            in_use: less(row.mem_total_bytes, row.mem_free_bytes),
            held: by_kind(|kind| match kind {
                HeldKind::Anonymous => row.anon_bytes,
                HeldKind::Unrecorded => None,
                HeldKind::Shared => row.shmem_bytes,
                HeldKind::PageCache => row.page_cache_bytes(),
                HeldKind::Slab => sum(row.slab_reclaimable_bytes, row.slab_unreclaimable_bytes),
                HeldKind::PageTables => row.page_tables_bytes,
                HeldKind::Sockets => row.sockets_bytes,
                HeldKind::Kernel => sum(row.kernel_stack_bytes, row.percpu_bytes),
                HeldKind::Hugetlb => row.hugetlb_bytes,
                HeldKind::Swap => less(row.swap_total_bytes, row.swap_free_bytes),
            }),
            slab_reclaimable: row.slab_reclaimable_bytes,
            kernel_without: [true; 2],
            waited: [row.psi_some_ns, row.psi_full_ns],
            ..Self::default()
        }
    }

    fn get(&self, kind: HeldKind) -> Option<Bytes> {
        self.held[kind as usize]
    }

    /// What is known here, and else there.
    fn or(self, other: Self) -> Self {
        let [some, full] = self.waited;
        Self {
            in_use: self.in_use.or(other.in_use),
            held: by_kind(|kind| self.get(kind).or(other.get(kind))),
            slab_reclaimable: self.slab_reclaimable.or(other.slab_reclaimable),
            kernel_without: match self.get(HeldKind::Kernel) {
                Some(_) => self.kernel_without,
                None => other.kernel_without,
            },
            limit_hits: self.limit_hits.or(other.limit_hits),
            waited: [some.or(other.waited[0]), full.or(other.waited[1])],
            other_process_count: self.other_process_count.or(other.other_process_count),
        }
    }

    /// Anonymous memory of the recorded processes; `None` where that of others is in it, and
    /// unknown. Before they were counted there are taken to be none.
    pub(super) fn anon_of_recorded(&self) -> Option<Bytes> {
        let others = match self.other_process_count {
            None | Some(0) => Bytes(0),
            Some(_) => self.get(HeldKind::Unrecorded)?,
        };
        Some(self.get(HeldKind::Anonymous)? - others)
    }

    /// What of the anonymous memory recorded processes do not have, where they have so much.
    pub(super) fn note_recorded(&mut self, anon: Bytes) {
        let others = less(self.get(HeldKind::Anonymous), Some(anon));
        self.held[HeldKind::Unrecorded as usize] = others.map(|others| others.max(Bytes(0)));
    }

    /// Others, who are counted less often, have at least what recorded processes can't have.
    pub(super) fn note_recorded_at_most(&mut self, anon: Bytes) {
        let least = less(self.get(HeldKind::Anonymous), Some(anon));
        let others = &mut self.held[HeldKind::Unrecorded as usize];
        if self.other_process_count > Some(0) && others.is_some() {
            *others = (*others).max(least);
        }
    }

    /// A kind without what is in another one.
    fn apart(&self, kind: HeldKind) -> Option<Bytes> {
        let all = self.get(kind)?;
        let others = self.get(HeldKind::Unrecorded).unwrap_or_default();
        Some(match kind {
            HeldKind::Anonymous => (all - others).max(Bytes(0)),
            _ => all,
        })
    }

    /// The same kinds, of which nothing is held.
    fn emptied(self) -> Self {
        let none = |amount: Option<Bytes>| amount.map(|_| Bytes(0));
        Self {
            in_use: none(self.in_use),
            held: self.held.map(none),
            slab_reclaimable: none(self.slab_reclaimable),
            ..self
        }
    }
}

fn by_kind(amount: impl Fn(HeldKind) -> Option<Bytes>) -> PerHeldKind {
    std::array::from_fn(|place| amount(HeldKind::ALL[place]))
}

/// The kernel's own memory without the parts of it that are known.
fn kernel_without(all: Option<Bytes>, parts: [Option<Bytes>; 2]) -> Option<Bytes> {
    Some(all? - parts.into_iter().flatten().sum())
}

impl KillReadings {
    fn of(kill: &OomRow, windows: &Windows) -> Self {
        Self {
            read: None,
            logged: Account::logged(kill),
            before: vec![Before::default(); windows.before(kill.boot_ns).len()],
        }
    }

    fn note(&mut self, kill: &OomRow, windows: &Windows, at: BootNs, kinds: Account) {
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
    pub(super) fn at_kill(&self, kill: BootNs) -> Option<(Account, DurationNs)> {
        match (self.logged.get(HeldKind::Anonymous), self.read) {
            (Some(_), read) => {
                let read = read.map_or_else(Account::default, |(_, kinds)| kinds);
                Some((self.logged.or(read), DurationNs(0)))
            }
            (None, Some((at, kinds))) => Some((kinds, kill - at)),
            (None, None) => None,
        }
    }

    /// Notes what of the node's anonymous memory recorded processes had at the start of a window.
    pub(super) fn note_recorded(&mut self, window: usize, anon: Bytes) {
        if let Some(until) = self
            .before
            .get_mut(window)
            .and_then(|before| before.until.as_mut())
        {
            until.note_recorded(anon);
        }
    }

    /// The amounts at the start of a window, as far as they were read by then.
    pub(super) fn before(&self, window: usize) -> Option<Account> {
        self.before.get(window)?.until
    }

    /// Every kind that is known, and what it gained since the start of a window, before which
    /// a group that `is_new` had no recorded process.
    pub(super) fn lines(
        &self,
        at_kill: &Account,
        window: Option<usize>,
        is_new: bool,
    ) -> Vec<KindLine> {
        let before = window.and_then(|window| self.before.get(window));
        let (before, is_partial) = before.copied().unwrap_or_default().base(is_new);
        let is_kernel_alike = at_kill.kernel_without == before.kernel_without;
        let others = [at_kill, &before].map(|account| account.get(HeldKind::Unrecorded).is_some());
        let are_others_alike = others[0] == others[1];
        let whole = at_kill.in_use.or(at_kill.get(HeldKind::Anonymous));
        let whole = whole.unwrap_or_default();
        let small = Bytes(whole.0 / SMALL_PART);
        let kinds = HeldKind::ALL.iter();
        kinds
            .filter_map(|&kind| {
                let bytes = at_kill.apart(kind)?;
                let is_alike = match kind {
                    HeldKind::Kernel => is_kernel_alike,
                    HeldKind::Anonymous => are_others_alike,
                    _ => true,
                };
                let before = before.apart(kind).filter(|_| is_alike);
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
pub(super) fn reclaimable(kinds: &Account) -> Option<Bytes> {
    Some(kinds.get(HeldKind::PageCache)? + kinds.slab_reclaimable?)
}

fn less(all: Option<Bytes>, part: Option<Bytes>) -> Option<Bytes> {
    Some(all? - part?)
}
