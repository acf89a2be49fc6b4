//! Kills by the kernel's OOM killer, with who held the memory when it struck.

use super::RowSource;
use super::composition::Composition;
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
        .map(|row| OomFinding {
            victim: row.victim_upid.and_then(|upid| roster.find(upid)),
            trigger: row.trigger_upid.and_then(|upid| roster.find(upid)),
            holders: states
                .iter()
                .find(|state| state.boot_ns == row.boot_ns)
                .cloned(),
            row,
        })
        .collect()
}
