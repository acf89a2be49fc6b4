use super::*;
use crate::disk::Disk;
use crate::run_file::LockedRunFile;
use crate::{FindingsWriter, Recording, Revision, StoreError};
use memtrace_model::tables::{MarkKind, MarkRow};
use memtrace_model::{FINDINGS, Row};
use std::sync::Arc;

fn mark(boot_ms: i64, name: &str) -> MarkRow {
    let boot_ns = boot_ms * 1_000_000;
    MarkRow {
        ts: WallNs(EPOCH_NS + boot_ns),
        boot_ns: BootNs(boot_ns),
        name: name.to_owned(),
        kind: Some(MarkKind::Instant),
        ..MarkRow::default()
    }
}

/// A closed recording with a mark every 10 ms; with small limits they take several parts.
fn closed(dir: &Path, limits: Limits) -> Recording {
    let mut writer = Writer::create_with(dir, &info(), None, limits).unwrap();
    for place in 0..500 {
        writer.append(&mark(place * 10, "recorded").into()).unwrap();
    }
    writer.finish(info()).unwrap();
    Recording::open(dir).unwrap()
}

fn add(recording: &Recording, mut rows: Vec<MarkRow>) -> Result<(), StoreError> {
    rows.sort_by_key(|row| row.boot_ns);
    let mut revision = Revision::begin(recording)?;
    revision.add(rows, |row| row.boot_ns)?;
    revision.finish()
}

fn reported(dir: &Path) -> Vec<(i64, String)> {
    let recording = Recording::open(dir).unwrap();
    let rows = recording.rows::<MarkRow>().unwrap();
    assert_eq!(recording.problems(), []);
    let rows = rows.into_iter();
    rows.map(|row| (row.boot_ns.0 / 1_000_000, row.name))
        .collect()
}

#[test]
fn rows_take_their_place_in_the_order_of_time_whatever_part_that_is_in() {
    for limits in [SMALL, Limits::default()] {
        let (_parent, dir) = new_dir();
        let recording = closed(&dir, limits);
        let parts = files_below(&dir.join("mark")).len();
        assert_eq!(
            parts > 1,
            limits.segment_rows == SMALL.segment_rows,
            "{parts}"
        );
        let times = [4_991, 5, 0, 2_500, 1_234, 9_000, -7];
        let rows = times.iter().map(|&at| mark(at, "added"));
        add(&recording, rows.collect()).unwrap();
        let text = reported(&dir);
        assert_eq!(text.len(), 507);
        let late = text.windows(2).find(|pair| pair[0].0 > pair[1].0);
        assert_eq!(late, None, "in {parts} parts");
        let added = text.iter().filter(|(_, name)| name == "added");
        let mut expected = times;
        expected.sort_unstable();
        assert_eq!(added.map(|(at, _)| *at).collect::<Vec<_>>(), expected);
        // Nothing is left beside the parts, and there are no more of them.
        assert_eq!(files_below(&dir.join("mark")).len(), parts);
    }
}

#[test]
fn a_revision_that_is_not_finished_leaves_the_recording_as_it_was() {
    let (_parent, dir) = new_dir();
    let recording = closed(&dir, Limits::default());
    let before = std::fs::read(dir.join("mark/part-00001.parquet")).unwrap();
    let files = files_below(&dir);
    let mut revision = Revision::begin(&recording).unwrap();
    revision
        .add(vec![mark(1, "added")], |row| row.boot_ns)
        .unwrap();
    assert_ne!(files_below(&dir), files, "a part in the making");
    drop(revision);
    assert_eq!(files_below(&dir), files);
    assert_eq!(
        std::fs::read(dir.join("mark/part-00001.parquet")).unwrap(),
        before
    );
}

