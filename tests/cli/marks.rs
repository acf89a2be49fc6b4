//! `memtrace mark`: to one recording, to all that run, and to none.

use super::*;
use memtrace::model::{MarkKind, MarkRow};
use std::os::unix::net::UnixDatagram;

fn recorder() -> Result<(Running, Recorder)> {
    let idle = Running::start(&["idle", "--processes", "1"])?;
    let pid = idle.pid().to_string();
    let recorder = Recorder::start(&["--quiet", "--backend", "procfs", "-p", &pid])?;
    Ok((idle, recorder))
}

fn mark(words: &[&str]) -> Result<Output> {
    memtrace([&["mark"], words].concat())
}

#[test]
fn a_mark_reaches_the_recording_that_is_named() -> Result<()> {
    let (_idle, recorder) = recorder()?;
    let place = recorder.path();
    let place = place.to_str().context("a path that is text")?;
    let sent = mark(&["deploy", "--begin", "--attr", "rank=3", "-r", place])?;
    assert!(sent.status.success(), "{}", words(&sent));
    assert!(mark(&["deploy", "--end", "-r", place])?.status.success());
    let recorded = recorder.stop()?;
    let rows: Vec<MarkRow> = recorded.recording.rows()?;
    let rows: Vec<&MarkRow> = rows.iter().filter(|row| row.name == "deploy").collect();
    let [begin, end] = rows.as_slice() else {
        anyhow::bail!("not two marks: {rows:#?}");
    };
    assert_eq!(begin.kind, Some(MarkKind::Begin));
    assert_eq!(begin.attributes.as_deref(), Some(r#"{"rank":3}"#));
    assert_eq!(
        (end.kind, end.attributes.as_deref()),
        (Some(MarkKind::End), None)
    );
    assert!(begin.boot_ns < end.boot_ns);
    assert_eq!(begin.upid, None, "who marked is not recorded");
    assert!(begin.tgid.is_some());

    let late = mark(&["late", "-r", recorded.path().to_str().context("text")?])?;
    assert_eq!(late.status.code(), Some(1));
    assert!(
        words(&late).contains("is not being recorded any more"),
        "{}",
        words(&late)
    );
    Ok(())
}

#[test]
fn marks_of_a_script_that_is_recorded_belong_to_the_recording_and_pair() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let script = format!(
        "\"{0}\" mark load --begin && sleep 0.1 && \"{0}\" mark load --end",
        program::memtrace()?.display()
    );
    let recorded = Command::new(program::memtrace()?)
        .args(["record", "--quiet", "--backend", "procfs", "-o"])
        .arg(&place)
        .args(["--", "sh", "-c", &script])
        .output()?;
    assert!(recorded.status.success(), "{}", words(&recorded));
    let rows: Vec<MarkRow> = memtrace::store::Recording::open(&place)?.rows()?;
    let found: Vec<_> = rows
        .iter()
        .filter(|row| row.name == "load")
        .map(|row| (row.kind, row.upid))
        .collect();
    assert_eq!(
        found,
        [(Some(MarkKind::Begin), None), (Some(MarkKind::End), None)]
    );
    Ok(())
}

#[test]
fn a_mark_for_nobody_in_particular_reaches_every_recording_and_removes_dead_sockets() -> Result<()>
{
    let runtime = tempfile::tempdir()?;
    let sockets = runtime.path().join("memtrace");
    std::fs::create_dir(&sockets)?;
    let dead = sockets.join("1.sock");
    drop(UnixDatagram::bind(&dead)?);
    let living = UnixDatagram::bind(sockets.join("2.sock"))?;
    let sent = Command::new(program::memtrace()?)
        .args(["mark", "everywhere"])
        .env("XDG_RUNTIME_DIR", runtime.path())
        .output()?;
    assert!(sent.status.success(), "{}", words(&sent));
    assert!(!dead.exists(), "its recorder is gone");
    living.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = [0; 1024];
    let length = living.recv(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(text.contains(r#""name":"everywhere""#), "{text}");
    Ok(())
}

#[test]
fn a_mark_that_is_none_is_refused_with_the_way_out() -> Result<()> {
    for (wrong, explained) in [
        (&[""][..], "a mark needs a name"),
        (&["a", "--begin", "--end"], "cannot be used with"),
        (&["a", "--attr", "rank"], "'rank' is not KEY=VALUE"),
    ] {
        let refused = mark(wrong)?;
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(words(&refused).contains(explained), "{}", words(&refused));
    }
    let nowhere = tempfile::tempdir()?;
    let refused = mark(&["a", "-r", nowhere.path().to_str().context("text")?])?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(words(&refused).contains("run.json"), "{}", words(&refused));
    Ok(())
}

#[test]
fn the_socket_of_a_killed_recorder_is_removed_by_the_next_one() -> Result<()> {
    let (_idle, killed) = recorder()?;
    let info = memtrace::store::read_run_info(&killed.path())?;
    let socket = info.mark_socket.context("marks are not received")?;
    killed.signal(libc::SIGKILL)?;
    killed.wait()?;
    let left = [socket.clone(), format!("{socket}.ask")];
    let is_there = |path: &String| std::path::Path::new(path).exists();
    assert!(
        left.iter().all(is_there),
        "a killed recorder can't remove them"
    );
    let (_idle, next) = recorder()?;
    assert!(!left.iter().any(is_there));
    next.stop()?;
    Ok(())
}
