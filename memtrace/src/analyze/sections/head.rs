//! What was recorded, how it ended, what it cost; and what is missing.

use super::MORE_IN_JSON;
use crate::analyze::{Analysis, Ending, Loss};
use crate::model::tables::{DiagKind, Severity};
use crate::model::{DurationNs, Instant, RunState, Target};
use crate::report::{Block, Style, Told, Tone, shorten, words};

/// More losses than this, and the rest is a number: the answer must stay on the first screen.
const MAX_LINES: usize = 5;
/// From the start of a recording until its command runs, and from its end until the recording's.
const START_NS: i64 = 1_000_000_000;
/// Columns for the command: a script can be one of its arguments.
const MAX_COMMAND: usize = 180;

/// Command, host, time, end, backend, cost.
pub(super) fn about(analysis: &Analysis, style: &Style) -> Told {
    let mut section = Told::new(format!("memtrace: {}", target(&analysis.info.target)));
    if let Some(path) = analysis.path.as_deref().filter(|_| style.has_path) {
        section.say(format!("Read from {path}, the newest recording here"));
    }
    section.say(run_line(analysis));
    section.quiet(recorder_line(analysis));
    section
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
    parts.extend(clock.to_wall(clock.start()).and_then(words::date_and_time));
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

/// What to know before trusting an absence; `None` when there is nothing.
pub(super) fn not_visible(analysis: &Analysis) -> Option<Told> {
    let mut section = Told::alarming("Lost or not visible");
    match analysis.info.state {
        RunState::Closed => {}
        RunState::Recording if analysis.is_live => {
            section.say("Still being recorded: this is what was written so far.")
        }
        RunState::Recording => {
            let dir = analysis.path.as_deref().unwrap_or("DIR");
            let text = format!(
                "Not closed: {} `memtrace recover {dir}` closes it.",
                cut_off(analysis)
            );
            section.alert(text);
        }
        RunState::Recovered => {
            let text = format!("Closed by `memtrace recover`: {}", cut_off(analysis));
            section.say(text);
        }
    }
    for problem in &analysis.problems {
        section.alert(sentence(problem));
    }
    if analysis.info.is_polled() {
        let info = &analysis.info;
        let told = format!(
            "Recorded with {}, not bpf: {}",
            info.backend, info.backend_reason
        );
        section.say(sentence(&told));
    }
    let missing: Vec<&Loss> = analysis
        .losses
        .iter()
        .filter(|loss| loss.severity != Severity::Info)
        // The state says so above.
        .filter(|loss| loss.kind != Some(DiagKind::Recovered))
        .collect();
    for loss in missing.iter().take(MAX_LINES) {
        let tone = match loss.severity {
            Severity::Loss => Tone::Alert,
            Severity::Degraded | Severity::Info => Tone::Plain,
        };
        section.tell(tone, [told(loss)]);
    }
    section.rest(missing.len(), MAX_LINES, words::count, MORE_IN_JSON);
    let is_empty = !section.blocks.iter().any(|b| matches!(b, Block::Line(..)));
    (!is_empty).then_some(section)
}

/// What is missing of a recording that its recorder did not close. It could not write down why.
fn cut_off(analysis: &Analysis) -> String {
    let clock = &analysis.clock;
    let end = words::after(clock.duration());
    format!(
        "the recorder's last row is of {end}. If it was killed then, at most a second is missing; \
         if its disk was full, all that came later."
    )
}

fn told(loss: &Loss) -> String {
    let mut line = match (loss.severity, loss.count) {
        (Severity::Loss, Some(count)) => format!("Lost {} × ", words::count(count)),
        (Severity::Loss, None) => "Lost: ".to_owned(),
        (_, Some(count)) => format!("{} × ", words::count(count)),
        (_, None) => String::new(),
    };
    // Details name their subject where a sentence needs it.
    if loss.count.is_none() && loss.detail.contains(&loss.subject) {
        line.push_str(&loss.detail);
    } else {
        line.push_str(&format!("{}: {}", loss.subject, loss.detail));
    }
    // What could not be seen from the begin needs no time.
    let has_span = |first: &Instant| {
        let is_of_all = loss.kind == Some(DiagKind::Unavailable) && first.offset_ns.0 < START_NS;
        let is_timed = matches!(loss.kind, Some(DiagKind::BackOff | DiagKind::Unavailable));
        loss.severity == Severity::Loss || (is_timed && !is_of_all)
    };
    if let Some((first, last)) = loss.first.filter(has_span).zip(loss.last) {
        let first_offset = words::after(first.offset_ns);
        let last_offset = words::after(last.offset_ns);
        if first_offset == last_offset {
            line.push_str(&format!(" ({first_offset})"));
        } else {
            line.push_str(&format!(" ({first_offset} to {last_offset})"));
        }
    }
    sentence(&line)
}

fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}
