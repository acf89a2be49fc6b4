//! Which of the two it is: the main process or what it started.

use crate::{Analysis, Report, TreeFinding};
use memtrace_model::{Bytes, Kind, Target};
use memtrace_report::words::bytes;
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, one_part, words};

pub(super) const SECTION: Section<Report> = Section {
    name: "trees",
    doc: "main process against descendants",
    keys: &["trees"],
    tables: Some(|analysis, top| one_part(table(analysis, top))),
    tell: |analysis, view| {
        let has_descendants = analysis.trees.iter().any(|tree| tree.descendant_count > 0);
        let is_reported = !matches!(analysis.info.target, Target::All) && has_descendants;
        if !is_reported || analysis.peak.is_none() {
            return Vec::new();
        }
        let whole = whole_rss(analysis);
        let mut section = Chapter::new(match analysis.trees.as_slice() {
            [tree] => format!(
                "The main process held {} of the sum of RSS at the peak, its descendants {}",
                words::share(tree.root_at_peak_bytes, whole),
                words::share(tree.descendants_at_peak_bytes, whole),
            ),
            _ => "The trees by RSS, main process against descendants".to_owned(),
        });
        section.table(table(analysis, view.top));
        section.rest(analysis.trees.len(), view.top, words::count, " more trees.");
        vec![section]
    },
    ..Section::EMPTY
};

fn table(analysis: &Analysis, top: usize) -> Table {
    let whole = whole_rss(analysis);
    let mains = analysis.trees.iter().take(top).map(|tree| (tree, true));
    let lines = mains.flat_map(|line| {
        let has_descendants = line.0.descendant_count > 0;
        [Some(line), has_descendants.then_some((line.0, false))]
    });
    let root = |tree: &TreeFinding| &analysis.processes[tree.root];
    let mark = if analysis.info.is_polled() {
        "≥ "
    } else {
        ""
    };
    let held = |tree: &TreeFinding, is_main| match is_main {
        true => tree.root_at_peak_bytes,
        false => tree.descendants_at_peak_bytes,
    };
    TableOf::of(lines.flatten())
        .words(("part", ""), 0, |(_, is_main)| match is_main {
            true => "main",
            false => "descendants",
        })
        .data("root_upid", |(tree, _)| tree.root_upid.to_string())
        .flexible("who", |(tree, is_main)| match is_main {
            true => format!("{} {}", Cell::known(tree.root_pid).shown(), tree.root_name),
            false => format!("{} together", words::processes(tree.descendant_count)),
        })
        .figures(
            ("at_peak_bytes", "AT THE PEAK"),
            0,
            |(tree, is_main)| match is_main {
                true => Cell::Bytes(tree.root_at_peak_bytes),
                false => Cell::Held(tree.descendants_at_peak_bytes),
            },
        )
        .figures("share", 2, |(tree, is_main)| {
            Cell::Share(held(tree, *is_main), whole)
        })
        .figures("own_peak_bytes", 1, |(tree, is_main)| {
            match (is_main, tree.descendants_peak_bytes) {
                (true, _) => root(tree).peak.cell(),
                (false, Some(peak)) => Cell::from(peak).shown_as(format!("{mark}{}", bytes(peak))),
                (false, None) => Cell::shown_only("-"),
            }
        })
        .figures("at_s", 3, |(tree, is_main)| match is_main {
            true => root(tree).peak.time_cell().unwrap_or_else(|| "".into()),
            false => Cell::reached(tree.descendants_peak_at),
        })
        .done()
}

/// The sum of RSS at the peak.
fn whole_rss(analysis: &Analysis) -> Option<Bytes> {
    analysis.peak.as_ref()?.totals[Kind::Rss].bytes()
}
