//! The document that a page with pictures is made of: the report as JSON has it, and beside it
//! memory over time and every process in few words. What draws it computes no figure.
//!
//! Times are in nanoseconds since the start of the recording, amounts in bytes; unknown is null.

use super::allocations::Flame;
use super::analysis::Analysis;
use super::curves::{Band, Curves, Drawings};
use super::peak::Bound;
use super::process::Process;
use memtrace_model::tables::Severity;
use memtrace_model::{Bytes, DurationNs, Order, Tgid, Upid};
use memtrace_report::{Block, Chapter, Tone, shorten, visible, words, write_line};
use serde::Serialize;
use std::io;

const FORMAT: &str = "memtrace-page";
const VERSION: u32 = 1;

/// Lists of the report have so many lines, unless the person says otherwise.
pub(super) const TOP: usize = 500;
/// Steps of all lanes together, as long as each of them has [`LEVELS_LEAST`].
const LEVELS_MAX: usize = 120_000;
const LEVELS_LEAST: usize = 8;
/// Columns of a title.
const TITLE_MAX: usize = 300;
/// Lines of the answer, of each chapter that it is made of.
const ANSWER_MAX: usize = 12;
/// So many flags of each kind.
const FLAGS_MAX: usize = 2_000;

/// All that a page draws.
#[derive(Serialize)]
pub(super) struct Document<'a, R, D> {
    /// What object this is.
    format: &'static str,
    /// Its version: the page that reads it is made with it.
    version: u32,
    /// What was recorded, or that two recordings are compared.
    title: String,
    /// What was to be recorded, in words: the title can be of another length.
    target: String,
    /// What a person reads first.
    answer: Vec<Line>,
    /// The object of `--format json`.
    report: R,
    /// Memory over time; null where it was not gathered.
    curves: Option<&'a Curves>,
    /// The phases, in the order of their starts.
    bands: &'a [Band],
    /// What happened at an instant.
    flags: Vec<Flag>,
    /// The processes in the order of their tree, each after the one that forked it.
    processes: Vec<Lane<'a>>,
    /// How many there are; of more than 20,000 `processes` has those with the highest peaks.
    process_count: usize,
    /// Of each process resident memory by stack, where stacks were recorded.
    #[serde(skip_serializing_if = "<[Flame]>::is_empty")]
    flames: &'a [Flame],
    /// The same at the peak.
    #[serde(skip_serializing_if = "<[Flame]>::is_empty")]
    flames_at_peak: &'a [Flame],
    /// Of a comparison, the object of `memtrace diff --format json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<D>,
    /// Of a comparison, the document of the first recording; this is that of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Box<Self>>,
}

/// A line of text.
#[derive(Serialize)]
pub(super) struct Line {
    /// How it wants to be read: `plain`, `strong`, `alert`, `quiet`.
    tone: &'static str,
    /// What it says.
    text: String,
}

/// Something that happened at an instant.
#[derive(Serialize)]
pub(super) struct Flag {
    at_ns: DurationNs,
    /// `oom`, `mark`, `loss`, `peak`, `exit`, `silent`.
    kind: &'static str,
    /// What, in one sentence.
    text: String,
}

impl Flag {
    pub(super) fn new(kind: &'static str, at_ns: DurationNs, text: &str) -> Self {
        Self {
            at_ns,
            kind,
            text: visible(text).into_owned(),
        }
    }
}

/// A process over time.
#[derive(Serialize)]
struct Lane<'a> {
    upid: Upid,
    /// Its process id.
    pid: Option<Tgid>,
    /// The process that forked it, as a place in this list.
    parent: Option<usize>,
    /// What it is called.
    name: &'a str,
    /// Its last title or command line.
    title: String,
    /// Its role, as in the report's list of roles.
    role: &'a str,
    /// Its memory cgroup.
    cgroup: Option<&'a str>,
    /// When it began; before the recording, where it ran already.
    begin_ns: DurationNs,
    /// When it ended; null where it ran on.
    end_ns: Option<DurationNs>,
    /// How it ended, in words.
    ending: String,
    /// Its peak RSS.
    peak_bytes: Option<Bytes>,
    /// How that relates to the truth, as in the report.
    peak_bound: Option<&'static str>,
    /// How far away the truth is at most, where that is known.
    peak_bound_bytes: Option<Bytes>,
    /// When it was reached.
    peak_at_ns: Option<DurationNs>,
    /// Its RSS in few steps: how much later each begins than the one before, and the highest in
    /// it.
    rss: Vec<(DurationNs, Option<Bytes>)>,
}

impl<'a, R: Serialize, D: Serialize> Document<'a, R, D> {
    /// The document of a recording. The chapters of `head` are what a person reads first.
    pub(super) fn of(report: R, analysis: &'a Analysis, head: &[Chapter]) -> Self {
        let drawings = analysis.drawings.as_deref();
        let title = head
            .first()
            .map_or("memtrace", |first| first.title.as_str());
        Self {
            format: FORMAT,
            version: VERSION,
            title: visible(title).into_owned(),
            target: visible(&words::target(&analysis.info.target)).into_owned(),
            answer: answer(head),
            report,
            curves: drawings.map(|drawings| &drawings.curves),
            bands: drawings.map_or(&[], |drawings| &drawings.bands),
            flags: flags(analysis),
            processes: lanes(analysis, drawings),
            process_count: analysis.processes.len(),
            flames: drawings.map_or(&[], |drawings| &drawings.flames),
            flames_at_peak: drawings.map_or(&[], |drawings| &drawings.flames_at_peak),
            diff: None,
            other: None,
        }
    }

