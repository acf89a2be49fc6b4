//! Recordings in a bucket, read by `memtrace-remote read` for memtrace's own reader.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::recording::info;
use common::s3::S3;
use memtrace_model::tables::{MemRow, ProcessRow, RoleMemRow};
use memtrace_model::{
    BootNs, Bytes, DurationNs, Finding, PlaceName, RunPlace, RunState, Upid, WallNs,
};
use memtrace_store::{
    FindingsWriter, Recording, Recordings, RemoteReader, Root, StoreError, Writer,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BELOW: &str = "prefix/run=4711/host=node1/rec=20261123T121913Z";
const PROCESSES: i64 = 50;
const ROLES: [&str; 4] = ["vLLM worker", "vLLM engine", "API server", "loader"];

/// A closed recording with so many rows of `mem`, and the memory of roles as a report saves it.
fn recorded(parent: &Path, rows: i64) -> PathBuf {
    let dir = parent.join("recording");
    let mut info = info(RunState::Recording);
    let mut writer = Writer::create(&dir, &info).unwrap();
    let mut random = 1_u64;
    let mut boot_ns = 0;
    for row in 0..rows {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        boot_ns = row * 2_000_000;
        let bytes = Some(Bytes(((random >> 40) << 12).cast_signed()));
        writer
            .append(
                &MemRow {
                    ts: WallNs(info.clocks[0].wall_ns.0 + boot_ns),
                    boot_ns: BootNs(boot_ns),
                    upid: Upid(row % PROCESSES + 1),
                    rss_bytes: bytes,
                    rss_anon_bytes: bytes,
                    ..MemRow::default()
                }
                .into(),
            )
            .unwrap();
    }
    let mut last = info.clocks[0];
    last.boot_ns = BootNs(boot_ns);
    last.wall_ns = WallNs(last.wall_ns.0 + boot_ns);
    info.clocks.push(last);
    writer.finish(info).unwrap();
    let recording = Recordings::default().open(&dir).unwrap();
    let mut findings = FindingsWriter::create(&recording).unwrap();
    // As many instants as a report keeps of a long recording.
    for instant in 0..2_560 {
        for (at, name) in ROLES.into_iter().enumerate() {
            let row = RoleMemRow {
                boot_ns: BootNs(instant * (boot_ns / 2_560)),
                name: name.to_owned(),
                rss_anon_bytes: Some(Bytes((instant * 7_919 % 100_003) << 12)),
                process_count: at as i64,
                ..RoleMemRow::default()
            };
            findings.append(&Finding::from(row));
        }
    }
    findings.finish().unwrap();
    dir
}

fn carry(dir: &Path, s3: &S3) -> u64 {
    let files = common::recording::files(dir);
    let sum = files.values().map(|bytes| bytes.len() as u64).sum();
    for (path, bytes) in files {
        s3.put(&format!("{BELOW}/{path}"), bytes);
    }
    sum
}

fn reader(s3: &S3, address: &str) -> Arc<RemoteReader> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_memtrace-remote"));
    program.arg("read").arg(address).envs(s3.environment());
    Arc::new(RemoteReader::start(program, address).unwrap())
}

fn rows_of<R: memtrace_model::Row>(recording: &Recording) -> Vec<R> {
    let rows = recording.rows().unwrap();
    assert_eq!(recording.problems(), []);
    rows
}

#[test]
fn what_is_in_a_bucket_reads_as_in_a_directory_although_every_fifth_request_fails() {
    let parent = tempfile::tempdir().unwrap();
    let dir = recorded(parent.path(), 150_000);
    let s3 = S3::start();
    carry(&dir, &s3);
    s3.state.faults_percent.store(20, Ordering::Relaxed);
    let address = format!("s3://bucket/{BELOW}");
    let there = Recordings::default()
        .open_remote(reader(&s3, &address), "")
        .unwrap();
    let here = Recordings::default().open(&dir).unwrap();
    assert_eq!(there.info(), here.info());
    assert!(there.is_closed());
    assert!(rows_of::<MemRow>(&there) == rows_of::<MemRow>(&here));
    assert_eq!(rows_of::<ProcessRow>(&there), []);
    assert_eq!(there.last_boot_ns().unwrap(), here.last_boot_ns().unwrap());
    let below = Recordings::default()
        .open_remote(reader(&s3, "s3://bucket/prefix"), &BELOW["prefix/".len()..]);
    assert!(rows_of::<RoleMemRow>(&below.unwrap()) == rows_of::<RoleMemRow>(&here));
}

#[test]
fn the_curve_of_a_role_takes_a_small_part_of_the_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let rows = std::env::var("MEMTRACE_TEST_ROWS").ok();
    let rows = rows.map_or(500_000, |rows| rows.parse().unwrap());
    let dir = recorded(parent.path(), rows);
    let s3 = S3::start();
    let all = carry(&dir, &s3);
    let address = format!("s3://bucket/{BELOW}");
    let there = Recordings::default()
        .open_remote(reader(&s3, &address), "")
        .unwrap();
    let mut curve = Vec::new();
    let columns = ["boot_ns", "name", "rss_anon_bytes"];
    let take = |row: RoleMemRow| {
        if row.name == ROLES[0] {
            curve.push((row.boot_ns, row.rss_anon_bytes));
        }
    };
    there.scan(&columns, take).unwrap();
    assert_eq!(curve.len(), 2_560);
    let fetched = s3.state.sent_bytes.load(Ordering::Relaxed);
    let percent = fetched as f64 / all as f64 * 100.0;
    println!("one role: {fetched} of {all} bytes, {percent:.2} %");
    assert!(percent <= 5.0, "{percent} %");
    // One column of `mem`, for whoever asks for that.
    let before = s3.state.sent_bytes.load(Ordering::Relaxed);
    there.scan(&["rss_anon_bytes"], |_: MemRow| {}).unwrap();
    let fetched = s3.state.sent_bytes.load(Ordering::Relaxed) - before;
    println!(
        "one amount of mem: {fetched} of {all} bytes, {:.2} %",
        fetched as f64 / all as f64 * 100.0
    );
    assert!(fetched < all * 4 / 5);
}

