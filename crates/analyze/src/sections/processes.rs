//! The processes by their own peak.

use super::growth::margin;
use crate::{Analysis, Bound, Composition, Ending, Process, Report, Who};
use memtrace_model::{Bytes, Label};
use memtrace_report::{Cell, Chapter, Parts, Section, Table, TableOf, words};
use std::collections::{BTreeSet, HashMap};

pub(super) const SECTION: Section<Report> = Section {
    name: "processes",
    doc: "the processes by their own peak",
    keys: &["process_count", "processes"],
    tables: Some(|analysis, top| tables(analysis, top)),
    tell: |analysis, view| {
        let lines = analysis.lines_by_peak();
        if lines.is_empty() {
            return Vec::new();
        }
        let mut section = Chapter::new("Processes by their own peak");
        let shown = &lines[..lines.len().min(view.top)];
        section.table(table(analysis, shown.iter().map(Vec::as_slice)));
        if let Some(&next) = lines.get(view.top).and_then(|members| members.first()) {
            let rest = lines[view.top..].iter().map(Vec::len).sum();
            let peak = analysis.processes[next].peak.in_words();
            let reported = format!("{} more, the largest {peak}.", words::processes(rest));
            section.quiet(reported);
        }
        section.quiet(exactness(analysis, shown));
        let mut largest = shown.iter().filter_map(|members| members.first());
        if largest.any(|&process| analysis.processes[process].peak.is_earlier) {
            let reported = "AT shows before where the peak was reached before the recording; no row comes \
                 near it.";
            section.quiet(reported);
        }
        vec![section]
    },
    ..Section::EMPTY
};

/// So many processes are laid out at a time, at least,
const CHUNK: usize = 1_000;
/// and in so many tables at most: each looks through all that is held.
const TABLES_MAX: usize = 16;

/// A line for each of the `top` processes, in parts of one table.
fn tables(analysis: &Analysis, top: usize) -> Parts<'_> {
    let mut order = analysis.by_peak();
    order.truncate(top);
    let size = CHUNK.max(order.len().div_ceil(TABLES_MAX));
    let begins = (0..order.len().max(1)).step_by(size);
    Box::new(begins.map(move |begin| {
        let end = order.len().min(begin + size);
        table(analysis, order[begin..end].chunks(1))
    }))
}

/// A line for each process, or for several similar ones: then that of the largest.
fn table<'a>(analysis: &'a Analysis, lines: impl Iterator<Item = &'a [usize]>) -> Table {
    let role = |one: &'a Process| one.role.as_ref();
    let kills = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
    let at_oom = held(kills.filter_map(|kill| kill.holders.as_ref()).next());
    let (at_peak, at_time) = (held(analysis.peak.as_ref()), held(analysis.at.as_ref()));
    let lines = lines.filter_map(|members| {
        let &place = members.first()?;
        Some((&analysis.processes[place], place, members))
    });
    TableOf::of(lines)
        .figures("pid", 0, |(.., members)| analysis.pids(members))
        .data("upid", |(one, ..)| one.upid.to_string())
        .known("parent_upid", |(one, ..)| one.parent_upid)
        .known("root_upid", |(one, ..)| one.root_upid)
        .flexible(("name", "PROCESS"), |(one, _, members)| {
            name_of(analysis, members, one)
        })
        .data("framework", |(one, ..)| role(one)?.framework.clone())
        .data("role", |(one, ..)| Some(role(one)?.role.clone()))
        .data("rank", |(one, ..)| role(one)?.rank.clone())
        .data("comm", |(one, ..)| one.comm.to_string())
        .data("start", |(one, ..)| one.start.wall_ns?.rfc3339())
        .data("start_s", |(one, ..)| one.start)
        .data("end_s", |(one, ..)| one.end)
        .data("ended", |(one, ..)| match one.ending {
            Ending::Unknown => None,
            ending => Some(ending.shown()),
        })
        .known("exit_code", |(one, ..)| one.ending.exit_code())
        .known("exit_signal", |(one, ..)| one.ending.exit_signal())
        .known("exit_signal_sender", |(one, ..)| one.sender.as_str())
        .known("exit_signal_sender_pid", |(one, ..)| one.sender.pid())
        .known("exit_signal_sender_name", |(one, ..)| one.sender.name())
        .known("termination_signal", |(one, ..)| {
            Some(one.asked.as_ref()?.signal)
        })
        .data("termination_signal_s", |(one, ..)| {
            Some(one.asked.as_ref()?.at)
        })
        .known("termination_signal_sender", |(one, ..)| {
            one.asked.as_ref()?.sender.as_str()
        })
        .known("termination_signal_sender_pid", |(one, ..)| {
            one.asked.as_ref()?.sender.pid()
        })
        .known("termination_signal_sender_name", |(one, ..)| {
            one.asked.as_ref()?.sender.name()
        })
        .known("oom_killed", |(one, ..)| one.ending.by_oom_killer())
        .figures(("peak_rss_bytes", "PEAK"), 0, |(one, ..)| one.peak.cell())
        .known("peak_bound", |(one, ..)| {
            one.peak.rss_bytes.map(|_| one.peak.bound.as_str())
        })
        .data("peak_error_bytes", |(one, ..)| one.peak.bound.error())
        .known("peak_source", |(one, ..)| {
            one.peak.origin.map(|origin| origin.as_str())
        })
        .figures(("peak_s", "AT"), 1, |(one, ..)| {
            one.peak.time_cell().unwrap_or(Cell::At(None))
        })
        .kinds(("peak_", ""), 3, |(one, ..), kind| {
            Cell::Held(one.peak.amounts.get(kind))
        })
        .figures(("", "STARTED"), 6, |(one, ..)| one.start)
        .figures(("", "LIVED"), 2, |(one, ..)| lived(analysis, one))
        .words(("", "ENDED"), 0, |(.., members)| {
            analysis.common_ending(members)
        })
        .data("rss_at_tree_peak_bytes", |(_, place, _)| at_peak(*place))
        .data("rss_at_time_bytes", |(_, place, _)| at_time(*place))
        .data("gpu_peak_bytes", |(_, place, _)| {
            analysis.gpus.as_ref()?.peak_of(*place)
        })
        .data("gpu_at_tree_peak_bytes", |(_, place, _)| {
            let peak = analysis.peak.as_ref().filter(|_| analysis.gpus.is_some())?;
            peak.gpu_held_by(*place).unwrap_or(Some(Bytes(0)))
        })
        .data("rss_at_oom_bytes", |(_, place, _)| at_oom(*place))
        .known("outlived_root", |(one, ..)| {
            let mut outlived = analysis.leftovers.outlived.iter();
            let survivor = outlived.find(|survivor| survivor.row.upid == one.upid)?;
            survivor.row.fate.map(Label::as_str)
        })
        .data("growth_bytes_per_hour", |(one, ..)| {
            Cell::Rate(one.growth.as_ref().map(|growth| growth.bytes_per_hour))
        })
        .data("growth_margin_bytes_per_hour", |(one, ..)| {
            one.growth.as_deref().map(margin)
        })
        .known("cgroup", |(one, ..)| one.cgroup.as_deref())
        .known("pod", |(one, ..)| one.pod.as_deref())
        .known("container", |(one, ..)| one.container.as_deref())
        .known("cmdline", |(one, ..)| one.cmdline.as_deref())
        .done()
}