#[test]
fn more_rows_than_a_reader_takes_are_refused_and_change_nothing() {
    let (_parent, dir) = new_dir();
    let mut short = info();
    short.cpu_count = 1;
    let second = |at: i64| ClockReading {
        boot_ns: BootNs(at * 1_000_000_000),
        monotonic_ns: at * 1_000_000_000,
        wall_ns: WallNs(EPOCH_NS + at * 1_000_000_000),
    };
    short.clocks = vec![second(0), second(1)];
    let mut writer = Writer::create_with(&dir, &short, None, Limits::default()).unwrap();
    writer.append(&mark(1, "recorded").into()).unwrap();
    writer.finish(short).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let files = files_below(&dir);
    let rows = |count| (0..count).map(|at| mark(at / 400, "added")).collect();
    let error = add(&recording, rows(350_000)).unwrap_err();
    assert!(
        matches!(error, StoreError::TooManyRows { table: "mark", .. }),
        "{error}"
    );
    assert_eq!(files_below(&dir), files);
    assert_eq!(reported(&dir).len(), 1);
    add(&recording, rows(150_000)).unwrap();
    assert_eq!(reported(&dir).len(), 150_001);
}

#[test]
fn a_table_that_the_recording_does_not_have_is_made() {
    let (_parent, dir) = new_dir();
    let recording = closed(&dir, Limits::default());
    std::fs::remove_dir_all(dir.join(MarkRow::TABLE.name)).unwrap();
    add(&recording, vec![mark(3, "added")]).unwrap();
    assert_eq!(reported(&dir), [(3, "added".to_owned())]);
}

#[test]
fn a_recording_of_an_older_schema_is_of_this_one_when_it_has_new_rows() {
    let (_parent, dir) = new_dir();
    let recording = closed(&dir, Limits::default());
    let mut old = recording.info().clone();
    old.schema_version.minor = 0;
    let disk = Disk::new(Arc::clone(recording.reading().origin.dir().unwrap()));
    LockedRunFile::write(&disk, &old).unwrap();
    std::fs::remove_dir_all(dir.join("request")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.info().schema_version.minor, 0);
    drop(Revision::begin(&recording).unwrap());
    let version = || Recording::open(&dir).unwrap().info().schema_version;
    assert_eq!(version().minor, 0, "nothing was added");
    add(&recording, vec![mark(3, "added")]).unwrap();
    assert_eq!(version(), SCHEMA_VERSION);
    assert_eq!(reported(&dir).len(), 501);
    // All tables of this schema are there, as its readers expect.
    assert_eq!(files_below(&dir.join("request")).len(), 1);
    assert_eq!(Recording::open(&dir).unwrap().problems(), []);
}

#[test]
fn findings_that_were_saved_before_are_of_another_recording() {
    let (_parent, dir) = new_dir();
    let recording = closed(&dir, Limits::default());
    let of = || {
        let writer = FindingsWriter::create(&Recording::open(&dir).unwrap()).unwrap();
        writer.finish().unwrap();
        std::fs::read(dir.join(FINDINGS[0].name).join("part-00001.parquet")).unwrap()
    };
    let before = of();
    assert_eq!(of(), before, "the same of the same");
    add(&recording, vec![mark(3, "added")]).unwrap();
    drop(recording);
    assert_ne!(of(), before);
}

#[test]
fn nothing_is_added_to_a_recording_that_goes_on_is_newer_or_is_damaged() {
    let (_parent, dir) = new_dir();
    let writer = Writer::create(&dir, &info()).unwrap();
    let refused = add(&Recording::open(&dir).unwrap(), vec![mark(1, "a")]).unwrap_err();
    assert!(refused.to_string().starts_with("add rows to"), "{refused}");
    assert!(matches!(
        refused,
        StoreError::Unclosed { is_live: true, .. }
    ));
    drop(writer);

    let (_parent, dir) = new_dir();
    let recording = closed(&dir, Limits::default());
    let part = dir.join("mark/part-00001.parquet");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    let refused = add(&recording, vec![mark(1, "a")]).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    assert_eq!(
        std::fs::read(&part).unwrap(),
        bytes,
        "what can be read of it is kept"
    );
}
