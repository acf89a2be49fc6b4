//! Kills by the kernel's OOM killer: which limit was hit, who held the memory when it struck,
//! who had grown before, and what it was not.
//!
//! Victim, trigger and culprit are often three different processes: the kernel kills whom it
//! can win most from, or who was offered to it (oom_score_adj), not who grew.

mod growers;
mod growth;
mod kinds;
mod objects;
mod windows;

pub use growers::Grower;
pub use growth::Leak;
pub use kinds::{HeldKind, KindLine, Pressure};
pub use objects::GrownObject;
pub(super) use windows::Windows;

use super::allocations::ProcessAllocations;
use super::clock::RunClock;
use super::composition::Composition;
use super::leftovers::OrphanedShmObject;
use super::process::Process;
use super::process_table::ProcessTable;
use super::surroundings::is_within;
use super::who::Bundle;
use growers::State;
use memtrace_model::keys;
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Kind, Order, RowSource, Tgid, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The state of the tree is kept for this many kills; a crash loop can have thousands, and
/// they tell the same story.
const MAX_KILLS_EXAMINED: usize = 16;

/// A victim that ended no longer than this before its kill is reported was killed by it.
const LATE_NS: i64 = 1_000_000_000;
/// Growth has stopped when the last of it had less than this part of its rate.
const STOPPED_PART: f64 = 0.05;

/// One kill by the OOM killer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OomFinding {
    /// When the victim was chosen.
    pub at: Instant,
    /// What the kernel reported.
    #[serde(flatten, with = "KillKeys")]
    pub row: OomRow,
    /// What the victim is called; `None` where it is not part of the recording.
    pub victim_name: Option<Arc<str>>,
    /// The victim, as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub victim: Option<usize>,
    /// The same of the process whose allocation triggered the kill.
    #[serde(skip)]
    pub trigger: Option<usize>,
    /// Whether it concerns others only: neither victim nor trigger is recorded, and so is the cgroup
    /// whose limit was hit. A machine out of memory concerns everyone.
    pub is_elsewhere: bool,
    /// Who held the memory, with the 20 largest holders, the victim among them also where it ended
    /// before the kill was reported; `None` beyond 16 kills, of which those with a recorded victim or
    /// trigger are the first.
    #[serde(rename = "held")]
    pub holders: Option<Composition>,
    /// What led to it; `None` where `held` is.
    pub post_mortem: Option<PostMortem>,
}

keys! {
    KillKeys of row: OomRow {
        /// Process id of who was killed.
        victim_pid: Tgid = row.victim_tgid,
        /// Its identity in the recording; null where it is not part of that.
        victim_upid: Option<Upid> = row.victim_upid,
        /// The kernel's name for it.
        victim_comm: Option<String> = row.victim_comm.clone(),
        /// Its oom_score_adj; null when unknown.
        victim_oom_score_adj: Option<i32> = row.victim_oom_score_adj,
        /// Process id of whose allocation met the limit.
        trigger_pid: Option<Tgid> = row.trigger_tgid,
        /// Its identity in the recording.
        trigger_upid: Option<Upid> = row.trigger_upid,
        /// The kernel's name for it.
        trigger_comm: Option<String> = row.trigger_comm.clone(),
        /// Which limit was met, in the kernel's word; null where the kernel log can't be read.
        constraint: Option<String> = row.constraint.clone(),
        /// The cgroup whose limit was met.
        cgroup: Option<String> = row.memcg.clone(),
        /// Anonymous memory of the victim, as the kernel reported.
        victim_anon_bytes: Option<Bytes> = row.victim_rss_anon_bytes,
        /// Its mapped files.
        victim_file_bytes: Option<Bytes> = row.victim_rss_file_bytes,
        /// Its shared memory.
        victim_shmem_bytes: Option<Bytes> = row.victim_rss_shmem_bytes,
        /// The limit that was met.
        cgroup_limit_bytes: Option<Bytes> = row.memcg_limit_bytes,
        /// What was in use of it.
        cgroup_usage_bytes: Option<Bytes> = row.memcg_usage_bytes,
    }
}

