//! Fewer rows of `mem`: sums, asked instants, ends and times that stay whole.

use super::*;
use crate::{Counted, Recording, Revision, Sampling, StoreError};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: DurationNs = DurationNs(1_000_000_000);
const PROCESSES: i64 = 7;
const MINUTE_MS: i64 = 60_000;

/// Numbers that look like chance and are the same each time.
fn scattered(seed: i64) -> i64 {
    (seed.wrapping_mul(6_364_136_223_846_793_005) >> 33).abs()
}

fn row(boot_ms: i64, upid: i64, rss: i64, source: MemSource) -> MemRow {
    MemRow {
        rss_bytes: Some(Bytes(rss)),
        rss_anon_bytes: Some(Bytes(rss)),
        source: Some(source),
        ..mem(boot_ms, upid)
    }
}

/// A minute of processes of which one changes every few milliseconds; the last one ends half way.
pub(super) fn rows() -> Vec<MemRow> {
    let half = MINUTE_MS / 2;
    let times = (1..MINUTE_MS / 5).map(|place| place * 5);
    let mut rows: Vec<MemRow> = times
        .map(|at| {
            let upid = scattered(at) % PROCESSES;
            let source = match scattered(at + 1) % 50 {
                0 => MemSource::Keyframe,
                1 => MemSource::Peak,
                _ => MemSource::RssStat,
            };
            row(at, upid, scattered(at * 3) % 1_000_000, source)
        })
        .filter(|row| row.upid.0 != PROCESSES - 1 || row.boot_ns.0 < half * 1_000_000)
        .collect();
    rows.push(MemRow {
        rss_bytes: Some(Bytes(0)),
        rss_anon_bytes: Some(Bytes(0)),
        ..row(half, PROCESSES - 1, 0, MemSource::Exit)
    });
    rows.sort_by_key(|row| row.boot_ns);
    rows
}

pub(super) fn closed(dir: &Path, rows: &[MemRow]) -> Recording {
    let limits = Limits {
        segment_rows: 1_000,
        ..SMALL
    };
    let mut writer = Writer::create_with(dir, &info(), None, limits).unwrap();
    append_all(&mut writer, rows);
    writer.finish(info()).unwrap();
    Recording::open(dir).unwrap()
}

pub(super) fn downsample(
    recording: &Recording,
    sampling: &Sampling,
) -> Result<Counted, StoreError> {
    Revision::begin_to("downsample", recording)?.downsample(recording, sampling)
}

pub(super) fn read(dir: &Path) -> Vec<MemRow> {
    let recording = Recording::open(dir).unwrap();
    let rows = recording.rows().unwrap();
    assert_eq!(recording.problems(), []);
    rows
}

/// What each process holds at a time.
fn held(rows: &[MemRow], at: BootNs) -> BTreeMap<i64, i64> {
    let rows = rows.iter().take_while(|row| row.boot_ns <= at);
    let held = rows.map(|row| (row.upid.0, row.rss_bytes.unwrap().0));
    held.filter(|&(_, rss)| rss > 0).collect()
}

/// The sum at each instant at which something changed.
fn sums(rows: &[MemRow]) -> Vec<(BootNs, i64)> {
    let mut held = BTreeMap::new();
    let mut sums = Vec::new();
    for row in rows {
        held.insert(row.upid.0, row.rss_bytes.unwrap().0);
        // Rows of one instant come one by one.
        sums.pop_if(|(at, _)| *at == row.boot_ns);
        sums.push((row.boot_ns, held.values().sum()));
    }
    sums
}

/// The highest sum of each second, also of what stood at its begin.
pub(super) fn highest(rows: &[MemRow]) -> BTreeMap<i64, i64> {
    let mut found = BTreeMap::new();
    let mut last = 0;
    for (at, sum) in sums(rows) {
        let highest = found.entry(at.0 / SECOND.0).or_insert(last);
        *highest = sum.max(*highest);
        last = sum;
    }
    found
}

const ASKED: [BootNs; 4] = [
    BootNs(1_234_000_005),
    BootNs(7_777_000_005),
    BootNs(29_999_000_005),
    BootNs(44_000_000_000),
];

pub(super) fn sampling() -> Sampling {
    let whole = [(20_100, 20_900), (20_500, 22_300)];
    let whole = whole.map(|(from, to)| BootNs(from * 1_000_000)..BootNs(to * 1_000_000));
    Sampling::new(SECOND, BTreeSet::from(ASKED), whole.to_vec())
}

