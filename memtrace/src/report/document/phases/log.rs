//! The phases as a log, in the order of their ends.

use super::super::{Section, at};
use super::{attributes, is_end_of_nothing, label, pid_of, took, unmarked};
use crate::analyze::{Analysis, Level, Phase, PhaseLine};
use crate::model::{BootNs, Bytes};
use crate::report::table::{Cell, TableOf};
use crate::report::words;

/// Phases as they ended, with what each added and the sum so far, in MiB.
pub(super) fn log(analysis: &Analysis) -> Section {
    let Some(phases) = &analysis.phases else {
        return unmarked();
    };
    let mut section = Section::new(format!(
        "Phases as they ended, above the {} at {}",
        words::bytes_or_unknown(phases.baseline.rss()),
        words::offset(&analysis.clock, phases.baseline_boot_ns),
    ));
    let mut lines: Vec<&PhaseLine> = phases.lines.iter().collect();
    lines.sort_by_key(|line| end(line));
    TableOf::of(lines)
        .figures("ended_s", 0, |line| at(analysis, end(line)))
        .figures("took_s", 1, |line| match line {
            PhaseLine::One(phase) => took(phase),
            PhaseLine::Many(many) => Cell::Took(Some(many.total_ns)),
        })
        .flexible("phase", |line| match line {
            PhaseLine::One(phase) => label(phase) + &attributes(phase),
            PhaseLine::Many(many) => {
                format!("{} ({} ×)", many.name, words::count(many.count))
            }
        })
        .figures("pid", 3, |line| match line {
            PhaseLine::One(phase) => pid_of(analysis, phase.process),
            PhaseLine::Many(many) => pid_of(analysis, many.process),
        })
        .figures(("own_bytes", "OWN MiB"), 2, |line| match line {
            PhaseLine::One(phase) => match phase.own {
                Some(own) => gained(phase, own.rss_delta()),
                None => "".into(),
            },
            PhaseLine::Many(many) => match many.own {
                Some(own) => mebibytes(own.delta.map(|delta| delta.sum)),
                None => "".into(),
            },
        })
        .figures(("delta_bytes", "DELTA MiB"), 0, |line| match line {
            PhaseLine::One(phase) => gained(phase, phase.tree.rss_delta()),
            PhaseLine::Many(many) => mebibytes(many.tree_delta),
        })
        .figures(("sum_bytes", "SUM MiB"), 0, |line| match line {
            PhaseLine::One(phase) => mebibytes(phase.since_baseline),
            PhaseLine::Many(many) => mebibytes(many.since_baseline),
        })
        .figures(("gpu_bytes", "GPU MiB"), 0, |line| match line {
            PhaseLine::One(phase) => gained(phase, phase.gpu.as_ref().and_then(Level::delta)),
            PhaseLine::Many(many) => mebibytes(many.gpu_delta),
        })
        .only_if(phases.has_gpu())
        .add_to(&mut section);
    section
}

fn end(line: &PhaseLine) -> BootNs {
    match line {
        PhaseLine::One(phase) => phase.end_boot_ns,
        PhaseLine::Many(many) => many.end_boot_ns,
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
