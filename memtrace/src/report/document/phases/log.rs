//! The phases as a log, in the order of their ends.

use super::super::{Section, figures, flexible};
use super::{attributes, is_end_of_nothing, label, pid_of, took, unmarked};
use crate::analyze::{Analysis, Level, Measures, Phase, PhaseLine};
use crate::model::Bytes;
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
    let mut columns = vec![
        figures("ENDED", 0),
        figures("TOOK", 1),
        flexible("PHASE"),
        figures("PID", 3),
        figures("OWN MiB", 2),
        figures("DELTA MiB", 0),
        figures("SUM MiB", 0),
    ];
    if phases.has_gpu() {
        columns.push(figures("GPU MiB", 0));
    }
    let mut lines: Vec<&PhaseLine> = phases.lines.iter().collect();
    lines.sort_by_key(|line| match line {
        PhaseLine::One(phase) => phase.end_boot_ns,
        PhaseLine::Many(many) => many.end_boot_ns,
    });
    let rows = lines.into_iter().map(|line| match line {
        PhaseLine::One(phase) => vec![
            words::offset(&analysis.clock, phase.end_boot_ns),
            took(phase),
            label(phase) + &attributes(phase),
            pid_of(analysis, phase.process),
            phase
                .own
                .map_or_else(String::new, |own| gained(phase, own.rss_delta())),
            gained(phase, phase.tree.rss_delta()),
            mebibytes(phase.since_baseline),
            gained(phase, phase.gpu.as_ref().and_then(Level::delta)),
        ],
        PhaseLine::Many(many) => {
            let own = |own: Measures| mebibytes(own.delta.map(|delta| delta.sum));
            vec![
                words::offset(&analysis.clock, many.end_boot_ns),
                words::duration(many.total_ns),
                format!("{} ({} ×)", many.name, words::count(many.count)),
                pid_of(analysis, many.process),
                many.own.map_or_else(String::new, own),
                mebibytes(many.tree_delta),
                mebibytes(many.since_baseline),
                mebibytes(many.gpu_delta),
            ]
        }
    });
    let rows = rows.map(|mut row: Vec<String>| {
        row.truncate(columns.len());
        row
    });
    let rows = rows.collect();
    section.old_table(columns, rows);
    section
}

fn gained(phase: &Phase, bytes: Option<Bytes>) -> String {
    match is_end_of_nothing(phase) {
        true => "-".to_owned(),
        false => mebibytes(bytes),
    }
}

fn mebibytes(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(
        || words::UNKNOWN.to_owned(),
        |bytes| format!("{:+.1}", bytes.0 as f64 / (1024.0 * 1024.0)),
    )
}
