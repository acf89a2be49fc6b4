//! Marks from log lines: the command's output passes through as it is, and lines of it and of
//! files are marks.

use super::*;
use memtrace_model::{MarkKind, MarkRow, MarkSource};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;

const RECORD: [&str; 5] = ["record", "--quiet", "--backend", "procfs", "-o"];

fn recorder(place: &Path, options: &[&str], script: &str) -> Result<Command> {
    let mut command = Command::new(program::memtrace()?);
    command
        .args(RECORD)
        .arg(place)
        .args(options)
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::null());
    Ok(command)
}

/// Marks from there: whoever marks every recording of this user meanwhile is somebody else.
fn marks(place: &Path, source: MarkSource) -> Result<Vec<MarkRow>> {
    let mut rows: Vec<MarkRow> = memtrace_store::Recordings::default().open(place)?.rows()?;
    rows.retain(|row| row.source == Some(source));
    Ok(rows)
}

#[test]
fn what_the_command_writes_passes_as_it_is_and_its_lines_are_marks() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let script = "printf 'binary \\000\\377 \\033[31mred\\033[0m\\r'; \
        echo \"(Worker pid=$$) INFO [a.py:1] Starting to load model m...\"; sleep 0.3; \
        echo errors >&2; \
        echo \"\\033[36m(Worker pid=$$)\\033[0m INFO [a.py:2] Model loading took 1.25 GiB memory and 0.3 seconds\"; \
        printf 'INFO:     Application startup complete.'; exit 3";
    let sent = recorder(&place, &["--marks-from-output"], script)?.output()?;
    assert_eq!(sent.status.code(), Some(3));
    assert_eq!(sent.stderr, b"errors\n");
    let out = String::from_utf8_lossy(&sent.stdout);
    assert!(
        sent.stdout
            .starts_with(b"binary \0\xff \x1b[31mred\x1b[0m\r("),
        "{out}"
    );
    assert!(
        out.ends_with("0.3 seconds\nINFO:     Application startup complete."),
        "{out}"
    );
    let rows = marks(&place, MarkSource::Output)?;
    let kinds: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("vllm.load_model", Some(MarkKind::Begin)),
            ("vllm.load_model", Some(MarkKind::End)),
            ("server_ready", Some(MarkKind::Instant)),
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.upid == rows[0].upid && row.upid.is_some())
    );
    assert_eq!(rows[0].span, rows[1].span);
    let length = (rows[1].boot_ns - rows[0].boot_ns).0;
    // A mark has the time at which its line was read: the first can have waited longer than the second.
    assert!(length >= 200_000_000, "{length}");
    let attributes = rows[1].attributes.as_deref().context("attributes")?;
    assert!(attributes.contains("\"gib\":1.25"), "{attributes}");
    Ok(())
}

#[test]
fn no_line_is_lost_or_out_of_its_order_at_any_rate() -> Result<()> {
    const LINES: u64 = 1_000_000;
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let script = format!("seq {LINES}");
    let mut child = recorder(&place, &["--marks-from-output"], &script)?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut text = String::new();
    let mut stdout = child.stdout.take().context("a pipe")?;
    stdout.read_to_string(&mut text)?;
    assert!(child.wait()?.success());
    assert!(text.lines().eq((1..=LINES).map(|line| line.to_string())));
    Ok(())
}

#[test]
fn a_reader_that_has_enough_ends_the_command_as_without_memtrace() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let mut child = recorder(&place, &["--marks-from-output"], "exec yes")?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut few = [0; 4];
    child
        .stdout
        .take()
        .context("a pipe")?
        .read_exact(&mut few)?;
    assert_eq!(&few, b"y\ny\n");
    assert_eq!(child.wait()?.code(), Some(128 + libc::SIGPIPE));
    Ok(())
}

/// A recorder whose command has ended, and which waits for somebody to read the last of its output.
fn closing(dir: &Path) -> Result<Child> {
    let done = dir.join("done");
    let script = format!("head -c 100000 /dev/zero; touch {}", done.display());
    let mut command = recorder(&dir.join("recording"), &["--marks-from-output"], &script)?;
    let child = command.stdout(Stdio::piped()).spawn()?;
    while !done.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    Ok(child)
}

fn interrupt(child: &Child) -> Result<()> {
    let pid = i32::try_from(child.id())?;
    // SAFETY: the child is not waited for yet, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

#[test]
fn an_interrupt_of_a_recording_that_ends_by_itself_leaves_it_closed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut child = closing(dir.path())?;
    interrupt(&child)?;
    let mut rest = Vec::new();
    let stdout = child.stdout.as_mut().context("a pipe")?;
    stdout.read_to_end(&mut rest)?;
    assert_eq!(rest.len(), 100_000);
    assert_eq!(child.wait()?.code(), Some(0));
    let recording = memtrace_store::Recordings::default().open(&dir.path().join("recording"))?;
    assert!(recording.is_closed());
    Ok(())
}

#[test]
fn the_second_interrupt_of_a_recording_that_ends_by_itself_ends_it_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut child = closing(dir.path())?;
    interrupt(&child)?;
    assert!(child.try_wait()?.is_none(), "the first one ends nothing");
    interrupt(&child)?;
    assert_eq!(child.wait()?.signal(), Some(libc::SIGINT));
    Ok(())
}