/// What led to a kill.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostMortem {
    /// Whether the whole machine was out of memory; else a cgroup, or the memory nodes that a
    /// cpuset or a memory policy allows, as far as is known.
    pub is_of_node: bool,
    /// What was in use in the group, or on the node.
    pub in_use_bytes: Option<Bytes>,
    /// The lengths of the windows in which growth is reported, the shortest first.
    #[serde(rename = "windows_ns")]
    pub windows: Vec<DurationNs>,
    /// The window to tell first: the one that led into the limit.
    #[serde(skip)]
    pub reported: Option<usize>,
    /// The length of the window that is reported, which led into the limit; `None` without any.
    #[serde(rename = "told_window_ns")]
    pub window_ns: Option<DurationNs>,
    /// Whether the first of the growers grew all at once, in the last second.
    pub is_sudden: bool,
    /// A slower growth that went on beside it; `None` without one.
    pub leak: Option<Leak>,
    /// How many lines of growers there are; `growers` may hold fewer.
    pub grower_count: usize,
    /// The 20 that grew most in the window that is reported, of all that held memory under the limit. The
    /// one that was growing when the limit was met comes first, though others grew more before.
    pub growers: Vec<Grower>,
    /// The 20 that held most under the limit, the largest first.
    pub holders: Vec<LimitHolder>,
    /// The kind, other than anonymous memory, that grew by more than any process did: nobody
    /// has it resident, or it is the kernel's.
    pub grown_kind: Option<GrownKind>,
    /// The shared object that grew most, where shared memory did.
    pub grown_object: Option<GrownObject>,
    /// What was in use by kind, by the kernel's account; empty when it is unknown.
    pub kinds: Vec<KindLine>,
    /// How much earlier than the kill that account is; 0 where the kernel's log tells the instant.
    pub kinds_age_ns: DurationNs,
    /// What the kernel could have taken back without swapping: page cache and reclaimable slab;
    /// `None` where either is unknown.
    pub reclaimable_bytes: Option<Bytes>,
    /// How hard memory was to get in the window that is reported.
    #[serde(flatten)]
    pub pressure: Pressure,
    /// Which lines touched what the first of the growers held, or without one the victim; `None` where no
    /// stacks were recorded of it.
    pub allocated: Option<ProcessAllocations>,
}

/// Who held memory under a limit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitHolder {
    /// Who held the memory.
    #[serde(flatten)]
    pub who: Bundle,
    /// What they held that the kernel could not simply drop, with their part of shared memory.
    pub bytes: Bytes,
    /// That part, in bytes.
    #[serde(skip)]
    pub shared_bytes: Bytes,
}

impl LimitHolder {
    fn largest_first(growers: &[Grower]) -> Vec<Self> {
        let holders = growers.iter().map(|grower| Self {
            who: grower.who.clone(),
            bytes: grower.bytes,
            shared_bytes: grower.shared_bytes,
        });
        let mut holders: Vec<Self> = holders.collect();
        holders.order_by_key(|one| {
            let first = one.who.members.first().copied();
            (std::cmp::Reverse(one.bytes), first)
        });
        holders
    }
}

/// A kind of memory that grew.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct GrownKind {
    /// Which kind it is.
    pub kind: HeldKind,
    /// By how much, in the window that is reported.
    pub grown_bytes: Bytes,
}

impl OomFinding {
    /// The instant of which it is reported who held the memory: the victim held its own then.
    pub fn examined(&self) -> Instant {
        self.holders.as_ref().map_or(self.at, |holders| holders.at)
    }
}

impl OomFinding {
    /// The process that led to it: the first of those that grew, else who was killed.
    pub(super) fn led_to_it(&self) -> Option<usize> {
        let culprit = self.post_mortem.as_ref().and_then(PostMortem::culprit);
        let grower = culprit.and_then(|(grower, _)| grower.who.members.first().copied());
        grower.or(self.victim)
    }
}

/// Growth beside that of the one that met the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrewMore<'a> {
    pub(crate) grower: &'a Grower,
    pub(crate) grown_bytes: Bytes,
    /// What of it came in the next shorter window; `None` where that is not known.
    pub(crate) lately: Option<(DurationNs, Bytes)>,
    pub(crate) has_stopped: bool,
}

