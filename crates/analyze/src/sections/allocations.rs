//! Who allocated what is still resident.

use super::growth;
use super::held_by_line::{
    self, LARGE_PART, MATTERS, NOTABLE_PART, PASSING_PART, estimated, estimated_within,
};
use crate::allocations::{AllocationSite, ProcessAllocations, Sampled};
use crate::peak::Bound;
use crate::{Analysis, Report, Who};
use memtrace_model::{Bytes, Instant, Kind, Order};
use memtrace_report::words::bytes;
use memtrace_report::{Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part, words};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::once;

/// Processes of which it is reported unasked, and lines of each.
const PROCESSES_MAX: usize = 3;
const LINES_MAX: usize = 6;
/// Lines with this part of what a process held at a kill are named, so many at most.
const NAMED_PART: f64 = 0.1;
const NAMED_MAX: usize = 3;

const TITLE: &str = "Who allocated it";

pub(super) const SECTION: Section<Report> = Section {
    name: "allocations",
    doc: "who allocated what is still resident, by line (record --stacks)",
    keys: &["allocations", "held_by_line"],
    tables: Some(|analysis, top| {
        let processes = analysis.allocations.iter().take(top);
        one_part(table_of_all(processes.flat_map(|process| {
            process.sites.iter().map(move |site| (process, site))
        })))
    }),
    is_worth_telling: |analysis| analysis.allocations.iter().any(matters) || is_peak_news(analysis),
    tell: |analysis, view| {
        let all = &analysis.allocations;
        let is_wanted = |one: &&ProcessAllocations| {
            let is_enough = view.is_alone && one.sum.resident() > Some(Bytes(0));
            view.style.is_full || is_enough || matters(one)
        };
        let wanted: Vec<&ProcessAllocations> = all.iter().filter(is_wanted).collect();
        let together = held_by_line::chapter(analysis, view.most(LINES_MAX));
        let together =
            together.filter(|_| view.is_alone || view.style.is_full || is_peak_news(analysis));
        if wanted.is_empty() {
            return together.into_iter().collect();
        }
        let mut section = Chapter::new(TITLE);
        let most = match view.is_alone {
            true => view.top,
            false => view.most(PROCESSES_MAX),
        };
        for process in wanted.iter().take(most) {
            section.strong(sentence(analysis, process));
            lines(&mut section, process, view.most(LINES_MAX));
        }
        section.rest(wanted.len(), most, words::processes, MORE_IN_JSON);
        section.explain(
            "Who allocated it: from samples, by the line of Python or the native function that \
             touched anonymous or shared memory first. RESIDENT is what of that was in memory or \
             swapped when it was last looked at, \"-\" where it was not looked at; TOUCHED all of it, \
             ± its standard error. SHARED was in shared memory then that is mapped more than once, \
             as by other processes; it is not part of RESIDENT. COPIED is what of RESIDENT a forked \
             process copied because it shared it, so that its RSS did not grow. KEPT FREE is what of \
             RESIDENT the program had freed and malloc of glibc kept. Memory that an allocator hands \
             out again keeps the name of who touched it first; what other allocators keep free is \
             reported by `--section layout`.",
        );
        once(section).chain(together).collect()
    },
    ..Section::EMPTY
};

fn is_peak_news(analysis: &Analysis) -> bool {
    held_by_line::is_news(analysis, named_first(analysis))
}

fn lines(section: &mut Chapter, process: &ProcessAllocations, most: usize) {
    section.table(table(process, most));
    section.rest(process.sites.len(), most, words::count, MORE_IN_JSON);
}

/// Who allocated what one process holds.
pub(super) fn of_process(analysis: &Analysis, who: &Who, most: usize) -> Option<Chapter> {
    let mut all = analysis.allocations.iter();
    let process = all.find(|one| one.who.upid == who.upid)?;
    let mut section = Chapter::new(TITLE);
    section.strong(sentence(analysis, process));
    lines(&mut section, process, most);
    Some(section)
}

