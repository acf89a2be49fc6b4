//! What a killed recorder leaves is read up to its last complete batch, and closed.

use super::*;
use crate::append::RowBuffer;
use crate::compact::{Through, compact};
use crate::dir::Dir;
use crate::disk::Disk;
use crate::framing::{Frame, frame_at};
use crate::layout::segment_path;
use crate::reading::Reading;
use crate::segment_writer::SegmentWriter;
use crate::{ProblemKind, Recording, StoreError, recover};
use memtrace_model::Row;
use memtrace_model::tables::{DiagKind, DiagRow};
use std::sync::Arc;

#[test]
fn truncation_at_any_length_loses_no_complete_batch() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    for batch in 0..3 {
        append_all(&mut writer, &[mem(batch * 2, 1), mem(batch * 2 + 1, 2)]);
        writer.flush().unwrap();
    }
    kill(writer);
    let path = dir.join(segment_path("mem", 1));
    let bytes = std::fs::read(&path).unwrap();
    let ends = ends_of_messages(&bytes);
    assert_eq!(ends.len(), 4, "a schema and three batches");

    for length in (0..=bytes.len()).rev() {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length as u64)
            .unwrap();
        let whole = ends.iter().filter(|&&end| end <= length).count();
        let recording = Recording::open(&dir).unwrap();
        let rows = recording.rows::<MemRow>().unwrap();
        let batches = whole.saturating_sub(1);
        let expected: Vec<MemRow> = (0..2 * batches as i64).map(|i| mem(i, 1 + i % 2)).collect();
        assert_eq!(rows, expected, "cut to {length} bytes");
        let is_whole = length == 0 || ends.contains(&length);
        assert_eq!(
            recording.problems().is_empty(),
            is_whole,
            "cut to {length} bytes"
        );
        if let [problem] = &recording.problems()[..] {
            assert!(matches!(problem.kind, ProblemKind::TruncatedTail { .. }));
        }
    }
}

fn ends_of_messages(stream: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Frame::Message(message) = frame_at(&stream, at, stream.len() as u64).unwrap() {
        at = message.body.end;
        ends.push(at as usize);
    }
    ends
}

#[test]
fn recovery_closes_what_a_killed_recorder_left_and_says_so_once() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    let rows: Vec<MemRow> = (0..237).map(|i| mem(i * 100, 1)).collect();
    append_all(&mut writer, &rows);
    append_all(&mut writer, &[process(1, "a"), process(1, "b")]);
    kill(writer);

    let report = recover(&dir).unwrap();
    assert!(!report.was_closed);
    assert_eq!(report.last_boot_ns, Some(BootNs(23_600_000_000)));
    assert_eq!(report.problems, []);
    let recording = Recording::open(&dir).unwrap();
    assert!(recording.is_closed());
    assert_eq!(recording.info().state, RunState::Recovered);
    assert_eq!(recording.rows::<MemRow>().unwrap(), rows);
    assert_eq!(recording.rows::<ProcessRow>().unwrap(), [process(1, "b")]);
    let diags = recording.rows::<DiagRow>().unwrap();
    assert_eq!(diags.len(), 1);
    assert_eq!(diags[0].kind, Some(DiagKind::Recovered));
    assert_eq!(diags[0].boot_ns, BootNs(23_600_000_000));
    assert_eq!(diags[0].ts, WallNs(EPOCH_NS + 23_600_000_000));
    assert!(!dir.join("spool").exists());

    let before = files_below(&dir);
    assert!(recover(&dir).unwrap().was_closed);
    assert_eq!(files_below(&dir), before);
}

