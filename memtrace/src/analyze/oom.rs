//! Kills by the kernel's OOM killer, with who held the memory when it struck.

use super::RowSource;
use super::composition::Composition;
use super::process::Process;
use super::roster::Roster;
use crate::model::BootNs;
use crate::model::tables::OomRow;

/// The state of the tree is kept for this many kills; a crash loop can have thousands, and
/// they tell the same story.
pub(super) const MAX_KILLS_EXAMINED: usize = 16;

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

/// Puts names and the state of the tree to the kills.
pub(super) fn explain(
    rows: Vec<OomRow>,
    roster: &Roster,
    states: &[Composition],
) -> Vec<OomFinding> {
    rows.into_iter()
        .map(|row| {
            let victim = row.victim_upid.and_then(|upid| roster.find(upid));
            let trigger = row.trigger_upid.and_then(|upid| roster.find(upid));
            OomFinding {
                victim,
                trigger,
                is_elsewhere: victim.is_none()
                    && trigger.is_none()
                    && is_limit_elsewhere(&row, &roster.processes),
                holders: states
                    .iter()
                    .find(|state| state.boot_ns == row.boot_ns)
                    .cloned(),
                row,
            }
        })
        .collect()
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

/// Whether a cgroup is another one or below it.
fn is_within(cgroup: &str, above: &str) -> bool {
    let rest = cgroup.strip_prefix(above.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_within_itself_and_those_above_it() {
        assert!(is_within("/a/b", "/a/b"));
        assert!(is_within("/a/b", "/a"));
        assert!(is_within("/a/b", "/"));
        assert!(!is_within("/a/bc", "/a/b"));
        assert!(!is_within("/a", "/a/b"));
    }
}