/// What a process held at some instant; `None` when that is unknown, or there is no such instant.
fn held(state: Option<&Composition>) -> impl Fn(usize) -> Option<Bytes> {
    let holders = state.map(|state| {
        let holders = state.holders.iter();
        let holders = holders.map(|holder| (holder.process, holder.amounts.rss()));
        holders.collect::<HashMap<usize, Option<Bytes>>>()
    });
    move |place| {
        let held = holders.as_ref()?.get(&place);
        held.copied().unwrap_or(Some(Bytes(0)))
    }
}

/// What stands for a process, or for several similar ones.
fn name_of(analysis: &Analysis, members: &[usize], largest: &Process) -> Cell {
    let shown = match members {
        [_] => Who::from(largest).shown() + largest.method.as_deref().unwrap_or_default(),
        many => format!("{} (the largest)", analysis.common_name(many)),
    };
    let data = largest.name.to_string();
    Cell::Both { shown, data }
}

fn lived(analysis: &Analysis, process: &Process) -> Cell {
    let begin = analysis.begin_of(process);
    Cell::Took(match (process.exit_boot_ns(), process.ending) {
        (Some(end), _) => Some(end - begin.min(end)),
        (None, Ending::Running) => Some(analysis.clock.end() - begin),
        (None, _) => None,
    })
}

/// One sentence on where the peaks come from.
fn exactness(analysis: &Analysis, shown: &[Vec<usize>]) -> String {
    let shown: Vec<usize> = shown.iter().flatten().copied().collect();
    let peaks = || {
        shown
            .iter()
            .map(|&position| &analysis.processes[position].peak)
    };
    let sources: BTreeSet<&str> = peaks()
        .filter_map(|peak| Some(peak.origin?.shown()))
        .collect();
    let sources: Vec<&str> = sources.into_iter().collect();
    let mut line = match sources.as_slice() {
        [] => "Where the peaks come from is unknown".to_owned(),
        sources => format!("Peaks are from {}", sources.join(", ")),
    };
    let errors = peaks().filter_map(|peak| peak.bound.error());
    if let Some(error) = errors.max() {
        line.push_str(&match error.0 {
            0 => ", exact".to_owned(),
            _ => format!(", within {}", words::bytes(error)),
        });
    }
    let has = |bound: Bound| peaks().any(|peak| peak.bound == bound && peak.rss_bytes.is_some());
    if has(Bound::AtLeast) {
        line.push_str("; ≥ is a lower bound");
    }
    if has(Bound::AtMost) {
        line.push_str("; ≤ counts waited-for children too");
    }
    if has(Bound::About) {
        line.push_str("; ~ has no stated bound");
    }
    line.push('.');
    line
}
