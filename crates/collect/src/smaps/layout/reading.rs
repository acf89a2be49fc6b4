//! One reading: the rows of `layout` of a process.

use super::super::budget::Stop;
use super::super::facts::Status;
use super::super::pagemap::Counters;
use super::super::subject::Subject;
use super::super::text::ReadError;
use super::areas::{Areas, Names};
use super::claims::{self, Claims, PartKey};
use super::heaps::{Found, Heaps};
use super::pages::{self, Amounts};
use super::target::Target;
use memtrace_host::clock;
use memtrace_model::{Bytes, ClockOffset, LayoutPart, LayoutRow, Order, Record, Row};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Parts that have a row each: a program can give any number of names, and of sizes.
const ROWS_MAX: usize = 48;

/// What was read of a process.
#[derive(Debug)]
pub(in crate::smaps) struct LayoutReading {
    pub(in crate::smaps) subject: Subject,
    rows: Vec<LayoutRow>,
}

impl LayoutReading {
    /// What it takes in memory.
    pub(in crate::smaps) fn bytes(&self) -> usize {
        let texts: usize = self.rows.iter().map(Row::heap_bytes).sum();
        size_of::<Self>() + self.rows.capacity() * size_of::<LayoutRow>() + texts
    }

    pub(in crate::smaps) fn into_records(self) -> impl Iterator<Item = Record> {
        self.rows.into_iter().map(Record::from)
    }
}

/// The files that a reading needs beside those of the process.
#[derive(Debug)]
pub(super) struct Files<'a> {
    /// Where procfs is.
    pub(super) root: &'a Path,
    /// /proc/kpageflags; `None` without the right to it.
    pub(super) flags: Option<&'a File>,
    pub(super) page_size: u64,
}

/// Reads a process. `is_quiet` is whether it holds as much as at the reading before.
pub(super) fn read(
    subject: Subject,
    files: &Files<'_>,
    (heaps, is_quiet): (&mut Heaps, bool),
    stop: &Stop,
) -> Result<LayoutReading, ReadError> {
    let started = clock::boot();
    let open = |name: &'static str| {
        File::open(files.root.join(format!("{}/{name}", subject.tgid)))
            .map_err(|error| ReadError::of(name, error))
    };
    let areas = Areas::read(&open("maps")?, files.page_size, stop)?;
    let mut target = Target::new(open("mem")?, open("pagemap")?, files.page_size);
    let claims = claims::divide(&areas, &mut target, stop)?;
    let found = heaps.search(&claims, is_quiet, &mut target, stop)?;
    let counters = counters(&subject, files.root)?;
    let parts = pages::count(&claims.list, counters, files.flags, &mut target, stop)?;
    // A process that ended meanwhile has no pages left, and its id can be another's.
    self::counters(&subject, files.root)?;
    let ended = clock::read();
    let row = LayoutRow {
        ts: ClockOffset::at(ended).to_wall(ended.boot_ns),
        boot_ns: ended.boot_ns,
        upid: subject.upid,
        span_ns: ended.boot_ns - started,
        ..LayoutRow::default()
    };
    let rows = rows(&row, parts, &claims, &areas, &found);
    Ok(LayoutReading { subject, rows })
}

fn counters(subject: &Subject, root: &Path) -> Result<Counters, ReadError> {
    let path = root.join(format!("{}/status", subject.tgid));
    let text = std::fs::read(path).map_err(|error| ReadError::of("status", error))?;
    let status = Status::parse(&text);
    let amount = |bytes: Option<Bytes>| bytes.map_or(0.0, |bytes| bytes.0 as f64);
    match status.anon {
        Some(_) => Ok(Counters {
            anon: amount(status.anon),
            file: amount(status.file),
            shmem: amount(status.shmem),
        }),
        None => Err(ReadError::Gone),
    }
}

