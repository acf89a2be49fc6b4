//! Kills by the kernel's OOM killer: which limit was hit, who held the memory when it struck,
//! who had grown before, and what it was not.
//!
//! Victim, trigger and culprit are often three different processes: the kernel kills whom it
//! can win most from, or who was offered to it (oom_score_adj), not who grew.

mod growers;
mod kinds;
mod windows;

pub use growers::Grower;
pub use kinds::{HeldKind, KindLine, Pressure};
pub(super) use windows::Windows;

use super::RowSource;
use super::composition::Composition;
use super::process::Process;
use super::roster::Roster;
use super::surroundings::is_within;
use crate::model::tables::OomRow;
use crate::model::{BootNs, Bytes, DurationNs};

/// The state of the tree is kept for this many kills; a crash loop can have thousands, and
/// they tell the same story.
const MAX_KILLS_EXAMINED: usize = 16;
/// The shortest window is told in which somebody grew by one part in so many of what was in
/// use.
const TOLD_PART: i64 = 20;

/// One kill.
#[derive(Clone, Debug)]
pub struct OomFinding {
    /// What the kernel told.
    pub row: OomRow,
    /// The victim, where it is part of the recording.
    pub victim: Option<usize>,
    /// Whose allocation triggered the kill, where it is part of the recording.
    pub trigger: Option<usize>,
    /// Whether it concerns others only: victim and trigger are strangers, and so is the cgroup
    /// whose limit was hit. A machine out of memory concerns everyone.
    pub is_elsewhere: bool,
    /// Who held the memory; `None` beyond the first kills of a long series.
    pub holders: Option<Composition>,
    /// What led to it; `None` beyond the first kills of a long series.
    pub post_mortem: Option<PostMortem>,
}

/// What led to a kill.
#[derive(Clone, Debug)]
pub struct PostMortem {
    /// Whether the whole machine was out of memory; else a cgroup, or the memory nodes that a
    /// cpuset or a memory policy allows, as far as is known.
    pub is_of_node: bool,
    /// What was in use in the group, or on the node.
    pub in_use_bytes: Option<Bytes>,
    /// The lengths of the windows in which growth is told, the shortest first.
    pub windows: Vec<DurationNs>,
    /// The window to tell first.
    pub told: Option<usize>,
    /// Who held memory under that limit, by growth in the window that is told.
    pub growers: Vec<Grower>,
    /// What was in use by kind, by the kernel's account; empty when it is unknown.
    pub kinds: Vec<KindLine>,
    /// How much earlier than the kill that account is.
    pub kinds_age_ns: DurationNs,
    /// What the kernel could have taken back without swapping.
    pub reclaimable_bytes: Option<Bytes>,
    /// How hard memory was to get in the window that is told.
    pub pressure: Option<Pressure>,
}

impl PostMortem {
    /// Who grew most in the window that is told; `None` when nobody did.
    pub fn culprit(&self) -> Option<(&Grower, Bytes)> {
        let grower = self.growers.first()?;
        let grown = grower.grown_bytes.get(self.told?).copied().flatten()?;
        (grown.0 > 0).then_some((grower, grown))
    }

    /// The kind, other than anonymous memory, that grew by more than any process did: nobody
    /// has it resident, or it is the kernel's.
    pub fn grown_kind(&self) -> Option<(HeldKind, Bytes)> {
        let of_processes = self.culprit().map_or(Bytes(0), |(_, grown)| grown);
        let grown = self.kinds.iter().filter_map(|line| {
            let is_none_of_processes = !matches!(line.kind, HeldKind::Anonymous | HeldKind::Swap);
            let grown = line.grown_bytes.filter(|_| is_none_of_processes)?;
            (!line.is_ruled_out && grown > of_processes).then_some((line.kind, grown))
        });
        grown.max_by_key(|(_, grown)| *grown)
    }

    /// The length of the window that is told.
    pub fn told_window(&self) -> Option<DurationNs> {
        self.windows.get(self.told?).copied()
    }
}

/// Reads `oom`, in the order of time.
pub(super) fn read<S: RowSource>(source: &S) -> Result<Vec<OomRow>, S::Error> {
    let mut rows: Vec<OomRow> = Vec::new();
    source.scan(&[], |row| rows.push(row))?;
    rows.sort_by_key(|row| row.boot_ns);
    Ok(rows)
}

