//! What is written is read again.

use super::*;
use crate::{Recording, StoreError, recordings_in, recover};
use memtrace_model::tables::{DiagRow, OomRow};
use memtrace_model::{Row, TABLES};
use std::os::unix::fs::MetadataExt;

#[test]
fn a_finished_recording_gives_every_row_back() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let mems: Vec<MemRow> = (0..1000).map(|i| mem(i, i % 7)).collect();
    let processes = [process(1, "a"), process(2, "")];
    append_all(&mut writer, &mems);
    append_all(&mut writer, &processes);
    let stats = writer.finish(info()).unwrap();
    assert_eq!(stats.row_count, 1002);
    assert!(stats.written_bytes > Bytes(1000));

    let recording = Recording::open(&dir).unwrap();
    assert!(recording.is_closed());
    assert!(!recording.is_live());
    assert_eq!(recording.info().state, RunState::Closed);
    assert_eq!(recording.rows::<MemRow>().unwrap(), mems);
    assert_eq!(recording.rows::<ProcessRow>().unwrap(), processes);
    assert_eq!(recording.rows::<OomRow>().unwrap(), []);
    assert_eq!(recording.last_boot_ns().unwrap(), Some(BootNs(999_000_000)));
    assert_eq!(recording.problems(), []);
}

#[test]
fn a_finished_recording_has_one_part_of_every_table_and_no_spool() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    writer.finish(info()).unwrap();
    let mut expected: Vec<String> = TABLES
        .iter()
        .map(|table| format!("{}/part-00001.parquet", table.name))
        .collect();
    expected.extend(["run.json", "manifest.jsonl"].map(str::to_owned));
    expected.sort();
    assert_eq!(files_below(&dir), expected);
    assert!(!dir.join("spool").exists());
}

#[test]
fn rows_are_readable_while_recording_once_they_are_flushed() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1), mem(2, 1)]);
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), []);
    writer.flush().unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), [mem(1, 1), mem(2, 1)]);
    append_all(&mut writer, &[mem(3, 1)]);
    writer.sync().unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap().len(), 3);
    assert!(recording.is_live());
    assert!(!recording.is_closed());
    assert_eq!(recording.problems(), []);
}

#[test]
fn rows_of_many_segments_come_in_order_of_time_whether_converted_or_not() {
    // Every row comes up to 2 s late, in blocks that straddle segments.
    let mut late: Vec<MemRow> = (0..2_000).map(|i| mem(i * 10, i % 3)).collect();
    for block in late.chunks_mut(170) {
        block.reverse();
    }
    let mut in_order = late.clone();
    in_order.sort_by_key(|row| (row.boot_ns, row.upid));

    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    for (i, row) in late.iter().enumerate() {
        writer.append(&(*row).into()).unwrap();
        if i % 300 == 299 {
            writer.flush().unwrap();
            let read = Recording::open(&dir).unwrap().rows::<MemRow>().unwrap();
            let mut expected = late[..=i].to_vec();
            expected.sort_by_key(|row| (row.boot_ns, row.upid));
            assert_eq!(read, expected, "after {i} rows");
        }
    }
    writer.finish(info()).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), in_order);
    assert_eq!(recording.problems(), []);
    assert!(files_below(&dir.join("mem")).len() > 10);
}

#[test]
fn a_row_that_comes_much_too_late_is_kept() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    let rows: Vec<MemRow> = (0..200).map(|i| mem(10_000 + i * 1000, 1)).collect();
    append_all(&mut writer, &rows);
    append_all(&mut writer, &[mem(5, 1)]);
    writer.finish(info()).unwrap();
    let read = Recording::open(&dir).unwrap().rows::<MemRow>().unwrap();
    assert_eq!(read.len(), 201);
    assert!(read.contains(&mem(5, 1)));
}

#[test]
fn later_rows_of_a_key_replace_earlier_ones_across_segments_and_parts() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    for round in 0..10 {
        for upid in 0..30 {
            let row = process(upid, &format!("{round}"));
            writer.append(&row.into()).unwrap();
        }
    }
    append_all(&mut writer, &[process(7, "last")]);
    writer.flush().unwrap();
    let check = || {
        let rows = Recording::open(&dir).unwrap().rows::<ProcessRow>().unwrap();
        assert_eq!(rows.len(), 30);
        for row in &rows {
            let expected = if row.upid == Upid(7) { "last" } else { "9" };
            assert_eq!(row.comm, expected, "{row:?}");
        }
    };
    check();
    writer.finish(info()).unwrap();
    check();
    assert_eq!(files_below(&dir.join("process")).len(), 1);
}

#[test]
fn a_scan_reads_the_named_columns_and_those_that_are_never_null() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(2, 5)]);
    let scan = |columns: &[&str]| {
        let mut rows = Vec::new();
        let recording = Recording::open(&dir).unwrap();
        recording
            .scan::<MemRow>(columns, |row| rows.push(row))
            .map(|()| rows)
    };
    let expected = MemRow {
        rss_bytes: None,
        rss_file_bytes: None,
        swap_bytes: None,
        vm_size_bytes: None,
        source: None,
        ..mem(2, 5)
    };
    writer.flush().unwrap();
    assert_eq!(scan(&["rss_anon_bytes"]).unwrap(), [expected]);
    writer.finish(info()).unwrap();
    assert_eq!(scan(&["rss_anon_bytes"]).unwrap(), [expected]);
    let error = scan(&["rss"]).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchColumn { column, .. } if column == "rss"));
}

