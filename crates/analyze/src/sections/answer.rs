//! The answer in short, for the first lines of a report: what happened, who held most, what grew,
//! how near the limit was, and what to look at next. It finds nothing itself: what other sections
//! tell at length stands here in a sentence.

use super::abnormal_endings::AbnormalEndings;
use super::{allocations, gpus, growth, layout, limits, missing, oom_kills, peak, steps};
use crate::answer::{AnswerLine, Topic};
use crate::leftovers::held_in_words;
use crate::moment::offset;
use crate::process::Process;
use crate::sections::parts::{HeldBy, Parts};
use crate::sender::Sender;
use crate::{Analysis, Composition, Ending, HolderGroup, LimitKind, LimitUse, UNNAMED, Who};
use memtrace_model::{BootNs, Bytes, Instant, Kind, Order, RunState, Target, quoted};
use memtrace_report::words::{bytes, count, processes};
use memtrace_report::{is_hidden, words};
use std::iter::once;

/// A moment before its end a process still holds what it held last.
const MOMENT_NS: i64 = 1_000_000;
/// Who holds nine tenths of what the largest holds is reported with it: which is larger is chance.
const ALIKE: f64 = 0.9;

/// The answer, a sentence for each thing that there is to say.
pub(crate) fn lines(analysis: &Analysis) -> Vec<AnswerLine> {
    let (happened, violent) = happened(analysis);
    let leak = steps::in_short(analysis).map(|text| (text, true));
    let growth = leak.or_else(|| Some((growth::in_short(analysis)?, false)));
    let limit = limit(analysis).filter(|_| oom_kills::is_none(analysis));
    let next = look_next(analysis, violent);
    let others = [
        most_held(analysis).map(|text| AnswerLine::of(Topic::MostHeld, text, false)),
        growth.map(|(text, is_leak)| AnswerLine::of(Topic::Growth, text, is_leak)),
        layout::in_short(analysis).map(|text| AnswerLine::of(Topic::Inside, text, false)),
        allocations::in_short(analysis).map(|text| AnswerLine::of(Topic::Allocated, text, false)),
        limit.map(|text| AnswerLine::of(Topic::Limit, text, false)),
        missing::in_short(analysis).map(|text| AnswerLine::of(Topic::Missing, text, true)),
        Some(next),
    ];
    once(happened).chain(others.into_iter().flatten()).collect()
}

/// How it ended.
pub(crate) fn what_happened(analysis: &Analysis) -> AnswerLine {
    happened(analysis).0
}

/// The same with the instant that shows what led to it, where somebody was killed or crashed.
fn happened(analysis: &Analysis) -> (AnswerLine, Option<Instant>) {
    let (mut text, is_alarming, violent) = match violence(analysis) {
        Some((text, violent)) => (text, true, violent),
        None => {
            let (text, is_alarming) = ending(analysis);
            (text, is_alarming, None)
        }
    };
    if let Some(refused) = gpus::refused_before_an_end(analysis) {
        text.push_str(&format!(" {refused}"));
    }
    let line = AnswerLine::of(Topic::WhatHappened, text, is_alarming);
    (line, violent)
}

/// Who was killed, or crashed, and the instant that shows what led to it.
fn violence(analysis: &Analysis) -> Option<(String, Option<Instant>)> {
    if let Some((reported, kill)) = oom_kills::in_short(analysis) {
        return Some((reported + &command_itself(analysis), Some(kill.examined())));
    }
    let (mut reported, who) = AbnormalEndings::of(analysis).in_short(analysis)?;
    if !who.is_some_and(|who| analysis.processes[who].is_main) {
        reported.push_str(&command_itself(analysis));
    }
    Some((reported, who.and_then(|who| before_end(analysis, who))))
}

/// How the command itself ended where others were killed or crashed; nothing where a signal ended it,
/// too.
fn command_itself(analysis: &Analysis) -> String {
    let Some(ending @ Ending::Exited(_)) = analysis.command_ending() else {
        return String::new();
    };
    let after = analysis.command_duration().map(words::duration);
    let after = after.map_or_else(String::new, |ran| format!(" after {ran}"));
    format!(" The command itself ended{after}: {}.", ending.shown())
}

/// The last instant at which a process held something.
fn before_end(analysis: &Analysis, process: usize) -> Option<Instant> {
    let process = &analysis.processes[process];
    let last = BootNs(process.exit_boot_ns()?.0 - MOMENT_NS);
    (last > process.start.boot_ns).then(|| analysis.clock.at(last))
}

/// That instant, or where the process has ended by then the last one at which it held something: a
/// window that ends later shows what its end gave back, and not what it gained.
fn last_held(analysis: &Analysis, who: &Who, to: Instant) -> Instant {
    let mut processes = analysis.processes.iter();
    let place = processes.position(|process| Some(process.upid) == who.upid);
    let last = place.and_then(|place| before_end(analysis, place));
    match last {
        Some(last) if last.boot_ns < to.boot_ns => last,
        _ => to,
    }
}

