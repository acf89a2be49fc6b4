//! Recordings of which files are missing, doubled, exchanged or of another recording: it is reported.

use super::*;
use crate::{ProblemKind, Recording, recover};
use memtrace_model::TABLES;
use std::fs;

/// A recording of some parts and segments of `mem`, which began at a time.
fn record(dir: &Path, began_ms: i64) -> Writer {
    let mut info = info();
    info.clocks[0].boot_ns = BootNs(began_ms * 1_000_000);
    info.clocks[0].wall_ns = WallNs(EPOCH_NS + began_ms * 1_000_000);
    let mut writer = Writer::create_with(dir, &info, None, SMALL).unwrap();
    let rows: Vec<MemRow> = (0..240).map(|i| mem(began_ms + i * 100, 1)).collect();
    append_all(&mut writer, &rows);
    append_all(&mut writer, &[process(1, "p")]);
    writer
}

fn close(writer: Writer, began_ms: i64) {
    let mut info = info();
    info.clocks[0].boot_ns = BootNs(began_ms * 1_000_000);
    let end = ClockReading {
        boot_ns: BootNs(60_000_000_000),
        ..info.clocks[0]
    };
    info.clocks.push(end);
    writer.finish(info).unwrap();
}

/// What is wrong with files, by all that a recording has.
fn problems(dir: &Path) -> Vec<(String, ProblemKind)> {
    let recording = Recording::open(dir).unwrap();
    recording.rows::<MemRow>().unwrap();
    recording.rows::<ProcessRow>().unwrap();
    let shown = recording.problems().into_iter();
    shown
        .map(|one| (one.file.display().to_string(), one.kind))
        .collect()
}

fn files(dir: &Path) -> Vec<String> {
    let files = files_below(dir).into_iter();
    files.filter(|file| file.contains('/')).collect()
}

#[test]
fn every_file_that_is_taken_out_of_a_recording_is_reported() {
    let (_parent, dir) = new_dir();
    close(record(&dir, 0), 0);
    assert_eq!(problems(&dir), []);
    assert!(files(&dir).len() > TABLES.len(), "{:?}", files(&dir));
    for file in files(&dir) {
        let bytes = fs::read(dir.join(&file)).unwrap();
        fs::remove_file(dir.join(&file)).unwrap();
        let shown = problems(&dir);
        assert_eq!(shown.len(), 1, "{file}: {shown:?}");
        assert_eq!(shown[0].0, file);
        assert!(matches!(shown[0].1, ProblemKind::Missing { rows: Some(_) }));
        fs::write(dir.join(&file), bytes).unwrap();
    }
    assert_eq!(problems(&dir), []);
}

#[test]
fn a_file_that_is_taken_out_of_the_spool_is_reported_now_and_once_the_recording_is_closed() {
    let (_parent, dir) = new_dir();
    kill(record(&dir, 0));
    assert_eq!(problems(&dir), []);
    let names = files(&dir);
    assert!(names.iter().any(|name| name.starts_with("spool/mem")));
    assert!(names.iter().any(|name| name.starts_with("spool/process")));
    for file in names {
        let bytes = fs::read(dir.join(&file)).unwrap();
        fs::remove_file(dir.join(&file)).unwrap();
        let shown = problems(&dir);
        assert_eq!(shown.len(), 1, "{file}: {shown:?}");
        assert_eq!(shown[0].0, file);
        fs::write(dir.join(&file), bytes).unwrap();
    }
    fs::remove_file(dir.join("spool/process-00001.arrows")).unwrap();
    recover(&dir).unwrap();
    let shown = problems(&dir);
    let missing = ProblemKind::Missing { rows: None };
    assert_eq!(shown, [("spool/process-00001.arrows".to_owned(), missing)]);
}