#[test]
fn a_killed_recorder_takes_neither_the_command_nor_its_output_with_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let script = "echo first; sleep 1; echo second; sleep 0.2; echo third";
    let mut child = recorder(&place, &["--marks-from-output"], script)?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().context("a pipe")?;
    let mut text = [0; 6];
    stdout.read_exact(&mut text)?;
    child.kill()?;
    assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest)?;
    assert_eq!(rest, "second\nthird\n");
    Ok(())
}

#[test]
fn a_terminal_stays_one_of_its_size_and_passes_bytes_as_they_are() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let size = libc::winsize {
        ws_row: 33,
        ws_col: 77,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: room for two descriptors, which are owned from here on.
    let (ours, theirs) = unsafe {
        let none = std::ptr::null_mut();
        let made = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            (&raw const size).cast_mut(),
        );
        assert_eq!(made, 0);
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    };
    let script = "test -t 1 && test -t 2 && stty size <&1 && echo both; sleep 0.6; stty size <&1";
    let mut child = recorder(&place, &["--marks-from-output"], script)?
        .stdout(theirs.try_clone()?)
        .stderr(theirs)
        .spawn()?;
    let mut text = Vec::new();
    let mut ours = ours;
    let mut chunk = [0; 256];
    while !String::from_utf8_lossy(&text).contains("both") {
        let length = ours.read(&mut chunk)?;
        text.extend_from_slice(&chunk[..length]);
    }
    assert!(child.wait()?.success());
    while let Ok(length) = ours.read(&mut chunk) {
        if length == 0 {
            break;
        }
        text.extend_from_slice(&chunk[..length]);
    }
    let text = String::from_utf8_lossy(&text);
    assert_eq!(text, "33 77\r\nboth\r\n33 77\r\n");
    Ok(())
}

#[test]
fn lines_of_a_log_are_marks_from_where_it_stands_also_after_a_rotation() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let log = dir.path().join("train.log");
    let rules = dir.path().join("rules.toml");
    std::fs::write(
        &rules,
        "builtin = false\n[[rule]]\nname = \"step\"\ncontains = \"step \"\nmatch = 'step (?<step>\\d+)'\n",
    )?;
    let mut before = File::create(&log)?;
    writeln!(before, "step 0")?;
    // What is truncated has to be read before: the place of the recorder, which is the parent,
    // in the file tells.
    let script = format!(
        "cd {}; \
         read_to() {{ for fd in /proc/$PPID/fd/*; do \
             [ $fd -ef train.log ] && grep -q \"^pos:[^0-9]*$1\\$\" /proc/$PPID/fdinfo/${{fd##*/}} \
             && return; done; return 1; }}; \
         await() {{ for turn in $(seq 200); do read_to $1 && return; sleep 0.05; done; exit 9; }}; \
         echo step 1 >> train.log; await 14; mv train.log train.log.1; \
         echo step 2 > train.log; await 7; : > train.log; echo step 3 >> train.log",
        dir.path().display()
    );
    let log = log.to_str().context("text")?;
    let rules = rules.to_str().context("text")?;
    let options = ["--marks-from", log, "--mark-rules", rules];
    let sent = recorder(&place, &options, &script)?.output()?;
    assert!(sent.status.success(), "{}", words(&sent));
    let rows = marks(&place, MarkSource::File)?;
    let steps: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.attributes.as_deref())
        .collect();
    let is_step = |text: &str, step: usize| text.contains(&format!("\"step\":{step}"));
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(
        (0..3).all(|place| is_step(steps[place], place + 1)),
        "{steps:?}"
    );
    Ok(())
}

#[test]
fn a_log_that_never_appears_is_reported() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let absent = dir.path().join("absent.log");
    let absent = absent.to_str().context("text")?;
    let sent = recorder(&place, &["--marks-from", absent], "true")?.output()?;
    assert!(sent.status.success());
    let shown = words(&sent);
    assert!(shown.contains("absent.log never appeared"), "{shown}");
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let rules = dir.path().join("rules.toml");
    std::fs::write(&rules, "\n[[rule]]\nname = \"a\"\nmatch = '('\n")?;
    let rules = rules.to_str().context("text")?;
    let folder = dir.path().to_str().context("text")?;
    for (options, code, shown) in [
        (&["--mark-rules", rules][..], 2, "required"),
        (
            &["--marks-from-output", "--mark-rules", rules],
            1,
            "rules.toml, line 4: \"(\" is not a regular expression",
        ),
        (
            &["--marks-from-output", "--mark-rules", "/nope"],
            1,
            "/nope",
        ),
        (&["--marks-from", folder], 1, "it is not a file"),
    ] {
        let refused = recorder(&place, options, "true")?.output()?;
        assert_eq!(refused.status.code(), Some(code), "{options:?}");
        let said = words(&refused);
        assert!(said.contains(shown), "{said}");
    }
    let without = memtrace(["record", "--marks-from-output", "-p", "1"])?;
    assert_eq!(without.status.code(), Some(2));
    Ok(())
}
