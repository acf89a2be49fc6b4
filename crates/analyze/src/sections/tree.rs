//! The tree of processes.

use crate::Report;
use memtrace_model::{Bytes, Kind};
use memtrace_report::{Cell, Chapter, Mode, Section, TableOf, words};
use std::collections::HashMap;

pub(super) const SECTION: Section<Report> = Section {
    name: "tree",
    doc: "who descends from whom",
    keys: &["process_count", "processes"],
    modes: &[Mode::Whole, Mode::At],
    tell: |analysis, view| {
        if !view.style.has_tree && !view.is_alone {
            return Vec::new();
        }
        let all = analysis.peak.as_ref();
        let whole = all.and_then(|peak| peak.totals[Kind::Rss].bytes());
        let lines = analysis.process_tree.lines(&analysis.processes, whole);
        if lines.is_empty() {
            return Vec::new();
        }
        let at_peak: HashMap<usize, _> = all
            .iter()
            .flat_map(|peak| &peak.holders)
            .map(|holder| (holder.process, holder.amounts.rss()))
            .collect();
        let held = |process: &usize| at_peak.get(process).copied().unwrap_or(Some(Bytes(0)));
        let mut section = Chapter::new("Tree");
        TableOf::of(&lines)
            .flexible("process", |line| {
                let name = indent(&line.branches) + &line.who.who.shown();
                match (&*line.who.members, line.descendant_count) {
                    ([_], _) | (_, 0) => name,
                    (_, below) => format!("{name}, with {} below", words::count(below)),
                }
            })
            .figures("pid", 0, |line| analysis.pids(&line.who.members))
            .figures("own_peak_bytes", 0, |line| match *line.who.members {
                [only] => analysis.processes[only].peak.cell(),
                _ => {
                    let heaviest = Cell::Bytes(line.heaviest);
                    heaviest.shown_as(format!("max {}", heaviest.shown()))
                }
            })
            .figures(("at_peak_bytes", "AT THE PEAK"), 1, |line| {
                match *line.who.members {
                    [only] => Cell::Held(held(&only)),
                    _ => "".into(),
                }
            })
            .words("ended", 2, |line| analysis.common_ending(&line.who.members))
            .add_to(&mut section);
        vec![section]
    },
    ..Section::EMPTY
};

fn indent(branches: &[bool]) -> String {
    let mut indent = String::new();
    if let Some((goes_on, above)) = branches.split_last() {
        for branch in above {
            indent.push_str(if *branch { "│ " } else { "  " });
        }
        indent.push_str(if *goes_on { "├ " } else { "└ " });
    }
    indent
}