#[test]
fn a_file_that_is_doubled_exchanged_or_of_another_recording_is_reported_and_left_out() {
    let (_parent, dir) = new_dir();
    let (_other_parent, other) = new_dir();
    close(record(&dir, 0), 0);
    close(record(&other, 1), 1);
    let part = |seq: u32| format!("mem/part-{seq:05}.parquet");
    let parts: Vec<String> = files(&dir);
    let parts: Vec<&String> = parts
        .iter()
        .filter(|file| file.starts_with("mem/"))
        .collect();
    let [first, second, ..] = parts[..] else {
        panic!("{parts:?}")
    };
    let rows = || Recording::open(&dir).unwrap().rows::<MemRow>().unwrap();
    let whole = rows();

    fs::copy(dir.join(second), dir.join(part(99))).unwrap();
    assert_eq!(problems(&dir), [(part(99), ProblemKind::Unlisted)]);
    assert_eq!(rows(), whole);
    fs::remove_file(dir.join(part(99))).unwrap();

    let named = |shown: &[(String, ProblemKind)]| -> Vec<String> {
        shown.iter().map(|(file, _)| file.clone()).collect()
    };
    let (one, two) = (
        fs::read(dir.join(first)).unwrap(),
        fs::read(dir.join(second)).unwrap(),
    );
    fs::write(dir.join(first), &two).unwrap();
    fs::write(dir.join(second), &one).unwrap();
    assert_eq!(named(&problems(&dir)), [first.clone(), second.clone()]);
    fs::write(dir.join(second), &two).unwrap();
    assert_eq!(named(&problems(&dir)), [first.as_str()]);

    fs::copy(other.join(first), dir.join(first)).unwrap();
    let shown = problems(&dir);
    assert_eq!(named(&shown), [first.as_str()]);
    assert!(
        format!("{:?}", shown[0].1).contains("another recording"),
        "{shown:?}"
    );
    fs::write(dir.join(first), &one).unwrap();
    assert_eq!(problems(&dir), []);
}

#[test]
fn a_segment_of_another_number_or_another_recording_is_reported_and_left_out() {
    let (_parent, dir) = new_dir();
    let (_other_parent, other) = new_dir();
    kill(record(&dir, 0));
    kill(record(&other, 1));
    let spool = files(&dir)
        .into_iter()
        .rfind(|file| file.starts_with("spool/mem"));
    let segment = dir.join(spool.unwrap());
    let bytes = fs::read(&segment).unwrap();
    let of_other = files(&other)
        .into_iter()
        .rfind(|file| file.starts_with("spool/mem"));
    fs::copy(other.join(of_other.unwrap()), &segment).unwrap();
    let shown = problems(&dir);
    assert_eq!(shown.len(), 1);
    assert!(
        format!("{shown:?}").contains("another recording"),
        "{shown:?}"
    );
    fs::write(&segment, &bytes).unwrap();
    fs::write(dir.join("spool/mem-00099.arrows"), &bytes).unwrap();
    let shown = problems(&dir);
    assert_eq!(shown.len(), 1);
    assert!(
        format!("{shown:?}").contains("changed their names"),
        "{shown:?}"
    );
}

#[test]
fn a_manifest_that_is_gone_cut_off_changed_or_of_another_recording_is_reported_and_no_row_is_lost()
{
    let (_parent, dir) = new_dir();
    let (_other_parent, other) = new_dir();
    close(record(&dir, 0), 0);
    close(record(&other, 1), 1);
    let path = dir.join("manifest.jsonl");
    let whole = fs::read(&path).unwrap();
    let rows = || Recording::open(&dir).unwrap().rows::<MemRow>().unwrap();
    let all = rows();
    let shown = |name: &str| {
        let shown = problems(&dir);
        assert!(
            !shown.is_empty() && shown.iter().all(|(file, _)| file == "manifest.jsonl"),
            "{name}: {shown:?}"
        );
        assert_eq!(rows(), all, "{name}");
    };
    fs::remove_file(&path).unwrap();
    shown("gone");
    fs::copy(other.join("manifest.jsonl"), &path).unwrap();
    shown("of another");
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    for line in 0..lines.len() {
        let mut changed = lines.concat();
        let at: usize = lines[..line].iter().map(|line| line.len()).sum();
        changed[at + 12] ^= 1;
        fs::write(&path, changed).unwrap();
        shown(&format!("line {line} changed"));
    }
    // Half of the last line.
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    shown("cut off");
    fs::write(&path, whole).unwrap();
    assert_eq!(problems(&dir), []);
}

