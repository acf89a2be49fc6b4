//! `record --root`: one host's part of a job of many. What carries it is a stand-in here, so that it
//! can misbehave; what `memtrace push` does is tested where that is.

use super::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;

/// Carries a recording when it is closed, or when nobody has its lock.
const CARRIES: &str = r#"
while [ $# -gt 2 ]; do shift; done
until grep -q '"state": "closed"' "$1/run.json" || flock -n -s "$1/run.json" true; do sleep 0.05; done
to="$2/${1#*/state/}"
mkdir -p "$to"
cp -r "$1"/. "$to"
rm -rf "$to/spool"
touch "$2/carried"
"#;
/// Can't be ended by SIGTERM, and never does.
const HANGS: &str = "trap '' TERM; while :; do sleep 0.1; done";
/// Ends well when it is let, and has no process of its own meanwhile.
const WAITS: &str = r#"read line < "${0%/*}/hold"; exit 0"#;
const FAILS: &str = "echo 'memtrace: no such bucket' >&2; exit 1";

/// memtrace with a stand-in for the program that carries, and a place for root and state.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn with(script: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (own, linked) = (program::memtrace()?, dir.path().join("memtrace"));
        if std::fs::hard_link(&own, &linked).is_err() {
            std::fs::copy(&own, &linked)?;
        }
        let remote = dir.path().join("memtrace-remote");
        std::fs::write(&remote, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&remote, std::fs::Permissions::from_mode(0o755))?;
        std::fs::create_dir(dir.path().join("root"))?;
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("memtrace"));
        command.arg("record").arg("--root").arg(self.path("root"));
        command.arg("-o").arg(self.path("state")).args(words);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        for name in ["MEMTRACE_RUN", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"] {
            command.env_remove(name);
        }
        command
    }

    fn start(&self, words: &[&str]) -> Result<Child> {
        let mut command = self.command(words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(child.spawn()?)
    }

    /// Whether a recording of this host is closed.
    fn has_closed(&self) -> bool {
        let recordings = self.recordings("state");
        let states = recordings.iter().map(|dir| run_json(dir));
        states.flatten().any(|info| info["state"] == "closed")
    }

    /// The recordings below a root, by their paths there.
    fn recordings(&self, root: &str) -> Vec<PathBuf> {
        let list = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let runs = list(&self.path(root)).into_iter();
        runs.flat_map(|run| list(&run))
            .flat_map(|host| list(&host))
            .filter(|rec| rec.join("run.json").exists())
            .collect()
    }
}

fn run_json(dir: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(
        dir.join("run.json"),
    )?)?)
}

#[test]
fn a_recording_arrives_at_its_place_and_leaves_this_host() -> Result<()> {
    let host = Host::with(CARRIES)?;
    let words = ["--run", "4711", "--host", "n1", "--expect-hosts", "n[1-3]"];
    let output = host.command(&words).args(["--", "sleep", "2"]).output()?;
    assert!(output.status.success(), "{}", super::words(&output));
    let [recording] = &host.recordings("root")[..] else {
        panic!("{}", super::words(&output));
    };
    let place = &run_json(recording)?["place"];
    assert_eq!(place["run"], "4711");
    assert_eq!(place["host"], "n1");
    assert_eq!(place["rotate_ns"], 60_000_000_000_i64);
    assert_eq!(
        place["expected_hosts"],
        serde_json::json!(["n1", "n2", "n3"])
    );
    let below = format!(
        "run=4711/host=n1/rec={}",
        place["rec"].as_str().unwrap_or_default()
    );
    assert!(recording.ends_with(&below), "{}", recording.display());
    let said = super::words(&output);
    assert!(
        said.contains("memtrace report") && said.contains("/root/run=4711"),
        "{said}"
    );
    assert!(
        recording.join("role_mem").is_dir(),
        "what the report found is there too"
    );
    assert_eq!(std::fs::read_dir(host.path("state"))?.count(), 0);
    Ok(())
}

#[test]
fn the_run_is_named_by_slurm_and_its_hosts_are_expected() -> Result<()> {
    let host = Host::with(CARRIES)?;
    let mut command = host.command(&["--", "true"]);
    command
        .env("SLURM_JOB_ID", "77")
        .env("SLURM_JOB_NODELIST", "a[08-10],b");
    assert!(command.output()?.status.success());
    let [recording] = &host.recordings("root")[..] else {
        panic!("nothing arrived");
    };
    let place = &run_json(recording)?["place"];
    assert_eq!(place["run"], "77");
    assert_eq!(
        place["expected_hosts"],
        serde_json::json!(["a08", "a09", "a10", "b"])
    );
    Ok(())
}

