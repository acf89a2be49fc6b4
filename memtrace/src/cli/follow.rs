//! `memtrace report --style startup --follow`: each phase when it has ended, while the recording
//! goes on.

use memtrace_analyze::{PhaseLine, Report, checkpoints, startup_log};
use memtrace_model::{BootNs, PhaseEnd, Upid};
use memtrace_report::{Table, columns, visible};
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks at the recording.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of the time that a look takes, so many times as much passes until the next one.
const REST: u32 = 9;

/// The columns of the log and their widths: what comes later must not move them.
const FIGURES: [(&str, usize); 9] = [
    ("ENDED", 9),
    ("TOOK", 7),
    ("PID", 8),
    ("RSS MiB", 9),
    ("OWN MiB", 9),
    ("OWN SUM", 9),
    ("TREE MiB", 9),
    ("TREE SUM", 9),
    ("GPU MiB", 9),
];
const PROCESS: (&str, usize) = ("PROCESS", 24);
const PHASE: &str = "PHASE";

/// What tells one phase from all others: whose it is, when it began and ended, and its name.
type Key = (Option<Upid>, Option<BootNs>, BootNs, Arc<str>);

/// Writes lines until the recording has ended. `read` analyses it anew, each phase by itself; `goes_on`
/// says at less cost whether it goes on.
///
/// # Errors
///
/// When the recording can't be read, or the output can't be written.
pub(super) fn follow(
    mut read: impl FnMut() -> anyhow::Result<Report>,
    goes_on: impl Fn() -> bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut written = HashSet::new();
    writeln!(out, "{}", line(|title| title.to_owned()))?;
    loop {
        let begin = Instant::now();
        let report = read()?;
        let analysis = &report.analysis;
        // A phase that is still open tells where its process began.
        let lines = analysis.phases.iter().flat_map(|phases| &phases.lines);
        let mut ended = checkpoints(lines.collect());
        ended.retain(|one| has_ended(one.line, analysis.is_live));
        ended.retain(|one| written.insert(key(one.line)));
        let has_gpu = analysis
            .phases
            .as_ref()
            .is_some_and(|phases| phases.has_gpu());
        write_rows(out, &startup_log(ended, has_gpu))?;
        out.flush()?;
        if !analysis.is_live {
            if written.is_empty() {
                writeln!(out, "Nothing was marked.")?;
            }
            return Ok(());
        }
        let rest = begin.elapsed() * REST;
        let since = Instant::now();
        sleep(INTERVAL);
        while since.elapsed() < rest && goes_on() {
            sleep(INTERVAL);
        }
    }
}

/// Whether it will not change any more. Titles of one name are one line, and wait for the end of the
/// recording.
fn has_ended(line: &PhaseLine, is_live: bool) -> bool {
    match line {
        _ if !is_live => true,
        PhaseLine::One(phase) => phase.ended_by != PhaseEnd::Recording,
        PhaseLine::Many(_) => false,
    }
}

fn key(line: &PhaseLine) -> Key {
    let (who, begin, end, name) = match line {
        PhaseLine::One(phase) => (&phase.who, phase.begin, phase.end, &phase.name),
        PhaseLine::Many(many) => (&many.who, Some(many.begin), many.end, &many.name),
    };
    let begin = begin.map(|begin| begin.boot_ns);
    (who.upid, begin, end.boot_ns, Arc::clone(name))
}

fn write_rows(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    for row in 0..table.row_count() {
        let cell = |title: &str| {
            let mut columns = table.shown();
            let column = columns.find_map(|(shown, column)| (shown == title).then_some(column));
            let cell = column.and_then(|column| column.cells.get(row));
            cell.map_or_else(String::new, |cell| cell.shown())
        };
        writeln!(out, "{}", line(cell))?;
    }
    Ok(())
}

/// A line of what stands under each title.
fn line(cell: impl Fn(&str) -> String) -> String {
    let mut line = String::new();
    for (title, width) in FIGURES {
        line += &format!("{:>width$} ", cell(title));
    }
    let (process, width) = PROCESS;
    let process = cell(process);
    let process = visible(&process);
    // A letter of Chinese takes two columns.
    let room = " ".repeat(width.saturating_sub(columns(&process)));
    line += &format!(" {process}{room} ");
    line + &visible(&cell(PHASE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_do_not_move_what_stands_behind_them() {
        let place_of_phase = |process: &str| {
            let line = line(|title| match title {
                "PROCESS" => process.to_owned(),
                PHASE => "load".to_owned(),
                title => title.to_owned(),
            });
            columns(&line) - "load".len()
        };
        let plain = place_of_phase("worker");
        for process in ["推理引擎", "vLLM 工作者", "é", ""] {
            assert_eq!(place_of_phase(process), plain, "{process}");
        }
    }
}