/// Who allocated what the wanted processes hold that are there, as `memtrace top` shows it; `None` where
/// nothing sampled is held.
pub(crate) fn held_now(
    analysis: &Analysis,
    most: usize,
    is_wanted: impl Fn(&Who) -> bool,
) -> Option<Chapter> {
    let holds = |one: &&ProcessAllocations| {
        !one.has_ended && one.sum.resident() > Some(Bytes(0)) && is_wanted(&one.who)
    };
    let holding: Vec<_> = analysis.allocations.iter().filter(holds).collect();
    let mut section = Chapter::new(TITLE);
    for process in holding.iter().take(most) {
        section.strong(sentence(analysis, process));
        section.table(table(process, LINES_MAX));
    }
    section.rest(
        holding.len(),
        most,
        words::processes,
        " more: filter for them.",
    );
    (!holding.is_empty()).then_some(section)
}

/// Which lines touched what a process held at a kill. What was not looked at before the kill counts
/// too: it came last.
pub(super) fn at_kill(process: &ProcessAllocations) -> Option<String> {
    let all = process.sum.not_returned();
    if all < MATTERS {
        return None;
    }
    let part = |site: &AllocationSite| site.sum.not_returned().0 as f64 / all.0 as f64;
    let named = process
        .sites
        .iter()
        .filter(|site| site.line.frame.is_some());
    let mut named: Vec<&AllocationSite> = named.filter(|site| part(site) >= NAMED_PART).collect();
    named.order_by_key(|site| Reverse(site.sum.not_returned()));
    let named = named.into_iter().take(NAMED_MAX).map(|site| {
        let share = words::share(Some(site.sum.not_returned()), Some(all));
        format!(
            "{share} of it at {}{}",
            site.line.place(),
            doubt_in_words(&site.sum)
        )
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| {
        let (who, all, named) = (process.who.in_words(), bytes(all), named.join(", "));
        format!("Allocated: {who} had touched {all} that is not known to be given back: {named}.")
    })
}

fn matters(process: &ProcessAllocations) -> bool {
    process.sum.resident_bytes >= MATTERS || is_mostly_shared(process)
}

/// Whether little of what it holds is its own, and much is shared.
fn is_mostly_shared(process: &ProcessAllocations) -> bool {
    process.sum.resident_bytes < MATTERS && process.sum.shared() >= MATTERS
}

/// The line that holds most of that, or most of what is shared where that is most.
fn first(process: &ProcessAllocations) -> Option<&AllocationSite> {
    match is_mostly_shared(process) {
        true => process.sites.iter().max_by_key(|site| site.sum.shared()),
        false => process.sites.first(),
    }
}

/// Which line most came by of one process, and what forked processes copied.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let sentences = [
        of_one_in_short(analysis),
        held_by_line::in_short(analysis, named_first(analysis)),
        copied_in_short(&analysis.allocations),
    ];
    let sentences: Vec<String> = sentences.into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// What several forked processes copied, where that is much, and the line that most of it came by.
fn copied_in_short(allocations: &[ProcessAllocations]) -> Option<String> {
    let copied = |sum: &Sampled| sum.copied_bytes.unwrap_or_default();
    let has_copied = |one: &&ProcessAllocations| copied(&one.sum).0 > 0;
    let copying: Vec<_> = allocations.iter().filter(has_copied).collect();
    let all: Bytes = copying.iter().map(|one| copied(&one.sum)).sum();
    let resident = allocations.iter().map(|one| one.sum.resident_bytes);
    let resident: Bytes = resident.sum();
    let is_much = all >= MATTERS && all.0 as f64 >= NOTABLE_PART * resident.0 as f64;
    if copying.len() < 2 || !is_much {
        return None;
    }
    let mut places: BTreeMap<String, Bytes> = BTreeMap::new();
    let sites = copying.iter().flat_map(|one| &one.sites);
    for site in sites.filter(|site| site.line.frame.is_some()) {
        let place = places.entry(site.line.place()).or_default();
        *place = *place + copied(&site.sum);
    }
    let (place, most) = places.into_iter().max_by_key(|(_, copied)| *copied)?;
    // Independent of each other.
    let errors = copying.iter().map(|one| one.sum.error_of(copied(&one.sum)));
    Some(format!(
        "{} together copied {} of what they had shared with their parents: {} at {place}.",
        words::processes(copying.len()),
        estimated(all, errors.fold(0.0, f64::hypot)),
        words::share(Some(most), Some(all))
    ))
}

