//! The processes by their own peak, and how they ended.

use super::{Section, Tone, figures, flexible, name, pid, words_in};
use crate::analyze::{Analysis, Bound, Ending, Process};
use crate::report::words;
use std::collections::BTreeSet;

/// The processes with the highest peaks; `None` when there are none.
pub(super) fn by_peak(analysis: &Analysis, top: usize) -> Option<Section> {
    let lines = analysis.lines_by_peak();
    if lines.is_empty() {
        return None;
    }
    let mut section = Section::new("Processes by their own peak");
    let columns = vec![
        figures("PID", 0),
        flexible("PROCESS"),
        figures("PEAK", 0),
        figures("AT", 1),
        figures("ANON", 3),
        figures("FILE", 5),
        figures("SHMEM", 4),
        figures("STARTED", 6),
        figures("LIVED", 2),
        words_in("ENDED", 0),
    ];
    let shown = &lines[..lines.len().min(top)];
    section.table(
        columns,
        shown.iter().map(|members| row(analysis, members)).collect(),
    );
    if let Some(&next) = lines.get(top).and_then(|members| members.first()) {
        let rest = lines[top..].iter().map(Vec::len).sum();
        let peak = words::peak(&analysis.processes[next].peak);
        let told = format!("{} more, the largest {peak}.", words::processes(rest));
        section.say(Tone::Quiet, told);
    }
    section.say(Tone::Quiet, exactness(analysis, shown));
    let mut largest = shown.iter().filter_map(|members| members.first());
    if largest.any(|&process| analysis.processes[process].peak.is_earlier) {
        let told = "AT before: that peak was reached before the recording; no row comes near it.";
        section.say(Tone::Quiet, told);
    }
    Some(section)
}

/// A process, or the largest of several similar ones.
fn row(analysis: &Analysis, members: &[usize]) -> Vec<String> {
    let Some(&largest) = members.first() else {
        return Vec::new();
    };
    let (process, clock) = (&analysis.processes[largest], &analysis.clock);
    let (pid, name) = match members {
        [only] => {
            let method = process.method.as_deref().unwrap_or_default();
            (pid(process), format!("{}{method}", name(analysis, *only)))
        }
        many => {
            let label = analysis.common_name(many);
            (
                format!("{} ×", words::count(many.len())),
                format!("{label} (the largest)"),
            )
        }
    };
    let offset = |boot| words::offset(clock, boot);
    let at = words::peak_time(&process.peak, offset);
    let [anon, file, shmem] = words::kind_cells(&process.peak.amounts);
    vec![
        pid,
        name,
        words::peak(&process.peak),
        at.unwrap_or_else(|| words::UNKNOWN.to_owned()),
        anon,
        file,
        shmem,
        offset(process.start_boot_ns),
        lived(analysis, process),
        super::common_ending(analysis, members),
    ]
}

fn lived(analysis: &Analysis, process: &Process) -> String {
    let begin = analysis.begin_of(process);
    match (process.exit_boot_ns, process.ending) {
        (Some(end), _) => words::duration(end - begin.min(end)),
        (None, Ending::Running) => words::duration(analysis.clock.end() - begin),
        (None, _) => words::UNKNOWN.to_owned(),
    }
}

/// One sentence on where the peaks come from.
fn exactness(analysis: &Analysis, shown: &[Vec<usize>]) -> String {
    let shown: Vec<usize> = shown.iter().flatten().copied().collect();
    let peaks = || {
        shown
            .iter()
            .map(|&position| &analysis.processes[position].peak)
    };
    let sources: BTreeSet<&str> = peaks()
        .filter_map(|peak| Some(peak.origin?.shown()))
        .collect();
    let sources: Vec<&str> = sources.into_iter().collect();
    let mut line = match sources.as_slice() {
        [] => "Where the peaks come from is unknown".to_owned(),
        sources => format!("Peaks are from {}", sources.join(", ")),
    };
    let errors = peaks().filter_map(|peak| peak.bound.error());
    if let Some(error) = errors.max() {
        line.push_str(&match error.0 {
            0 => ", exact".to_owned(),
            _ => format!(", within {}", words::bytes(error)),
        });
    }
    let has = |bound: Bound| peaks().any(|peak| peak.bound == bound && peak.rss_bytes.is_some());
    if has(Bound::AtLeast) {
        line.push_str("; ≥ is a lower bound");
    }
    if has(Bound::AtMost) {
        line.push_str("; ≤ counts waited-for children too");
    }
    if has(Bound::About) {
        line.push_str("; ~ has no stated bound");
    }
    line.push('.');
    line
}

/// How the processes ended; `None` when there are none.
pub(super) fn endings(analysis: &Analysis, top: usize) -> Option<Section> {
    let endings = &analysis.endings;
    if analysis.processes.is_empty() {
        return None;
    }
    let counts = [
        (endings.oom_killed_count, "killed by the OOM killer"),
        (endings.killed_count, "ended by a signal"),
        (endings.exited_nonzero_count, "exited with an error"),
        (endings.exited_zero_count, "exited 0"),
        (endings.running_count, "running at the end"),
        (endings.unknown_count, "of unknown end"),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", words::count(*count)))
        .collect();
    let mut section = Section::new(format!("How they ended: {}", told.join(", ")));
    let columns = vec![
        words_in("HOW", 0),
        figures("PID", 0),
        flexible("PROCESS"),
        figures("AT", 1),
    ];
    let rows = endings.notable.iter().take(top).map(|group| {
        let first = group
            .members
            .first()
            .map(|&position| &analysis.processes[position]);
        let (pid, name) = match group.members.as_slice() {
            [only] => (pid(&analysis.processes[*only]), name(analysis, *only)),
            many => (
                format!("{} ×", words::count(many.len())),
                group.label.to_string(),
            ),
        };
        let at = first.and_then(|process| process.exit_boot_ns);
        let at = at.map(|boot| words::offset(&analysis.clock, boot));
        let at = match (at, group.members.len()) {
            (Some(at), 1) => at,
            (Some(at), _) => format!("from {at}"),
            (None, _) => words::UNKNOWN.to_owned(),
        };
        vec![group.ending.shown_in_full(), pid, name, at]
    });
    section.table(columns, rows.collect());
    if endings.notable.len() > top {
        let rest = words::count(endings.notable.len() - top);
        section.say(
            Tone::Quiet,
            format!("{rest} more kinds of ending: see `--format json`."),
        );
    }
    Some(section)
}
