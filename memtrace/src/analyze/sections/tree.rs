//! The tree of processes.

use crate::analyze::section::{Mode, Section, View};
use crate::analyze::{Analysis, TreeLine, Who};
use crate::model::{Bytes, Kind};
use crate::report::{Cell, Chapter, TableOf, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::slice;

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Tree {}

impl Section for Tree {
    const NAME: &'static str = "tree";
    const DOC: &'static str = "who descends from whom";
    const KEYS: &'static [&'static str] = &["process_count", "processes"];
    const MODES: &'static [Mode] = &[Mode::Whole, Mode::At];

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        if !view.style.has_tree && !view.is_alone {
            return Vec::new();
        }
        let all = analysis.peak.as_ref();
        let whole = all.and_then(|peak| peak.totals[Kind::Rss].bytes());
        let lines = analysis.family.lines(&analysis.processes, whole);
        if lines.is_empty() {
            return Vec::new();
        }
        let at_peak: HashMap<usize, _> = all
            .iter()
            .flat_map(|peak| &peak.holders)
            .map(|holder| (holder.process, holder.amounts.rss()))
            .collect();
        let held = |process| at_peak.get(process).copied().unwrap_or(Some(Bytes(0)));
        let mut section = Chapter::new("Tree");
        TableOf::of(&lines)
            .flexible("process", |line| match line {
                TreeLine::One { branches, process } => {
                    indent(branches) + &Who::from(&analysis.processes[*process]).shown()
                }
                TreeLine::Many {
                    branches,
                    label,
                    descendant_count,
                    ..
                } => match descendant_count {
                    0 => format!("{}{label}", indent(branches)),
                    below => {
                        let below = words::count(*below);
                        format!("{}{label}, with {below} below", indent(branches))
                    }
                },
            })
            .figures("pid", 0, |line| analysis.pids(members(line)))
            .figures("own_peak_bytes", 0, |line| match line {
                TreeLine::One { process, .. } => analysis.processes[*process].peak.cell(),
                TreeLine::Many { heaviest, .. } => {
                    let heaviest = Cell::Bytes(*heaviest);
                    heaviest.shown_as(format!("max {}", heaviest.shown()))
                }
            })
            .figures(("at_peak_bytes", "AT THE PEAK"), 1, |line| match line {
                TreeLine::One { process, .. } => Cell::Held(held(process)),
                TreeLine::Many { .. } => "".into(),
            })
            .words("ended", 2, |line| analysis.common_ending(members(line)))
            .add_to(&mut section);
        vec![section]
    }
}

fn members(line: &TreeLine) -> &[usize] {
    match line {
        TreeLine::One { process, .. } => slice::from_ref(process),
        TreeLine::Many { members, .. } => members,
    }
}

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