/// Which line most of the memory of the process that grows, else of that which holds most, came by, if one
/// stands out.
fn of_one_in_short(analysis: &Analysis) -> Option<String> {
    let process = named_first(analysis)?;
    let first = first(process)?;
    first.line.frame.as_ref()?;
    let amount = |sum: &Sampled| match is_mostly_shared(process) {
        true => sum.shared(),
        false => sum.resident_bytes,
    };
    let is_large = amount(&first.sum).0 as f64 >= LARGE_PART * amount(&process.sum).0 as f64;
    (is_large || later_line(process).is_some()).then(|| sentence(analysis, process))
}

/// The process that the first lines name: who grows, else who holds most.
fn named_first(analysis: &Analysis) -> Option<&ProcessAllocations> {
    let grower = growth::grower(analysis).and_then(|(grower, _)| grower.upid);
    let all = || analysis.allocations.iter().filter(|one| matters(one));
    let grower = grower.and_then(|grower| all().find(|one| one.who.upid == Some(grower)));
    let later = all().filter(|one| later_line(one).is_some());
    let later = later.max_by_key(|one| one.later_bytes);
    let shared = || all().max_by_key(|one| one.sum.shared());
    let own = || all().find(|one| !is_mostly_shared(one));
    grower.or(later).or_else(own).or_else(shared)
}

/// The line that most of what came in the later half of a process's life came by, where much came, and
/// one stands out: a start-up, which often holds more, is over by then.
fn later_line(process: &ProcessAllocations) -> Option<&AllocationSite> {
    let came = process.later_bytes;
    let is_much =
        came >= MATTERS && came.0 as f64 >= NOTABLE_PART * process.sum.resident_bytes.0 as f64;
    let named = process.later.as_ref().filter(|_| is_much)?;
    (named.later().0 as f64 >= LARGE_PART * came.0 as f64).then_some(named)
}

/// `22924 python3 grew by 24 MiB that is still resident: 71 % at cache.py:118 update.` Where another line
/// leads in the later half of its life, that comes first.
fn sentence(analysis: &Analysis, process: &ProcessAllocations) -> String {
    let who = analysis.with_role(&process.who);
    let sum = &process.sum;
    let still = match process.has_ended {
        true => "was resident before its end",
        false => "is still resident",
    };
    let Some(resident) = sum.resident() else {
        let touched = bytes(sum.grown_bytes);
        return format!("{who} touched {touched} anew; whether that {still} is not known.");
    };
    if is_mostly_shared(process)
        && let Some(first) = first(process)
    {
        let (all, place) = (bytes(sum.shared()), first.line.place());
        let share = words::share(Some(first.sum.shared()), Some(sum.shared()));
        return format!(
            "{who} touched {all} of shared memory that {still} and that others map, too: {share} at \
             {place}."
        );
    }
    let most = most_in_rss(analysis, process).unwrap_or(Bytes(i64::MAX));
    let grew = estimated_within(resident, sum.resident_error(), most);
    let remarks = remarks(analysis, process, resident);
    let reported = format!("{who} grew by {grew} that {still}{remarks}");
    match process.sites.first() {
        Some(first) if resident.0 > 0 => {
            let share = words::share(first.sum.resident(), Some(resident));
            let doubt = doubt_in_words(&first.sum);
            let place = first.line.place();
            let Some(later) = later_line(process).filter(|later| later.line.place() != place)
            else {
                return match has_passed_on(&first.sum) && !is_mostly_kept(&first.sum) {
                    true => format!(
                        "{reported}. Which line holds it is not known: {place} touched {share} of it first, \
                         but gave back most of the {} that it touched, for others to get.",
                        bytes(first.sum.grown_bytes)
                    ),
                    false => format!("{reported}: {share} at {place}{doubt}."),
                };
            };
            let came = bytes(process.later_bytes);
            let later_share = words::share(Some(later.later()), Some(process.later_bytes));
            let later_doubt = doubt_in_words(&later.sum);
            let later = later.line.place();
            format!(
                "{reported}, {came} of it in its later half: {later_share} of these at \
                 {later}{later_doubt}; {share} of all at {place}{doubt}."
            )
        }
        _ => format!("{reported}."),
    }
}

