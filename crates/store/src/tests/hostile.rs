//! A recording that someone made to do harm: links, absurd rows, and more than there can be.

use super::*;
use crate::append::RowBuffer;
use crate::disk::Disk;
use crate::layout::part_path;
use crate::manifest::PartReplaced;
use crate::part_head::PartHead;
use crate::part_writer::PartWriter;
use crate::{ProblemKind, Recording, StoreError, recordings_in, recover};
use memtrace_model::Row;
use memtrace_model::tables::{DiagKind, DiagRow, MarkRow};
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// A recording that was not closed, and beside it another.
fn two_recordings() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let (parent, dir) = new_dir();
    let other = parent.path().join("other");
    for dir in [&dir, &other] {
        let mut writer = Writer::create(dir, &info()).unwrap();
        append_all(&mut writer, &[mem(1, 1)]);
        kill(writer);
    }
    (parent, dir, other)
}

#[test]
fn recovery_follows_no_link_out_of_its_recording() {
    let (_parent, dir, other) = two_recordings();
    let before = files_below(&other);
    std::fs::remove_dir_all(dir.join("spool")).unwrap();
    symlink(other.join("spool"), dir.join("spool")).unwrap();
    let error = recover(&dir).unwrap_err();
    assert!(
        matches!(&error, StoreError::Io { path, .. } if path.ends_with("spool")),
        "{error:?}"
    );
    assert_eq!(files_below(&other), before);
}

#[test]
fn nothing_is_written_through_a_link_that_stands_for_a_folder() {
    let (parent, dir, _) = two_recordings();
    let elsewhere = parent.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, dir.join("mem")).unwrap();
    recover(&dir).unwrap_err();
    assert_eq!(files_below(&elsewhere), Vec::<String>::new());
}

#[test]
fn a_link_in_place_of_a_file_is_a_problem_and_no_way_to_it() {
    let (_parent, dir, other) = two_recordings();
    let segment = "spool/mem-00001.arrows";
    std::fs::remove_file(dir.join(segment)).unwrap();
    symlink(other.join(segment), dir.join(segment)).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), []);
    let [problem] = &recording.problems()[..] else {
        panic!("{:?}", recording.problems());
    };
    assert!(problem.to_string().contains("symbolic link"), "{problem}");

    std::fs::remove_file(dir.join("run.json")).unwrap();
    symlink(other.join("run.json"), dir.join("run.json")).unwrap();
    assert!(Recording::open(&dir).is_err());
    let parent = dir.parent().unwrap();
    assert_eq!(recordings_in(parent).unwrap(), [other]);
}

#[test]
fn rows_of_an_absurd_time_are_reported_left_out_and_kept_by_a_recovery() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let absurd = |boot_ns| MemRow {
        boot_ns: BootNs(boot_ns),
        ..mem(1, 1)
    };
    append_all(
        &mut writer,
        &[mem(1, 1), absurd(i64::MAX), absurd(i64::MIN), mem(2, 1)],
    );
    kill(writer);
    for _ in 0..2 {
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(recording.rows::<MemRow>().unwrap(), [mem(1, 1), mem(2, 1)]);
        assert_eq!(recording.last_boot_ns().unwrap(), Some(BootNs(2_000_000)));
        let [problem] = &recording.problems()[..] else {
            panic!("{:?}", recording.problems());
        };
        assert_eq!(problem.kind, ProblemKind::Outside { count: 2 });
        recover(&dir).unwrap();
    }
}

