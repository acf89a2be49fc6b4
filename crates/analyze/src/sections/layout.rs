//! What memory is inside of processes, and why it came.

use crate::{Analysis, Cause, Confidence, Layout, LayoutLine, PostMortem, Report, Verdict};
use memtrace_model::tables::LayoutPart;
use memtrace_model::{Bytes, Label, Order};
use memtrace_report::words::bytes;
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, Tone, one_part, visible, words};

/// Parts that get a line each.
const PARTS_MAX: usize = 6;
/// Processes of which it is reported unasked.
const PROCESSES_MAX: usize = 3;
/// Less than this, gained by a process, is not reported unasked.
const MATTERS: Bytes = Bytes(64 << 20);
/// Nor what is less than this part of what all held at the peak.
const MATTERS_PART: i64 = 10;

pub(super) const SECTION: Section<Report> = Section {
    name: "layout",
    doc: "what memory is inside of processes: heaps, arenas, Python objects, mappings; and why it came",
    keys: &["layouts"],
    tables: Some(|analysis, top| {
        let layouts: Vec<&Layout> = analysis.layouts.iter().take(top).collect();
        one_part(of_many(&layouts))
    }),
    is_worth_telling: |analysis| {
        analysis
            .layouts
            .iter()
            .any(|layout| matters(analysis, layout))
    },
    tell: |analysis, view| {
        let is_wanted =
            |layout: &&Layout| view.is_alone || view.style.is_full || matters(analysis, layout);
        let mut layouts: Vec<&Layout> = analysis.layouts.iter().filter(is_wanted).collect();
        layouts.order_by_key(|layout| !is_growing(analysis, layout));
        if layouts.is_empty() {
            return Vec::new();
        }
        let mut section = Chapter::new("Inside of processes");
        let count = layouts.len();
        let most = if view.is_alone {
            view.top
        } else {
            view.most(PROCESSES_MAX)
        };
        for layout in layouts.into_iter().take(most) {
            section.strong(sentence(analysis, layout));
            section.quiet(age(analysis, layout));
            section.table(table(&layout.parts, view.most(PARTS_MAX)));
        }
        section.rest(
            count,
            most,
            words::processes,
            ": see `--section layout --full`.",
        );
        section.explain(
            "Inside of processes: NOW is resident memory by who laid it out. GAINED is the \
             growth since steady growth began; without steady growth, since the recording or the \
             process started, whichever was later. FREE is the part of a heap, \
             as far as it was searched, that the allocator has free; PAGES is the same in whole \
             pages, which it could give back.",
        );
        vec![section]
    },
    ..Section::EMPTY
};

/// Whether a person wants to know unasked: of who grows, and of memory that is not simply used.
fn matters(analysis: &Analysis, layout: &Layout) -> bool {
    let held = analysis.peak.as_ref().and_then(|peak| peak.held.as_ref());
    let least = held.map_or(0, |held| held.all().bytes.0 / MATTERS_PART);
    let is_large = layout.gained_bytes >= MATTERS && layout.cause_bytes.0 >= least;
    let is_plain = matches!(
        layout.cause,
        Cause::LiveData | Cause::Unknown | Cause::MappedFiles
    );
    is_large && (!is_plain || is_growing(analysis, layout))
}

fn is_growing(analysis: &Analysis, layout: &Layout) -> bool {
    let growth = analysis.processes[layout.process].growth.as_ref();
    growth.is_some_and(|growth| growth.verdict == Verdict::Growing)
}

/// What of a process is reported among the first lines: of whose growth met the limit, else of who grows
/// most, else what is not simply used.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let culprits = culprits(analysis)?;
    let layouts = analysis.layouts.iter();
    let rank = |layout: &&Layout| {
        let is_culprit = culprits.contains(&layout.process);
        (
            is_culprit,
            is_growing(analysis, layout),
            layout.gained_bytes,
        )
    };
    let most = layouts.filter(|layout| {
        matters(analysis, layout)
            || culprits.contains(&layout.process) && layout.gained_bytes >= MATTERS
    });
    Some(sentence(analysis, most.max_by_key(rank)?))
}

