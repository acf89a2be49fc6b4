//! What the memory of a process is inside: by who laid it out, then and at last, and why it came.

mod cause;
mod readings;

pub use cause::{Cause, Confidence};
pub(super) use readings::parts_of;

use super::clock::RunClock;
use super::growth::Verdict;
use super::process::Process;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::tables::{LayoutPart, LayoutRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order, RowSource};
use readings::{PartKey, Reading, Readings};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The smallest page of any machine.
const SMALLEST_PAGE: i64 = 4_096;

/// The anonymous memory of one process by who laid it out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Layout {
    /// The process whose memory it is.
    #[serde(flatten)]
    pub who: Who,
    /// The same as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub process: usize,
    /// How many readings there are.
    pub reading_count: usize,
    /// What it gained is counted from here: the start of a steady growth, else of the recording. `None`
    /// for a process that began later, of which all counts.
    pub from: Option<Instant>,
    /// The reading that is reported: the last one that saw half of what the highest saw, or more.
    pub at: Instant,
    /// How long that reading took.
    pub span_ns: DurationNs,
    /// Its anonymous memory then: the sum of the parts that are anonymous.
    pub anon_bytes: Bytes,
    /// Whether that is the last reading, and it held about as much in the last third of them.
    pub has_levelled_off: bool,
    /// The parts, the one that gained most first.
    pub parts: Vec<LayoutLine>,
    /// Why most of what it gained came.
    pub cause: Cause,
    /// How sure that is.
    pub confidence: Confidence,
    /// How much of what it gained has that cause.
    pub cause_bytes: Bytes,
    /// What it gained in all.
    pub gained_bytes: Bytes,
}

/// One part of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LayoutLine {
    /// Who laid it out.
    pub part: LayoutPart,
    /// What names it; `None` without a name.
    pub name: Option<Arc<str>>,
    /// How many heaps, blocks, stacks or mappings.
    pub item_count: i64,
    /// How many of them came since `from`.
    pub items_gained: i64,
    /// The size of each, where all have the same.
    pub unit_bytes: Option<Bytes>,
    /// Address space they take.
    pub size_bytes: Bytes,
    /// Resident pages, in bytes.
    pub rss_bytes: Bytes,
    /// Of those, pages that no other process maps.
    pub private_bytes: Bytes,
    /// What that gained since `from`.
    pub gained_bytes: Bytes,
    /// Resident memory in which free blocks were looked for; `None` where nothing was.
    pub searched_bytes: Option<Bytes>,
    /// How old that search was when it was read.
    pub searched_age_ns: Option<DurationNs>,
    /// Of that, free blocks.
    pub free_bytes: Option<Bytes>,
    /// Of that, whole pages of free blocks.
    pub free_page_bytes: Option<Bytes>,
    /// Resident pages that hold nothing but zeros, by a sample.
    pub zero_bytes: Option<Bytes>,
    /// Resident memory in huge pages, by a sample.
    pub huge_bytes: Option<Bytes>,
    /// Resident memory that was freed with MADV_FREE, by a sample.
    pub lazy_free_bytes: Option<Bytes>,
}

impl Layout {
    /// All that was read of it.
    pub fn sum(&self) -> Bytes {
        self.parts.iter().map(|line| line.rss_bytes).sum()
    }
}

impl LayoutLine {
    /// The part of what was searched that is free, 0 to 1.
    pub fn free_share(&self) -> Option<f64> {
        share(self.free_bytes?, self.searched_bytes?)
    }

    /// Memory that its allocator keeps free, from what was searched.
    fn free_of_all(&self) -> Option<f64> {
        Some(self.free_share()? * self.rss_bytes.0 as f64)
    }

    /// The same share of whole pages.
    pub fn free_page_share(&self) -> Option<f64> {
        share(self.free_page_bytes?, self.searched_bytes?)
    }

    /// What a row tells of its part. It gained what it holds.
    fn of(row: LayoutRow, part: LayoutPart) -> Self {
        Self {
            part,
            name: row.name.map(Arc::from),
            item_count: row.item_count,
            items_gained: row.item_count,
            unit_bytes: row.unit_bytes,
            size_bytes: row.size_bytes,
            rss_bytes: row.rss_bytes,
            private_bytes: row.private_bytes,
            gained_bytes: row.rss_bytes,
            searched_bytes: row.searched_bytes,
            searched_age_ns: row.searched_age_ns,
            free_bytes: row.free_bytes,
            free_page_bytes: row.free_page_bytes,
            zero_bytes: row.zero_bytes,
            huge_bytes: row.huge_bytes,
            lazy_free_bytes: row.lazy_free_bytes,
        }
    }

