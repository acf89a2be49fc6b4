//! The phases as a log, in the order of their ends: each end is a checkpoint of its process.

use super::who::pid_of;
use super::{attributes, is_end_of_nothing, label, took, took_together, unmarked};
use crate::{Analysis, Phase, PhaseLine, Phases, Stretch, Who};
use memtrace_model::{Bytes, Instant, Order, Upid};
use memtrace_report::{Cell, Chapter, Table, TableOf, words};
use std::collections::HashMap;

/// Phases as they ended, with what each added and the sum so far, in MiB.
pub(super) fn log(analysis: &Analysis) -> Chapter {
    let Some(phases) = &analysis.phases else {
        return unmarked();
    };
    let mut section = Chapter::new(format!(
        "Phases as they ended, above the {} at {}",
        words::bytes_or_unknown(phases.baseline_held_bytes),
        words::after(phases.baseline_at.offset_ns),
    ));
    section.table(table(Some(phases), usize::MAX));
    section.explain(
        "RSS MiB is what a process had resident at the end of its phase. OWN MiB is what it gained \
         since its previous checkpoint (the end of one of its phases), and OWN SUM since the start \
         of its first phase. TREE MiB is what all processes gained from the start of the phase to \
         its end, every page once, and TREE SUM since the start of the first phase of all.",
    );
    section
}

/// A line for each phase, and for those that are reported as one.
pub(super) fn table(phases: Option<&Phases>, top: usize) -> Table {
    let lines = phases.iter().flat_map(|phases| &phases.lines);
    let mut checkpoints = checkpoints(lines.collect());
    checkpoints.truncate(top);
    table_of(checkpoints, phases.is_some_and(Phases::has_gpu))
}

/// A line of the log, and what its process held at its end. Phases lie within phases, so what was
/// gained from checkpoint to checkpoint adds up, and what each phase gained does not.
pub struct Checkpoint<'a> {
    pub line: &'a PhaseLine,
    /// What its process gained since the checkpoint before it, or since the start of this first one.
    step_bytes: Option<Bytes>,
    /// What its process gained since the start of its first.
    sum_bytes: Option<Bytes>,
}

/// The lines in the order of their ends.
pub fn checkpoints(mut lines: Vec<&PhaseLine>) -> Vec<Checkpoint<'_>> {
    // By process: what it held at the begin of its first phase, and at the last checkpoint.
    let mut known: HashMap<Upid, [Option<Bytes>; 2]> = HashMap::new();
    lines.order_by_key(|line| begin(line));
    for (upid, own) in lines.iter().filter_map(|line| own(line)) {
        known.entry(upid).or_insert([own.begin.rss(); 2]);
    }
    lines.order_by_key(|line| end(line));
    let checkpoints = lines.into_iter().map(|line| {
        let known = own(line).and_then(|(upid, own)| Some((own.end.rss()?, known.get_mut(&upid)?)));
        let [sum_bytes, step_bytes] = match known {
            Some((now, known)) => {
                let gained = known.map(|before| Some(now - before?));
                known[1] = Some(now);
                gained
            }
            None => [None; 2],
        };
        Checkpoint {
            line,
            step_bytes,
            sum_bytes,
        }
    });
    checkpoints.collect()
}

/// The process of a phase, and what it held.
fn own(line: &PhaseLine) -> Option<(Upid, Stretch)> {
    match line {
        PhaseLine::One(phase) => Some((phase.who.upid?, phase.own?)),
        PhaseLine::Many(_) => None,
    }
}

/// A line each, in this order.
pub fn table_of(checkpoints: Vec<Checkpoint<'_>>, has_gpu: bool) -> Table {
    let of_process = |one: &Checkpoint<'_>, bytes| match own(one.line) {
        Some(_) => mebibytes(bytes),
        None => "".into(),
    };
    TableOf::of(checkpoints)
        .figures("ended_s", 0, |one| end(one.line))
        .figures("took_s", 1, |one| match one.line {
            PhaseLine::One(phase) => took(phase),
            PhaseLine::Many(many) => took_together(many),
        })
        .flexible("phase", |one| match one.line {
            PhaseLine::One(phase) => {
                Cell::from(&*phase.name).shown_as(label(phase) + &attributes(phase))
            }
            PhaseLine::Many(many) => {
                let shown = format!("{} ({} ×)", many.name, words::count(many.count));
                Cell::from(&*many.name).shown_as(shown)
            }
        })
        .data("times", |one| match one.line {
            PhaseLine::One(_) => "1".to_owned(),
            PhaseLine::Many(many) => many.count.to_string(),
        })
        .figures("pid", 4, |one| pid_of(who(one.line)))
        .words("process", 5, |one| match who(one.line) {
            who if who.upid.is_some() => Cell::known(who.name.as_deref()),
            _ => Cell::shown_only("-"),
        })
        .data("own_bytes", |one| match one.line {
            PhaseLine::One(phase) => match phase.own {
                Some(own) => gained(phase, own.delta.rss()),
                None => "".into(),
            },
            PhaseLine::Many(many) => match many.own {
                Some(own) => Cell::Change(own.delta.map(|delta| delta.sum)),
                None => "".into(),
            },
        })
        .figures(("own_end_bytes", "RSS MiB"), 6, |one| {
            let held = own(one.line).and_then(|(_, own)| own.end.rss());
            let cell = Cell::Bytes(held);
            match held {
                Some(held) => cell.shown_as(format!("{:.1}", in_mebibytes(held))),
                None => "".into(),
            }
        })
        .figures(("own_step_bytes", "OWN MiB"), 0, |one| {
            of_process(one, one.step_bytes)
        })
        .figures(("own_sum_bytes", "OWN SUM"), 2, |one| {
            of_process(one, one.sum_bytes)
        })
        .figures(("delta_bytes", "TREE MiB"), 0, |one| match one.line {
            PhaseLine::One(phase) => gained(phase, phase.held.delta_bytes),
            PhaseLine::Many(many) => mebibytes(many.tree_delta_bytes),
        })
        .figures(("sum_bytes", "TREE SUM"), 3, |one| match one.line {
            PhaseLine::One(phase) => mebibytes(phase.since_baseline_bytes),
            PhaseLine::Many(many) => mebibytes(many.since_baseline_bytes),
        })
        .figures(("gpu_bytes", "GPU MiB"), 0, |one| match one.line {
            PhaseLine::One(phase) => gained(phase, phase.gpu.and_then(|gpu| gpu.delta_bytes)),
            PhaseLine::Many(many) => mebibytes(many.gpu_delta_bytes),
        })
        .only_if(has_gpu)
        .done()
}

fn who(line: &PhaseLine) -> &Who {
    match line {
        PhaseLine::One(phase) => &phase.who,
        PhaseLine::Many(many) => &many.who,
    }
}

fn begin(line: &PhaseLine) -> Instant {
    match line {
        PhaseLine::One(phase) => phase.begin.unwrap_or(phase.end),
        PhaseLine::Many(many) => many.begin,
    }
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
        Some(bytes) => cell.shown_as(format!("{:+.1}", in_mebibytes(bytes))),
        None => cell,
    }
}

fn in_mebibytes(bytes: Bytes) -> f64 {
    bytes.0 as f64 / (1024.0 * 1024.0)
}
