//! The phases as a log, in the order of their ends.

use super::{attributes, is_end_of_nothing, label, pid_of, took, unmarked};
use crate::analyze::{Analysis, Phase, PhaseLine, Phases};
use crate::model::{Bytes, Instant};
use crate::report::{Cell, Chapter, Table, TableOf, words};

/// Phases as they ended, with what each added and the sum so far, in MiB.
pub(super) fn log(analysis: &Analysis) -> Chapter {
    let Some(phases) = &analysis.phases else {
        return unmarked();
    };
    let mut section = Chapter::new(format!(
        "Phases as they ended, above the {} at {}",
        words::bytes_or_unknown(phases.baseline.rss()),
        words::after(phases.baseline_at.offset_ns),
    ));
    section.table(table(Some(phases), usize::MAX));
    section
}

/// A line for each phase, and for those that are told as one.
pub(super) fn table(phases: Option<&Phases>, top: usize) -> Table {
    let lines = phases.iter().flat_map(|phases| &phases.lines);
    let mut lines: Vec<&PhaseLine> = lines.collect();
    lines.sort_by_key(|line| end(line));
    lines.truncate(top);
    table_of(lines, phases.is_some_and(Phases::has_gpu))
}

/// A line each, in this order.
pub fn table_of(lines: Vec<&PhaseLine>, has_gpu: bool) -> Table {
    TableOf::of(lines)
        .figures("ended_s", 0, |line| end(line))
        .figures("took_s", 1, |line| match line {
            PhaseLine::One(phase) => took(phase),
            PhaseLine::Many(many) => Cell::Took(Some(many.total_ns)),
        })
        .flexible("phase", |line| match line {
            PhaseLine::One(phase) => {
                Cell::from(&*phase.name).shown_as(label(phase) + &attributes(phase))
            }
            PhaseLine::Many(many) => {
                let shown = format!("{} ({} ×)", many.name, words::count(many.count));
                Cell::from(&*many.name).shown_as(shown)
            }
        })
        .data("times", |line| match line {
            PhaseLine::One(_) => "1".to_owned(),
            PhaseLine::Many(many) => many.count.to_string(),
        })
        .figures("pid", 3, |line| match line {
            PhaseLine::One(phase) => pid_of(&phase.who),
            PhaseLine::Many(many) => pid_of(&many.who),
        })
        .words("process", 4, |line| {
            let who = match line {
                PhaseLine::One(phase) => &phase.who,
                PhaseLine::Many(many) => &many.who,
            };
            match who.upid {
                Some(_) => Cell::known(who.name.as_deref()),
                None => Cell::shown_only("-"),
            }
        })
        .figures(("own_bytes", "OWN MiB"), 2, |line| match line {
            PhaseLine::One(phase) => match phase.own {
                Some(own) => gained(phase, own.delta.rss()),
                None => "".into(),
            },
            PhaseLine::Many(many) => match many.own {
                Some(own) => mebibytes(own.delta.map(|delta| delta.sum)),
                None => "".into(),
            },
        })
        .figures(("delta_bytes", "DELTA MiB"), 0, |line| match line {
            PhaseLine::One(phase) => gained(phase, phase.tree.delta.rss()),
            PhaseLine::Many(many) => mebibytes(many.tree_delta_bytes),
        })
        .figures(("sum_bytes", "SUM MiB"), 0, |line| match line {
            PhaseLine::One(phase) => mebibytes(phase.since_baseline_bytes),
            PhaseLine::Many(many) => mebibytes(many.since_baseline_bytes),
        })
        .figures(("gpu_bytes", "GPU MiB"), 0, |line| match line {
            PhaseLine::One(phase) => gained(phase, phase.gpu.and_then(|gpu| gpu.delta_bytes)),
            PhaseLine::Many(many) => mebibytes(many.gpu_delta_bytes),
        })
        .only_if(has_gpu)
        .done()
}

fn end(line: &PhaseLine) -> Instant {
    match line {
        PhaseLine::One(phase) => phase.end,
        PhaseLine::Many(many) => many.end,
    }
}

fn gained(phase: &Phase, bytes: Option<Bytes>) -> Cell {
    match is_end_of_nothing(phase) {
        true => Cell::shown_only("-"),
        false => mebibytes(bytes),
    }
}

fn mebibytes(bytes: Option<Bytes>) -> Cell {
    let cell = Cell::Change(bytes);
    match bytes {
        Some(bytes) => cell.shown_as(format!("{:+.1}", bytes.0 as f64 / (1024.0 * 1024.0))),
        None => cell,
    }
}
