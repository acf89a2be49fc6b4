//! What a report says, before it is laid out: sections of lines and tables, which `text` and
//! `md` render. One file per group of sections; [`build`] puts them in order.

mod balance;
pub(super) mod diff;
mod gpus;
mod growth;
mod head;
mod holders;
mod kills;
mod leftovers;
mod mappings;
mod phases;
pub(super) mod processes;
mod roles;
mod tree;

use super::table::{Cell, Table, TableOf};
use super::{Report, Style, words};
use crate::analyze::{Analysis, Peak, PeakAt, Who};
use crate::model::{Bytes, Instant};

/// How many processes are listed unless the person says otherwise.
const DEFAULT_TOP: usize = 10;

/// What is said of a list that is cut.
const MORE_IN_JSON: &str = " more: see `--format json`.";

/// A heading with what belongs to it.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) tone: Tone,
    pub(super) blocks: Vec<Block>,
}

/// How a line wants to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// The answer.
    Strong,
    /// Something is wrong, or missing.
    Alert,
    /// A remark on what stands above.
    Quiet,
}

/// A part of a section.
#[derive(Debug)]
pub(super) enum Block {
    /// A sentence or more.
    Line(Tone, String),
    /// A drawing that must not be wrapped.
    Drawing(String),
    Table(Table),
}

impl Section {
    fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            tone: Tone::Strong,
            blocks: Vec::new(),
        }
    }

    /// A section about something that is wrong.
    fn alarming(title: impl Into<String>) -> Self {
        Self {
            tone: Tone::Alert,
            ..Self::new(title)
        }
    }

    /// Says what there is to say: one line, none, or several.
    fn tell(&mut self, tone: Tone, lines: impl IntoIterator<Item = String>) {
        let lines = lines.into_iter().map(|line| Block::Line(tone, line));
        self.blocks.extend(lines);
    }

    fn say(&mut self, line: impl Into<String>) {
        self.tell(Tone::Plain, [line.into()]);
    }

    fn strong(&mut self, line: impl Into<String>) {
        self.tell(Tone::Strong, [line.into()]);
    }

    fn alert(&mut self, line: impl Into<String>) {
        self.tell(Tone::Alert, [line.into()]);
    }

    fn quiet(&mut self, line: impl Into<String>) {
        self.tell(Tone::Quiet, [line.into()]);
    }

    fn table(&mut self, table: Table) {
        if table.row_count() > 0 {
            self.blocks.push(Block::Table(table));
        }
    }

    /// What is said of those that a list leaves out, when there are any.
    fn rest(&mut self, all: usize, top: usize, count: impl Fn(usize) -> String, words: &str) {
        if all > top {
            self.quiet(count(all - top) + words);
        }
    }
}

impl<R> TableOf<R> {
    fn add_to(self, section: &mut Section) {
        section.table(self.done());
    }
}

/// Writes a report down. What was lost comes first, then the OOM kills, what grows from step to
/// step and what was left behind, then the peak.
pub(super) fn build(report: &Report<'_>, style: &Style) -> Vec<Section> {
    match report {
        Report::One(analysis) => of_one(analysis, style),
        Report::Diff(told) => diff::build(told, style),
    }
}

fn of_one(analysis: &Analysis, style: &Style) -> Vec<Section> {
    let top = style.top.unwrap_or(DEFAULT_TOP);
    let mut sections = vec![head::about(analysis, style)];
    sections.extend(head::not_visible(analysis));
    let tree = || style.has_tree.then(|| tree::tree(analysis)).flatten();
    if let Some(only) = phases::instead(analysis, style, top) {
        sections.extend(only);
        return sections;
    }
    if let Some(at) = &analysis.at {
        // Who asks for an instant has read the rest.
        sections.push(holders::at(analysis, at, top));
        sections.extend(balance::ledger(analysis, at, top));
        sections.extend(gpus::gpus_at(analysis, at, top));
        sections.push(holders::peak_in_short(analysis));
        sections.extend(tree());
        return sections;
    }
    sections.extend(kills::oom_kills(analysis, top));
    sections.extend(phases::leaks(analysis));
    sections.extend(leftovers::survivors(analysis, top));
    sections.extend(leftovers::objects(analysis, top));
    sections.push(holders::peak(analysis, top));
    let peak = analysis.peak.as_ref();
    sections.extend(peak.and_then(|peak| balance::ledger(analysis, peak, top)));
    sections.extend(roles::by_role(analysis, top));
    sections.extend(gpus::gpus(analysis, top));
    sections.extend(holders::main_and_descendants(analysis, top));
    sections.extend(phases::phases(analysis, style, top));
    sections.extend(processes::by_peak(analysis, top));
    sections.extend(tree());
    sections.extend(growth::growth(analysis, top));
    sections.extend(mappings::mappings(analysis, top));
    sections.extend(processes::endings(analysis, top));
    sections
}

/// Id and name of a process, for two columns.
fn who(who: &Who) -> [Cell; 2] {
    [Cell::known(who.pid), name(who).into()]
}

/// The process id, or how many processes stand in one line.
fn pids(analysis: &Analysis, members: &[usize]) -> Cell {
    match members {
        [only] => Cell::known(analysis.processes[*only].tgid),
        many => words::times(many.len()).into(),
    }
}

/// Several processes in one line: how many, and what they are called. One alone is told as usual.
fn bundle(analysis: &Analysis, members: &[usize], label: String) -> [Cell; 2] {
    match members {
        [only] => who(&Who::from(&analysis.processes[*only])),
        many => [words::times(many.len()).into(), label.into()],
    }
}

/// The peak of a process with its bound, for a column.
fn peak(peak: &Peak) -> Cell {
    Cell::Bytes(peak.rss_bytes).shown_as(words::peak(peak))
}

/// When a process had its peak, for a column; `None` when unknown.
fn peak_time(peak: &Peak) -> Option<Cell> {
    match peak.at {
        Some(at) => Some(at.into()),
        None => peak.is_earlier.then(|| Cell::shown_only("before")),
    }
}

/// How much a peak was.
fn highest(peak: Option<PeakAt>) -> Option<Bytes> {
    peak.map(|(bytes, _)| bytes)
}

/// When a peak was, for a column; nothing where there is none.
fn reached(at: Option<Instant>) -> Cell {
    at.map_or_else(|| "".into(), Cell::from)
}

/// How several processes ended, if in one way.
fn common_ending(analysis: &Analysis, members: &[usize]) -> String {
    let mut endings = members
        .iter()
        .map(|&place| analysis.processes[place].ending);
    match endings.next() {
        Some(first) if endings.all(|ending| ending == first) => first.shown(),
        Some(_) => "various".to_owned(),
        None => String::new(),
    }
}

/// The name of a process, marked where it is the main one.
fn name(who: &Who) -> String {
    let name = who.name.as_deref().unwrap_or_default();
    match who.is_main {
        true => format!("{name} (main)"),
        false => name.to_owned(),
    }
}

/// `22924 VLLM::Worker_TP0`: a process inside a sentence, its name kept short.
fn in_words(who: &Who) -> String {
    const WIDTH: usize = 48;
    let name = super::visible::visible(who.name.as_deref().unwrap_or_default()).into_owned();
    let name = super::visible::shorten(&name, WIDTH);
    format!("{} {name}", Cell::known(who.pid).shown())
}
