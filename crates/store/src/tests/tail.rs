//! A recording is followed: every row comes once, whatever becomes of its files meanwhile.

use super::*;
use crate::{ProblemKind, Recordings, Tail, TailState};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

fn fresh(tail: &mut Tail) -> Vec<MemRow> {
    tail.look().unwrap();
    let mut rows = Vec::new();
    tail.read(&[], |row: MemRow| rows.push(row)).unwrap();
    rows
}

#[test]
fn each_look_gives_what_came_since_the_one_before() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.flush().unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    assert_eq!(fresh(&mut tail), [mem(1, 1)]);
    assert_eq!(fresh(&mut tail), []);
    append_all(&mut writer, &[mem(2, 1), mem(3, 2)]);
    assert_eq!(fresh(&mut tail), [], "not flushed");
    writer.flush().unwrap();
    assert_eq!(fresh(&mut tail), [mem(2, 1), mem(3, 2)]);
    assert_eq!(tail.look().unwrap(), TailState::Live);
    kill(writer);
    assert_eq!(tail.look().unwrap(), TailState::Left);
    assert_eq!(tail.problems(), []);
}

#[test]
fn segments_that_become_parts_meanwhile_give_every_row_once() {
    for first_look in [0, 30, 120] {
        let (_parent, dir) = new_dir();
        let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
        let mut tail = None;
        let mut read = Vec::new();
        for row in 0..400 {
            append_all(&mut writer, &[mem(row, row % 3)]);
            writer.flush().unwrap();
            if row == first_look {
                tail = Some(Tail::open(&dir).unwrap());
            }
            // Segments are of 50 rows: some are met when they are parts already.
            if let Some(tail) = tail.as_mut().filter(|_| row % 7 == 0) {
                read.extend(fresh(tail));
            }
        }
        let tail = &mut tail.unwrap();
        read.extend(fresh(tail));
        read.sort_by_key(|row| row.boot_ns);
        let all: Vec<MemRow> = (0..400).map(|row| mem(row, row % 3)).collect();
        assert_eq!(read, all, "first look at {first_look}");
        assert_eq!(tail.look().unwrap(), TailState::Live);
        kill(writer);
    }
}

#[test]
fn what_was_flushed_last_is_read_from_files_that_have_no_name_any_more() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.flush().unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    assert_eq!(fresh(&mut tail).len(), 1);
    append_all(&mut writer, &[mem(2, 1)]);
    writer.finish(info()).unwrap();
    assert_eq!(tail.look().unwrap(), TailState::Closed);
    let mut rows = Vec::new();
    tail.read(&[], |row: MemRow| rows.push(row)).unwrap();
    assert_eq!(rows, [mem(2, 1)]);
    assert_eq!(
        fresh(&mut Tail::open(&dir).unwrap()),
        [mem(1, 1), mem(2, 1)]
    );
}

#[test]
fn whoever_did_not_look_for_whole_segments_is_reported_so() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    append_all(&mut writer, &[mem(0, 1)]);
    writer.flush().unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    assert_eq!(fresh(&mut tail).len(), 1);
    // What has become a part is removed in the background.
    let gone = dir.join("spool/mem-00002.arrows");
    for row in 1..2_000 {
        append_all(&mut writer, &[mem(row * 100, 1)]);
        writer.flush().unwrap();
    }
    let begin = std::time::Instant::now();
    while gone.exists() && begin.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    fresh(&mut tail);
    assert_eq!(tail.look().unwrap(), TailState::Lost);
    kill(writer);
}

#[test]
fn a_batch_that_is_being_written_is_no_damage_until_its_recorder_is_gone() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.flush().unwrap();
    append_all(&mut writer, &[mem(2, 1)]);
    writer.flush().unwrap();
    let path = dir.join("spool/mem-00001.arrows");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, []).unwrap();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    let mut read = Vec::new();
    for piece in bytes.chunks(100) {
        file.write_all(piece).unwrap();
        read.extend(fresh(&mut tail));
    }
    file.write_all(&bytes[..100]).unwrap();
    assert_eq!(fresh(&mut tail), []);
    assert_eq!(read, [mem(1, 1), mem(2, 1)]);
    assert_eq!(tail.problems(), []);
    kill(writer);
    for _ in 0..2 {
        assert_eq!(fresh(&mut tail), []);
        let problems = tail.problems();
        assert!(
            matches!(&problems[..], [one] if matches!(one.kind, ProblemKind::TruncatedTail { .. })),
            "{problems:?}"
        );
    }
}

#[test]
fn damage_is_reported_once_and_what_is_behind_it_is_read() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let path = dir.join("spool/mem-00001.arrows");
    let mut ends = Vec::new();
    for row in 1..=3 {
        append_all(&mut writer, &[mem(row, 1)]);
        writer.flush().unwrap();
        ends.push(std::fs::metadata(&path).unwrap().len());
    }
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0x55; 8], ends[1] - 16).unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    assert_eq!(fresh(&mut tail), [mem(1, 1), mem(3, 1)]);
    assert_eq!(fresh(&mut tail), []);
    assert_eq!(tail.problems().len(), 1, "{:?}", tail.problems());
    kill(writer);
}

#[test]
fn a_reader_beside_a_writer_that_never_waits_misses_nothing() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    let mut tail = Tail::open(&dir).unwrap();
    let is_done = AtomicBool::new(false);
    let mut read = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for row in 0..1_000 {
                append_all(&mut writer, &[mem(row, row % 5)]);
                if row % 3 == 0 {
                    writer.flush().unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            }
            writer.flush().unwrap();
            is_done.store(true, Ordering::SeqCst);
        });
        loop {
            let was_done = is_done.load(Ordering::SeqCst);
            read.extend(fresh(&mut tail));
            if was_done {
                break;
            }
        }
    });
    let has_lost = tail.look().unwrap() == TailState::Lost;
    read.sort_by_key(|row| row.boot_ns);
    let all: Vec<MemRow> = (0..1_000).map(|row| mem(row, row % 5)).collect();
    assert!(has_lost || read == all, "{} of {}", read.len(), all.len());
    kill(writer);
}

#[test]
fn of_a_recording_that_is_opened_again_the_last_time_counts() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.finish(info()).unwrap();
    let part = std::fs::read_dir(dir.join("mem")).unwrap().next();
    let part = part.unwrap().unwrap().path();
    let bytes = std::fs::read(&part).unwrap();
    let recordings = Recordings::default();
    let text = || {
        let recording = recordings.open(&dir).unwrap();
        recording.rows::<MemRow>().unwrap();
        recordings.problems().len()
    };
    std::fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(text(), 1);
    std::fs::write(&part, &bytes).unwrap();
    assert_eq!(text(), 0);
    std::fs::remove_file(&part).unwrap();
    assert_eq!(text(), 1, "no file of the table");
    assert_eq!(recordings.count(), 1);
}