impl PostMortem {
    /// Who was growing when the limit was met, in the window that is reported; `None` when nobody was.
    pub fn culprit(&self) -> Option<(&Grower, Bytes)> {
        let grower = self.growers.first()?;
        let grown = grower.grown(self.reported?);
        (grown.0 > 0).then_some((grower, grown))
    }

    /// Who grew by more than the one that is named first, since that one grew until the kill.
    pub(crate) fn grew_more(&self) -> Option<GrewMore<'_>> {
        let (_, grown) = self.culprit().filter(|_| self.grown_kind.is_none())?;
        let reported = self.reported?;
        let others = self.growers.iter().skip(1);
        let grower = others.max_by_key(|other| other.grown(reported))?;
        let grown_bytes = grower.grown(reported);
        let shorter = reported.checked_sub(1);
        let lately = shorter.and_then(|shorter| {
            let lately = grower.grown_bytes.get(shorter).copied().flatten()?;
            Some((*self.windows.get(shorter)?, lately))
        });
        let pace = |bytes: Bytes, length: DurationNs| bytes.0 as f64 / length.0 as f64;
        let whole_pace = pace(grown_bytes, self.window_ns?);
        let has_stopped = lately
            .is_some_and(|(length, lately)| pace(lately, length) <= whole_pace * STOPPED_PART);
        (grown_bytes > grown).then_some(GrewMore {
            grower,
            grown_bytes,
            lately,
            has_stopped,
        })
    }

    pub(super) fn cut(&mut self, top: usize) {
        self.growers.truncate(top);
        self.holders.truncate(top);
        if let Some(allocated) = &mut self.allocated {
            allocated.sites.truncate(top);
        }
        if let Some(object) = &mut self.grown_object {
            object.held_by.truncate(top);
        }
    }
}

/// Reads `oom`, those with a recorded victim or trigger first: the kernel tells of every kill on the
/// machine, a neighbour can die again and again, and only the first ones are examined.
pub(super) fn read<S: RowSource>(source: &S) -> Result<Vec<OomRow>, S::Error> {
    let mut rows: Vec<OomRow> = Vec::new();
    source.scan(&[], |row| rows.push(row))?;
    let is_ours = |row: &OomRow| row.victim_upid.is_some() || row.trigger_upid.is_some();
    rows.order_by_key(|row| !is_ours(row));
    Ok(rows)
}

/// The instant of which it is asked who held the memory: the kill, or the last moment of a victim
/// that ended first. The kernel sends the signal before it tells of the kill.
pub(super) fn examined_at(row: &OomRow, victim: Option<&Process>) -> BootNs {
    let end = victim.and_then(Process::exit_boot_ns);
    let end = end.filter(|end| (0..=LATE_NS).contains(&(row.boot_ns - *end).0));
    end.map_or(row.boot_ns, |end| BootNs(end.0 - 1))
}

/// The instants at which the state of the tree is wanted.
pub(super) fn instants(rows: &[OomRow], table: &ProcessTable) -> impl Iterator<Item = BootNs> {
    let examined = rows.iter().take(MAX_KILLS_EXAMINED);
    examined.map(|row| {
        let victim = row.victim_upid.and_then(|upid| table.find(upid));
        examined_at(row, victim.map(|victim| &table.processes[victim]))
    })
}