/// ` (8 MiB of it copied after a fork; …)`: what is worth a remark beside what is resident.
fn remarks(analysis: &Analysis, process: &ProcessAllocations, resident: Bytes) -> String {
    let sum = &process.sum;
    let is_notable = |part: Bytes| part.0 as f64 >= NOTABLE_PART * resident.0 as f64;
    let unknown = Some(sum.unknown_bytes).filter(|unknown| unknown.0 > 0 && is_notable(*unknown));
    let unknown =
        unknown.map(|unknown| format!("what became of {} more is not known", bytes(unknown)));
    let of_heaps = || {
        let (free, at) = free_in_heaps(analysis, process).filter(|(free, _)| is_notable(*free))?;
        let (free, at) = (bytes(free), analysis.clock.when(at));
        Some(format!(
            "its heaps had {free} free at {at}, kept by the allocator"
        ))
    };
    let kept = match sum.kept_bytes {
        Some(kept) => {
            is_notable(kept).then(|| format!("{} of it kept free by malloc", bytes(kept)))
        }
        None => of_heaps(),
    };
    let shared = Some(sum.shared()).filter(|shared| shared.0 > 0 && is_notable(*shared));
    let shared =
        shared.map(|shared| format!("{} more in memory that others map, too", bytes(shared)));
    let copied = sum.copied_bytes.unwrap_or_default();
    let copied = Some(copied).filter(|copied| copied.0 > 0 && is_notable(*copied));
    let copied = copied.map(|copied| format!("{} of it copied after a fork", bytes(copied)));
    let remarks = copied.into_iter().chain(kept).chain(shared).chain(unknown);
    let remarks: Vec<String> = remarks.collect();
    match remarks.is_empty() {
        true => String::new(),
        false => format!(" ({})", remarks.join("; ")),
    }
}

/// The most that a process ever had; `None` where that is not known, or some of it was swapped out.
fn most_in_rss(analysis: &Analysis, process: &ProcessAllocations) -> Option<Bytes> {
    let mut processes = analysis.processes.iter();
    let peak = &processes
        .find(|found| Some(found.upid) == process.who.upid)?
        .peak;
    let swap = peak.amounts.get(Kind::Swap).unwrap_or_default();
    peak.rss_bytes
        .filter(|_| swap.0 == 0 && peak.bound != Bound::AtLeast)
}

/// What makes it doubtful that the line still uses what it touched: most is known to be free, or most of
/// what was ever touched there came and went, so that the rest can be in other hands.
fn doubt_in_words(sum: &Sampled) -> String {
    if is_mostly_kept(sum) {
        return ", most of that kept free by malloc".to_owned();
    }
    match has_passed_on(sum) {
        true => format!(
            " (it touched {} and gave most of it back: other code that got this memory later may hold \
             the rest)",
            bytes(sum.grown_bytes)
        ),
        false => String::new(),
    }
}

/// Whether most of it is known to be free.
fn is_mostly_kept(sum: &Sampled) -> bool {
    let kept = sum.kept_bytes.unwrap_or_default();
    kept.0 > 0 && kept.0 >= sum.resident_bytes.0 - kept.0
}