/// How it ended where nobody was killed, and whether something went wrong.
fn ending(analysis: &Analysis) -> (String, bool) {
    let after = analysis.command_duration().map(words::duration);
    let after = after.map_or_else(String::new, |ran| format!(" after {ran}"));
    let how = || analysis.command_ended_in_words().unwrap_or_default();
    let (mut reported, is_alarming) = match (&analysis.info.target, analysis.command_ending()) {
        (_, Some(Ending::Exited(0))) => {
            let main = analysis.command();
            let asked = main
                .and_then(|main| Some(main.asked.as_ref()?.in_words(main.ending, &main.sender)));
            let asked = asked.unwrap_or_default();
            (
                format!("the command succeeded (exit 0){after}{asked}"),
                false,
            )
        }
        (_, Some(Ending::Killed { .. })) => {
            let how = how();
            (format!("the command was ended by {how}{after}"), false)
        }
        (_, Some(_)) => {
            let how = how();
            (format!("the command failed{after}: {how}"), true)
        }
        _ if analysis.is_live => ("the recording is still running".to_owned(), false),
        _ if analysis.is_open => {
            let end = words::after(analysis.clock.duration());
            (
                format!("the recording is not closed; its last data is from {end}"),
                false,
            )
        }
        _ if analysis.info.state != RunState::Closed => {
            let end = words::after(analysis.clock.duration());
            (format!("the recording was cut off at {end}"), true)
        }
        (Target::Command { .. }, None) => {
            let main = analysis.command();
            let is_running = main.is_some_and(|main| main.ending == Ending::Running);
            let how = match is_running {
                true => "the command was still running when the recording ended",
                false => "how the command ended is unknown",
            };
            (how.to_owned(), false)
        }
        (_, None) if analysis.processes.is_empty() => {
            ("no process matched what was asked for".to_owned(), false)
        }
        (_, None) => {
            let running = analysis.processes.iter();
            let running = running.filter(|process| process.ending == Ending::Running);
            let (running, all) = (running.count(), processes(analysis.processes.len()));
            let were = if running == 1 { "was" } else { "were" };
            let running = count(running);
            let reported =
                format!("{running} of {all} {were} still running when the recording ended");
            (reported, false)
        }
    };
    let outlived = &analysis.leftovers.outlived;
    if !outlived.is_empty() {
        let held = held_in_words(outlived.iter());
        let who = processes(outlived.len());
        reported.push_str(&format!("; {who} outlived it and held {held}"));
    }
    let own = AbnormalEndings::own_in_short(analysis);
    let own = own.map_or_else(String::new, |own| format!(" {own}"));
    (format!("{reported}.{own}"), is_alarming)
}

/// How much was held at most, when, and who held most of it.
fn most_held(analysis: &Analysis) -> Option<String> {
    let peak = analysis.peak.as_ref()?;
    let figure = peak::peak_in_words(analysis, peak);
    let most =
        most_of_it(analysis, peak).or_else(|| of_nobody(analysis, peak).map(|(most, _)| most));
    let most = most.map_or_else(String::new, |most| format!("; {most}"));
    Some(format!("{figure}{most}."))
}

/// Who held most at an instant, and of which kind: a process or several that do the same, with
/// their role where others have it too; or those who held about as much as each other.
fn most_of_it(analysis: &Analysis, state: &Composition) -> Option<String> {
    let groups = state.groups(&analysis.processes);
    let parts = Parts::of(state);
    let held = groups.iter().map(|group| (parts.held_by(group), group));
    let held: Vec<(HeldBy, &HolderGroup)> = held.collect();
    // Of equals the first, which is the largest by RSS.
    let most = held.iter().rev().max_by_key(|(held, _)| held.sum())?;
    let is_like_most = |(held, group): &&(HeldBy, &HolderGroup)| {
        let is_as_much = held.sum().0 as f64 >= most.0.sum().0 as f64 * ALIKE;
        is_as_much && group.who.process_count == 1
    };
    let alike = held.iter().filter(is_like_most);
    let least = alike.clone().map(|(held, _)| held.sum()).min();
    let alike_sum: Bytes = alike.clone().map(|(held, _)| held.sum()).sum();
    let mut alike: Vec<&HolderGroup> = alike.map(|(_, group)| *group).collect();
    // A parent comes before its children.
    alike.order_by_key(|group| group.who.members.first().copied());
    let (held, group) = most;
    if let Some((reported, _)) = of_nobody(analysis, state).filter(|(_, bytes)| *bytes > held.sum())
    {
        return Some(reported);
    }
    let who = |group: &HolderGroup| match group.who.process_count {
        1 => analysis.with_role(&group.who.who),
        _ => group.who.in_words(),
    };
    let most_words = bytes(held.sum());
    let least_words = least.map(bytes).filter(|least| *least != most_words);
    let least_words = least_words.map_or_else(String::new, |least| format!("{least} to "));
    let each = format!("{}{least_words}{most_words}", held.bound());
    match alike.as_slice() {
        _ if held.sum().0 == 0 => None,
        [first, second] => {
            let (first, second) = (who(first), who(second));
            let lead = lead(state, alike_sum);
            Some(format!("{lead} {first} and {second}, {each} each"))
        }
        [first, _, _, ..] => {
            let (all, first) = (processes(alike.len()), who(first));
            let lead = lead(state, alike_sum);
            Some(format!("{lead} {all}, {each} each, the first {first}"))
        }
        [] | [_] => {
            let (who, in_words) = (who(group), held.in_words());
            Some(match several_of_its_role(analysis, group) {
                Some(role) => format!("{role}, the largest {who}: {in_words}"),
                None => format!("{} {who}: {in_words}", lead(state, held.sum())),
            })
        }
    }
}

