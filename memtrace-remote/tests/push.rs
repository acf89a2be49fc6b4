//! `memtrace push`, the whole program, into directories and into a bucket that misbehaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::recording::{BELOW, Made, files, info};
use common::s3::S3;
use hyper::Method;
use memtrace_model::tables::NodeMemRow;
use memtrace_model::{BootNs, Downsampled, DurationNs, RunPlace, RunState};
use memtrace_store::Writer;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PARTS: [(&str, usize); 5] = [
    ("mem/part-00001.parquet", 300_000),
    ("mem/part-00002.parquet", 12 << 20),
    ("process/part-00002.parquet", 5_000),
    ("oom/part-00001.parquet", 100),
    ("phase/part-00001.parquet", 700),
];
const ROOT: &str = "s3://bucket/prefix";

fn push(source: &Path, root: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrace-remote"));
    command.arg("push").arg(source).arg(root);
    for (name, _) in std::env::vars() {
        if name.starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn push_to(s3: &S3, source: &Path) -> Command {
    let mut command = push(source, ROOT);
    command.envs(s3.environment());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs it and gives what it says.
#[track_caller]
fn run(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn finish(child: Child, code: i32) -> String {
    let output = child.wait_with_output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

/// That the bucket holds just what the recording does.
#[track_caller]
fn assert_same(s3: &S3, made: &Made) {
    let files = made.files();
    let keys: Vec<String> = files
        .keys()
        .map(|path| format!("prefix/{BELOW}/{path}"))
        .collect();
    assert_eq!(s3.keys(), keys);
    for (key, bytes) in keys.iter().zip(files.values()) {
        assert!(s3.object(key) == bytes, "{key}");
    }
}

#[test]
fn a_recording_is_carried_into_a_directory_once_and_into_no_part_of_itself() {
    let made = Made::closed(&PARTS);
    std::fs::create_dir(made.dir.join("spool")).unwrap();
    std::fs::write(made.dir.join("spool/mem-00003.arrows"), "spool").unwrap();
    let root = tempfile::tempdir().unwrap();
    let address = format!("file://{}/new", root.path().display());
    let first = run(push(made.root(), &address), 0);
    assert!(first.contains("5 parts sent"), "{first}");
    std::fs::remove_dir_all(made.dir.join("spool")).unwrap();
    assert_eq!(files(&root.path().join("new").join(BELOW)), made.files());
    let again = run(push(&made.dir, &address), 0);
    assert!(again.contains("0 parts sent"), "{again}");
    for (root, words) in [
        (made.root().join("inner"), "uploaded into itself"),
        (made.dir.join("run=1"), "name the root itself"),
        (root.path().join("not/there"), "failed to find"),
    ] {
        let said = run(push(made.root(), &root.display().to_string()), 1);
        assert!(said.contains(words), "{said}");
    }
    let said = run(push(&made.dir, &made.root().display().to_string()), 1);
    assert!(
        said.contains("lies where it would be uploaded to"),
        "{said}"
    );
    assert!(run(push(root.path(), ROOT), 1).contains("neither a recording"));
}

#[test]
fn a_link_below_a_root_leads_nothing_elsewhere() {
    let made = Made::closed(&PARTS[2..]);
    let (root, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(root.path().join("run=4711")).unwrap();
    std::os::unix::fs::symlink(victim.path(), root.path().join("run=4711/host=node1")).unwrap();
    let said = run(push(&made.dir, &root.path().display().to_string()), 1);
    assert!(said.contains("host=node1 is a link"), "{said}");
    assert!(files(victim.path()).is_empty());
}

#[test]
fn every_part_arrives_once_although_every_fifth_request_fails() {
    let made = Made::closed(&PARTS);
    for number in 3..40 {
        made.part(&format!("mem/part-{number:05}.parquet"), 1_000 * number);
    }
    let s3 = S3::start();
    s3.state.faults_percent.store(20, Ordering::Relaxed);
    run(push_to(&s3, &made.dir), 0);
    assert_same(&s3, &made);
    for path in made.files().keys().filter(|path| *path != "run.json") {
        let times = s3.times_written(&format!("prefix/{BELOW}/{path}"));
        assert_eq!(times, 1, "{path}");
    }
    // The whole of it, from the first to the last.
    let done = s3.state.done.lock().unwrap();
    let written = done.iter().filter(|(method, _, status)| {
        [Method::PUT, Method::POST].contains(method) && *status == 200
    });
    let written: Vec<&str> = written.map(|(_, key, _)| key.as_str()).collect();
    let run_file = format!("prefix/{BELOW}/run.json");
    assert_eq!(
        (written[0], *written.last().unwrap()),
        (&*run_file, &*run_file)
    );
}

#[test]
fn a_push_that_was_killed_goes_on_where_it_was() {
    let parts: Vec<(String, usize)> = (1..30)
        .map(|number| (format!("mem/part-{number:05}.parquet"), 200_000))
        .collect();
    let parts: Vec<(&str, usize)> = parts.iter().map(|(path, size)| (&**path, *size)).collect();
    let made = Made::closed(&parts);
    let s3 = S3::start();
    let mut child = push_to(&s3, &made.dir).arg("--limit=1MiB").spawn().unwrap();
    wait_until("some parts arrive", || s3.keys().len() > 6);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let there = s3.keys().len();
    assert!(there < 25, "{there} of 30 were there when it was killed");
    let state: RunState = {
        let bytes = s3.object(&format!("prefix/{BELOW}/run.json"));
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        serde_json::from_value(json["state"].clone()).unwrap()
    };
    assert_eq!(state, RunState::Recording);
    run(push_to(&s3, &made.dir), 0);
    assert_same(&s3, &made);
    for path in made.files().keys().filter(|path| *path != "run.json") {
        assert_eq!(
            s3.times_written(&format!("prefix/{BELOW}/{path}")),
            1,
            "{path}"
        );
    }
}

#[test]
fn a_recording_that_grows_is_followed_until_it_is_closed() {
    let mut made = Made::live();
    made.part("process/part-00001.parquet", 10);
    made.part("mem/part-00001.parquet", 1_000);
    let s3 = S3::start();
    let child = push_to(&s3, &made.dir)
        .arg("--watch")
        .arg("--delete")
        .spawn()
        .unwrap();
    let key = |path: &str| format!("prefix/{BELOW}/{path}");
    wait_until("the first parts", || s3.keys().len() == 3);
    made.part("mem/part-00002.parquet", 2_000);
    wait_until("a part that came", || {
        s3.keys().contains(&key("mem/part-00002.parquet"))
    });
    assert_eq!(s3.object(&key("run.json")), made.files()["run.json"]);
    let files = made.files();
    made.close();
    finish(child, 0);
    assert!(!made.dir.exists(), "it was to be removed");
    assert!(!made.root().join("run=4711").exists());
    let keys: Vec<String> = files.keys().map(|path| key(path)).collect();
    assert_eq!(s3.keys(), keys);
}

#[test]
fn a_small_part_goes_at_the_root_once_the_one_that_has_its_rows_is_there() {
    const MINUTE: DurationNs = DurationNs(60_000_000_000);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join(BELOW);
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let written = || {
        memtrace_store::Outgoing::open(&dir)
            .unwrap()
            .parts()
            .unwrap()
    };
    let mut writer = Writer::create(&dir, &info(RunState::Recording)).unwrap();
    writer = writer.rotating(MINUTE);
    let mut minute = 0;
    let mut next = || {
        minute += 1;
        let boot_ns = BootNs(minute * 2 * MINUTE.0);
        let row = NodeMemRow {
            boot_ns,
            ..NodeMemRow::default()
        };
        writer.append(&row.into()).unwrap();
        writer.flush().unwrap();
        writer.rotate(boot_ns).unwrap();
    };
    let s3 = S3::start();
    // Parts are made beside; the second row has the first leave what waits for later ones.
    (0..3).for_each(|_| next());
    wait_until("the first part", || !written().is_empty());
    let child = push_to(&s3, &dir).arg("--watch").spawn().unwrap();
    let key = |path: &str| format!("prefix/{BELOW}/{path}");
    let first = written().remove(0).path().display().to_string();
    wait_until("it is there", || s3.keys().contains(&key(&first)));
    (0..9).for_each(|_| next());
    wait_until("it is in another", || {
        written()
            .iter()
            .all(|part| part.path() != Path::new(&first))
    });
    wait_until("it is gone there too", || !s3.keys().contains(&key(&first)));
    let done = s3.state.done.lock().unwrap().clone();
    let gone = done
        .iter()
        .position(|(of, at, _)| *of == Method::DELETE && *at == key(&first));
    let by = written().remove(0).path().display().to_string();
    let new = done
        .iter()
        .position(|(of, at, _)| *of == Method::PUT && *at == key(&by));
    assert!(new.is_some() && new < gone, "{by} {new:?} {gone:?}");
    writer.finish(info(RunState::Closed)).unwrap();
    finish(child, 0);
    let keys: Vec<String> = files(&dir).keys().map(|path| key(path)).collect();
    assert_eq!(s3.keys(), keys);
    let is_of_table = |key: &&String| key.contains("/node_mem/");
    assert_eq!(keys.iter().filter(is_of_table).count(), 1);
}

#[test]
fn what_is_removed_at_the_root_meanwhile_is_carried_again_before_the_copy_here_goes() {
    let mut made = Made::live();
    for number in 1..4 {
        made.part(&format!("mem/part-0000{number}.parquet"), 1_000 * number);
    }
    let root = tempfile::tempdir().unwrap();
    let there = root.path().join(BELOW);
    let child = push(&made.dir, &root.path().display().to_string())
        .args(["--watch", "--delete"])
        .spawn()
        .unwrap();
    wait_until("the parts", || {
        (1..4).all(|number| {
            there
                .join(format!("mem/part-0000{number}.parquet"))
                .exists()
        })
    });
    // It knows by now that they are there.
    std::thread::sleep(Duration::from_millis(500));
    std::fs::remove_file(there.join("mem/part-00002.parquet")).unwrap();
    std::fs::remove_file(there.join("run.json")).unwrap();
    let expected = made.files();
    made.close();
    finish(child, 0);
    assert!(!made.dir.exists());
    let files = files(&there);
    assert!(files.keys().eq(expected.keys()), "{:?}", files.keys());
    assert_eq!(
        files["mem/part-00002.parquet"],
        expected["mem/part-00002.parquet"]
    );
}

#[test]
fn a_recorder_that_is_gone_is_reported_and_what_it_left_is_carried() {
    let mut made = Made::live();
    made.part("mem/part-00001.parquet", 1_000);
    let s3 = S3::start();
    let child = push_to(&s3, &made.dir).arg("--watch").spawn().unwrap();
    wait_until("the first part", || s3.keys().len() == 2);
    made.part("mem/part-00002.parquet", 2_000);
    made.kill();
    let said = finish(child, 3);
    assert!(said.contains("memtrace recover"), "{said}");
    assert_same(&s3, &made);
}

#[test]
fn whoever_stops_it_is_obeyed_and_nothing_half_is_left() {
    let made = Made::live();
    made.part("mem/part-00001.parquet", 30 << 20);
    let s3 = S3::start();
    let child = push_to(&s3, &made.dir)
        .arg("--watch")
        .arg("--limit=4MiB/s")
        .spawn()
        .unwrap();
    wait_until("it has begun", || s3.keys().len() == 1);
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    terminate(&child);
    let said = finish(child, 130);
    assert!(said.contains("uploads the rest"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(15));
    assert_eq!(s3.keys(), [format!("prefix/{BELOW}/run.json")]);
    assert!(s3.has_no_uploads());
}

#[test]
fn memory_does_not_go_by_the_size_of_a_part() {
    let made = Made::closed(&[("oom/part-00001.parquet", 10)]);
    for number in 1..=4 {
        made.part(&format!("mem/part-0000{number}.parquet"), 10);
        let path = made.dir.join(format!("mem/part-0000{number}.parquet"));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(100 << 20).unwrap();
    }
    let s3 = S3::start();
    s3.state.is_forgetful.store(true, Ordering::Relaxed);
    let mut child = push_to(&s3, &made.dir).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    finish(child, 0);
    assert_eq!(s3.keys().len(), 6);
    println!("peak of 400 MiB in four parts: {} MiB", peak_kib >> 10);
    assert!((1..64 << 10).contains(&peak_kib), "{peak_kib} KiB");
}

#[test]
fn what_a_bucket_refuses_is_reported_with_the_way_out() {
    let made = Made::closed(&PARTS[2..]);
    let s3 = S3::start();
    let with = |name: &str, value: &str| {
        let mut command = push_to(&s3, &made.dir);
        command.env(name, value);
        run(command, 1)
    };
    for (name, value, words) in [
        (
            "AWS_ACCESS_KEY_ID",
            "AKIDOTHER",
            "credentials for s3://bucket/prefix/run=4711/host=node1/rec=20261123T121913Z are wrong",
        ),
        ("AWS_SESSION_TOKEN", "old", "have expired"),
        ("AWS_ENDPOINT_URL", "http://192.0.2.1:1", "use https://"),
    ] {
        let said = with(name, value);
        assert!(said.contains(words), "{said}");
    }
    let mut elsewhere = push(&made.dir, "s3://other/prefix");
    elsewhere.envs(s3.environment());
    let said = run(elsewhere, 1);
    assert!(
        said.contains("the bucket of s3://other/prefix/") && said.contains("does not exist"),
        "{said}"
    );
    s3.state.is_closed_to_all.store(true, Ordering::Relaxed);
    let said = run(push_to(&s3, &made.dir), 1);
    assert!(said.contains("no permission for s3://bucket"), "{said}");
    assert!(s3.keys().is_empty());
}

#[test]
fn two_recordings_with_one_key_are_reported_and_neither_is_lost() {
    let made = Made::closed(&PARTS[..2]);
    let s3 = S3::start();
    let mut other = info(RunState::Closed);
    other.hostname = "node2".to_owned();
    let run_file = format!("prefix/{BELOW}/run.json");
    s3.put(&run_file, serde_json::to_vec(&other).unwrap());
    let said = run(push_to(&s3, &made.dir), 1);
    assert!(
        said.contains("two recordings have one key") && said.contains("of host node2"),
        "{said}"
    );
    assert_eq!(s3.keys(), std::slice::from_ref(&run_file));
    // The same recording, of which a part was changed.
    s3.put(&run_file, made.files()["run.json"].clone());
    s3.put(&format!("prefix/{BELOW}/mem/part-00001.parquet"), "other");
    let said = run(push_to(&s3, &made.dir), 1);
    assert!(
        said.contains("has 5 bytes there") && said.contains("300000 here"),
        "{said}"
    );
    let keys = s3.keys();
    assert!(
        keys.contains(&format!("prefix/{BELOW}/mem/part-00002.parquet")),
        "the rest goes on"
    );
    assert_eq!(s3.object(&keys[0]), "other");
    // As the error advises.
    let mut elsewhere = push_to(&s3, &made.dir);
    elsewhere.args(["--run=4712", "--host=other"]);
    run(elsewhere, 0);
    let there = "prefix/run=4712/host=other/rec=20261123T121913Z/run.json";
    assert_eq!(s3.object(there), made.files()["run.json"]);
}

#[test]
fn what_is_made_in_a_directory_is_private_unless_others_may_read_the_root() {
    // Of the programs that are started here too.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let made = Made::closed(&PARTS);
    let parent = tempfile::tempdir().unwrap();
    let rights = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for (of_root, of_folder, of_file) in [
        (None, 0o700, 0o600),
        (Some(0o711), 0o700, 0o600),
        (Some(0o750), 0o750, 0o640),
        (Some(0o755), 0o755, 0o644),
        (Some(0o777), 0o755, 0o644),
    ] {
        let root = parent.path().join(format!("{of_root:?}"));
        if let Some(of_root) = of_root {
            std::fs::create_dir(&root).unwrap();
            std::fs::set_permissions(&root, Permissions::from_mode(of_root)).unwrap();
        }
        run(push(&made.dir, &root.display().to_string()), 0);
        assert_eq!(rights(&root), of_root.unwrap_or(0o700));
        let mut folder = root.join(BELOW).join("mem");
        for file in ["part-00001.parquet", "part-00002.parquet", "../run.json"] {
            assert_eq!(rights(&folder.join(file)), of_file, "{file} of {of_root:?}");
        }
        while folder != root {
            assert_eq!(rights(&folder), of_folder, "{}", folder.display());
            folder.pop();
        }
    }
}

#[test]
fn what_another_pusher_fills_is_followed_until_it_is_closed() {
    let mut made = Made::live();
    let name = |name: &str| name.parse().unwrap();
    let mut going_on = info(RunState::Recording);
    going_on.place = Some(RunPlace {
        run: name("4711"),
        host: name("node1"),
        rec: name("20261123T121913Z"),
        rotate_ns: DurationNs(60_000_000_000),
        expected_hosts: None,
    });
    made.state(&going_on);
    made.kill();
    made.part("mem/part-00001.parquet", 1_000);
    let s3 = S3::start();
    let child = push_to(&s3, &made.dir).arg("--watch").spawn().unwrap();
    wait_until("the first part", || s3.keys().len() == 2);
    made.part("mem/part-00002.parquet", 2_000);
    let begin = Instant::now();
    wait_until("the next part", || s3.keys().len() == 3);
    assert!(begin.elapsed() < Duration::from_secs(20));
    let said = run(push_to(&s3, &made.dir), 0);
    assert!(said.contains("still being recorded"), "{said}");
    made.close();
    let said = finish(child, 0);
    assert!(!said.contains("recover"), "{said}");
    assert_same(&s3, &made);
}

#[test]
fn findings_that_were_saved_again_take_the_place_of_the_old_ones() {
    let made = Made::closed(&PARTS);
    let s3 = S3::start();
    run(push_to(&s3, &made.dir), 0);
    made.part("phase/part-00001.parquet", 900);
    let said = run(push_to(&s3, &made.dir), 0);
    assert!(said.contains("1 part sent"), "{said}");
    assert_same(&s3, &made);
}

#[test]
fn what_comes_to_a_recording_that_was_complete_is_carried_while_its_root_is_watched() {
    let made = Made::closed(&PARTS[2..4]);
    let s3 = S3::start();
    let child = push_to(&s3, made.root())
        .args(["--watch", "--look-again-after=1"])
        .spawn()
        .unwrap();
    let run_file = format!("prefix/{BELOW}/run.json");
    wait_until("all of it", || {
        let is_there = s3.keys().contains(&run_file);
        is_there && s3.object(&run_file) == made.files()["run.json"]
    });
    made.part("phase/part-00001.parquet", 900);
    wait_until("the findings", || s3.keys().len() == 4);
    assert_same(&s3, &made);
    terminate(&child);
    finish(child, 130);
}

#[test]
fn what_is_complete_there_stays_so_when_it_is_downsampled_here() {
    let root = tempfile::tempdir().unwrap();
    let mut made = Made::closed(&[("mem/part-00001.parquet", 5_000)]);
    let to = root.path().to_str().unwrap();
    run(push(&made.dir, to), 0);
    let there = root.path().join(BELOW).join("mem/part-00001.parquet");
    let before = std::fs::read(&there).unwrap();
    made.part("mem/part-00001.parquet", 500);
    let mut info = info(RunState::Closed);
    info.downsampled = Some(Downsampled {
        period_ns: DurationNs(1_000_000_000),
        is_complete: true,
    });
    made.state(&info);
    made.kill();
    run(push(&made.dir, to), 0);
    assert_eq!(std::fs::read(&there).unwrap(), before);
}

#[test]
fn a_store_that_knows_no_condition_is_asked_before() {
    let made = Made::closed(&PARTS[2..]);
    let s3 = S3::start();
    s3.state.lacks_create.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    run(push_to(&s3, &made.dir), 0);
    assert_same(&s3, &made);
    println!("{:?} without a conditional put", begin.elapsed());
}