/// Who grew when the limit of the first OOM kill was met; `None` where that was memory that is in no process.
fn culprits(analysis: &Analysis) -> Option<&[usize]> {
    let mut kills = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
    let found = kills.next().and_then(|kill| kill.post_mortem.as_ref());
    if found.is_some_and(|found| found.grown_kind.is_some()) {
        return None;
    }
    let culprit = found.and_then(PostMortem::culprit);
    Some(culprit.map_or(&[], |(grower, _)| &grower.who.members))
}

/// The verdict on a process by the time of its reading, in a sentence.
pub(super) fn sentence(analysis: &Analysis, layout: &Layout) -> String {
    let who = analysis.with_role(&layout.who);
    let gained = bytes(layout.gained_bytes);
    let at = words::after(layout.at.offset_ns);
    let gain = match (layout.from, layout.has_levelled_off) {
        (Some(from), _) => {
            let from = words::after(from.offset_ns);
            format!("grew by {gained} from {from} to {at}")
        }
        (None, true) => format!("gained {gained}, still held at {at}"),
        (None, false) => format!("gained {gained} by {at}"),
    };
    format!("{who} {gain}: {}.", why(layout))
}

/// Why, and what shows it.
pub(super) fn why(layout: &Layout) -> String {
    let of_cause = |is_wanted: &dyn Fn(LayoutPart) -> bool| -> Vec<&LayoutLine> {
        let lines = layout.parts.iter();
        let lines = lines.filter(|line| is_wanted(line.part) && line.gained_bytes.0 > 0);
        lines.collect()
    };
    let of_part = |wanted: LayoutPart| of_cause(&|part| part == wanted);
    let first = |part: LayoutPart| of_part(part).into_iter().next();
    let caused = bytes(layout.cause_bytes);
    match layout.cause {
        Cause::LiveData => format!(
            "{}{}",
            likely(layout, "live data"),
            listed(" in ", &of_cause(&LayoutPart::is_allocated))
        ),
        Cause::Retained => retained(&caused, &of_cause(&LayoutPart::is_heap)),
        Cause::LazilyFreed => format!(
            "{caused} freed with MADV_FREE; the kernel takes that back when it needs memory, so \
             it is not a leak"
        ),
        Cause::HugePages => huge(layout),
        Cause::Pinned => pinned(&of_part(LayoutPart::Pinned)),
        Cause::EqualMappings => first(LayoutPart::EqualMappings).map_or_else(String::new, equal),
        Cause::FileCopies => format!(
            "private pages of files that were written to, {caused}{}; no page cache has them, and \
             the kernel can't drop them",
            most_of(first(LayoutPart::FileCopies))
        ),
        Cause::MappedFiles => format!(
            "pages of mapped files, {caused}{}; they are page cache, and go when the kernel needs \
             memory",
            most_of(first(LayoutPart::MappedFiles))
        ),
        Cause::Stacks => {
            let count = first(LayoutPart::Stacks).map_or(0, |line| line.item_count);
            format!("{caused} of {}", counted(count, "stack", "stacks"))
        }
        Cause::NamedRegion => format!(
            "{caused} in what the program calls {}",
            named(&of_part(LayoutPart::Named))
        ),
        Cause::Unknown => {
            let parts = of_cause(&|_| true);
            // Nothing alone explains half of it, or what would is not known.
            let most = parts.first().map(|line| line.part);
            let why = match (layout.cause_bytes.0, most) {
                (0, _) => "no single cause",
                (_, Some(LayoutPart::Other)) => {
                    "anonymous memory of no allocator that memtrace knows"
                }
                _ => "cause unknown",
            };
            format!("{why}{}", listed("; it is in ", &parts))
        }
    }
}

fn likely(layout: &Layout, what: &str) -> String {
    match layout.confidence {
        Confidence::Measured => what.to_owned(),
        Confidence::Likely | Confidence::None => format!("most likely {what}"),
    }
}

/// `brk heap (+180 MiB, 3 % free) and Python objects (+20 MiB)`: the two that gained most.
fn listed(before: &str, lines: &[&LayoutLine]) -> String {
    let all: i64 = lines.iter().map(|line| line.gained_bytes.0).sum();
    let reported = lines
        .iter()
        .take(2)
        .filter(|line| line.gained_bytes.0 * 10 >= all);
    let reported = reported.map(|line| {
        let free = free(line).map(|share| format!(", {share} free"));
        let name = line.part.shown();
        let gained = words::change(Some(line.gained_bytes));
        format!("{name} ({gained}{})", free.unwrap_or_default())
    });
    let reported: Vec<String> = reported.collect();
    match reported.is_empty() {
        true => String::new(),
        false => format!("{before}{}", reported.join(" and ")),
    }
}

