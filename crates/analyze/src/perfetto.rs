//! A recording as a trace for Perfetto: memory as counters, processes, phases and requests as slices,
//! kills and marks as instants, on one clock.
//!
//! Every change is written as it is read; what is kept grows with processes and marks, not with the
//! rows of `mem`. Amounts are those of the report, by the same sweep.

mod annotations;
mod counter;
mod cuda;
mod gpus;
mod kills;
mod memory;
mod phases;
mod processes;
mod recorded;
mod requests;

pub use recorded::Recorded;

use super::groups::Groups;
use super::phases::{Marks, Timeline};
use super::process_table::ProcessTable;
use super::run::noted_clock;
use super::titles::Titles;
use super::{cost, oom, sharing};
use memtrace_model::tables::ClockRow;
use memtrace_model::{BootNs, ClockReading, Clocks, RowSource, RunInfo, masked};
use memtrace_perfetto::Trace;
use processes::ProcessTracks;
use std::io::{self, Write};

/// Writes a recording as a trace, and `more` what happened beside it. What it answers within is how the
/// writing went.
///
/// # Errors
/// When the rows can't be read.
pub fn perfetto<S: RowSource>(
    info: &RunInfo,
    source: &S,
    last_boot_ns: Option<BootNs>,
    out: &mut dyn Write,
    more: impl FnOnce(&mut Trace<'_>, &Recorded<'_>),
) -> Result<io::Result<()>, S::Error> {
    let cost = cost::read(source)?;
    let kills = oom::read(source)?;
    let mut table = ProcessTable::read(source, info)?;
    let clock = noted_clock(info, last_boot_ns, cost.as_ref(), &table);
    let marks = Marks::read(source, &mut table)?;
    let titles = Titles::read(source, &table)?;
    let phases = Timeline::of(marks, titles.calls, &table.processes);
    let groups = Groups::of(&table.processes, titles.roles);
    for process in &mut table.processes {
        process.copy_until = sharing::copy_until(process, &titles.execs);
    }
    name(&mut table, source, &groups)?;

    let mut trace = Trace::new(out);
    let readings = readings(source, info)?;
    for reading in &readings {
        trace.clocks(reading);
    }
    let mut tracks = ProcessTracks::declare(&mut trace, &table.processes);
    let swept = memory::write(
        &mut trace,
        source,
        (&mut table, &groups, &mut tracks),
        clock.end(),
    )?;
    table.take_peaks(&swept, &clock);
    table.note_kills(&kills);
    // A process is called by what it did at its peak, which is known only now.
    name(&mut table, source, &groups)?;
    for process in &mut table.processes {
        process.settle(&clock);
    }
    tracks.write_lifetimes(&mut trace, &table.processes, &clock);
    phases::write(&mut trace, &phases, &tracks, clock.end());
    gpus::write(&mut trace, source, &table.processes)?;
    cuda::write(&mut trace, source, (&table, &mut tracks))?;
    kills::write(&mut trace, &kills, &table);
    requests::write(&mut trace, source)?;
    let recorded = Recorded {
        table: &table,
        tracks: &tracks,
        span: (clock.start(), clock.end()),
        clocks: Clocks::of(readings),
    };
    more(&mut trace, &recorded);
    Ok(trace.finish())
}

/// Names the processes. A name can be a whole command line, so the trace knows it only without what is
/// secret in it.
fn name<S: RowSource>(
    table: &mut ProcessTable,
    source: &S,
    groups: &Groups,
) -> Result<(), S::Error> {
    table.name(source, groups)?;
    for process in &mut table.processes {
        process.name = masked(&process.name).into();
    }
    Ok(())
}

/// How the clocks stood to each other: by the table of them, or as the recording notes it by itself.
fn readings<S: RowSource>(source: &S, info: &RunInfo) -> Result<Vec<ClockReading>, S::Error> {
    let mut readings = Vec::new();
    source.scan(&[], |row: ClockRow| {
        readings.push(ClockReading {
            boot_ns: row.boot_ns,
            monotonic_ns: row.monotonic_ns.0,
            wall_ns: row.ts,
        });
    })?;
    if readings.is_empty() {
        readings.clone_from(&info.clocks);
    }
    Ok(readings)
}

#[cfg(test)]
mod tests;
