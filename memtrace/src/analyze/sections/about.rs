//! What was recorded, how it ended, what that cost.

use crate::analyze::section::{Mode, Section, View};
use crate::analyze::{Analysis, Ending};
use crate::model::{DurationNs, RunState, Target};
use crate::report::{Chapter, shorten, words};
use schemars::JsonSchema;
use serde::Serialize;

/// From the start of a recording until its command runs, and from its end until the recording's.
const START_NS: i64 = 1_000_000_000;
/// Columns for the command: a script can be one of its arguments.
const MAX_COMMAND: usize = 180;

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct About {}

impl Section for About {
    const NAME: &'static str = "about";
    const DOC: &'static str = "what was recorded, how it ended, what that cost";
    const KEYS: &'static [&'static str] = &["recording", "cost"];
    const MODES: &'static [Mode] = Mode::ALL;

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        let mut section = Chapter::new(format!("memtrace: {}", target(&analysis.info.target)));
        if let Some(path) = analysis.path.as_deref().filter(|_| view.style.has_path) {
            section.say(format!("Read from {path}, the newest recording here"));
        }
        section.say(run_line(analysis));
        section.quiet(recorder_line(analysis));
        vec![section]
    }
}

fn target(target: &Target) -> String {
    match target {
        Target::Command { argv } => {
            let words = argv.join(" ");
            shorten(&words, MAX_COMMAND).into_owned()
        }
        Target::Pids { tgids } => {
            let tgids: Vec<String> = tgids.iter().map(ToString::to_string).collect();
            format!("pid {} and descendants", tgids.join(", "))
        }
        Target::Match { regex } => format!("processes that match {regex}, and descendants"),
        Target::Cgroup { path } => format!("cgroup {path}"),
        Target::Framework { framework, session } => {
            let session = session.as_ref().map(|session| format!(" of {session}"));
            let session = session.unwrap_or_default();
            format!("{} processes{session}, and descendants", framework.as_str())
        }
        Target::All => "every process of the machine".to_owned(),
    }
}

fn run_line(analysis: &Analysis) -> String {
    let (info, clock) = (&analysis.info, &analysis.clock);
    let mut parts = vec![info.hostname.clone()];
    parts.extend(clock.date_and_time(clock.start()));
    let recorded = clock.duration();
    if let Some(ran) = analysis.command_duration() {
        parts.push(format!("ran {}", words::duration(ran)));
    }
    if analysis
        .command_duration()
        .is_none_or(|ran| differ(ran, recorded))
    {
        parts.push(format!("recorded for {}", words::duration(recorded)));
    }
    match (&info.target, analysis.command_ending()) {
        (_, Some(ending)) => parts.push(ending.shown_in_full()),
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

fn recorder_line(analysis: &Analysis) -> String {
    let info = &analysis.info;
    let mut parts = vec![format!(
        "{} every {}",
        info.backend,
        words::interval(info.interval_ns)
    )];
    match &analysis.cost {
        Some(cost) => {
            let cpu = match cost.cpu_share {
                Some(share) => format!("{:.1}% of one CPU", share * 100.0),
                None => format!("{} of CPU time", words::duration(cost.cpu_ns)),
            };
            let rss = words::bytes_or_unknown(cost.peak_rss_bytes);
            parts.push(format!("recorder took {cpu}, {rss}"));
        }
        None => parts.push("cost of recording unknown".to_owned()),
    }
    let memory = info.mem_total_bytes.map(words::bytes);
    let memory = memory.map_or_else(String::new, |memory| format!(", {memory}"));
    parts.push(format!("{} CPUs{memory}", info.cpu_count));
    parts.push(format!("kernel {}", info.kernel));
    parts.join(" · ")
}
