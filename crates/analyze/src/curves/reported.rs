//! Puts together what the pass drew and what is read beside it.

use super::drawing::Drawn;
use super::known::Known;
use super::levels::Levels;
use super::{Curves, calls, gpus, limits};
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
    let mut by_calls = calls::read(source, &known)?;
    let gpus = gpus::read(source, &known)?.into_iter().enumerate();
    let gpus = gpus.flat_map(|(place, gpu)| [Some(gpu), by_calls.remove(&place)]);
    curves.gpus = gpus.flatten().collect();
    Ok((curves, levels))
}
