//! Who held the memory when most was held.

use super::parts::{ESTIMATE, Parts, marked};
use super::{gpus, limits, oom_kills, orphaned_shm};
use crate::{
    Analysis, CgroupUse, Composition, CurvePoint, Gpus, Held, HolderGroup, LimitKind, Report,
    UNNAMED, Who, together,
};
use memtrace_model::{Bytes, DurationNs, Kind, Order, Target};
use memtrace_report::words::{bytes, bytes_or_unknown};
use memtrace_report::{Block, Cell, Chapter, Section, Table, TableOf, Tone, one_part, words};

/// Columns of the curve.
const CURVE_WIDTH: usize = 60;
pub(super) const MAX_CGROUPS: usize = 2;

/// The instant at which all together held most, and who made it up.
pub(super) const SECTION: Section<Report> = Section {
    name: "peak",
    doc: "the instant at which most was held, and who held it",
    keys: &[
        "peak",
        "held_peak",
        "sum_of_rss_peak_bytes",
        "sum_of_rss_peak_at",
        "curve",
    ],
    tables: Some(|analysis, top| one_part(holders(analysis, analysis.peak.as_ref(), top))),
    tell: |analysis, view| {
        let mut section = in_short(analysis);
        if let Some(peak) = &analysis.peak {
            table(&mut section, analysis, peak, view.top);
            section.tell(Tone::Plain, gpus::highest(analysis));
            notes(&mut section, analysis, peak, view.most(MAX_CGROUPS));
            section.tell(Tone::Plain, nearest_limit(analysis));
            section.tell(Tone::Alert, higher_alone(analysis));
        }
        section.tell(Tone::Quiet, oom_kills::elsewhere(analysis));
        section.tell(Tone::Quiet, orphaned_shm::elsewhere(analysis));
        vec![section]
    },
    ..Section::EMPTY
};

/// The simultaneous peak in one line, with the curve of the recording.
pub(super) fn in_short(analysis: &Analysis) -> Chapter {
    let whole = whole(analysis);
    let Some(peak) = &analysis.peak else {
        let mut section = Chapter::new(format!("Peak of {whole}: unknown"));
        if analysis.problems.iter().any(|problem| is_of_mem(problem)) {
            section.alert("The rows of memory could not be read.");
        } else {
            section.say("No memory was recorded for any process.");
        }
        return section;
    };
    let mut section = Chapter::new(format!(
        "Peak of {whole}: {}",
        peak_in_words(analysis, peak),
    ));
    section.blocks.extend(curve(analysis).map(Block::Drawing));
    section
}

/// The most that was held, with its bounds then where they matter, and when: `177 MiB at +0.6s, never more
/// than 202 MiB`, where more can have been held at another time. Polling sees a part of the peaks only.
pub(super) fn peak_in_words(analysis: &Analysis, peak: &Composition) -> String {
    let rss = || bytes_or_unknown(peak.totals[Kind::Rss].bytes());
    let when = analysis.clock.when(peak.at);
    let most = analysis.held_peak.as_ref();
    match (most.zip(peak.held.as_ref()), analysis.info.is_polled()) {
        (Some((most, _)), true) => format!("≥ {} at {when}", bytes(most.at_least)),
        (Some((most, held)), false) => {
            let then = held.all();
            let beyond = (most.at_most - then.at_most).0;
            let never = match beyond > then.bytes.0 / 100 && beyond > 1 << 20 {
                true => format!(", never more than {}", bytes(most.at_most)),
                false => String::new(),
            };
            format!("{} at {when}{never}", then.in_words())
        }
        (None, true) => format!("≥ {} of RSS at {when}", rss()),
        (None, false) => format!("{} of RSS at {when}", rss()),
    }
}

/// Whether a problem is with the files of the table `mem`: a problem opens with its file.
fn is_of_mem(problem: &str) -> bool {
    let starts = ["mem:", "mem/", "spool/mem-", "damaged/mem-"];
    starts.iter().any(|start| problem.starts_with(start))
}

