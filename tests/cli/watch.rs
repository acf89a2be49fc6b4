//! `memtrace watch`, as whoever is called at night meets it.

use super::*;
use memtrace_tests::cgroup::MemoryGroup;
use serde_json::Value;
use std::path::Path;
use std::process::Child;

/// Saves what it gets, an object a line.
const SAVE: &str = "cat >> \"$0\"";

fn record(dir: &Path, target: &[&str]) -> Result<Child> {
    let recorder = Command::new(program::memtrace()?)
        .args(["record", "--quiet", "-o"])
        .arg(dir)
        .args(target)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    recorder.context("failed to start a recorder")
}

fn watch(dir: &Path, options: &[&str], saved: &Path) -> Result<Child> {
    let watcher = Command::new(program::memtrace()?)
        .arg("watch")
        .arg(dir)
        .args(options)
        .args(["--", "sh", "-c", SAVE])
        .arg(saved)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    watcher.context("failed to start a watcher")
}

fn saved(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let objects = text.lines().map(serde_json::from_str);
    objects.filter_map(|object| object.ok()).collect()
}

fn send(child: &Child, signal: i32) -> Result<()> {
    let pid = i32::try_from(child.id())?;
    // SAFETY: plain numbers; the child is not waited for yet.
    anyhow::ensure!(unsafe { libc::kill(pid, signal) } == 0);
    Ok(())
}

#[test]
fn a_program_gets_a_crash_and_the_loss_of_the_recorder() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recordings, file) = (dir.path().join("recordings"), dir.path().join("saved"));
    std::fs::create_dir(&recordings)?;
    let watcher = watch(&recordings, &["-f", "json"], &file)?;
    // Its second process crashes once it was looked at.
    let script = "sleep 3; sh -c 'kill -SEGV $$'; exec sleep 60";
    let target = ["--kill-child", "--", "sh", "-c", script];
    let mut recorder = record(&recordings.join("one"), &target)?;
    await_that("the crash is reported", || !saved(&file).is_empty());
    send(&recorder, libc::SIGKILL)?;
    recorder.wait()?;
    await_that("the loss is reported", || saved(&file).len() >= 2);
    send(&watcher, libc::SIGTERM)?;
    let ended = watcher.wait_with_output()?;
    assert!(ended.status.success(), "{}", words(&ended));
    let lines = String::from_utf8(ended.stdout)?;
    let reported: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let kinds: Vec<_> = reported
        .iter()
        .map(|event| event["event"].as_str())
        .collect();
    assert_eq!(kinds, [Some("crash"), Some("recorder-gone")], "{lines}");
    let [crash, gone] = &saved(&file)[..] else {
        panic!("two events: {lines}");
    };
    assert_eq!(crash["text"], "SIGSEGV from itself", "{crash}");
    assert_eq!(crash["left_out_count"], 0);
    assert_eq!(crash["report_error"], Value::Null);
    // Who was there at that instant.
    let holders = crash["report"]["at"]["holders"].as_array();
    assert!(
        holders.is_some_and(|holders| !holders.is_empty()),
        "{crash}"
    );
    assert_eq!(crash["report"]["process"]["pid"], crash["pid"], "{crash}");
    assert_eq!(gone["report"], Value::Null, "{gone}");
    Ok(())
}

#[test]
fn an_oom_kill_is_reported_with_its_post_mortem_and_a_limit_before_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, file) = (dir.path().join("recording"), dir.path().join("saved"));
    let group = MemoryGroup::new("memtrace-watch", 64 << 20)?;
    let mut python = Command::new("python3");
    // Near the limit for a while, and then above it.
    python.args([
        "-c",
        "import time\n\
         time.sleep(3); held = bytearray(56 << 20); time.sleep(6); more = bytearray(56 << 20)",
    ]);
    let mut killed = group.inside(&python).spawn()?;
    let mut recorder = record(&recording, &["-p", &killed.id().to_string()])?;
    await_that("a recording", || recording.join("run.json").exists());
    let watcher = watch(&recording, &[], &file)?;
    let ended = watcher.wait_with_output()?;
    killed.wait()?;
    recorder.wait()?;
    assert!(ended.status.success(), "{}", words(&ended));
    let lines = String::from_utf8(ended.stdout)?;
    let events = saved(&file);
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds, [Some("limit"), Some("oom-kill")], "{lines}");
    assert!(lines.contains("(limit 64.0 MiB) was full"), "{lines}");
    let kill = &events[1];
    let grew = &kill["report"]["oom_kill"]["post_mortem"];
    assert!(grew.is_object(), "{kill}");
    assert!(kill["report"]["answer"].to_string().contains("was killed"));
    Ok(())
}

#[test]
fn a_program_that_fails_or_is_not_there_is_reported_and_watching_goes_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording");
    let script = "sleep 4; sh -c 'kill -SEGV $$'; sleep 2";
    let mut recorder = record(&recording, &["--", "sh", "-c", script])?;
    await_that("a recording", || recording.join("run.json").exists());
    let watched = |program: &str| -> Result<Output> {
        let words = ["watch", "--on", "crash"].map(OsStr::new);
        memtrace(words.into_iter().chain([
            recording.as_os_str(),
            OsStr::new("--"),
            OsStr::new(program),
        ]))
    };
    let ended = std::thread::scope(|scope| {
        let missing = scope.spawn(|| watched("/nowhere/notify"));
        let fails = watched("false");
        [fails, missing.join().expect("no panic")]
    });
    recorder.wait()?;
    let said = ended.map(|ended| ended.map(|ended| (ended.status.code(), words(&ended))));
    let [fails, missing] = said;
    let (code, said) = fails?;
    assert_eq!(code, Some(0));
    assert!(said.contains("exit status: 1"), "{said}");
    let (code, said) = missing?;
    assert_eq!(code, Some(0));
    assert!(said.contains("/nowhere/notify could not handle"), "{said}");
    assert!(said.contains("can't be started"), "{said}");
    Ok(())
}
