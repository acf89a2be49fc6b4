//! `memtrace report --style startup --follow`: each phase when it has ended, while the recording
//! goes on.

use super::report::{Wanted, analyzed};
use crate::analyze::{Analysis, Phase, PhaseLine};
use crate::model::{BootNs, Bytes, DurationNs, PhaseEnd, Upid};
use crate::report::{visible, words};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks at the recording.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of the time that a look takes, so many times as much passes until the next one.
const REST: u32 = 9;

/// What tells one line from all others: whose it is, its begin and its name.
type Key = (Option<Upid>, Option<BootNs>, Arc<str>);

/// Writes lines until the recording has ended.
///
/// # Errors
///
/// When the recording can't be read, or the output can't be written.
pub(super) fn follow(dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut written = HashSet::new();
    write_line(
        out,
        ["ENDED", "TOOK", "OWN", "ALL", "SUM"],
        "PROCESS",
        "PHASE",
    )?;
    loop {
        let begin = Instant::now();
        let report = analyzed(dir, Wanted::default())?;
        let analysis = &report.analysis;
        for line in ended(analysis) {
            if written.insert(key(line)) {
                write_phase(out, line)?;
            }
        }
        out.flush()?;
        if !analysis.is_live {
            return Ok(());
        }
        sleep(INTERVAL.max(begin.elapsed() * REST));
    }
}

/// The lines that will not change any more, in the order of their ends. Those that stand for
/// several phases wait for the end of the recording.
fn ended(analysis: &Analysis) -> Vec<&PhaseLine> {
    let lines = analysis.phases.iter().flat_map(|phases| &phases.lines);
    let mut lines: Vec<&PhaseLine> = lines
        .filter(|line| match line {
            PhaseLine::One(phase) => !analysis.is_live || phase.ended_by != PhaseEnd::Recording,
            PhaseLine::Many(_) => !analysis.is_live,
        })
        .collect();
    lines.sort_by_key(|line| match line {
        PhaseLine::One(phase) => phase.end,
        PhaseLine::Many(many) => many.end,
    });
    lines
}

fn key(line: &PhaseLine) -> Key {
    match line {
        PhaseLine::One(phase) => {
            let begin = phase.begin.unwrap_or(phase.end);
            (phase.who.upid, Some(begin.boot_ns), Arc::clone(&phase.name))
        }
        PhaseLine::Many(many) => (many.who.upid, None, Arc::clone(&many.name)),
    }
}

fn write_phase(out: &mut dyn Write, line: &PhaseLine) -> io::Result<()> {
    let (end, took, own, all, sum, who) = match line {
        PhaseLine::One(phase) => (
            phase.end,
            phase.duration_ns,
            phase.own.and_then(|own| own.delta.rss()),
            phase.tree.delta.rss(),
            phase.since_baseline_bytes,
            &phase.who,
        ),
        PhaseLine::Many(many) => (
            many.end,
            Some(many.total_ns),
            many.own.and_then(|own| own.delta.map(|delta| delta.sum)),
            many.tree_delta_bytes,
            many.since_baseline_bytes,
            &many.who,
        ),
    };
    let amount = |bytes: Option<Bytes>| bytes.map_or_else(String::new, |_| words::change(bytes));
    let took = took.map_or_else(String::new, |took: DurationNs| words::duration(took));
    let figures = [
        &words::after(end.offset_ns),
        &took,
        &amount(own),
        &amount(all),
        &amount(sum),
    ];
    let process = who.name.as_deref().unwrap_or_default();
    let name = match line {
        PhaseLine::One(phase) => indented(phase),
        PhaseLine::Many(many) => format!("{} ({} ×)", many.name, words::count(many.count)),
    };
    write_line(
        out,
        figures.map(String::as_str),
        &visible(process),
        &visible(&name),
    )
}

/// The name, further to the right the more phases of its process were open.
fn indented(phase: &Phase) -> String {
    format!("{:indent$}{}", "", phase.name, indent = 2 * phase.depth)
}

fn write_line(
    out: &mut dyn Write,
    [ended, took, own, all, sum]: [&str; 5],
    process: &str,
    phase: &str,
) -> io::Result<()> {
    writeln!(
        out,
        "{ended:>9} {took:>7} {own:>10} {all:>10} {sum:>10}  {process:<24} {phase}"
    )
}