/// A spike between two rows can lift one process above the peak of the whole series.
fn higher_alone(analysis: &Analysis) -> Option<String> {
    let mut order = analysis.by_peak().into_iter();
    // What was before the recording is no part of its peak.
    let highest = order.find(|&process| !analysis.processes[process].peak.is_earlier)?;
    let alone = analysis.processes[highest].peak.rss_bytes?;
    let (together, _) = analysis.rss_peak?;
    let is_higher = alone > together && bytes(alone) != bytes(together);
    is_higher.then(|| {
        format!(
            "{} alone reached {}: a spike between two rows of the series, so the sum of RSS was \
             at least that.",
            Who::from(&analysis.processes[highest]).in_words(),
            bytes(alone)
        )
    })
}

fn whole(analysis: &Analysis) -> String {
    match (&analysis.info.target, analysis.trees.len()) {
        (Target::All, _) => "all processes together".to_owned(),
        (_, 0 | 1) => "the tree".to_owned(),
        (_, trees) => format!("{trees} trees together"),
    }
}

/// Who held memory then: a line for each that matters, one for all others.
pub(super) fn table(section: &mut Chapter, analysis: &Analysis, state: &Composition, top: usize) {
    let mut groups = state.groups(&analysis.processes);
    let parts = Parts::of(state);
    groups.order_by_key(|group| std::cmp::Reverse(parts.held_by(group).sum()));
    // A line for all others would say less of a single one.
    let top = top.saturating_add(usize::from(groups.len().checked_sub(1) == Some(top)));
    let rest = groups.get(top..).unwrap_or_default();
    let lines = groups.iter().take(top).map(std::slice::from_ref);
    let lines = lines.chain((!rest.is_empty()).then_some(rest));
    section.table(lines_of(analysis, Some(state), lines));
    if groups
        .iter()
        .any(|group| parts.held_by(group).is_estimate())
    {
        section.quiet(format!("{ESTIMATE}."));
    }
}

/// The same for programs: a line for each process.
pub(super) fn holders(analysis: &Analysis, state: Option<&Composition>, top: usize) -> Table {
    let holders = state.into_iter().flat_map(|state| &state.holders);
    let each = holders.map(|holder| HolderGroup::of(&analysis.processes, &[holder]));
    let mut each: Vec<HolderGroup> = each.collect();
    let parts = state.map(Parts::of);
    let held = |group: &HolderGroup| parts.as_ref().map(|parts| parts.held_by(group).sum());
    each.order_by_key(|group| std::cmp::Reverse(held(group)));
    lines_of(
        analysis,
        state,
        each.iter().take(top).map(std::slice::from_ref),
    )
}

fn lines_of<'a>(
    analysis: &Analysis,
    state: Option<&Composition>,
    lines: impl Iterator<Item = &'a [HolderGroup]>,
) -> Table {
    let whole = |kind: Kind| state?.totals[kind].bytes();
    let held_whole = state
        .and_then(|state| state.held)
        .map(|held| held.all().bytes);
    let parts = state.map(Parts::of);
    let held_by = |groups: &[HolderGroup]| {
        let parts = parts.as_ref().filter(|_| held_whole.is_some())?;
        Some(parts.held_by_all(groups))
    };
    let part = |groups: &[HolderGroup]| held_by(groups).map(|(held, _)| held);
    let is_estimate =
        |groups: &[HolderGroup]| held_by(groups).is_some_and(|(_, is_estimate)| is_estimate);
    let on_gpus = |process| state?.gpu_held_by(process);
    let has_gpu = analysis.gpus.as_ref().is_some_and(Gpus::has_recorded)
        && state.is_some_and(|state| {
            let mut holders = state.holders.iter();
            holders.any(|held| on_gpus(held.process).is_some())
        });
    let held = |groups: &[HolderGroup], kind: Kind| {
        together(groups.iter().map(|group| group.totals[kind].bytes()))
    };
    let rss = |groups: &[HolderGroup]| held(groups, Kind::Rss);
    TableOf::of(lines)
        .who(|groups| who_held(groups))
        .data("upid", |groups| match groups {
            [group] => Cell::known(group.who.who.upid),
            _ => Cell::Absent,
        })
        .figures("held_bytes", 0, |groups| {
            marked(Cell::from(part(groups)), is_estimate(groups))
        })
        .only_if(held_whole.is_some())
        .data("is_estimate", |groups| {
            held_by(groups).map(|(_, is_estimate)| is_estimate.to_string())
        })
        .only_if(held_whole.is_some())
        .figures("share", 0, |groups| match held_whole {
            Some(whole) => Cell::Share(part(groups), Some(whole)),
            None => Cell::Share(rss(groups), whole(Kind::Rss)),
        })
        .figures("rss_bytes", 0, |groups| rss(groups))
        .kinds(("", ""), 1, |groups, kind| Cell::Held(held(groups, kind)))
        .held("swap_bytes", 1, |groups| held(groups, Kind::Swap))
        .only_if(whole(Kind::Swap).is_some_and(|swap| swap.0 > 0))
        .held("gpu_bytes", 0, |groups| {
            let members = groups.iter().flat_map(|group| &group.who.members);
            let held = members.filter_map(|&process| on_gpus(process));
            held.sum::<Option<Bytes>>()
        })
        .only_if(has_gpu)
        .done()
}