/// Whether most of what was ever touched there came and went.
fn has_passed_on(sum: &Sampled) -> bool {
    sum.returned_bytes.0 as f64 >= PASSING_PART * sum.grown_bytes.0 as f64
}

/// What of a process's heaps was free, and when: resident memory that nobody used. `None` where that is
/// not known.
fn free_in_heaps(analysis: &Analysis, process: &ProcessAllocations) -> Option<(Bytes, Instant)> {
    let mut layouts = analysis.layouts.iter();
    let layout = layouts.find(|layout| layout.who.upid == process.who.upid)?;
    let free = layout.parts.iter().map(|part| part.free_page_bytes);
    let free: Vec<Bytes> = free.flatten().collect();
    (!free.is_empty()).then(|| (free.into_iter().sum(), layout.at))
}

fn table(process: &ProcessAllocations, most: usize) -> Table {
    let all = process.sum.resident_bytes;
    let mut sites: Vec<&AllocationSite> = process.sites.iter().collect();
    sites.order_by_key(|site| Reverse(site.sum.resident_bytes + site.sum.shared()));
    TableOf::of(sites.into_iter().take(most))
        .figures("resident_bytes", 0, |site| site.sum.resident())
        .words("share", 1, move |site| {
            Cell::shown_only(&words::share(site.sum.resident(), Some(all)))
        })
        .figures(("kept_bytes", "KEPT FREE"), 1, |site| site.sum.kept_bytes)
        .only_if(process.sum.kept_bytes > Some(Bytes(0)))
        .figures(("copied_bytes", "COPIED"), 1, |site| site.sum.copied_bytes)
        .only_if(process.sum.copied_bytes > Some(Bytes(0)))
        .figures(("shared_bytes", "SHARED"), 1, |site| {
            site.sum.resident().and(site.sum.shared_bytes)
        })
        .only_if(process.sum.shared().0 > 0)
        .figures(("grown_bytes", "TOUCHED"), 2, |site| site.sum.grown_bytes)
        .figures(("grown_error_bytes", "±"), 3, |site| {
            site.sum.grown_error_bytes
        })
        .flexible("place", |site| site.line.place())
        .done()
}