#[test]
fn a_clock_out_of_this_world_is_refused() {
    let (_parent, dir) = new_dir();
    for clock in [-1, i64::MAX] {
        let mut info = info();
        info.clocks[0].boot_ns = BootNs(clock);
        kill(Writer::create(&dir, &info).unwrap());
        let error = Recording::open(&dir).unwrap_err();
        assert!(matches!(error, StoreError::Absurd { .. }), "{error:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn long_texts_are_cut_and_reported() {
    let (_parent, dir) = new_dir();
    let mut info = info();
    info.hostname = "h".repeat(1 << 20);
    info.target = Target::Command {
        argv: vec!["a".repeat(1 << 19); 3],
    };
    let mut writer = Writer::create(&dir, &info).unwrap();
    append_all(&mut writer, &[process(1, &"ü".repeat(40_000))]);
    kill(writer);
    let recording = Recording::open(&dir).unwrap();
    assert!(recording.info().hostname.len() < 300);
    let Target::Command { argv } = &recording.info().target else {
        panic!("{:?}", recording.info().target)
    };
    assert_eq!(argv.len(), 3);
    assert_eq!(argv[2], "…");
    let rows = recording.rows::<ProcessRow>().unwrap();
    assert_eq!(rows[0].comm.len(), 1 << 16);
    let problems = recording.problems();
    assert_eq!(problems[0].kind, ProblemKind::LongTexts { count: 1 });
}

#[test]
fn more_processes_than_there_can_have_been_are_reported_and_left_out() {
    let (_parent, dir) = new_dir();
    let mut info = info();
    let writer = Writer::create(&dir, &info).unwrap();
    info.clocks.push(ClockReading {
        boot_ns: BootNs(1_000_000_000),
        ..info.clocks[0]
    });
    writer.finish(info).unwrap();
    // As no recorder writes it.
    let recording = Recording::open(&dir).unwrap();
    let opened = Arc::clone(recording.reading().origin.dir().unwrap());
    let disk = Disk::of_recording(opened, recording.info().id.as_deref()).unwrap();
    let mut buffer = RowBuffer::new(ProcessRow::TABLE);
    for upid in 0..120_000 {
        buffer.push(&process(upid, "p").into());
    }
    let path = part_path("process", 1);
    let mut part = PartWriter::create(&disk, ProcessRow::TABLE, &path).unwrap();
    part.write(&disk, &buffer.take().unwrap()).unwrap();
    let part = part.finish(&disk, PartHead::default()).unwrap();
    part.list(&disk, PartReplaced::default()).unwrap();
    part.publish(&disk).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let count = recording.rows::<ProcessRow>().unwrap().len();
    assert_eq!(count, 81_920 + 2 * 16_384, "of one second and two CPUs");
    let text = ProblemKind::TooMany {
        count: count as u64,
    };
    assert_eq!(recording.problems()[0].kind, text);
}

#[test]
fn a_recorder_writes_no_more_rows_than_are_read_again_and_tells_how_many_it_left_out() {
    let (_parent, dir) = new_dir();
    let mut info = info();
    let mut writer = Writer::create(&dir, &info).unwrap();
    let long = "x".repeat(30_000);
    for boot_us in 0..5_000 {
        let mark = MarkRow {
            boot_ns: BootNs(boot_us * 1_000),
            attributes: Some(long.clone()),
            ..MarkRow::default()
        };
        writer.append(&mark.into()).unwrap();
    }
    info.clocks.push(ClockReading {
        boot_ns: BootNs(5_000_000),
        ..info.clocks[0]
    });
    writer.finish(info).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let marks = recording.rows::<MarkRow>().unwrap().len();
    let text = recording.rows::<DiagRow>().unwrap();
    assert_eq!(recording.problems(), []);
    assert!(marks > 1_000, "{marks}");
    let text: Vec<_> = text.iter().map(|row| (row.kind, row.count)).collect();
    assert_eq!(text, [(Some(DiagKind::Limit), Some(5_000 - marks as i64))]);
}

#[test]
fn a_directory_that_was_removed_ends_the_recording_with_that_reason() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.flush().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let error = writer.flush().unwrap_err();
    assert!(matches!(error, StoreError::Removed { .. }), "{error:?}");
}

#[test]
fn a_recording_that_is_discarded_leaves_nothing() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    let rows: Vec<MemRow> = (0..300).map(|i| mem(i * 100, 1)).collect();
    append_all(&mut writer, &rows);
    writer.discard();
    assert!(!dir.exists());
}
