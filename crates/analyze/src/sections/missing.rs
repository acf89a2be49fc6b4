//! What is missing: what was lost, and what could not be seen.

use crate::{Analysis, Loss, Report};
use memtrace_model::tables::{DiagKind, Severity};
use memtrace_model::{Instant, RunState, quoted};
use memtrace_report::{Block, Chapter, MORE_IN_JSON, Mode, Section, Tone, words};

/// More losses than this, and the rest is a number: the answer must stay on the first screen.
const MAX_LINES: usize = 5;
/// What could not be seen from this time on was not seen from the start.
const START_NS: i64 = 1_000_000_000;

/// What to know before trusting an absence.
pub(super) const SECTION: Section<Report> = Section {
    name: "missing",
    doc: "what was lost or not visible",
    keys: &["losses", "notes"],
    modes: Mode::ALL,
    tell: |analysis, view| {
        let mut section = Chapter::alarming("Lost or not visible");
        match analysis.info.state {
            RunState::Closed => {}
            RunState::Recording if analysis.is_live => {
                section.say("Still being recorded: this is what was written so far.")
            }
            RunState::Recording if analysis.is_open => {
                section.say(format!("Open: {}", last_heard_of(analysis)));
            }
            RunState::Recording => {
                let dir = analysis.path.as_deref().map_or("DIR".into(), quoted);
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
            let given = format!(
                "Recorded with {}, not bpf: {}",
                info.backend, info.backend_reason
            );
            section.say(sentence(&given));
        }
        let missing: Vec<&Loss> = missing(analysis).collect();
        let most = view.most(MAX_LINES);
        for loss in missing.iter().take(most) {
            section.tell(tone(loss), [shown(loss)]);
        }
        section.rest(missing.len(), most, words::count, MORE_IN_JSON);
        let is_empty = !section.blocks.iter().any(|b| matches!(b, Block::Line(..)));
        match is_empty {
            true => Vec::new(),
            false => vec![section],
        }
    },
    ..Section::EMPTY
};

/// What was lost or seen less well, but for what the state of the recording says.
fn missing(analysis: &Analysis) -> impl Iterator<Item = &Loss> {
    let losses = analysis.losses.iter();
    let losses = losses.filter(|loss| loss.severity != Severity::Info);
    losses.filter(|loss| loss.kind != Some(DiagKind::Recovered))
}

/// The same with its state and with files that are not whole, each as a line.
pub(crate) fn lines(analysis: &Analysis) -> impl Iterator<Item = (Tone, String)> {
    let cut_off = is_cut_off(analysis).then(|| (Tone::Alert, cut_off(analysis)));
    let problems = analysis.problems.iter();
    let problems = problems.map(|problem| (Tone::Alert, sentence(problem)));
    let all = cut_off.into_iter().chain(problems);
    all.chain(missing(analysis).map(|loss| (tone(loss), shown(loss))))
}

fn tone(loss: &Loss) -> Tone {
    match loss.severity {
        Severity::Loss => Tone::Alert,
        Severity::Degraded | Severity::Info => Tone::Plain,
    }
}

fn files(count: usize) -> String {
    match count {
        1 => "1 file is".to_owned(),
        many => format!("{} files are", words::count(many)),
    }
}

/// That something was lost, in a sentence.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let is_loss = |loss: &&Loss| loss.severity == Severity::Loss;
    let losses = missing(analysis).filter(is_loss).count();
    let damaged = analysis.problems.len();
    let parts = [
        (analysis.is_open).then(|| "the recording is open".to_owned()),
        is_cut_off(analysis).then(|| "the recording was not closed".to_owned()),
        (damaged > 0).then(|| format!("{} damaged or missing", files(damaged))),
        (losses > 0).then(|| match losses {
            1 => "something was lost".to_owned(),
            many => format!("{} things were lost", words::count(many)),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{} (`--section missing`).", parts.join(", ")))
}

fn is_cut_off(analysis: &Analysis) -> bool {
    analysis.info.state != RunState::Closed && !analysis.is_live && !analysis.is_open
}

/// What is missing of a recording that its recorder did not close. It could not write down why.
fn cut_off(analysis: &Analysis) -> String {
    let clock = &analysis.clock;
    let end = words::after(clock.duration());
    format!(
        "the recorder's last row is from {end}. If it was killed then, at most a second is \
         missing; if its disk was full, everything later is missing."
    )
}

/// Until when there is something of a recording whose end is not here.
fn last_heard_of(analysis: &Analysis) -> String {
    let clock = &analysis.clock;
    let end = clock.when(clock.at(clock.end()));
    let host = analysis.info.host_name();
    format!(
        "the last data from {host} is from {end}. If the host is up, later data is on its way; if \
         it was lost, later data is missing."
    )
}

fn shown(loss: &Loss) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{RUNS, Reported};

    #[test]
    fn a_recording_whose_parts_came_here_is_open_and_last_heard_of_and_not_cut_off() {
        let (_, script, _) = RUNS[0];
        let mut reported = script().reported(None, None);
        let analysis = &mut reported.analysis;
        analysis.losses.clear();
        analysis.info.state = RunState::Recording;
        let cut_off = in_short(analysis).expect("it was not closed");
        assert!(cut_off.contains("was not closed"), "{cut_off}");
        analysis.is_open = true;
        let open = in_short(analysis).expect("it is open");
        assert!(open.starts_with("the recording is open ("), "{open}");
        let heard = last_heard_of(analysis);
        let end = analysis.clock.when(analysis.clock.at(analysis.clock.end()));
        assert!(heard.contains(&end), "{heard}");
        assert!(heard.contains(analysis.info.host_name()), "{heard}");
    }
}