#[test]
fn a_run_that_is_named_is_opened_without_a_look_at_the_others() {
    let s3 = S3::start();
    for run in 0..100 {
        for host in ["node1", "node2"] {
            let place = format!("root/run={run}/host={host}/rec=20261123T121913Z");
            s3.put(&format!("{place}/run.json"), "{}");
        }
    }
    let asked = || s3.state.done.lock().unwrap().split_off(0);
    let open = |run: &str| {
        let reader = reader(&s3, "s3://bucket/root");
        Root::open_remote(reader, Some(run)).unwrap().unwrap()
    };
    let (places, refused) = open("42").recordings("42").unwrap();
    assert_eq!((places.len(), refused.len()), (2, 0));
    let asked_for_one = asked();
    // The run twice, and each of its hosts.
    assert_eq!(asked_for_one.len(), 4, "{asked_for_one:?}");
    assert!(
        asked_for_one
            .iter()
            .all(|(_, of, _)| of.starts_with("root/run=42/"))
    );
    // Where there is no such run, the names of all are reported.
    let whole = open("none");
    assert_eq!(whole.run_names().unwrap().len(), 100);
    assert!(asked().len() > 20);
}

#[test]
fn what_can_t_be_read_at_an_address_is_reported_and_damage_is_found() {
    let parent = tempfile::tempdir().unwrap();
    let dir = recorded(parent.path(), 1_000);
    let s3 = S3::start();
    carry(&dir, &s3);
    let open = |address: &str| Recordings::default().open_remote(reader(&s3, address), "");
    let said = |error: &StoreError| {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    };
    let error = open("s3://bucket/prefix").unwrap_err();
    assert!(matches!(error, StoreError::NotARecording { .. }), "{error}");
    for (address, words) in [
        (
            "s3://other/prefix",
            "the bucket of s3://other/prefix does not exist",
        ),
        ("https://bucket/prefix", "not the address of a root"),
        ("file:///not/there", "no such directory"),
    ] {
        let said = said(&open(address).unwrap_err());
        assert!(said.contains(words), "{said}");
    }
    let address = format!("s3://bucket/{BELOW}");
    let there = open(&address).unwrap();
    let error = FindingsWriter::create(&there).err().unwrap().to_string();
    assert!(error.contains("is only read"), "{error}");
    // A flipped bit on its way is no row.
    let key = format!("{BELOW}/mem/part-00001.parquet");
    let mut bytes = s3.object(&key).to_vec();
    bytes[100] ^= 1;
    s3.put(&key, bytes);
    assert_eq!(there.rows::<MemRow>().unwrap(), []);
    assert!(there.problems()[0].to_string().contains("checksum"));
    // A bucket that can't be reached any more is no damage.
    let there = open(&address).unwrap();
    s3.state.is_closed_to_all.store(true, Ordering::Relaxed);
    let said = said(&there.rows::<MemRow>().unwrap_err());
    assert!(said.contains("no permission"), "{said}");
}

#[test]
fn a_recording_that_is_closed_while_it_is_read_at_an_address_loses_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, root) = (parent.path().join("recording"), parent.path().join("root"));
    let minute = DurationNs(60_000_000_000);
    let mut open = info(RunState::Recording);
    let name = || "a".parse::<PlaceName>().unwrap();
    open.place = Some(RunPlace {
        run: name(),
        host: name(),
        rec: name(),
        rotate_ns: minute,
        expected_hosts: None,
    });
    let mut writer = Writer::create(&dir, &open).unwrap().rotating(minute);
    for number in 1..=20 {
        let row = ProcessRow {
            upid: Upid(number),
            comm: "a".to_owned(),
            ..ProcessRow::default()
        };
        writer.append(&row.into()).unwrap();
        writer.flush().unwrap();
        writer.rotate(BootNs(number * 2 * minute.0)).unwrap();
    }
    let files = || common::recording::files(&dir);
    let is_waiting = |path: &String| path.starts_with("spool/process-");
    let begin = Instant::now();
    while files().keys().any(is_waiting) {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    // As a pusher does it: the new files, and then without the old ones.
    let carry = || {
        let files = files();
        let leaves = |path: &str| !path.starts_with("spool/") && !path.ends_with(".tmp");
        let files = files.into_iter().filter(|(path, _)| leaves(path));
        let _ = std::fs::remove_dir_all(&root);
        for (path, bytes) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    };
    carry();
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_memtrace-remote"));
        program
            .arg("read")
            .arg(format!("file://{}", root.display()));
        program
    };
    let reader = RemoteReader::start(program(), &format!("file://{}", root.display()));
    let there = Recordings::default()
        .open_remote(Arc::new(reader.unwrap()), "")
        .unwrap();
    let mut closed = open;
    closed.state = RunState::Closed;
    writer.finish(closed).unwrap();
    carry();
    assert_eq!(rows_of::<ProcessRow>(&there).len(), 20);
}