#[test]
fn sums_asked_instants_and_ends_are_those_that_were_there() {
    let (_parent, dir) = new_dir();
    let before = rows();
    let recording = closed(&dir, &before);
    assert!(files_below(&dir.join("mem")).len() > 10, "several parts");
    let counted = downsample(&recording, &sampling()).unwrap();
    let after = read(&dir);
    let counts = [&before, &after].map(|rows| rows.len() as u64);
    assert_eq!([counted.before, counted.after], counts);
    assert!(after.is_sorted_by_key(|row| row.boot_ns));
    let per_second = PROCESSES as u64 * 2 + 10;
    assert!(counted.after < 60 * per_second + 500, "{counted:?}");
    assert_eq!(highest(&after), highest(&before));
    let ends = (1..60).map(|second| BootNs(second * SECOND.0 - 1));
    let asked = ASKED.into_iter().flat_map(|at| [BootNs(at.0 - 1), at]);
    for at in ends.chain(asked) {
        assert_eq!(held(&after, at), held(&before, at), "at {at:?}");
    }
    let whole = BootNs(20_100_000_000)..BootNs(22_300_000_000);
    let in_whole = |rows: &[MemRow]| -> Vec<MemRow> {
        let rows = rows.iter().filter(|row| whole.contains(&row.boot_ns));
        rows.copied().collect()
    };
    assert_eq!(in_whole(&after), in_whole(&before));
    let end = |row: &&MemRow| row.source == Some(MemSource::Exit);
    assert_eq!(after.iter().find(end), before.iter().find(end));
    // Wall time is in whole milliseconds, and a period ends a nanosecond before the next one.
    let clock = |row: &MemRow| row.ts.0 == (row.boot_ns.0 + EPOCH_NS) / 1_000_000 * 1_000_000;
    assert!(after.iter().all(clock));
    let info = Recording::open(&dir).unwrap().info().clone();
    let downsampled = info.downsampled.unwrap();
    assert!(downsampled.is_complete && downsampled.period_ns == SECOND);
}

#[test]
fn no_sum_is_higher_than_one_that_was_there() {
    let (_parent, dir) = new_dir();
    let before = rows();
    downsample(&closed(&dir, &before), &sampling()).unwrap();
    let after = read(&dir);
    let highest = highest(&before);
    for (at, sum) in sums(&after) {
        assert!(sum <= highest[&(at.0 / SECOND.0)], "{sum} at {at:?}");
    }
}

#[test]
fn the_same_once_more_changes_nothing_and_a_longer_period_leaves_fewer() {
    let (_parent, dir) = new_dir();
    downsample(&closed(&dir, &rows()), &sampling()).unwrap();
    let once = read(&dir);
    let again = || Recording::open(&dir).unwrap();
    downsample(&again(), &sampling()).unwrap();
    assert_eq!(read(&dir), once);
    let coarser = Sampling::new(DurationNs(10 * SECOND.0), BTreeSet::new(), Vec::new());
    let counted = downsample(&again(), &coarser).unwrap();
    let files = files_below(&dir.join("mem")).len() as u64;
    let most = (12 + files) * PROCESSES as u64 + once.len() as u64 / 20;
    assert!(counted.after < most, "{counted:?}, {files} files");
}

#[test]
fn what_a_process_reported_itself_stays_behind_the_row_that_it_completes() {
    let (_parent, dir) = new_dir();
    let reported = MemRow {
        rss_file_bytes: None,
        swap_bytes: None,
        ..row(400, 1, 500, MemSource::SelfReported)
    };
    let rows = [
        row(100, 1, 10, MemSource::First),
        row(300, 1, 400, MemSource::RssStat),
        reported,
    ];
    let nothing_asked = Sampling::new(SECOND, BTreeSet::new(), Vec::new());
    downsample(&closed(&dir, &rows), &nothing_asked).unwrap();
    let sources = read(&dir).into_iter().map(|row| row.source.unwrap());
    assert_eq!(
        sources.collect::<Vec<_>>(),
        [MemSource::RssStat, MemSource::SelfReported]
    );
}

#[test]
fn an_open_recording_and_a_damaged_one_are_refused_and_stay_as_they_are() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &rows());
    writer.flush().unwrap();
    let refused = downsample(&Recording::open(&dir).unwrap(), &sampling());
    assert!(matches!(
        refused,
        Err(StoreError::Unclosed {
            doing: "downsample",
            ..
        })
    ));
    writer.finish(info()).unwrap();
    let part = dir.join("mem/part-00001.parquet");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    let refused = downsample(&Recording::open(&dir).unwrap(), &sampling());
    assert!(
        matches!(refused, Err(StoreError::Damaged { .. })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(&part).unwrap(), bytes);
    assert_eq!(files_below(&dir.join("mem")).len(), 1);
}

#[test]
fn a_table_without_rows_has_none_afterwards() {
    let (_parent, dir) = new_dir();
    let counted = downsample(&closed(&dir, &[]), &sampling()).unwrap();
    assert_eq!(counted, Counted::default());
    assert_eq!(read(&dir), []);
}