/// Puts names, the state of the tree and what led to it to the kills. `states` are those at
/// the kills, `earlier` those at the starts of the windows, `left` the objects that were found
/// when the recording ended.
pub(super) fn explain<S: RowSource>(
    source: &S,
    rows: Vec<OomRow>,
    windows: &Windows,
    (table, clock): (&ProcessTable, &RunClock),
    (states, earlier): (&[Composition], &[&Composition]),
    left: &[OrphanedShmObject],
) -> Result<Vec<OomFinding>, S::Error> {
    let around = kinds::read(source, &rows, windows)?;
    let objects = objects::read(source, &rows, windows, (clock.start(), left))?;
    let mut around = around.into_iter().zip(objects);
    let findings = rows.into_iter().map(|row| {
        let victim = row.victim_upid.and_then(|upid| table.find(upid));
        let trigger = row.trigger_upid.and_then(|upid| table.find(upid));
        let examined = examined_at(&row, victim.map(|victim| &table.processes[victim]));
        let holders = states.iter().find(|state| state.at.boot_ns == examined);
        let around = holders.zip(around.next());
        let post_mortem = around.map(|(holders, (mut around, objects))| {
            if kinds::is_of_node(&row) {
                for (window, start) in windows.before(row.boot_ns).iter().enumerate() {
                    let mut earlier = earlier.iter();
                    let state = earlier.find(|state| state.at.boot_ns == *start);
                    let anon = state.and_then(|state| Some(state.held?.anon.at_least));
                    if let Some(anon) = anon {
                        around.note_recorded(window, anon);
                    }
                }
            }
            let read = Read {
                around,
                objects,
                holders,
                starts: windows.before(row.boot_ns),
                earlier,
            };
            read.post_mortem((&row, victim), table)
        });
        OomFinding {
            at: clock.at(row.boot_ns),
            victim_name: victim.map(|place| Arc::clone(&table.processes[place].name)),
            victim,
            trigger,
            is_elsewhere: victim.is_none()
                && trigger.is_none()
                && is_limit_elsewhere(&row, &table.processes),
            holders: holders.cloned(),
            post_mortem,
            row,
        }
    });
    let mut findings: Vec<OomFinding> = findings.collect();
    findings.order_by_key(|finding| finding.at.boot_ns);
    Ok(findings)
}

/// What was read around one kill.
struct Read<'a> {
    around: kinds::KillReadings,
    objects: objects::Objects,
    holders: &'a Composition,
    /// The starts of its windows, the shortest window first.
    starts: &'a [BootNs],
    /// The states at the starts of all windows.
    earlier: &'a [&'a Composition],
}