#[test]
fn recovery_that_was_interrupted_can_be_repeated() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    kill(writer);
    let unclosed = std::fs::read(dir.join("run.json")).unwrap();
    recover(&dir).unwrap();
    // As if it had been killed just before the last step.
    std::fs::write(dir.join("run.json"), unclosed).unwrap();
    std::fs::write(dir.join("mem/part-00007.parquet.tmp"), b"half").unwrap();
    assert!(!recover(&dir).unwrap().was_closed);
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), [mem(1, 1)]);
    assert_eq!(recording.rows::<DiagRow>().unwrap().len(), 1);
    assert_eq!(files_below(&dir.join("mem")), ["part-00001.parquet"]);
}

#[test]
fn recovery_is_refused_while_the_recorder_lives() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    assert!(matches!(recover(&dir), Err(StoreError::Live { .. })));
    writer.flush().unwrap();
    assert!(matches!(recover(&dir), Err(StoreError::Live { .. })));
    kill(writer);
    recover(&dir).unwrap();
}

/// Makes a segment out of rows.
fn write_segment(disk: &Disk, seq: u32, rows: &[MemRow]) {
    let mut buffer = RowBuffer::new(MemRow::TABLE);
    for row in rows {
        buffer.push(&(*row).into());
    }
    let mut segment = SegmentWriter::create(disk, MemRow::TABLE, seq).unwrap();
    segment.write(disk, &buffer.take().unwrap()).unwrap();
}

#[test]
fn a_crash_before_the_segments_of_a_new_part_are_removed_doubles_and_loses_no_row() {
    // Rows come in blocks that are late by up to 2 s and straddle segments. The last
    // segments are shorter than the time for which rows are held back.
    let mut late: Vec<MemRow> = (0..400).map(|i| mem(i * 50, i % 3)).collect();
    for block in late.chunks_mut(37) {
        block.reverse();
    }
    let mut in_order = late.clone();
    in_order.sort_by_key(|row| (row.boot_ns, row.upid));
    let (_parent, dir) = new_dir();
    kill(Writer::create(&dir, &info()).unwrap());
    let opened = Arc::new(Dir::open(&dir).unwrap());
    let id = Recording::open(&dir).unwrap().info().id.clone();
    let disk = Disk::of_recording(opened, id.as_deref()).unwrap();
    let mut rest = &late[..];
    for (seq, count) in [(1, 150), (2, 110), (3, 20), (4, 20), (5, 100)] {
        let (rows, others) = rest.split_at(count);
        write_segment(&disk, seq, rows);
        rest = others;
    }

    let check = |when: &str| {
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(recording.rows::<MemRow>().unwrap(), in_order, "{when}");
        assert_eq!(recording.problems(), [], "{when}");
    };
    check("before any conversion");
    let compact = |through| {
        let reading = Reading::of_own(&disk);
        compact(&disk, &reading, MemRow::TABLE, through).unwrap();
    };
    let spool = dir.join("spool");
    let segment = |(seq, joined)| Through::Segment {
        seq,
        closed_ns: None,
        joined,
    };
    let parts = dir.join(MemRow::TABLE.name);
    let steps = [(1, 0), (2, 0), (3, 2), (4, 1)].map(segment);
    for through in steps.into_iter().chain([Through::End { joins: true }]) {
        let folders = [&spool, &parts].into_iter();
        let before = folders.flat_map(|folder| {
            let names = if folder.exists() {
                files_below(folder)
            } else {
                Vec::new()
            };
            names.into_iter().map(|name| folder.join(name))
        });
        let before: Vec<(PathBuf, Vec<u8>)> = before
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        compact(through);
        check(&format!("after {through:?}"));
        for (path, bytes) in before {
            std::fs::write(path, bytes).unwrap();
        }
        check(&format!("after {through:?} without its last step"));
        // What repeats the step finds nothing to do but that.
        compact(match through {
            Through::Segment { seq, .. } => segment((seq, 0)),
            Through::End { .. } => through,
        });
        check(&format!("after {through:?} twice"));
    }
    assert_eq!(files_below(&spool), Vec::<String>::new());
    assert_eq!(files_below(&parts), ["part-00005.parquet"]);
}
