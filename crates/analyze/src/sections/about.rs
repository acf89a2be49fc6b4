//! What was recorded, and the answer in short.

use super::answer;
use crate::answer::tell;
use crate::{Analysis, Ending, Report};
use memtrace_model::{DurationNs, RunState, Target};
use memtrace_report::{Chapter, Mode, Section, shorten, words};

/// From the start of a recording until its command runs, and from its end until the recording's.
const START_NS: i64 = 1_000_000_000;
/// Columns for what was recorded, so that it is one line: a script can be one of its arguments.
const MAX_COMMAND: usize = 64;

pub(super) const SECTION: Section<Report> = Section {
    name: "about",
    doc: "what was recorded, and the answer in short",
    keys: &["recording", "answer", "limits"],
    modes: Mode::ALL,
    tell: |analysis, view| {
        let target = words::target(&analysis.info.target);
        let target = shorten(&target, view.most(MAX_COMMAND));
        let mut section = Chapter::new(format!("memtrace: {target}"));
        // The answer ends with a command that has it.
        let is_answered = view.mode == Mode::Whole;
        let has_path = view.style.has_path && !is_answered;
        if let Some(path) = analysis.path.as_deref().filter(|_| has_path) {
            section.say(format!("Read from {path}, the newest recording here"));
        }
        section.say(run_line(analysis));
        if is_answered {
            tell(&mut section, answer::lines(analysis));
        }
        vec![section]
    },
    ..Section::EMPTY
};

fn run_line(analysis: &Analysis) -> String {
    let (info, clock) = (&analysis.info, &analysis.clock);
    let mut parts = vec![info.hostname.clone()];
    parts.extend(clock.date_and_time(clock.start()));
    let recorded = clock.duration();
    if let Some(ran) = analysis.command_duration() {
        let start = analysis.command_start().map(words::after);
        let start = start.map_or_else(String::new, |start| format!(" from {start}"));
        parts.push(format!("ran {}{start}", words::duration(ran)));
    }
    if analysis
        .command_duration()
        .is_none_or(|ran| differ(ran, recorded))
    {
        parts.push(format!("recorded for {}", words::duration(recorded)));
    }
    if let Some(downsampled) = info.downsampled {
        let period = words::interval(downsampled.period_ns);
        let in_part = if downsampled.is_complete {
            ""
        } else {
            "in part "
        };
        parts.push(format!("downsampled {in_part}to {period}"));
    }
    // Who had asked it to end is said below.
    let how = match analysis.command_ending() {
        Some(ending @ Ending::Exited(_)) => Some(ending.shown_in_full()),
        _ => analysis.command_ended_in_words(),
    };
    match (&info.target, how) {
        (_, Some(how)) => parts.push(how),
        (Target::Command { .. }, None) if is_still_running(analysis) => {
            parts.push("still running".to_owned());
        }
        (Target::Command { .. }, None) => parts.push("exit code unknown".to_owned()),
        (_, None) => {}
    }
    parts.push(words::processes(analysis.processes.len()));
    parts.join(" · ")
}

/// Whether a command ran for another time than was recorded, by more than a few percent and what
/// starting takes: its survivors were waited for.
fn differ(ran: DurationNs, recorded: DurationNs) -> bool {
    (recorded.0 - ran.0).abs() > (recorded.0 / 25).max(START_NS)
}

/// Whether the main process ran when the recording stopped. One that was cut off can't tell.
fn is_still_running(analysis: &Analysis) -> bool {
    let mut processes = analysis.processes.iter();
    let is_seen = analysis.is_live || analysis.info.state == RunState::Closed;
    is_seen && processes.any(|process| process.is_main && process.ending == Ending::Running)
}