fn table_of_all<'a>(
    sites: impl Iterator<Item = (&'a ProcessAllocations, &'a AllocationSite)>,
) -> Table {
    TableOf::of(sites)
        .who(|(process, _)| process.who.cells())
        .data("upid", |(process, _)| Cell::known(process.who.upid))
        .flexible("place", |(_, site)| site.line.place())
        .figures("resident_bytes", 0, |(_, site)| site.sum.resident())
        .figures("grown_bytes", 1, |(_, site)| site.sum.grown_bytes)
        .figures("grown_error_bytes", 2, |(_, site)| {
            site.sum.grown_error_bytes
        })
        .figures("live_bytes", 2, |(_, site)| site.sum.live_bytes)
        .figures("kept_bytes", 2, |(_, site)| site.sum.kept_bytes)
        .figures("copied_bytes", 2, |(_, site)| site.sum.copied_bytes)
        .figures("shared_bytes", 2, |(_, site)| site.sum.shared_bytes)
        .figures("returned_bytes", 2, |(_, site)| site.sum.returned_bytes)
        .figures("unknown_bytes", 2, |(_, site)| site.sum.unknown_bytes)
        .data("sample_count", |(_, site)| {
            site.sum.sample_count.to_string()
        })
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::{CodeLine, Functions, frame};
    use memtrace_model::FrameKind;

    fn copying(copied: i64, place: Option<&str>) -> ProcessAllocations {
        let sum = Sampled {
            resident_bytes: Bytes(100 << 20),
            copied_bytes: Some(Bytes(copied << 20)),
            ..Sampled::default()
        };
        let frame = place.map(|place| frame(FrameKind::Python, Some(place), "/x/pool.py", Some(8)));
        let line = CodeLine {
            frame,
            callers: Vec::new(),
            stack: Vec::new(),
        };
        ProcessAllocations {
            who: Who::default(),
            has_ended: false,
            sum,
            unnamed_bytes: Bytes(0),
            sites: vec![AllocationSite {
                line,
                sum,
                gained_bytes: Bytes(0),
            }],
            later_bytes: Bytes(0),
            later: None,
            functions: Functions::default(),
        }
    }

    #[test]
    fn what_several_copied_after_a_fork_is_added_up_with_the_line_of_most() {
        let of = |amounts: &[(i64, Option<&str>)]| {
            let all = amounts
                .iter()
                .map(|(copied, place)| copying(*copied, *place));
            copied_in_short(&all.collect::<Vec<_>>())
        };
        let workers = [(60, Some("walk")), (60, Some("walk")), (30, None)];
        assert_eq!(
            of(&workers).as_deref(),
            Some(
                "3 processes together copied 150 MiB of what they had shared with their parents: \
                 80% at pool.py:8 walk."
            )
        );
        assert_eq!(of(&workers[..1]), None, "the sentence of that one has it");
        assert_eq!(of(&[(8, Some("walk")), (7, Some("walk"))]), None, "little");
        assert_eq!(of(&[(60, None), (60, None)]), None);
    }

    #[test]
    fn an_amount_has_its_interval_where_that_is_no_small_part_of_it() {
        let mib = |mib: i64| Bytes(mib << 20);
        let of = |amount, error: f64| estimated(mib(amount), error * f64::from(1 << 20));
        let within = |most| estimated_within(mib(166), 18.0 * f64::from(1 << 20), mib(most));
        assert_eq!(of(200, 10.0), "200 MiB");
        assert_eq!(of(200, 30.0), "200 MiB ±58.8 MiB (95 %)");
        assert_eq!(of(0, 0.0), "0 B");
        assert_eq!(within(166), of(166, 18.0));
        assert_eq!(within(158), "131 MiB to 158 MiB (95 %)");
        assert_eq!(within(120), "120 MiB");
    }

    #[test]
    fn a_line_that_gave_back_most_of_what_it_touched_is_doubted() {
        let doubt = |returned: i64, kept: i64| {
            doubt_in_words(&Sampled {
                grown_bytes: Bytes(400 << 20),
                resident_bytes: Bytes((400 - returned) << 20),
                kept_bytes: Some(Bytes(kept << 20)),
                returned_bytes: Bytes(returned << 20),
                ..Sampled::default()
            })
        };
        assert_eq!(doubt(290, 0), "");
        assert!(doubt(310, 0).contains("touched 400 MiB and gave most of it back"));
        assert_eq!(doubt(310, 60), ", most of that kept free by malloc");
    }

    #[test]
    fn a_line_leads_in_the_later_half_where_much_came_and_it_stands_out() {
        let led = |resident: i64, came: i64, by_line: i64| {
            let mib = |mib: i64| Bytes(mib << 20);
            let site = AllocationSite {
                line: CodeLine {
                    frame: None,
                    callers: Vec::new(),
                    stack: Vec::new(),
                },
                sum: Sampled {
                    resident_bytes: mib(by_line),
                    ..Sampled::default()
                },
                gained_bytes: mib(by_line),
            };
            let process = ProcessAllocations {
                who: Who::default(),
                has_ended: false,
                sum: Sampled {
                    resident_bytes: mib(resident),
                    ..Sampled::default()
                },
                unnamed_bytes: Bytes(0),
                sites: Vec::new(),
                later_bytes: mib(came),
                later: Some(site),
                functions: Default::default(),
            };
            later_line(&process).is_some()
        };
        assert!(led(400, 60, 50));
        // Little came, or little beside what is there, or no line stands out.
        assert!(!led(30, 15, 15));
        assert!(!led(4_000, 60, 50));
        assert!(!led(400, 60, 10));
    }
}