/// What leads to those who held most: more than half of all, or only more than any other.
fn lead(state: &Composition, held: Bytes) -> &'static str {
    let all = match &state.held {
        Some(held) => Some(held.all().bytes),
        None => state.totals[Kind::Rss].bytes(),
    };
    match all.is_some_and(|all| held.0 * 2 > all.0) {
        true => "most of it in",
        false => "the most in",
    }
}

/// The largest kind of which no process is known that holds it, and how much that is. Of pages that are
/// pinned it says who had most pinned.
fn of_nobody(analysis: &Analysis, state: &Composition) -> Option<(String, Bytes)> {
    let shares = state.shares.iter();
    let (huge, tables): (Vec<Bytes>, Vec<Bytes>) = shares
        .map(|share| (share.huge_bytes, share.page_tables_bytes))
        .unzip();
    let of_processes = [huge.into_iter().sum(), tables.into_iter().sum(), Bytes(0)];
    let held = state.held?;
    let kinds = held.beside().into_iter().zip(of_processes);
    let kinds = kinds.map(|((kind, held), known)| (kind, held.bytes - known));
    // What several map is in the RSS of each: where they share any, this is a lower bound.
    let mapped = state.totals[Kind::Shmem].bytes();
    let unmapped = mapped.map(|mapped| held.shared.bytes - mapped);
    let unmapped = unmapped.map(|left| ("shared memory that no process maps", left));
    let kinds = kinds.chain(unmapped);
    let (kind, left) = kinds.max_by_key(|(_, left)| *left)?;
    let pinner = state.shares.iter().max_by_key(|share| share.pinned_bytes);
    let pinner = pinner.filter(|share| kind == UNNAMED && share.pinned_bytes.0 >= left.0 / 2);
    let pinner = pinner.map_or_else(String::new, |share| {
        let who = analysis.with_role(&Who::from(&analysis.processes[share.process]));
        format!(", pinned by {who}")
    });
    let reported = format!("{} {kind}: {}{pinner}", lead(state, left), bytes(left));
    (left.0 > 0).then_some((reported, left))
}

/// `2 × vLLM worker held 4.1 GiB`: where others have the role of a process too.
fn several_of_its_role(analysis: &Analysis, group: &HolderGroup) -> Option<String> {
    let [only] = group.who.members[..] else {
        return None;
    };
    let mut roles = analysis.roles.iter().filter(|role| role.role.is_some());
    let role = roles.find(|role| role.members.contains(&only))?;
    let at_peak = role.at_peak.as_ref();
    let at_peak = at_peak.filter(|at_peak| at_peak.process_count > 1)?;
    let (count, name) = (words::times(at_peak.process_count), &role.name);
    Some(format!(
        "{count} {name} held {}",
        bytes(at_peak.host_bytes()?)
    ))
}

/// The number of the signal on Linux.
const SIGBUS: i32 = 7;
/// Another limit than that of the group is reported from this part of it on, or if the recording failed.
const NEAR: f64 = 0.5;

