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
mod processes;
mod roles;
mod tree;

use super::Style;
use super::words;
use crate::analyze::{Analysis, Process};

/// How many processes are listed unless the person says otherwise.
const DEFAULT_TOP: usize = 10;

/// A report in the order in which it is read.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) sections: Vec<Section>,
}

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

/// A table with at most one column that gives way when space is short.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) is_left: bool,
    /// Its cells may be shortened in the middle.
    pub(super) is_flexible: bool,
    /// Columns of a higher rank are left out first where space is short; 0 always stays.
    pub(super) rank: u8,
}

/// A column of figures.
const fn figures(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        is_left: false,
        is_flexible: false,
        rank,
    }
}

/// A column of words.
const fn words_in(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        is_left: true,
        is_flexible: false,
        rank,
    }
}

/// The column that gives way.
const fn flexible(title: &'static str) -> Column {
    Column {
        title,
        is_left: true,
        is_flexible: true,
        rank: 0,
    }
}

impl Section {
    fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            tone: Tone::Strong,
            blocks: Vec::new(),
        }
    }

    fn say(&mut self, tone: Tone, line: impl Into<String>) {
        self.blocks.push(Block::Line(tone, line.into()));
    }

    fn table(&mut self, columns: Vec<Column>, rows: Vec<Vec<String>>) {
        if !rows.is_empty() {
            self.blocks.push(Block::Table(Table { columns, rows }));
        }
    }
}

/// Writes a report down. What was lost comes first, then the OOM kills, what grows from step to
/// step and what was left behind, then the peak.
pub(super) fn build(analysis: &Analysis, style: &Style) -> Document {
    let top = style.top.unwrap_or(DEFAULT_TOP);
    let mut sections = vec![head::about(analysis, style)];
    sections.extend(head::not_visible(analysis));
    let tree = || style.has_tree.then(|| tree::tree(analysis)).flatten();
    if let Some(only) = phases::instead(analysis, style, top) {
        sections.extend(only);
        return Document { sections };
    }
    if let Some(at) = &analysis.at {
        // Who asks for an instant has read the rest.
        sections.push(holders::at(analysis, at, top));
        sections.extend(balance::ledger(analysis, at, top));
        sections.extend(gpus::gpus_at(analysis, at, top));
        sections.push(holders::peak_in_short(analysis));
        sections.extend(tree());
        return Document { sections };
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
    Document { sections }
}

/// The process id, for a column.
fn pid(process: &Process) -> String {
    process
        .tgid
        .map_or_else(|| words::UNKNOWN.to_owned(), |tgid| tgid.to_string())
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
fn name(analysis: &Analysis, position: usize) -> String {
    let process = &analysis.processes[position];
    if process.is_main {
        format!("{} (main)", process.name)
    } else {
        process.name.to_string()
    }
}

/// `22924 VLLM::Worker_TP0`: a process inside a sentence, its name kept short.
fn pid_and_name(analysis: &Analysis, position: usize) -> String {
    const WIDTH: usize = 48;
    let name = super::visible::visible(&analysis.processes[position].name).into_owned();
    let name = super::visible::shorten(&name, WIDTH);
    format!("{} {name}", pid(&analysis.processes[position]))
}