    /// The same with what it gained since an earlier reading.
    fn since(&self, before: Option<&Self>) -> Self {
        let gained = self.rss_bytes - before.map_or(Bytes(0), |before| before.rss_bytes);
        Self {
            items_gained: self.item_count - before.map_or(0, |before| before.item_count),
            // Less than a page is rounding of what was scaled.
            gained_bytes: Bytes(gained.0 / SMALLEST_PAGE * SMALLEST_PAGE),
            ..self.clone()
        }
    }
}

fn share(part: Bytes, whole: Bytes) -> Option<f64> {
    (whole.0 > 0).then(|| part.0 as f64 / whole.0 as f64)
}

/// Reads the table `layout`; whoever gained most comes first.
pub(super) fn read<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    clock: &RunClock,
) -> Result<Vec<Layout>, S::Error> {
    let mut readings: BTreeMap<usize, Readings> = BTreeMap::new();
    source.scan(&[], |row: LayoutRow| {
        if let Some(process) = table.find(row.upid) {
            readings.entry(process).or_default().take(row);
        }
    })?;
    let reported = readings.into_iter().filter_map(|(place, readings)| {
        let process = &table.processes[place];
        let growing = process.growth.as_ref();
        let growing = growing.filter(|growth| growth.verdict == Verdict::Growing);
        // What it held before the recording it did not gain in it. The command is held until then.
        let is_command = table.command == Some(process.upid);
        let was_there = process.start.boot_ns < clock.start() && !is_command;
        let from = growing.map(|growth| growth.from.boot_ns);
        let from = from.or(was_there.then_some(clock.start()));
        reported(place, process, readings, (clock, from))
    });
    let mut reported: Vec<Layout> = reported.collect();
    reported.order_by_key(|layout| std::cmp::Reverse(layout.gained_bytes));
    Ok(reported)
}

fn reported(
    place: usize,
    process: &Process,
    readings: Readings,
    (clock, from): (&RunClock, Option<BootNs>),
) -> Option<Layout> {
    /// The last reading is reported that saw at least half of what the highest did.
    const MOST: i64 = 2;
    /// Less than this part, given by fork, does not matter.
    const INHERITED_PART: i64 = 10;
    let (reading_count, readings) = readings.finish();
    let readings = readings.as_slice();
    let highest = readings.iter().map(Reading::sum).max()?;
    let is_high = |reading: &&Reading| (highest - reading.sum()).0 <= highest.0 / MOST;
    // A heap that changed while it was read could not be searched.
    let is_searched = |reading: &&Reading| reading.is_searched();
    let mut late = readings.iter().rev().filter(is_high);
    let now = late.clone().find(is_searched).or(late.next())?;
    let is_last = readings.last().is_some_and(|last| last.at == now.at);
    let before = from.and_then(|until| {
        let earlier = readings.iter().rev().find(|one| one.at <= until);
        earlier.or(readings.first()).filter(|one| one.at < now.at)
    });
    let old = |line: &LayoutLine| before?.parts.get(&PartKey::of(line));
    let lines = now.parts.values();
    let mut parts: Vec<LayoutLine> = lines.map(|line| line.since(old(line))).collect();
    // What fork gave it is no gain: of a copy its own is what nobody shares.
    let inherited = process.inherited_anon_bytes.unwrap_or_default();
    if before.is_none() && inherited.0 > now.anonymous().0 / INHERITED_PART {
        for line in parts.iter_mut().filter(|line| line.part.is_anonymous()) {
            line.gained_bytes = line.private_bytes;
        }
    }
    parts.order_by_key(|line| std::cmp::Reverse(line.gained_bytes));
    let start = before.map_or(Bytes(0), Reading::sum);
    let inherited = if before.is_none() {
        inherited
    } else {
        Bytes(0)
    };
    let net = now.sum() - start - inherited;
    let found = cause::of(&parts, net, old);
    Some(Layout {
        who: Who::from(process),
        process: place,
        reading_count,
        from: before.map(|before| clock.at(before.at)),
        at: clock.at(now.at),
        span_ns: now.span,
        anon_bytes: now.anonymous(),
        has_levelled_off: is_last && has_levelled_off(readings),
        parts,
        cause: found.cause,
        confidence: found.confidence,
        cause_bytes: found.bytes,
        gained_bytes: found.gained,
    })
}

/// Whether a reading of the last third saw about as much as the last one, and none in between
/// another amount.
fn has_levelled_off(readings: &[Reading]) -> bool {
    /// Two readings of the same memory differ by less.
    const ALIKE: i64 = 33;
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
        return false;
    };
    let from = first.at + DurationNs((last.at - first.at).0 * 2 / 3);
    let late: Vec<&Reading> = readings.iter().filter(|one| one.at >= from).collect();
    let sum = last.sum().0;
    let is_alike = |one: &&Reading| (one.sum().0 - sum).abs() <= sum / ALIKE;
    late.len() >= 2 && late.iter().all(is_alike)
}

#[cfg(test)]
mod tests;
