//! What lines of code held in all processes together at the peak, or at the instant that was asked for.

use crate::Analysis;
use crate::allocations::{LineHolding, ProcessAllocations};
use crate::trend::Z_95;
use memtrace_model::Bytes;
use memtrace_report::words::bytes;
use memtrace_report::{Cell, Chapter, MORE_IN_JSON, Table, TableOf, words};

/// Less than this is not reported unasked.
pub(super) const MATTERS: Bytes = Bytes(16 << 20);
/// Less than this part of what is resident, free in heaps or unknown, is not reported.
pub(super) const NOTABLE_PART: f64 = 0.1;
/// A line with this part of what a process holds stands among the first lines of a report.
pub(super) const LARGE_PART: f64 = 0.3;
/// A line that gave back this part of what it touched is doubted to hold the rest.
pub(super) const PASSING_PART: f64 = 0.75;
/// A line that held so many times what the first lines of the report say of it is reported there, too.
const NEWS_TIMES: f64 = 1.5;

/// The line that held most, where the process that is named first doesn't show that: several processes held it,
/// or it was given back since.
fn news<'a>(
    analysis: &'a Analysis,
    named_first: Option<&ProcessAllocations>,
) -> Option<&'a LineHolding> {
    let held = analysis.held_by_line.as_ref()?;
    let first = held.lines.iter().find(|line| line.line.frame.is_some())?;
    let is_large =
        first.not_returned_bytes.0 as f64 >= LARGE_PART * held.not_returned_bytes.0 as f64;
    let place = first.line.place();
    let sites = named_first.into_iter().flat_map(|one| &one.sites);
    let known = sites.filter(|site| site.line.place() == place);
    let known: Bytes = known.map(|site| site.sum.resident_bytes).sum();
    let is_news = first.not_returned_bytes.0 as f64 >= NEWS_TIMES * known.0 as f64;
    let is_known = is_large && !has_passed_on(first);
    (is_known && is_news && held.not_returned_bytes >= MATTERS).then_some(first)
}

/// Whether most of what was touched there had come and gone, so that the rest can have been in other hands.
fn has_passed_on(line: &LineHolding) -> bool {
    let returned = line.grown_bytes - line.not_returned_bytes;
    returned.0 as f64 >= PASSING_PART * line.grown_bytes.0 as f64
}

/// Whether it is reported unasked.
pub(super) fn is_news(analysis: &Analysis, named_first: Option<&ProcessAllocations>) -> bool {
    news(analysis, named_first).is_some()
}

/// The line that held most of what all held at the peak, where the process that is named first doesn't show
/// that.
pub(super) fn in_short(
    analysis: &Analysis,
    named_first: Option<&ProcessAllocations>,
) -> Option<String> {
    let first = news(analysis, named_first).filter(|_| analysis.at.is_none())?;
    sentence(analysis, first)
}

/// `At the peak 5 processes held 964 MiB by samples: 61% at dataset.py:12 __getitem__.`
fn sentence(analysis: &Analysis, first: &LineHolding) -> Option<String> {
    let held = analysis.held_by_line.as_ref()?;
    let when = match analysis.at {
        Some(_) => format!("At {}", analysis.clock.when(held.at)),
        None => "At the peak".to_owned(),
    };
    let who = match held.process_count {
        1 => analysis.with_role(&first.holder),
        count => words::processes(count as usize),
    };
    let of_them = match first.process_count {
        count if count == held.process_count => String::new(),
        count => format!(" in {count} of them"),
    };
    let doubt = match has_passed_on(first) {
        true => format!(
            " (it had touched {} and given most of it back: other code may have held the rest)",
            bytes(first.grown_bytes)
        ),
        false => String::new(),
    };
    Some(format!(
        "{when} {who} held {} by samples: {} at {}{of_them}{doubt}.",
        estimated(
            held.not_returned_bytes,
            held.not_returned_error_bytes.0 as f64
        ),
        words::share(
            Some(first.not_returned_bytes),
            Some(held.not_returned_bytes)
        ),
        first.line.place()
    ))
}

/// All lines; `None` where nothing was held.
pub(super) fn chapter(analysis: &Analysis, most: usize) -> Option<Chapter> {
    let held = analysis.held_by_line.as_ref()?;
    let mut chapter = Chapter::new("Who allocated it, all processes together");
    chapter.strong(sentence(analysis, held.lines.first()?)?);
    chapter.table(table(held.not_returned_bytes, held.lines.iter().take(most)));
    chapter.rest(held.lines.len(), most, words::count, MORE_IN_JSON);
    chapter.explain(
        "All processes together: HELD is what was touched at a line, by samples, and not known to be given \
         back by then, ± its standard error; without memory that several processes map. TOUCHED is all that \
         was touched there by then. MOSTLY BY is the process in which the line held most.",
    );
    Some(chapter)
}

fn table<'a>(all: Bytes, lines: impl Iterator<Item = &'a LineHolding>) -> Table {
    TableOf::of(lines)
        .figures(("not_returned_bytes", "HELD"), 0, |line| {
            line.not_returned_bytes
        })
        .words("share", 1, move |line| {
            Cell::shown_only(&words::share(Some(line.not_returned_bytes), Some(all)))
        })
        .figures(("not_returned_error_bytes", "±"), 2, |line| {
            line.not_returned_error_bytes
        })
        .figures(("grown_bytes", "TOUCHED"), 3, |line| line.grown_bytes)
        .words(("process_count", "PROCESSES"), 1, |line| {
            line.process_count.to_string()
        })
        .words(("holder", "MOSTLY BY"), 3, |line| line.holder.in_words())
        .flexible("place", |line| line.line.place())
        .done()
}

/// `225 MiB ±72.0 MiB (95 %)`: an amount by samples, with its interval where it is no small part of it.
pub(super) fn estimated(amount: Bytes, standard_error: f64) -> String {
    let interval = Bytes((Z_95 * standard_error) as i64);
    match interval.0 > 0 && standard_error >= NOTABLE_PART * amount.0 as f64 {
        true => format!("{} ±{} (95 %)", bytes(amount), bytes(interval)),
        false => bytes(amount),
    }
}

/// The same where it surely was no more than `most`: from the lower end of the interval to that, if
/// the figure is above it.
pub(super) fn estimated_within(amount: Bytes, standard_error: f64, most: Bytes) -> String {
    let least = (amount - Bytes((Z_95 * standard_error) as i64)).max(Bytes(0));
    match amount <= most {
        true => estimated(amount, standard_error),
        false if least < most => format!("{} to {} (95 %)", bytes(least), bytes(most)),
        false => bytes(most),
    }
}