fn rows(
    row: &LayoutRow,
    mut parts: BTreeMap<PartKey, Amounts>,
    claims: &Claims,
    areas: &Areas,
    found: &BTreeMap<LayoutPart, Found>,
) -> Vec<LayoutRow> {
    let mut items = claims.items.clone();
    let mut rows = Vec::new();
    // A mapping of a file is one of written pages and of the others.
    let files = items
        .iter()
        .filter(|(key, _)| key.part == LayoutPart::FileCopies);
    let files: Vec<(PartKey, i64)> = files.map(|(key, count)| (*key, *count)).collect();
    for (key, count) in files {
        let part = LayoutPart::MappedFiles;
        *items.entry(PartKey { part, ..key }).or_default() += count;
    }
    for part in [LayoutPart::FileCopies, LayoutPart::MappedFiles] {
        let folded = fold(part, &mut parts, &mut items);
        rows.extend(folded.map(|(name, count, amounts)| {
            let name = name.and_then(|name| areas.names.get(name));
            of_part(row, part, name.map(str::to_owned), count, &amounts)
        }));
    }
    for (key, amounts) in &parts {
        let count = items.get(key).copied().unwrap_or(1);
        let found = found.get(&key.part);
        let free = found.map(|found| found.free);
        let amount = |bytes: u64| whole(bytes as f64);
        rows.push(LayoutRow {
            unit_bytes: key.unit.map(|unit| whole(unit as f64)),
            searched_bytes: free.map(|free| amount(free.searched)),
            searched_age_ns: found.map(|found| row.boot_ns - found.at),
            free_bytes: free.map(|free| amount(free.free)),
            free_page_bytes: free.map(|free| amount(free.pages)),
            ..of_part(row, key.part, name(key, areas), count, amounts)
        });
    }
    rows.retain(|row| row.rss_bytes.0 > 0);
    rows.order_by_key(|row| std::cmp::Reverse(row.rss_bytes));
    let rest = rows.split_off(rows.len().min(ROWS_MAX));
    for row in rest {
        join(row, &mut rows);
    }
    rows
}

/// Adds a row to that of its part for all that have none of their own.
fn join(row: LayoutRow, rows: &mut Vec<LayoutRow>) {
    let is_rest = |one: &&mut LayoutRow| {
        one.part == row.part && one.name.is_none() && one.unit_bytes.is_none()
    };
    let Some(all) = rows.iter_mut().find(is_rest) else {
        rows.push(LayoutRow {
            name: None,
            unit_bytes: None,
            ..row
        });
        return;
    };
    all.item_count += row.item_count;
    all.size_bytes = all.size_bytes + row.size_bytes;
    all.rss_bytes = all.rss_bytes + row.rss_bytes;
    all.private_bytes = all.private_bytes + row.private_bytes;
    all.zero_bytes = all.zero_bytes.zip(row.zero_bytes).map(|(a, b)| a + b);
    all.huge_bytes = all.huge_bytes.zip(row.huge_bytes).map(|(a, b)| a + b);
    let lazy_free = all.lazy_free_bytes.zip(row.lazy_free_bytes);
    all.lazy_free_bytes = lazy_free.map(|(a, b)| a + b);
    all.sample_count += row.sample_count;
}

fn name(key: &PartKey, areas: &Areas) -> Option<String> {
    let Areas {
        names, allocator, ..
    } = areas;
    let given = |names: &Names, place| names.get(place).map(str::to_owned);
    match allocator {
        Some((part, library)) if *part == key.part => Some(library.clone()),
        _ => key.name.and_then(|place| given(names, place)),
    }
}

/// All files of a part in one, by the name of the one that has most.
fn fold(
    part: LayoutPart,
    parts: &mut BTreeMap<PartKey, Amounts>,
    items: &mut BTreeMap<PartKey, i64>,
) -> Option<(Option<u32>, i64, Amounts)> {
    let keys: Vec<PartKey> = parts
        .keys()
        .copied()
        .filter(|key| key.part == part)
        .collect();
    let mut all = Amounts::default();
    let (mut count, mut most) = (0, (0.0, None));
    for key in keys {
        let Some(amounts) = parts.remove(&key) else {
            continue;
        };
        if amounts.rss > 0.0 {
            count += items.remove(&key).unwrap_or(1);
        }
        if amounts.rss > most.0 {
            most = (amounts.rss, key.name);
        }
        all.add(&amounts);
    }
    (all.rss > 0.0).then_some((most.1, count, all))
}

fn of_part(
    row: &LayoutRow,
    part: LayoutPart,
    name: Option<String>,
    item_count: i64,
    amounts: &Amounts,
) -> LayoutRow {
    LayoutRow {
        part: Some(part),
        name,
        item_count,
        size_bytes: whole(amounts.size as f64),
        rss_bytes: whole(amounts.rss),
        private_bytes: whole(amounts.private),
        zero_bytes: amounts.zero().map(whole),
        huge_bytes: amounts.huge().map(whole),
        lazy_free_bytes: amounts.lazy_free().map(whole),
        sample_count: i64::try_from(amounts.sample_count()).unwrap_or(i64::MAX),
        ..row.clone()
    }
}

fn whole(amount: f64) -> Bytes {
    Bytes(amount.round() as i64)
}