/// Who has a line: a process, several that do the same, or all the others.
fn who_held(groups: &[HolderGroup]) -> [Cell; 2] {
    match groups {
        [group] => {
            let largest = bytes_or_unknown(group.largest);
            let name = group.who.who.shown();
            group.who.cells_as(format!("{name} (largest {largest})"))
        }
        others => {
            let count = others.iter().map(|group| group.who.process_count).sum();
            [Cell::shown_only(&words::times(count)), "all others".into()]
        }
    }
}

pub(super) fn notes(
    section: &mut Chapter,
    analysis: &Analysis,
    state: &Composition,
    cgroups: usize,
) {
    let interval = analysis.info.interval_ns;
    let totals = &state.totals;
    let unknown = totals[Kind::Rss].unknown_count();
    if unknown > 0 {
        section.alert(format!(
            "The memory of {} could not be read; it is not in the sum.",
            words::processes(unknown as usize)
        ));
    }
    if state.holders.len() > 1 || state.held.is_some() {
        section.quiet(what_it_is(analysis, state));
        section.explain(
            "The peak counts every page once; the sum of RSS counts shared pages in each process \
             that maps them.",
        );
    }
    for cgroup in state.cgroups.iter().take(cgroups) {
        section.say(cgroup_line(cgroup, interval));
    }
    if let Some(node) = &state.node {
        let available = bytes_or_unknown(node.row.mem_available_bytes);
        let total = bytes_or_unknown(node.row.mem_total_bytes);
        section.say(format!(
            "Node: {available} of {total} available{}.",
            aged(node.age_ns, interval)
        ));
    }
}

/// Of what the figure in the title is made, and the sum that other tools give.
fn what_it_is(analysis: &Analysis, state: &Composition) -> String {
    let mut line = String::new();
    if let Some(held) = &state.held {
        let always = [("anonymous", held.anon), ("shared memory", held.shared)];
        let nothing = Held::default().in_words();
        let in_words = |(kind, held): (&str, Held)| match (kind, held.at_least) {
            // Counts that lag look like it.
            (UNNAMED, Bytes(0)) if held.is_uncertain() => {
                format!("charged and not known up to {}", bytes(held.at_most))
            }
            _ => format!("{kind} {}", held.in_words()),
        };
        let others = held.beside().into_iter();
        let others = others.filter(|(_, held)| held.in_words() != nothing);
        let kinds = always.into_iter().chain(others).map(in_words);
        let kinds: Vec<String> = kinds.collect();
        line.push_str(&format!("Every page once: {}.", kinds.join(", ")));
        let least = state.mapped_files_at_least_bytes;
        match least.zip(state.mapped_files_at_most_bytes) {
            Some((least, most)) if bytes(least) == bytes(most) => {
                line.push_str(&format!(" Mapped files, not included: {}.", bytes(least)));
            }
            Some((least, most)) => line.push_str(&format!(
                " Mapped files, not included: {} to {}.",
                bytes(least),
                bytes(most)
            )),
            None => {}
        }
    }
    let sum = bytes_or_unknown(state.totals[Kind::Rss].bytes());
    line.push_str(&format!(" The sum of RSS (as psutil reports it) is {sum}."));
    let is_peak = analysis
        .peak
        .as_ref()
        .is_some_and(|peak| peak.at.boot_ns == state.at.boot_ns);
    if let Some((highest, at)) = analysis.rss_peak.filter(|_| is_peak)
        && Some(bytes(highest)) != state.totals[Kind::Rss].bytes().map(bytes)
    {
        let when = words::after(at.offset_ns);
        line.push_str(&format!(" It was highest at {when}: {}.", bytes(highest)));
    }
    line.trim_start().to_owned()
}