impl Read<'_> {
    fn post_mortem(
        &self,
        (row, victim): (&OomRow, Option<usize>),
        table: &ProcessTable,
    ) -> PostMortem {
        let is_concerned = |process: &Process| match (&row.memcg, &process.cgroup) {
            (Some(memcg), Some(cgroup)) => is_within(cgroup, memcg),
            _ => true,
        };
        let at_kill = self.around.at_kill(row.boot_ns);
        let known = at_kill.map_or_else(Default::default, |(known, _)| known);
        let recorder = self.recorder(row);
        let known = self.with_recorded(known, recorder, (row, victim), (table, &is_concerned));
        let in_use = row.memcg_usage_bytes.or(known.in_use);
        let whole = in_use.or(self.holders.totals[Kind::Rss].bytes());
        let anon = |kinds: &kinds::Account| Some(kinds.anon_of_recorded()? - recorder);
        let now = State {
            boot_ns: self.holders.at.boot_ns,
            composition: self.holders,
            anon: anon(&known).filter(|_| row.memcg.is_some()),
        };
        let before = self.before(row, anon);
        let (before, starts) = match &before {
            Some(before) => (before.as_slice(), self.starts),
            None => (&[][..], &[][..]),
        };
        let who = (row, victim);
        let mut growers =
            growers::growers(&table.processes, who, &now, before, whole, is_concerned);
        let windows: Vec<DurationNs> = starts.iter().map(|start| row.boot_ns - *start).collect();
        let kinds = |window: Option<usize>| {
            let is_new = window
                .and_then(|window| starts.get(window))
                .is_some_and(|start| is_new(row, table, *start, is_concerned));
            self.around.lines(&known, window, is_new)
        };
        let by_window: Vec<Vec<KindLine>> = (0..windows.len())
            .map(|window| kinds(Some(window)))
            .collect();
        let whole = whole.unwrap_or(Bytes(0));
        let reported = growth::choose(&growers, &by_window, &windows, whole);
        if let Some(reported) = &reported {
            reported.put_first(&mut growers);
        }
        let window = reported.map(|reported| reported.window);
        let grown_kind = reported.and_then(|reported| match reported.winner? {
            (growth::Winner::Kind(kind), grown_bytes) => Some(GrownKind { kind, grown_bytes }),
            (growth::Winner::Grower(_), _) => None,
        });
        let is_shared = grown_kind.is_some_and(|grown| grown.kind == HeldKind::Shared);
        let shared = window.filter(|_| is_shared).and_then(|window| {
            let mut lines = by_window.get(window)?.iter();
            Some((window, lines.find(|line| line.kind == HeldKind::Shared)?))
        });
        PostMortem {
            is_of_node: kinds::is_of_node(row),
            in_use_bytes: in_use,
            reported: window,
            window_ns: window.map(|window| windows[window]),
            is_sudden: reported.is_some_and(|reported| reported.is_sudden),
            leak: reported.and_then(|reported| growth::leak(&growers, &reported, &windows, whole)),
            grown_kind,
            grown_object: shared.and_then(|line| self.objects.grown_most(row, line, table)),
            kinds: kinds(window),
            windows,
            grower_count: growers.len(),
            holders: LimitHolder::largest_first(&growers),
            growers,
            kinds_age_ns: at_kill.map_or(DurationNs(0), |(_, age)| age),
            reclaimable_bytes: kinds::reclaimable(&known),
            pressure: self.around.pressure(window).unwrap_or_default(),
            allocated: None,
        }
    }

    /// The kernel's account at the kill, with what of it the recorded processes are known to hold.
    fn with_recorded(
        &self,
        mut known: kinds::Account,
        recorder: Bytes,
        (row, victim): (&OomRow, Option<usize>),
        (table, is_concerned): (&ProcessTable, impl Fn(&Process) -> bool),
    ) -> kinds::Account {
        if let (true, Some(held)) = (kinds::is_of_node(row), self.holders.held) {
            known.note_recorded(held.anon.at_most);
        }
        if row.memcg.is_some() {
            let holders = self.holders.holders.iter();
            let concerned = holders.filter(|one| is_concerned(&table.processes[one.process]));
            // Of the victim the kernel's log has what it had at the kill.
            let of = |one: &crate::Holder| match row.victim_rss_anon_bytes {
                Some(bytes) if Some(one.process) == victim => Some(bytes),
                _ => one.amounts.anon(),
            };
            let anon: Option<Bytes> = concerned.map(of).sum();
            if let (Some(anon), false) = (anon, self.holders.is_lower_bound) {
                known.note_recorded_at_most(anon + recorder);
            }
        }
        known
    }

    /// The states at the starts of the windows; `None` where one was not kept.
    fn before(
        &self,
        row: &OomRow,
        anon: impl Fn(&kinds::Account) -> Option<Bytes>,
    ) -> Option<Vec<State<'_>>> {
        let starts = self.starts.iter().enumerate();
        let states = starts.map(|(window, start)| {
            let mut earlier = self.earlier.iter().copied();
            let kinds = self.around.before(window).filter(|_| row.memcg.is_some());
            Some(State {
                boot_ns: *start,
                composition: earlier.find(|state| state.at.boot_ns == *start)?,
                anon: kinds.as_ref().and_then(&anon),
            })
        });
        states.collect()
    }

    /// Anonymous memory of the recorder, where it lives under the limit and is not recorded.
    fn recorder(&self, row: &OomRow) -> Bytes {
        let recorder = self.holders.recorder.as_ref();
        let recorder = recorder.filter(|recorder| {
            let paths = recorder.cgroup.as_deref().zip(row.memcg.as_deref());
            !recorder.is_recorded && paths.is_some_and(|(own, memcg)| is_within(own, memcg))
        });
        recorder.map_or(Bytes(0), |recorder| recorder.anon_bytes)
    }
}

/// Whether the group had no recorded process before an instant.
fn is_new(
    row: &OomRow,
    table: &ProcessTable,
    start: BootNs,
    is_concerned: impl Fn(&Process) -> bool,
) -> bool {
    let members = table.processes.iter();
    let mut members = members.filter(|process| process.cgroup.is_some());
    row.memcg.is_some()
        && members.all(|process| {
            let is_command = table.command == Some(process.upid);
            is_command || process.start.boot_ns >= start || !is_concerned(process)
        })
}

/// Whether no recorded process lives under the limit that was hit, as far as is known.
fn is_limit_elsewhere(row: &OomRow, processes: &[Process]) -> bool {
    match (&row.memcg, row.constraint.as_deref()) {
        (Some(memcg), _) => {
            let mut cgroups = processes.iter().filter_map(|p| p.cgroup.as_deref());
            !cgroups.any(|cgroup| is_within(cgroup, memcg))
        }
        (None, None | Some("CONSTRAINT_MEMCG")) => true,
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests;