/// The instants at which the state of the tree is wanted.
pub(super) fn instants(rows: &[OomRow]) -> impl Iterator<Item = BootNs> + '_ {
    rows.iter().take(MAX_KILLS_EXAMINED).map(|row| row.boot_ns)
}

/// Puts names, the state of the tree and what led to it to the kills. `states` are those at
/// the kills, `earlier` those at the starts of the windows.
pub(super) fn explain<S: RowSource>(
    source: &S,
    rows: Vec<OomRow>,
    windows: &Windows,
    roster: &Roster,
    states: &[Composition],
    earlier: &[&Composition],
) -> Result<Vec<OomFinding>, S::Error> {
    let around = kinds::read(source, &rows, windows)?;
    let mut around = around.into_iter();
    let findings = rows.into_iter().map(|row| {
        let victim = row.victim_upid.and_then(|upid| roster.find(upid));
        let trigger = row.trigger_upid.and_then(|upid| roster.find(upid));
        let holders = states.iter().find(|state| state.boot_ns == row.boot_ns);
        let post_mortem = holders.zip(around.next()).map(|(holders, around)| {
            let starts = windows.before(row.boot_ns);
            post_mortem(&row, &around, holders, (starts, earlier), roster)
        });
        OomFinding {
            victim,
            trigger,
            is_elsewhere: victim.is_none()
                && trigger.is_none()
                && is_limit_elsewhere(&row, &roster.processes),
            holders: holders.cloned(),
            post_mortem,
            row,
        }
    });
    Ok(findings.collect())
}

fn post_mortem(
    row: &OomRow,
    around: &kinds::Around,
    holders: &Composition,
    (starts, earlier): (&[BootNs], &[&Composition]),
    roster: &Roster,
) -> PostMortem {
    let before: Option<Vec<&Composition>> = starts
        .iter()
        .map(|start| {
            earlier
                .iter()
                .copied()
                .find(|state| state.boot_ns == *start)
        })
        .collect();
    let (before, starts) = match &before {
        Some(before) => (before.as_slice(), starts),
        None => (&[][..], &[][..]),
    };
    let is_concerned = |process: &Process| match (&row.memcg, &process.cgroup) {
        (Some(memcg), Some(cgroup)) => is_within(cgroup, memcg),
        _ => true,
    };
    let mut growers = growers::growers(&roster.processes, holders, before, starts, is_concerned);
    let at_kill = around.at_kill(row.boot_ns);
    let known = at_kill.map_or_else(Default::default, |(known, _)| known);
    let in_use = row.memcg_usage_bytes.or(known.in_use);
    let told = told(
        &growers,
        starts.len(),
        in_use.or(holders.totals.rss.bytes()),
    );
    if let Some(told) = told {
        growers.sort_by_key(|grower| {
            let grown = grower.grown_bytes.get(told).copied().flatten();
            std::cmp::Reverse((grown, grower.bytes))
        });
    }
    let is_new = told.and_then(|told| starts.get(told)).is_some_and(|start| {
        let members = roster.processes.iter();
        let mut members = members.filter(|process| process.cgroup.is_some());
        row.memcg.is_some()
            && members.all(|process| {
                let is_command = roster.command == Some(process.upid);
                is_command || process.start_boot_ns >= *start || !is_concerned(process)
            })
    });
    PostMortem {
        is_of_node: kinds::is_of_node(row),
        in_use_bytes: in_use,
        windows: starts.iter().map(|start| row.boot_ns - *start).collect(),
        told,
        growers,
        kinds: around.lines(&known, told, is_new),
        kinds_age_ns: at_kill.map_or(DurationNs(0), |(_, age)| age),
        reclaimable_bytes: kinds::reclaimable(&known),
        pressure: around.pressure(told),
    }
}

/// The shortest window in which somebody grew by enough to matter, else the longest.
fn told(growers: &[Grower], windows: usize, whole: Option<Bytes>) -> Option<usize> {
    let enough = whole.map_or(1, |whole| (whole.0 / TOLD_PART).max(1));
    let has_grown = |window: &usize| {
        let mut grown = growers
            .iter()
            .filter_map(|grower| grower.grown_bytes.get(*window).copied().flatten());
        grown.any(|grown| grown.0 >= enough)
    };
    (0..windows).find(has_grown).or(windows.checked_sub(1))
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
