//! The tree of processes.

use super::{Section, figures, flexible, name, pid, words_in};
use crate::analyze::{Analysis, TreeLine};
use crate::report::words;
use std::collections::HashMap;

/// The tree view, the heaviest branch first; `None` when there are no processes.
pub(super) fn tree(analysis: &Analysis) -> Option<Section> {
    let peak = analysis.peak.as_ref();
    let whole = peak.and_then(|peak| peak.totals.rss.bytes());
    let lines = analysis.family.lines(&analysis.processes, whole);
    if lines.is_empty() {
        return None;
    }
    let at_peak: HashMap<usize, _> = peak
        .iter()
        .flat_map(|peak| &peak.holders)
        .map(|holder| (holder.process, holder.amounts.rss()))
        .collect();
    let held = |position: usize| match at_peak.get(&position) {
        Some(rss) => words::bytes_or_dash(*rss),
        None => "-".to_owned(),
    };
    let mut section = Section::new("Tree");
    let columns = vec![
        flexible("PROCESS"),
        figures("PID", 0),
        figures("OWN PEAK", 0),
        figures("AT THE PEAK", 1),
        words_in("ENDED", 2),
    ];
    let rows = lines.iter().map(|line| match line {
        TreeLine::One { branches, process } => one(analysis, branches, *process, held(*process)),
        TreeLine::Many {
            branches,
            label,
            members,
            descendant_count,
            heaviest,
        } => {
            let below = match descendant_count {
                0 => String::new(),
                below => format!(", with {} below", words::count(*below)),
            };
            let count = words::count(members.len());
            let peak = heaviest.map_or_else(|| words::UNKNOWN.to_owned(), words::bytes);
            vec![
                format!("{}{label}{below}", indent(branches)),
                format!("{count} ×"),
                format!("max {peak}"),
                String::new(),
                super::common_ending(analysis, members),
            ]
        }
    });
    section.table(columns, rows.collect());
    Some(section)
}

fn one(analysis: &Analysis, branches: &[bool], position: usize, held: String) -> Vec<String> {
    let process = &analysis.processes[position];
    vec![
        format!("{}{}", indent(branches), name(analysis, position)),
        pid(process),
        words::peak(&process.peak),
        held,
        process.ending.shown(),
    ]
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
