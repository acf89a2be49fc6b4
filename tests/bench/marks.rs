//! Marks: that they are on the kernel's clock, and that senders never wait.

use crate::measured::Measured;
use crate::{Bench, stats};
use anyhow::Result;
use memtrace_tests::scenario;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "marks",
    run: |effort| run(effort.pick(2_000, 62_500)),
}];

const PROCESSES: u64 = 8;
/// Of each process: 100,000 a second together.
const PER_SECOND: u64 = 12_500;
/// A mark may be off by this much.
const CLOCK_ERROR_MAX_US: f64 = 100.0;

fn run(count: u64) -> Result<Vec<Measured>> {
    let seen = scenario::marks(&["--quiet"], PROCESSES, count, PER_SECOND)?;
    let mut rows: Vec<Measured> = seen
        .scores
        .into_iter()
        .map(|score| Measured::score("marks", score))
        .collect();
    let errors: Vec<f64> = seen
        .rename_after_ns
        .iter()
        .map(|ns| *ns as f64 / 1e3)
        .collect();
    rows.push(Measured::estimate_at_most(
        "marks-clock",
        "from a mark to the kernel event after it",
        "µs",
        CLOCK_ERROR_MAX_US,
        stats::estimate(&errors),
    ));
    let lost = Measured::at_most(
        "marks-dropped",
        "marks that found the queue full and are counted",
        "%",
        0.0,
        seen.dropped as f64 * 100.0 / seen.tried as f64,
    );
    rows.push(lost.with_note(format!(
        "{:.0} marks a second from {PROCESSES} processes; a sender took {:.0} µs at most",
        seen.per_second,
        seen.longest_ns as f64 / 1e3
    )));
    Ok(rows)
}
