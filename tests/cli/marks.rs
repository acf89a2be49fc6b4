//! `memtrace mark`: to the recording that is meant, to several, and to none.

use super::*;
use memtrace_model::{MarkKind, MarkRow};
use std::io::Write;
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
    let rows: Vec<MarkRow> = memtrace_store::Recordings::default().open(&place)?.rows()?;
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

/// How often a recording has a mark of that name.
fn count(recorded: &Recorded, name: &str) -> Result<usize> {
    let rows: Vec<MarkRow> = recorded.recording.rows()?;
    Ok(rows.iter().filter(|row| row.name == name).count())
}

#[test]
fn where_different_processes_are_recorded_a_mark_asks_which_is_meant() -> Result<()> {
    let ((_one, first), (_other, second)) = (recorder()?, recorder()?);
    let named = [&first, &second].map(|recorder| recorder.path().display().to_string());
    let refused = mark(&["open"])?;
    let text = words(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    for dir in &named {
        assert!(text.contains(&format!("-r {dir}")), "{text}");
    }
    let [one, other] = &named;
    let sent = mark(&["both", "-r", one, "-r", other])?;
    let said = format!("memtrace: both is marked in {one}\nmemtrace: both is marked in {other}\n");
    assert_eq!(words(&sent), said);
    let sent = mark(&["one", "--begin", "-r", one])?;
    assert_eq!(
        words(&sent),
        format!("memtrace: the start of one is marked in {one}\n")
    );
    assert_eq!(words(&mark(&["one", "--end", "--quiet", "-r", one])?), "");
    let (first, second) = (first.stop()?, second.stop()?);
    for (recorded, one) in [(&first, 2), (&second, 0)] {
        assert_eq!(count(recorded, "open")?, 0);
        assert_eq!(count(recorded, "both")?, 1);
        assert_eq!(count(recorded, "one")?, one);
    }
    Ok(())
}

#[test]
fn from_a_recorded_process_a_mark_goes_to_its_recording_only() -> Result<()> {
    let (_idle, other) = recorder()?;
    let script = format!("\"{}\" mark inside", program::memtrace()?.display());
    let mut own = Recorder::of_command(&["--quiet"], &shell(&format!("{script} 2>&1")))?;
    let said = format!("memtrace: inside is marked in {}", own.path().display());
    assert_eq!(own.line()?, said);
    assert_eq!(count(&own.wait()?, "inside")?, 1);

    // One that runs already knows nothing of its recording.
    let mut waiting = shell(&format!("read line; {script}"));
    let mut waiting = waiting
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let own = Recorder::start(&["--quiet", "-p", &waiting.id().to_string()])?;
    waiting.stdin.take().context("a pipe")?.write_all(b"go\n")?;
    let ended = waiting.wait_with_output()?;
    let said = format!("memtrace: inside is marked in {}\n", own.path().display());
    assert_eq!(words(&ended), said);
    assert_eq!(count(&own.wait()?, "inside")?, 1);
    assert_eq!(count(&other.stop()?, "inside")?, 0);
    Ok(())
}

/// With a directory for sockets that other tests do not see.
mod needs_mount {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn a_mark_goes_to_all_recordings_of_the_same_processes() -> Result<()> {
        need::require("mount");
        let dir = tempfile::tempdir()?;
        let script = r#"
            mount -t tmpfs none /run || exit 99
            cd "$1"; unset XDG_RUNTIME_DIR
            sleep 60 & target=$!
            for name in one two; do
                "$2" record --quiet --no-findings --backend procfs -o $name -p $target &
            done
            while [ "$(ls -d /run/memtrace/*.recording 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.05; done
            "$2" mark everywhere || exit 98
            kill $target; wait
        "#;
        let output = shell_with_own_mounts(script)
            .arg(dir.path())
            .arg(program::memtrace()?)
            .output()?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let said = text.lines().filter(|line| line.contains("is marked in"));
        assert_eq!(said.count(), 2, "{text}");
        for name in ["one", "two"] {
            let recording = memtrace_store::Recordings::default().open(&dir.path().join(name))?;
            let rows: Vec<MarkRow> = recording.rows()?;
            assert!(rows.iter().any(|row| row.name == "everywhere"), "{name}");
        }
        Ok(())
    }

    #[test]
    fn sockets_of_killed_recorders_are_removed_by_a_mark() -> Result<()> {
        need::require("mount");
        let runtime = tempfile::tempdir()?;
        let sockets = runtime.path().join("memtrace");
        std::fs::create_dir(&sockets)?;
        let dead = sockets.join("1.sock");
        drop(UnixDatagram::bind(&dead)?);
        let living = UnixDatagram::bind(sockets.join("2.sock"))?;
        let script = r#"mount -t tmpfs none /run && exec "$1" mark everywhere"#;
        let sent = shell_with_own_mounts(script)
            .arg(program::memtrace()?)
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
    let info = memtrace_store::read_run_info(&killed.path())?;
    let socket = info.mark_socket.context("marks are not received")?;
    let left = [socket.clone(), format!("{socket}.ask")];
    let is_there = |path: &String| std::path::Path::new(path).exists();
    assert!(left.iter().all(is_there), "a recorder listens");
    // Killed it can't remove them; whichever recorder starts next does.
    killed.signal(libc::SIGKILL)?;
    killed.wait()?;
    let (_idle, next) = recorder()?;
    assert!(!left.iter().any(is_there));
    next.stop()?;
    Ok(())
}
