//! The sections of a report: what each says of the findings, in lines and tables. [`build`] puts
//! them in order.

mod balance;
mod gpus;
mod growth;
mod head;
mod holders;
mod kills;
mod leftovers;
mod mappings;
pub(super) mod phases;
pub(super) mod processes;
mod roles;
mod tree;

use crate::analyze::{Analysis, Peak, PeakAt, Who};
use crate::model::{Bytes, Instant};
use crate::report::{Cell, Style, Told, shorten, visible, words};

/// How many processes are listed unless the person says otherwise.
pub(super) const DEFAULT_TOP: usize = 10;

/// What is said of a list that is cut.
const MORE_IN_JSON: &str = " more: see `--format json`.";

/// Writes a report down. What was lost comes first, then the OOM kills, what grows from step to
/// step and what was left behind, then the peak.
pub(super) fn build(analysis: &Analysis, style: &Style) -> Vec<Told> {
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
    Cell::Bytes(peak.rss_bytes).shown_as(peak.in_words())
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
    let name = visible(who.name.as_deref().unwrap_or_default()).into_owned();
    let name = shorten(&name, WIDTH);
    format!("{} {name}", Cell::known(who.pid).shown())
}

#[cfg(test)]
mod tests;
