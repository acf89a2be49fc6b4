//! Who gets a curve of its own: those with the highest peaks, as far as they are known before
//! memory is read.

use crate::groups::Groups;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{Kind, RowSource};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// So many processes have a curve of their own; all others share one.
const PROCESSES_MAX: usize = 30;
/// The same of roles.
const ROLES_MAX: usize = 24;
/// The same of cgroups.
const CGROUPS_MAX: usize = 16;
/// So many processes have a lane.
pub(super) const LANES_MAX: usize = 20_000;

/// Those that are drawn by themselves.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// By position in the process table.
    pub(super) processes: Vec<usize>,
    /// By place among the groups.
    pub(super) roles: Vec<usize>,
    /// Memory cgroups, by path.
    pub(super) cgroups: Vec<Arc<str>>,
    /// The processes that have a lane.
    pub(super) lanes: Vec<usize>,
    /// How many there are in all.
    pub(super) role_count: usize,
    pub(super) cgroup_count: usize,
}

impl Choice {
    /// Those of a recording. Memory is read for it only where there are too many processes, and
    /// the process table does not know all their peaks: it was cut off.
    pub(crate) fn of<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        groups: &Groups,
    ) -> Result<Self, S::Error> {
        let known = table.processes.iter().map(|process| process.peak.rss_bytes);
        let mut peaks: Vec<i64> = known
            .clone()
            .map(|peak| peak.map_or(0, |peak| peak.0))
            .collect();
        if peaks.len() > PROCESSES_MAX && known.clone().any(|peak| peak.is_none()) {
            let columns = ["boot_ns", "upid", Kind::Rss.column(), "source"];
            source.scan(&columns, |row: MemRow| {
                let is_measured = row.source != Some(MemSource::SelfReported);
                if let (Some(process), Some(rss), true) =
                    (table.find(row.upid), row.rss_bytes, is_measured)
                {
                    peaks[process] = peaks[process].max(rss.0);
                }
            })?;
        }
        let members = groups.members();
        let sum = |members: &[usize]| {
            let own = members.iter().map(|&process| peaks[process]);
            own.fold(0_i64, i64::saturating_add)
        };
        let roles = members.iter().map(|members| sum(members)).enumerate();
        let roles = roles.filter(|(place, _)| !members[*place].is_empty());
        let roles: Vec<(usize, i64)> = roles.collect();
        let mut cgroups: HashMap<&Arc<str>, i64> = HashMap::new();
        for (process, peak) in table.processes.iter().zip(&peaks) {
            if let Some(path) = &process.cgroup {
                let held = cgroups.entry(path).or_default();
                *held = held.saturating_add(*peak);
            }
        }
        Ok(Self {
            role_count: roles.len(),
            cgroup_count: cgroups.len(),
            processes: largest(peaks.iter().copied().enumerate(), PROCESSES_MAX),
            lanes: largest(peaks.iter().copied().enumerate(), LANES_MAX - 1),
            roles: largest(roles.into_iter(), ROLES_MAX),
            cgroups: largest(cgroups.into_iter(), CGROUPS_MAX)
                .into_iter()
                .cloned()
                .collect(),
        })
    }
}

/// Those of the highest peaks. If one is left over it gets its own: a curve of others that are one
/// would say less.
fn largest<T: Ord>(all: impl Iterator<Item = (T, i64)>, most: usize) -> Vec<T> {
    let mut all: Vec<(Reverse<i64>, T)> = all.map(|(one, peak)| (Reverse(peak), one)).collect();
    all.sort_unstable();
    if all.len() > most + 1 {
        all.truncate(most);
    }
    all.into_iter().map(|(_, one)| one).collect()
}