/// How many of something, which is never below zero.
fn counted(count: i64, one: &str, many: &str) -> String {
    words::counted(usize::try_from(count).unwrap_or(0), one, many)
}

/// The part of what was searched that is free; `None` where nothing was.
fn free(line: &LayoutLine) -> Option<String> {
    line.searched_bytes?;
    Some(words::share(line.free_bytes, line.searched_bytes))
}

/// The same of whole pages.
fn free_pages(line: &LayoutLine) -> Option<String> {
    line.searched_bytes?;
    Some(words::share(line.free_page_bytes, line.searched_bytes))
}

/// `kept by malloc: 28 heaps of arenas, of which 71 % is free; …`.
fn retained(caused: &str, lines: &[&LayoutLine]) -> String {
    let most = lines.iter().max_by_key(|line| {
        let share = line.free_share().unwrap_or(0.0);
        (share * line.gained_bytes.0 as f64) as i64
    });
    let Some(line) = most else {
        return format!("about {caused} kept by the allocator");
    };
    let (free, pages) = (
        free(line).unwrap_or_default(),
        free_pages(line).unwrap_or_default(),
    );
    let kept = format!("freed by the program and kept by its allocator, about {caused}");
    match line.part {
        LayoutPart::GlibcArenas => format!(
            "{kept}: {} of glibc arenas, {free} free, {pages} in whole pages; MALLOC_ARENA_MAX=2 \
             or malloc_trim(0) would confirm it",
            counted(line.item_count, "heap", "heaps")
        ),
        LayoutPart::PythonPools => format!(
            "{kept}: Python's pools, {free} of them free, {pages} in pools without any object; an \
             arena goes back when its last object does"
        ),
        // Less than a page here and there can't be given back.
        _ if line.free_page_share().is_some_and(|share| share < 0.1) => format!(
            "{kept}: {free} of the {} is free, but only {pages} in whole pages: it is fragmented, and \
             malloc_trim(0) would give little back",
            line.part.shown()
        ),
        _ => format!(
            "{kept}: {free} of the {} is free, {pages} in whole pages; malloc_trim(0) would give \
             those back",
            line.part.shown()
        ),
    }
}

fn huge(layout: &Layout) -> String {
    let lines = layout.parts.iter();
    let cases = lines.filter_map(|line| Some((line, line.untouched()?)));
    let Some((line, zero)) = cases.max_by_key(|(line, _)| line.gained_bytes) else {
        return "huge pages".to_owned();
    };
    let zero = Bytes((zero * line.rss_bytes.0 as f64) as i64);
    format!(
        "most likely huge pages: {} of {} are resident in them, of which about {} holds only \
         zeros; MADV_NOHUGEPAGE there, or transparent_hugepage/enabled, would confirm it",
        bytes(line.rss_bytes),
        line.part.shown(),
        bytes(zero)
    )
}

fn pinned(lines: &[&LayoutLine]) -> String {
    let count: i64 = lines.iter().map(|line| line.item_count).sum();
    let rss: Bytes = lines.iter().map(|line| line.rss_bytes).sum();
    let zero: Bytes = lines.iter().filter_map(|line| line.zero_bytes).sum();
    let is_power = |line: &&&LayoutLine| {
        let unit = line.unit_bytes.map_or(0, |unit| unit.0);
        u64::try_from(unit).is_ok_and(u64::is_power_of_two)
    };
    let rounded: Bytes = lines
        .iter()
        .filter(is_power)
        .map(|line| line.rss_bytes)
        .sum();
    let what = format!(
        "shared anonymous memory, as drivers pin it: {} in {}",
        bytes(rss),
        counted(count, "mapping", "mappings")
    );
    let used = bytes(rss - zero);
    // Rounding up to a power of two wastes less than half.
    let is_rounding = rounded.0 * 2 >= rss.0 && zero.0 * 2 < rss.0;
    match zero.0 * 10 >= rss.0 {
        false => what,
        true if is_rounding => format!(
            "{what} whose sizes are powers of two; about {used} is in use, and the rest, only \
             zeros, is likely rounding"
        ),
        true => format!("{what}, of which about {} holds only zeros", bytes(zero)),
    }
}