/// Takes the last lines out of a manifest, as if the recorder had been killed before them.
fn cut_lines(dir: &Path, is_cut: impl Fn(&str) -> bool) {
    let path = dir.join("manifest.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let kept: String = text
        .split_inclusive('\n')
        .filter(|line| !is_cut(line))
        .collect();
    fs::write(&path, kept).unwrap();
}

#[test]
fn a_recorder_that_was_killed_before_it_named_a_part_is_recovered_without_a_word() {
    for table in ["mem", "process", "diag"] {
        let (_parent, dir) = new_dir();
        let mut writer = record(&dir, 0);
        writer.flush().unwrap();
        let spool = || {
            files(&dir)
                .into_iter()
                .filter(|file| file.starts_with("spool/"))
        };
        let manifest = || fs::read_to_string(dir.join("manifest.jsonl")).unwrap();
        // A segment goes once its part is named, which another thread does.
        let (listed, before) = loop {
            let listed = manifest();
            let read = |file: String| Some((file.clone(), fs::read(dir.join(&file)).ok()?));
            let before: Vec<_> = spool().filter_map(read).collect();
            if manifest() == listed {
                break (listed, before);
            }
        };
        let open = fs::read(dir.join("run.json")).unwrap();
        close(writer, 0);
        // As it stood between the name of the last part of a table and its line.
        fs::create_dir_all(dir.join("spool")).unwrap();
        for (file, bytes) in before {
            fs::write(dir.join(file), bytes).unwrap();
        }
        fs::write(dir.join("run.json"), open).unwrap();
        let named = format!("\"table\":\"{table}\"");
        cut_lines(&dir, |line| {
            line.contains("\"closed\"")
                || (line.contains("\"kind\":\"part\"")
                    && line.contains(&named)
                    && !listed.contains(line))
        });
        let shown = problems(&dir);
        assert_eq!(shown, [], "{table} before it is closed");
        recover(&dir).unwrap();
        let shown = problems(&dir);
        assert_eq!(shown, [], "{table}");
    }
}

#[test]
fn parts_that_one_has_taken_the_place_of_are_no_damage_until_the_recording_is_closed() {
    let (_parent, dir) = new_dir();
    let mut writer = Writer::create_with(&dir, &info(), None, SMALL).unwrap();
    for upid in 0..200 {
        append_all(&mut writer, &[process(upid, "p")]);
    }
    writer.flush().unwrap();
    let first = dir.join("process/part-00001.parquet");
    let begin = std::time::Instant::now();
    while !first.exists() {
        assert!(begin.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (old, open) = (
        fs::read(&first).unwrap(),
        fs::read(dir.join("run.json")).unwrap(),
    );
    writer.finish(info()).unwrap();
    assert!(!first.exists());
    // Killed before the old parts went.
    fs::write(&first, old).unwrap();
    let closed = fs::read(dir.join("run.json")).unwrap();
    fs::write(dir.join("run.json"), open).unwrap();
    assert_eq!(problems(&dir), []);
    recover(&dir).unwrap();
    assert_eq!(problems(&dir), []);
    assert!(!first.exists());
    fs::write(dir.join("run.json"), closed).unwrap();
    assert_eq!(problems(&dir), []);
}

#[test]
fn a_recording_to_which_rows_were_added_since_it_was_opened_is_read_with_them() {
    let (_parent, dir) = new_dir();
    close(record(&dir, 0), 0);
    let opened = Recording::open(&dir).unwrap();
    let adding = Recording::open(&dir).unwrap();
    let mut revision = crate::Revision::begin(&adding).unwrap();
    revision.add(vec![mem(3, 2)], |row| row.boot_ns).unwrap();
    revision.finish().unwrap();
    let rows = opened.rows::<MemRow>().unwrap();
    assert_eq!(opened.problems(), []);
    assert_eq!(rows.len(), 241);
}
