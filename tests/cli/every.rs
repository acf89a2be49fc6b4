//! `record --every`: recordings one after another, without a gap.

use super::*;

use memtrace_store::Recordings;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A shell that starts a process every few milliseconds and says its id.
const FORKING: &str = "while sleep 0.02; do sleep 0.03 & echo $!; done";

fn recordings(dir: &Path) -> Vec<PathBuf> {
    let there = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = there.map(|entry| entry.path()).collect();
    found.retain(|path| path.join("run.json").exists());
    found.sort();
    found
}

fn end(child: &mut std::process::Child, number: i32) -> Result<std::process::ExitStatus> {
    let pid = i32::try_from(child.id())?;
    // SAFETY: plain numbers; the child is not waited for yet.
    unsafe { libc::kill(pid, number) };
    Ok(child.wait()?)
}

#[test]
fn a_recording_closes_when_the_program_that_renews_it_is_killed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut recorder = Command::new(program::memtrace()?)
        .args([
            "record",
            "--quiet",
            "--backend",
            "procfs",
            "--every",
            "1h",
            "-p",
        ])
        .arg(std::process::id().to_string())
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let begin = Instant::now();
    let closed = || {
        let found = recordings(dir.path());
        let opened = found.first().map(|path| Recordings::default().open(path));
        opened
            .and_then(Result::ok)
            .map(|recording| recording.is_closed())
    };
    while closed().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(closed(), Some(false));
    end(&mut recorder, libc::SIGKILL)?;
    while closed() != Some(true) {
        assert!(begin.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn a_name_for_many_recordings_and_a_process_that_is_not_there_are_refused() -> Result<()> {
    let named = memtrace(["record", "-a", "--every", "1h", "-o", "here"])?;
    assert_eq!(named.status.code(), Some(1));
    assert!(words(&named).contains("leave out -o"), "{}", words(&named));
    let gone = memtrace(["record", "--every", "1h", "-p", "4194303"])?;
    assert_eq!(gone.status.code(), Some(1), "{}", words(&gone));
    Ok(())
}

mod needs_bpf {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn no_process_is_missed_between_two_recordings() -> Result<()> {
        need::require("bpf");
        let dir = tempfile::tempdir()?;
        let mut forking = Command::new("sh")
            .args(["-c", FORKING])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(forking.stdout.take().context("a pipe")?);
        let mut recorder = Command::new(program::memtrace()?)
            .args(["record", "--quiet", "--every", "5s", "-p"])
            .arg(forking.id().to_string())
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let begin = Instant::now();
        while recordings(dir.path()).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(1));
        let mut lines = output.lines();
        // What was started before is in the pipe.
        let began = Instant::now();
        let mut seen = HashSet::new();
        let mut skipped = 0;
        // Two of them were renewed by then.
        while recordings(dir.path()).len() < 3 || began.elapsed() < Duration::from_secs(13) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "renewed too late"
            );
            let pid: u32 = lines.next().context("it goes on")??.parse()?;
            let start = Path::new("/proc").join(pid.to_string());
            match start.exists() || !seen.is_empty() {
                true => drop(seen.insert(pid)),
                false => skipped += 1,
            }
        }
        let status = end(&mut recorder, libc::SIGTERM)?;
        end(&mut forking, libc::SIGKILL)?;
        assert!(status.success(), "{status}");
        let found = recordings(dir.path());
        assert!(found.len() >= 3, "{found:?}");
        let mut recorded = HashSet::new();
        for path in &found {
            let recording = Recordings::default().open(path)?;
            assert!(recording.is_closed(), "{}", path.display());
            let rows = recording.rows::<ProcessRow>()?;
            recorded.extend(rows.into_iter().map(|row| row.tgid.0));
        }
        let missing: Vec<&u32> = seen.difference(&recorded).collect();
        assert!(seen.len() > 100, "{} seen, {skipped} before", seen.len());
        assert_eq!(missing, [&0_u32; 0], "of {} in {found:?}", seen.len());
        Ok(())
    }
}