/// How near the limits were, over the whole recording: that of a cgroup or else the machine's memory, when
/// it is reached if that goes on, those of a process, and that of a tmpfs; the nearest first.
fn limit(analysis: &Analysis) -> Option<String> {
    let others = [
        nearest(analysis, LimitKind::AddressSpace),
        nearest(analysis, LimitKind::Data),
        nearest(analysis, LimitKind::Tmpfs),
    ];
    let has_failed = analysis.has_failed();
    let is_of_interest =
        |limit: &&LimitUse| limit.share() >= NEAR || has_failed && limit.kind != LimitKind::Tmpfs;
    let others = others.into_iter().flatten().filter(is_of_interest);
    let others = others.map(|limit| (limit.share(), limits::in_words(limit, analysis)));
    let mut reported: Vec<(f64, String)> = others.collect();
    let group = nearest(analysis, LimitKind::Cgroup);
    reported.extend(group.map(|limit| (limit.share(), of_group(analysis, limit))));
    // Where those who held most have no limit, that of others matters if it was near.
    if group.is_none_or(|limit| limit.share() < NEAR && !has_limit_at_peak(analysis)) {
        reported.extend(of_machine(analysis));
    }
    reported.order_by(|(a, _), (b, _)| b.total_cmp(a));
    let reported: Vec<String> = reported.into_iter().map(|(_, words)| words).collect();
    (!reported.is_empty()).then(|| reported.join("; ") + ".")
}

/// The limit of a kind that came nearest to being met.
fn nearest(analysis: &Analysis, kind: LimitKind) -> Option<&LimitUse> {
    analysis.limits.iter().find(|limit| limit.kind == kind)
}

/// Whether a cgroup limits those who held most at the peak.
fn has_limit_at_peak(analysis: &Analysis) -> bool {
    let mut groups = analysis.peak.iter().flat_map(|peak| &peak.cgroups);
    groups
        .next()
        .is_some_and(|group| group.limited_by.is_some())
}

/// How near a cgroup came to its limit, and when it is met if that goes on.
fn of_group(analysis: &Analysis, limit: &LimitUse) -> String {
    let reported = limits::in_words(limit, analysis);
    let used = limit
        .used_bytes
        .filter(|_| limits::is_of_peak(limit, analysis));
    let left = used.and_then(|used| growth::time_to_fill(analysis, limit.limit_bytes - used));
    match left {
        Some((slope, left)) => {
            let (slope, left) = (words::slope(slope), words::about(left));
            format!("{reported}; at {slope} in all, the limit is reached in about {left}")
        }
        None => reported,
    }
}

/// What was available of the machine at the peak, and how much of it was in use.
fn of_machine(analysis: &Analysis) -> Option<(f64, String)> {
    let peak = analysis.peak.as_ref()?;
    let row = &peak.node.as_ref()?.row;
    let (available, total) = (row.mem_available_bytes?, row.mem_total_bytes?);
    let used = (total - available).0 as f64 / total.0.max(1) as f64;
    let (available, total) = (bytes(available), bytes(total));
    let has_others = !analysis
        .limits
        .iter()
        .all(|limit| limit.share() < NEAR && limit.kind == LimitKind::Tmpfs);
    let is_bus_error = |process: &Process| {
        matches!(process.ending, Ending::Killed { signal: SIGBUS, .. })
            && process.sender == Sender::Kernel
    };
    let none = match peak.cgroups.is_empty() || has_others {
        true => "",
        // A page of a full tmpfs can't be had.
        false if analysis.processes.iter().any(is_bus_error) => {
            "not known: the kernel sent SIGBUS, as it does where a tmpfs is full; "
        }
        false => "none; ",
    };
    let reported = format!("{none}{available} of the machine's {total} were available at the peak");
    Some((used, reported))
}

/// The command that shows more, and what it shows.
fn look_next(analysis: &Analysis, violent: Option<Instant>) -> AnswerLine {
    let (what, options) = next(analysis, violent);
    let path = analysis.path.as_deref().map(quoted);
    let path = path.map_or_else(String::new, |path| format!(" {path}"));
    AnswerLine {
        about: Topic::LookNext,
        text: what.to_owned(),
        command: Some(format!("memtrace report{path} {options}")),
        is_alarming: false,
    }
}

fn next(analysis: &Analysis, violent: Option<Instant>) -> (&'static str, String) {
    if let Some(at) = violent {
        return ("who held what then:", format!("--at {}", offset(at)));
    }
    if let Some(stage) = steps::growing_stage(analysis) {
        return (
            "what each role gained:",
            format!("--phase={}", pattern(&stage)),
        );
    }
    if let Some((who, growth)) = growth::grower(analysis) {
        let [from, to] = [growth.from, last_held(analysis, &who, growth.to)].map(offset);
        return (
            "who gained memory in that time:",
            format!("--from {from} --to {to}"),
        );
    }
    if analysis.peak.is_none() {
        return ("the full report:", "--full".to_owned());
    }
    match analysis
        .phases
        .as_ref()
        .is_some_and(|phases| !phases.lines.is_empty())
    {
        true => ("what each phase cost:", "--phases".to_owned()),
        false => ("who held what at the peak:", "--at peak".to_owned()),
    }
}

/// A name as `--phase` takes it: what a terminal does not show is any character there.
fn pattern(name: &str) -> String {
    quoted(&name.replace(is_hidden, "?"))
}