fn equal(line: &LayoutLine) -> String {
    format!(
        "{} of {} each, {} more than at first",
        counted(line.item_count, "mapping", "mappings"),
        words::bytes_or_unknown(line.unit_bytes),
        words::count(line.items_gained)
    )
}

fn most_of(line: Option<&LayoutLine>) -> String {
    let name = line.and_then(|line| line.name.as_deref());
    name.map_or_else(String::new, |name| {
        format!(", most of it {}", visible(name))
    })
}

fn named(lines: &[&LayoutLine]) -> String {
    let names = lines.iter().filter_map(|line| line.name.as_deref());
    let names: Vec<_> = names.take(3).map(visible).collect();
    names.join(", ")
}

/// When it was read.
pub(super) fn age(analysis: &Analysis, layout: &Layout) -> String {
    format!(
        "Read at {}, in {}.",
        analysis.clock.when(layout.at),
        words::duration(layout.span_ns)
    )
}

/// The parts of one process.
pub(super) fn table(parts: &[LayoutLine], most: usize) -> Table {
    let lines = parts.iter().filter(|line| line.rss_bytes.0 >= 1 << 20);
    TableOf::of(lines.take(most))
        .figures(("rss_bytes", "NOW"), 0, |line| line.rss_bytes)
        .figures(("gained_bytes", "GAINED"), 0, |line| {
            Cell::from(words::change(Some(line.gained_bytes)))
        })
        .figures(("item_count", "ITEMS"), 1, |line| {
            words::count(line.item_count)
        })
        .figures(("free_share", "FREE"), 1, |line| {
            free(line).unwrap_or_default()
        })
        .figures(("free_page_share", "PAGES"), 2, |line| {
            free_pages(line).unwrap_or_default()
        })
        .flexible(("part", "WHAT"), |line| what(line))
        .done()
}

fn what(line: &LayoutLine) -> String {
    let name = line.part.shown();
    let unit = line
        .unit_bytes
        .map(|unit| format!(" of {} each", bytes(unit)));
    let file = line
        .name
        .as_deref()
        .map(|name| format!(": {}", visible(name)));
    format!(
        "{name}{}{}",
        unit.unwrap_or_default(),
        file.unwrap_or_default()
    )
}

/// All parts of several processes, for programs.
fn of_many(layouts: &[&Layout]) -> Table {
    let lines = layouts.iter().flat_map(|layout| {
        let lines = layout.parts.iter();
        lines.map(|line| (*layout, line))
    });
    TableOf::of(lines)
        .who(|(layout, _)| layout.who.cells())
        .known("upid", |(layout, _)| layout.who.upid)
        .data("cause", |(layout, _)| layout.cause.as_str().to_owned())
        .data("confidence", |(layout, _)| {
            layout.confidence.as_str().to_owned()
        })
        .data("part", |(_, line)| line.part.as_str().to_owned())
        .known("name", |(_, line)| line.name.as_deref())
        .figures("item_count", 1, |(_, line)| line.item_count.to_string())
        .figures("unit_bytes", 3, |(_, line)| line.unit_bytes)
        .figures("rss_bytes", 0, |(_, line)| line.rss_bytes)
        .figures("gained_bytes", 0, |(_, line)| line.gained_bytes)
        .figures("searched_bytes", 2, |(_, line)| line.searched_bytes)
        .figures("free_bytes", 2, |(_, line)| line.free_bytes)
        .figures("free_page_bytes", 2, |(_, line)| line.free_page_bytes)
        .figures("zero_bytes", 2, |(_, line)| line.zero_bytes)
        .figures("huge_bytes", 2, |(_, line)| line.huge_bytes)
        .figures("lazy_free_bytes", 2, |(_, line)| line.lazy_free_bytes)
        .done()
}

/// What is said of a process in another section.
pub(super) fn remark(analysis: &Analysis, process: usize, section: &mut Chapter) {
    let found = analysis
        .layouts
        .iter()
        .find(|layout| layout.process == process);
    if let Some(layout) = found.filter(|layout| layout.gained_bytes >= MATTERS) {
        section.tell(
            Tone::Plain,
            [format!("Inside: {}", sentence(analysis, layout))],
        );
    }
}