fn cgroup_line(cgroup: &CgroupUse, interval: DurationNs) -> String {
    let row = &cgroup.row;
    let mut parts = Vec::new();
    for (kind, amount) in [
        ("anon", row.anon_bytes),
        ("page cache and shmem", row.file_bytes),
        ("kernel", row.kernel_bytes.filter(|_| row.counts_kernel())),
    ] {
        parts.extend(amount.map(|amount| format!("{kind} {}", bytes(amount))));
    }
    let limit = match (&cgroup.effective_limit_bytes, &cgroup.limited_by) {
        (Some(limit), Some(path)) if *path == row.cgroup => {
            format!(", limit {}", bytes(*limit))
        }
        (Some(limit), Some(path)) => format!(", limit {} (set by {path})", bytes(*limit)),
        _ => ", no limit".to_owned(),
    };
    let kinds = if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    };
    format!(
        "Cgroup {}: {} in use{kinds}{limit}{}.",
        row.cgroup,
        bytes_or_unknown(row.current_bytes),
        aged(cgroup.age_ns, interval)
    )
}

/// The limit of a cgroup that came nearest to being met, where that was at another time.
fn nearest_limit(analysis: &Analysis) -> Option<String> {
    let mut limits = analysis.limits.iter();
    let nearest = limits.find(|limit| limit.kind == LimitKind::Cgroup)?;
    let is_elsewhere = nearest.used_bytes.is_some() && !limits::is_of_peak(nearest, analysis);
    is_elsewhere.then(|| {
        format!(
            "Nearest to its limit: {}.",
            limits::in_words(nearest, analysis)
        )
    })
}

/// `, read 0.040s earlier`, where a reading is not of the instant itself: what is held moves in between,
/// and a figure beside it would seem to contradict it.
pub(super) fn aged(age: DurationNs, interval: DurationNs) -> String {
    let is_near = age.0.saturating_abs() <= interval.0 / 10;
    match is_near {
        true => String::new(),
        false => format!(", read {}", aside(age)),
    }
}

/// An age in words: `0.040s earlier`.
pub(super) fn aside(age: DurationNs) -> String {
    let distance = words::duration(DurationNs(age.0.saturating_abs()));
    let side = if age.0 < 0 { "later" } else { "earlier" };
    format!("{distance} {side}")
}

/// The memory of all over the recording, one character per slice of time, its maximum at full
/// height.
fn curve(analysis: &Analysis) -> Option<String> {
    let points = &analysis.curve;
    let length = analysis.clock.duration().0;
    let highest = points.iter().map(|point| point.max_bytes.0).max()?;
    if points.len() < 8 || length <= 0 || highest <= 0 {
        return None;
    }
    let width = CURVE_WIDTH.min(points.len());
    let mut slices: Vec<Option<Bytes>> = vec![None; width];
    for point in points {
        let place = point.offset_ns.0.max(0) as f64 / length as f64;
        let slice = ((place * width as f64) as usize).min(width - 1);
        slices[slice] = slices[slice].max(Some(point.max_bytes));
    }
    // A slice without the middle of a point can still lie within one.
    let gaps = points
        .windows(2)
        .map(|two| two[1].offset_ns.0 - two[0].offset_ns.0);
    let reach = gaps.min().unwrap_or(0) / 2;
    for (place, slice) in slices.iter_mut().enumerate() {
        let middle = ((place as f64 + 0.5) / width as f64 * length as f64) as i64;
        let covers = |point: &&CurvePoint| (point.offset_ns.0 - middle).saturating_abs() <= reach;
        *slice = slice.or_else(|| Some(points.iter().find(covers)?.max_bytes));
    }
    // Unknown time is a blank.
    let drawn: String = slices
        .into_iter()
        .map(|bytes| bytes.map_or(' ', |bytes| words::height(bytes, Bytes(highest))))
        .collect();
    Some(format!(
        "0s {drawn} {}",
        words::duration(analysis.clock.duration())
    ))
}