    /// The same of a comparison with another.
    pub(super) fn compared(self, diff: D, other: Self) -> Self {
        Self {
            diff: Some(diff),
            other: Some(Box::new(other)),
            ..self
        }
    }

    /// Writes it as one line of JSON.
    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write_line(self, out)
    }
}

/// The lines of chapters, each below its title; the first title stands above all of it.
pub(super) fn answer(head: &[Chapter]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (place, chapter) in head.iter().enumerate() {
        if place > 0 {
            lines.push(line(chapter.tone, &chapter.title));
        }
        let reported = chapter.blocks.iter().filter_map(|block| match block {
            Block::Line(tone, text) => Some(line(*tone, text)),
            Block::Command(text) => Some(line(Tone::Plain, &format!("`{text}`"))),
            Block::Drawing(_) | Block::Table(_) => None,
        });
        lines.extend(reported.take(ANSWER_MAX));
    }
    lines
}

fn line(tone: Tone, text: &str) -> Line {
    Line {
        tone: match tone {
            Tone::Plain => "plain",
            Tone::Strong => "strong",
            Tone::Alert => "alert",
            Tone::Quiet => "quiet",
        },
        text: visible(text).into_owned(),
    }
}

fn flags(analysis: &Analysis) -> Vec<Flag> {
    let clock = &analysis.clock;
    let flag = |kind, at_ns, text: String| Flag::new(kind, at_ns, &text);
    let mut flags = Vec::new();
    let kills = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
    flags.extend(kills.take(FLAGS_MAX).map(|kill| {
        let name = kill.victim_name.as_deref().unwrap_or("another process");
        let text = format!("OOM kill of {} {name}", kill.row.victim_tgid);
        flag("oom", kill.at.offset_ns, text)
    }));
    if let Some(peak) = &analysis.peak {
        let text = match peak.held {
            Some(held) => format!("peak: {} held", words::bytes(held.all().bytes)),
            None => "peak of the sum of RSS".to_owned(),
        };
        flags.push(flag("peak", peak.at.offset_ns, text));
    }
    let losses = analysis.losses.iter();
    let losses = losses.filter(|loss| loss.severity != Severity::Info);
    let losses = losses.filter_map(|loss| Some((loss.first?.offset_ns, loss.detail.clone())));
    flags.extend(
        losses
            .take(FLAGS_MAX)
            .map(|(at, text)| flag("loss", at, text)),
    );
    let main = analysis.processes.iter().find(|process| process.is_main);
    if let Some((main, end)) = main.and_then(|main| Some((main, main.end?))) {
        let text = format!("{} ended: {}", main.name, main.ended_in_words());
        flags.push(flag("exit", clock.offset(end.boot_ns), text));
    }
    let moments = analysis.drawings.iter();
    let moments = moments.flat_map(|drawings| &drawings.moments);
    flags.extend(
        moments
            .take(FLAGS_MAX)
            .map(|(at, name)| flag("mark", *at, name.to_string())),
    );
    flags.order_by_key(|flag| flag.at_ns);
    flags
}

fn lanes<'a>(analysis: &'a Analysis, drawings: Option<&Drawings>) -> Vec<Lane<'a>> {
    let processes = &analysis.processes;
    let Some(Drawings { levels, .. }) = drawings else {
        return Vec::new();
    };
    let steps_max = (LEVELS_MAX / levels.len().max(1)).max(LEVELS_LEAST);
    let start = analysis.clock.start();
    let mut places: Vec<Option<usize>> = vec![None; processes.len()];
    let mut lanes = Vec::new();
    let mut open: Vec<usize> = analysis.process_tree.roots().to_vec();
    open.reverse();
    // A loop of parents, in a recording that was made up, has no root.
    while let Some(place) = open.pop() {
        let children = analysis.process_tree.children(place);
        open.extend(children.iter().rev());
        let Some(levels) = levels.get(&place) else {
            continue;
        };
        let process = &processes[place];
        places[place] = Some(lanes.len());
        let rss = levels.steps(start, steps_max);
        let parent = process.parent.and_then(|parent| places[parent]);
        lanes.push(lane(process, parent, rss, analysis));
    }
    lanes
}

fn lane<'a>(
    process: &'a Process,
    parent: Option<usize>,
    mut rss: Vec<(DurationNs, Option<Bytes>)>,
    analysis: &Analysis,
) -> Lane<'a> {
    let mut before = DurationNs(0);
    for (at, _) in &mut rss {
        let gap = DurationNs(at.0.saturating_sub(before.0));
        before = std::mem::replace(at, gap);
    }
    let title = process.title.as_ref().or(process.cmdline.as_ref());
    let title = title.map_or("", |title| title);
    let peak = &process.peak;
    let bound = peak.rss_bytes.map(|_| peak.bound);
    Lane {
        upid: process.upid,
        pid: process.tgid,
        parent,
        name: &process.name,
        title: shorten(&visible(title), TITLE_MAX).into_owned(),
        role: &process.group,
        cgroup: process.cgroup.as_deref(),
        begin_ns: analysis.clock.offset(process.start.boot_ns),
        end_ns: process.exit_boot_ns().map(|end| analysis.clock.offset(end)),
        ending: process.ended_in_short(),
        peak_bytes: peak.rss_bytes,
        peak_bound: bound.map(Bound::as_str),
        peak_bound_bytes: bound.and_then(Bound::error),
        peak_at_ns: peak.at.map(|at| at.offset_ns),
        rss,
    }
}