#[test]
fn what_does_not_arrive_stays_and_the_command_that_carries_it_is_reported() -> Result<()> {
    let host = Host::with(FAILS)?;
    let output = host
        .command(&["--", "sh", "-c", "sleep 2; exit 3"])
        .output()?;
    let said = super::words(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let [recording] = &host.recordings("state")[..] else {
        panic!("{said}");
    };
    assert_eq!(run_json(recording)?["state"], "closed");
    let line = format!(
        "memtrace push {} {}",
        recording.display(),
        host.path("root").display()
    );
    assert!(said.contains(&line), "{said}");
    assert_eq!(
        said.matches("the upload reports: no such bucket").count(),
        1,
        "{said}"
    );
    Ok(())
}

#[test]
fn what_hangs_keeps_the_recorder_from_nothing_and_a_signal_ends_the_wait_for_it() -> Result<()> {
    let host = Host::with(HANGS)?;
    let recorder = host.start(&["--no-findings", "--", "sleep", "1"])?;
    await_that("closed", || host.has_closed());
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    // SAFETY: a child that has not been waited for.
    unsafe { libc::kill(recorder.id().cast_signed(), libc::SIGTERM) };
    let output = recorder.wait_with_output()?;
    let said = super::words(&output);
    assert!(asked.elapsed() < Duration::from_secs(15), "{said}");
    assert_eq!(output.status.code(), Some(0), "the command's, {said}");
    assert!(
        said.contains("a signal arrived in the meantime; to upload the rest: memtrace push"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_killed_recorder_leaves_the_one_that_carries_to_its_work() -> Result<()> {
    let host = Host::with(CARRIES)?;
    let mut recorder = host.start(&[
        "--run",
        "k",
        "--rotate",
        "5s",
        "--kill-child",
        "--",
        "sleep",
        "100",
    ])?;
    await_that("a part", || {
        let recordings = host.recordings("state");
        recordings
            .iter()
            .any(|dir| dir.join("node_mem/part-00001.parquet").exists())
    });
    recorder.kill()?;
    assert_eq!(recorder.wait()?.signal(), Some(libc::SIGKILL));
    await_that("carried", || host.path("root/carried").exists());
    let [recording] = &host.recordings("root")[..] else {
        panic!("nothing arrived");
    };
    assert_eq!(run_json(recording)?["state"], "recording");
    let report = memtrace([OsStr::new("report"), recording.as_os_str()])?;
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("last data"), "{text}");
    assert!(
        !text.contains("damaged") && !text.contains("memtrace recover"),
        "{text}"
    );
    Ok(())
}

#[test]
fn what_carries_is_no_process_of_a_recording_by_name() -> Result<()> {
    let host = Host::with(WAITS)?;
    assert!(
        Command::new("mkfifo")
            .arg(host.path("hold"))
            .status()?
            .success()
    );
    let name = format!("unheard-of-{}", std::process::id());
    let words = ["--no-findings", "--run", &name, "--match", &name, "-d", "3"];
    let recorder = host.start(&words)?;
    // Opened when it waits there, and it has ended when that is closed.
    let released = std::fs::File::options()
        .write(true)
        .open(host.path("hold"))?;
    await_that("closed", || host.has_closed());
    drop(released);
    let output = recorder.wait_with_output()?;
    let said = super::words(&output);
    assert!(said.contains("no process matched"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn without_the_program_that_carries_nothing_begins() -> Result<()> {
    let host = Host::with(CARRIES)?;
    std::fs::remove_file(host.path("memtrace-remote"))?;
    let mut command = host.command(&["--", "/usr/bin/touch", "ran"]);
    let output = command.env("PATH", "/nowhere").output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(super::words(&output).contains("memtrace-remote"));
    assert!(!host.path("ran").exists());
    assert_eq!(
        std::fs::read_dir(host.path("state"))?.count(),
        0,
        "nor is a folder left"
    );
    Ok(())
}

#[test]
fn only_recordings_that_nobody_writes_to_are_removed_for_room() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let record = |words: &[&str]| -> Result<Command> {
        let mut command = Command::new(program::memtrace()?);
        command.args(["record", "--no-findings"]).args(words);
        command.current_dir(dir.path()).stdin(Stdio::null());
        Ok(command)
    };
    let names = || -> Result<Vec<String>> {
        let names = std::fs::read_dir(dir.path())?.flatten();
        let mut names: Vec<String> = names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    };
    for name in ["memtrace-a", "memtrace-b", "mine"] {
        assert!(record(&["-o", name, "--", "true"])?.status()?.success());
    }
    std::fs::create_dir(dir.path().join("memtrace-none"))?;
    std::fs::write(dir.path().join("memtrace-none/run.json"), "{}")?;
    let mut live = record(&["-o", "memtrace-live", "--kill-child", "--", "sleep", "100"])?
        .stderr(Stdio::null())
        .spawn()?;
    await_that("live", || {
        dir.path().join("memtrace-live/run.json").exists()
    });
    let output = record(&["--keep", "7d", "-o", "memtrace-c", "--", "sleep", "1"])?.output()?;
    assert!(output.status.success());
    assert_eq!(names()?.len(), 6, "nothing is that old");
    let output = record(&["--keep", "7d,0B", "-o", "memtrace-d", "--", "sleep", "1"])?.output()?;
    let said = super::words(&output);
    assert!(said.contains("removed 3 older recordings"), "{said}");
    assert_eq!(
        names()?,
        ["memtrace-d", "memtrace-live", "memtrace-none", "mine"]
    );
    live.kill()?;
    live.wait()?;
    Ok(())
}

#[test]
fn what_did_not_arrive_goes_for_its_size_alone_and_that_is_reported() -> Result<()> {
    let host = Host::with(FAILS)?;
    let record = |keep: &str| host.command(&["--keep", keep, "--", "sleep", "1"]).output();
    assert!(record("1h")?.status.success());
    let kept = host.recordings("state");
    assert_eq!(kept.len(), 1);
    // As if it were of the year 2000.
    let old = std::time::UNIX_EPOCH + Duration::from_secs(946_684_800);
    for folder in std::fs::read_dir(&kept[0])?.flatten() {
        for file in std::fs::read_dir(folder.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            std::fs::File::options()
                .write(true)
                .open(file.path())?
                .set_modified(old)?;
        }
    }
    std::fs::File::options()
        .write(true)
        .open(kept[0].join("run.json"))?
        .set_modified(old)?;
    let said = super::words(&record("1h")?);
    assert_eq!(host.recordings("state").len(), 2, "{said}");
    let said = super::words(&record("0B")?);
    assert_eq!(host.recordings("state").len(), 1, "{said}");
    assert_eq!(
        said.matches("to stay under the size, though not all of it is in")
            .count(),
        2,
        "{said}"
    );
    Ok(())
}

#[test]
fn what_looks_like_a_secret_is_in_no_file_of_a_redacted_recording() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let secret = format!("0123456789abcdef{}", std::process::id());
    let script =
        format!("sleep 1.2; TOKEN={secret} /bin/true; sh -c 'sleep 1' x --api-key {secret}");
    let recorded = |words: &[&str], name: &str| -> Result<bool> {
        let mut command = Command::new(program::memtrace()?);
        command
            .arg("record")
            .args(words)
            .args(["-o", name, "--rotate", "5s", "--"]);
        command.args(["sh", "-c", &script]).current_dir(dir.path());
        assert!(command.stdin(Stdio::null()).status()?.success());
        let recording = memtrace_store::Recordings::default().open(&dir.path().join(name))?;
        let texts = format!(
            "{:?} {:?} {}",
            recording.rows::<ProcessRow>()?,
            recording.rows::<memtrace_model::TitleRow>()?,
            std::fs::read_to_string(dir.path().join(name).join("run.json"))?
        );
        Ok(texts.contains(&secret))
    };
    assert!(recorded(&[], "plain")?);
    assert!(!recorded(&["--redact"], "redacted")?);
    Ok(())
}

#[test]
fn what_makes_no_sense_together_is_refused() -> Result<()> {
    let target = ["--", "true"];
    for (given, words) in [
        (&["--run", "1"][..], "--root"),
        (&["--host", "1"], "--root"),
        (&["--expect-hosts", "a"], "--root"),
        (&["--root", "r", "--run", "a/b"], "A-Za-z0-9._-"),
        (&["--root", "r", "--host", ".."], "A-Za-z0-9._-"),
        (&["--root", "r", "--expect-hosts", "n[1-30000]"], "20000"),
        (&["--root", ""], "--root"),
        (&["--root", "r", "--requests", "auto"], "--requests"),
        (&["--rotate", "1s"], "5s"),
        (&["--keep", "5m"], "7d"),
    ] {
        let line = [&["record"][..], given, &target].concat();
        let output = memtrace(line)?;
        assert_eq!(output.status.code(), Some(2), "{given:?}");
        let said = super::words(&output);
        assert!(said.contains(words), "{given:?}: {said}");
    }
    let dir = tempfile::tempdir()?;
    let inside = dir.path().join("root").display().to_string();
    let outside = dir.path().display().to_string();
    let output = memtrace(["record", "--root", &inside, "-o", &outside, "--", "true"])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(super::words(&output).contains("lie within each other"));
    Ok(())
}