#[test]
fn a_recording_is_never_written_over() {
    let (_parent, dir) = new_dir();
    let writer = Writer::create(&dir, &info()).unwrap();
    let error = Writer::create(&dir, &info()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }));
    kill(writer);
    let error = Writer::create(&dir, &info()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }));
}

#[test]
fn a_directory_without_run_json_is_no_recording() {
    let (parent, dir) = new_dir();
    for dir in [parent.path(), &dir] {
        let error = Recording::open(dir).unwrap_err();
        assert!(matches!(error, StoreError::NotARecording { .. }));
        let error = recover(dir).unwrap_err();
        assert!(matches!(error, StoreError::NotARecording { .. }));
    }
}

#[test]
fn an_unknown_major_version_is_refused_and_a_newer_minor_one_is_read() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    append_all(&mut writer, &[mem(1, 1)]);
    kill(writer);
    let path = dir.join("run.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut newer = json.clone();
    newer["schema_version"]["minor"] = 99.into();
    newer["new_field"] = "x".into();
    std::fs::write(&path, newer.to_string()).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.rows::<MemRow>().unwrap(), [mem(1, 1)]);
    let problems = recording.problems();
    let text = problems.iter().map(ToString::to_string);
    let text = text.filter(|text| text.contains("memtrace 0.0.0 with schema 2.99; what schema"));
    assert_eq!(text.count(), 1, "{problems:?}");
    assert!(matches!(recover(&dir), Err(StoreError::NewerSchema { .. })));

    let major = serde_json::json!({"schema_version": {"major": 99, "minor": 0}});
    std::fs::write(&path, major.to_string()).unwrap();
    let error = Recording::open(&dir).unwrap_err();
    assert!(matches!(error, StoreError::UnsupportedSchema { .. }));
    assert!(error.to_string().contains("schema 99.0"), "{error}");
    assert!(error.to_string().ends_with("or a newer one"), "{error}");
    let older = serde_json::json!({"schema_version": {"major": 1, "minor": 2}});
    std::fs::write(&path, older.to_string()).unwrap();
    let error = Recording::open(&dir).unwrap_err().to_string();
    assert!(error.ends_with("read it with that version"), "{error}");
}

#[test]
fn every_file_belongs_to_the_owner_that_was_set() {
    let (parent, dir) = new_dir();
    let own = std::fs::metadata(parent.path()).unwrap();
    // Only root can give files away; others can at least keep them.
    let owner = if own.uid() == 0 {
        (4242, 4243)
    } else {
        (own.uid(), own.gid())
    };
    let mut writer = Writer::create_with(&dir, &info(), Some(owner), SMALL).unwrap();
    assert!(writer.is_given());
    let rows: Vec<MemRow> = (0..300).map(|i| mem(i * 100, 1)).collect();
    append_all(&mut writer, &rows);
    writer.finish(info()).unwrap();
    let folders = ["", "mem"].map(String::from);
    for path in files_below(&dir).into_iter().chain(folders) {
        let metadata = std::fs::metadata(dir.join(&path)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), owner, "{path}");
    }
}

#[test]
fn recordings_are_listed_by_their_start_and_those_of_a_root_too() {
    let parent = tempfile::tempdir().unwrap();
    assert!(recordings_in(parent.path()).unwrap().is_empty());
    let rooted = "run=7/host=a/rec=20260101T000000Z";
    for (name, start) in [
        ("memtrace-b", 1),
        ("memtrace-a", 2),
        (rooted, 3),
        ("other", 4),
    ] {
        let mut info = info();
        info.clocks[0].wall_ns = WallNs(start);
        let dir = parent.path().join(name);
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
        Writer::create(&dir, &info).unwrap().finish(info).unwrap();
    }
    std::fs::create_dir(parent.path().join("memtrace-empty")).unwrap();
    for stranger in ["stranger", "memtrace-stranger", "run=8/host=a/rec=b/mem"] {
        std::fs::create_dir_all(parent.path().join(stranger)).unwrap();
        std::fs::write(parent.path().join(stranger).join("run.json"), b"{}").unwrap();
    }
    let found = recordings_in(parent.path()).unwrap();
    let names = found
        .iter()
        .map(|dir| dir.strip_prefix(parent.path()).unwrap());
    let names: Vec<_> = names.map(|name| name.to_str().unwrap()).collect();
    let expected = [
        "other",
        rooted,
        "memtrace-a",
        "memtrace-b",
        "memtrace-stranger",
    ];
    assert_eq!(names, expected);
}

#[test]
fn rows_of_every_type_survive_the_spool_and_parquet() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create(&dir, &info()).unwrap();
    let diag = DiagRow {
        ts: WallNs(i64::MIN),
        boot_ns: BootNs(-5),
        subject: "\u{1F980}".repeat(1000),
        count: Some(i64::MIN),
        detail: String::new(),
        ..DiagRow::default()
    };
    append_all(&mut writer, std::slice::from_ref(&diag));
    writer.flush().unwrap();
    let rows = Recording::open(&dir).unwrap().rows::<DiagRow>().unwrap();
    assert_eq!(rows, std::slice::from_ref(&diag));
    writer.finish(info()).unwrap();
    let rows = Recording::open(&dir).unwrap().rows::<DiagRow>().unwrap();
    assert_eq!(rows, [diag]);
    assert_eq!(DiagRow::TABLE.name, "diag");
}
