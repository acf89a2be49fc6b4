//! Puts together what the pass drew and what is read beside it.

use super::drawing::Drawn;
use super::known::Known;
use super::levels::Levels;
use super::{Curves, gpus, limits};
use memtrace_model::RowSource;
use std::collections::BTreeMap;

/// Everything that is drawn over time, with names, and the levels of every process that has a lane.
pub(crate) fn reported<S: RowSource>(
    source: &S,
    drawn: Drawn,
    known: Known<'_>,
) -> Result<(Curves, BTreeMap<usize, Levels>), S::Error> {
    let (mut curves, levels) = drawn.reported(&known.table.processes, known.groups, known.clock);
    curves.limits = limits::read(source, &known)?;
    curves.gpus = gpus::read(source, &known)?;
    Ok((curves, levels))
}
