//! Who allocated what is still resident.

use crate::allocations::{AllocationSite, ProcessAllocations};
use crate::{Analysis, Report, StackFrame};
use memtrace_model::{Bytes, Instant};
use memtrace_report::words::bytes;
use memtrace_report::{
    Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part, visible, words,
};

/// Processes of which it is reported unasked, and lines of each.
const PROCESSES_MAX: usize = 3;
const LINES_MAX: usize = 6;
/// Less than this is not reported unasked.
const MATTERS: Bytes = Bytes(16 << 20);
/// Less than this part of what is resident, free in heaps or unknown, is not reported.
const NOTABLE_PART: f64 = 0.1;
/// A line with this part of what a process holds stands among the first lines of a report.
const LARGE_PART: f64 = 0.3;

pub(super) const SECTION: Section<Report> = Section {
    name: "allocations",
    doc: "who allocated what is still resident, by line (record --stacks)",
    keys: &["allocations"],
    tables: Some(|analysis, top| {
        let processes = analysis.allocations.iter().take(top);
        one_part(table_of_all(processes.flat_map(|process| {
            process.sites.iter().map(move |site| (process, site))
        })))
    }),
    is_worth_telling: |analysis| analysis.allocations.iter().any(matters),
    tell: |analysis, view| {
        let all = &analysis.allocations;
        let is_wanted = |one: &&ProcessAllocations| {
            let is_enough = view.is_alone && one.sum.resident() > Some(Bytes(0));
            view.style.is_full || is_enough || matters(one)
        };
        let wanted: Vec<&ProcessAllocations> = all.iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut section = Chapter::new("Who allocated it");
        let most = match view.is_alone {
            true => view.top,
            false => view.most(PROCESSES_MAX),
        };
        for process in wanted.iter().take(most) {
            section.strong(sentence(analysis, process));
            let lines = view.most(LINES_MAX);
            section.table(table(process, lines));
            section.rest(process.sites.len(), lines, words::count, MORE_IN_JSON);
        }
        section.rest(wanted.len(), most, words::processes, MORE_IN_JSON);
        section.explain(
            "Who allocated it: from samples, by the line of Python or the native function that \
             touched anonymous memory first. RESIDENT is what of that was in memory or swapped \
             when it was last looked at, \"-\" where it was not looked at; TOUCHED all of it, ± its \
             standard error. Memory that an \
             allocator hands out again keeps the name of who touched it first; what it keeps free \
             is reported by `--section layout`.",
        );
        vec![section]
    },
    ..Section::EMPTY
};

fn matters(process: &ProcessAllocations) -> bool {
    process.sum.resident_bytes >= MATTERS
}

/// Which line most of the memory of the process that grew most came by, if one stands out.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let process = analysis.allocations.iter().find(|one| matters(one))?;
    let first = process.sites.first()?;
    first.frame.as_ref()?;
    let is_large =
        first.sum.resident_bytes.0 as f64 >= LARGE_PART * process.sum.resident_bytes.0 as f64;
    is_large.then(|| sentence(analysis, process))
}

/// `22924 python3 grew by 24 MiB that is still resident: 71 % at cache.py:118 update.`
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
    let is_notable = |part: Bytes| part.0 as f64 >= NOTABLE_PART * resident.0 as f64;
    let unknown = Some(sum.unknown_bytes).filter(|unknown| unknown.0 > 0 && is_notable(*unknown));
    let unknown = unknown.map(|unknown| format!("of {} more that is not known", bytes(unknown)));
    let kept = kept(analysis, process).filter(|(free, _)| is_notable(*free));
    let kept = kept.map(|(free, at)| {
        let (free, at) = (bytes(free), analysis.clock.when(at));
        format!("its heaps had {free} free at {at}, kept by the allocator")
    });
    let remarks: Vec<String> = unknown.into_iter().chain(kept).collect();
    let remarks = match remarks.is_empty() {
        true => String::new(),
        false => format!(" ({})", remarks.join("; ")),
    };
    let reported = format!("{who} grew by {} that {still}{remarks}", bytes(resident));
    match process.sites.first() {
        Some(first) if resident.0 > 0 => {
            let share = words::share(first.sum.resident(), Some(resident));
            format!("{reported}: {share} at {}.", place(first))
        }
        _ => format!("{reported}."),
    }
}

/// What of a process's heaps was free, and when: resident memory that nobody used. `None` where that is
/// not known.
fn kept(analysis: &Analysis, process: &ProcessAllocations) -> Option<(Bytes, Instant)> {
    let mut layouts = analysis.layouts.iter();
    let layout = layouts.find(|layout| layout.who.upid == process.who.upid)?;
    let free = layout.parts.iter().map(|part| part.free_page_bytes);
    let free: Vec<Bytes> = free.flatten().collect();
    (!free.is_empty()).then(|| (free.into_iter().sum(), layout.at))
}

/// `grow (libfoo.so) < load < main` of a native function.
fn place(site: &AllocationSite) -> String {
    let named = site.frame.as_ref().map(StackFrame::in_words);
    let mut place = named.unwrap_or_else(|| "an unknown place".to_owned());
    for caller in site.callers.iter().map_while(StackFrame::short) {
        place.push_str(" < ");
        place.push_str(&caller);
    }
    visible(&place).into_owned()
}

fn table(process: &ProcessAllocations, most: usize) -> Table {
    let all = process.sum.resident_bytes;
    TableOf::of(process.sites.iter().take(most))
        .figures("resident_bytes", 0, |site| site.sum.resident())
        .words("share", 1, move |site| {
            Cell::shown_only(&words::share(site.sum.resident(), Some(all)))
        })
        .figures(("grown_bytes", "TOUCHED"), 2, |site| site.sum.grown_bytes)
        .figures(("grown_error_bytes", "±"), 3, |site| {
            site.sum.grown_error_bytes
        })
        .flexible("place", |site| place(site))
        .done()
}

fn table_of_all<'a>(
    sites: impl Iterator<Item = (&'a ProcessAllocations, &'a AllocationSite)>,
) -> Table {
    TableOf::of(sites)
        .who(|(process, _)| process.who.cells())
        .data("upid", |(process, _)| Cell::known(process.who.upid))
        .flexible("place", |(_, site)| place(site))
        .figures("resident_bytes", 0, |(_, site)| site.sum.resident())
        .figures("grown_bytes", 1, |(_, site)| site.sum.grown_bytes)
        .figures("grown_error_bytes", 2, |(_, site)| {
            site.sum.grown_error_bytes
        })
        .figures("returned_bytes", 2, |(_, site)| site.sum.returned_bytes)
        .figures("unknown_bytes", 2, |(_, site)| site.sum.unknown_bytes)
        .data("sample_count", |(_, site)| {
            site.sum.sample_count.to_string()
        })
        .done()
}
