//! `memtrace top` on a terminal, screen by screen.

use super::pty::Screen;
use super::*;
use memtrace_model::tables::MarkRow;
use memtrace_store::Recordings;
use std::path::Path;

fn top<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(program::memtrace()?);
    command.arg("top").args(words);
    Ok(command)
}

/// A recording of three processes that goes on.
struct Going {
    _idle: Running,
    recorder: std::process::Child,
    dir: tempfile::TempDir,
}

impl Going {
    fn start() -> Result<Self> {
        let mut idle = Running::start(&["idle", "--processes", "3"])?;
        idle.line()?;
        let dir = tempfile::tempdir()?;
        let mut recorder = Command::new(program::memtrace()?);
        recorder.args(["record", "--quiet", "-p", &idle.pid().to_string(), "-o"]);
        let recorder = recorder.arg(dir.path().join("recording"));
        let recorder = recorder.stdin(Stdio::null()).spawn()?;
        let going = Self {
            _idle: idle,
            recorder,
            dir,
        };
        await_that("a recording", || going.place().join("run.json").exists());
        Ok(going)
    }

    fn place(&self) -> std::path::PathBuf {
        self.dir.path().join("recording")
    }

    fn end_by(&mut self, signal: i32) -> Result<()> {
        // SAFETY: plain numbers; the child was not waited for.
        unsafe { libc::kill(self.recorder.id().cast_signed(), signal) };
        self.recorder.wait()?;
        Ok(())
    }

    fn shown(&self, rows: u16, columns: u16) -> Result<Screen> {
        let place = self.place();
        let words = [OsStr::new("-r"), place.as_os_str()];
        Screen::of(&mut top(words)?, rows, columns)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

#[test]
fn a_recording_that_runs_is_shown_and_keys_and_sizes_change_what_is_seen() -> Result<()> {
    let mut going = Going::start()?;
    let mut screen = going.shown(24, 80)?;
    let first = screen.until("three processes", |text| text.contains("of 4"))?;
    assert!(
        first.contains("data ") && first.contains("Held now"),
        "{first}"
    );
    assert!(
        first.contains("BRANCH") && first.contains("q quit"),
        "{first}"
    );
    assert!(screen.is_alternate());
    assert_eq!(screen.settings(), [false; 3], "keys come one by one");
    screen.press("2")?;
    screen.until_shown("EVER")?;
    screen.press("3/idle")?;
    screen.until_shown("/idle_")?;
    screen.press("\r")?;
    screen.until_shown("filter: idle")?;
    screen.press("\x1b")?;
    screen.until("no filter", |text| !text.contains("filter: idle"))?;
    screen.press("?")?;
    screen.until_shown("the peak so far, and back")?;
    screen.press(" ")?;
    screen.until("no help", |text| {
        !text.contains("the peak so far, and back")
    })?;
    screen.press(" ")?;
    screen.until_shown("Paused at ")?;
    screen.press(" p")?;
    screen.until_shown("At the peak")?;
    screen.press("\x1b")?;
    screen.until_shown("Held now")?;
    screen.resize(12, 50)?;
    screen.until_shown("80x24 shows more")?;
    screen.resize(24, 80)?;
    screen.until_shown("/ filter")?;
    screen.press("m")?;
    screen.until_shown("mark this moment as")?;
    screen.press("here\r")?;
    screen.until_shown("here is marked")?;
    screen.press("6")?;
    screen.until_shown("PHASE")?;
    screen.until_shown("here")?;
    screen.press("q")?;
    assert!(screen.end()?.success());
    assert!(!screen.is_alternate(), "{}", screen.text());
    assert_eq!(screen.settings(), [true; 3]);
    going.end_by(libc::SIGTERM)?;
    let marks: Vec<MarkRow> = Recordings::default().open(&going.place())?.rows()?;
    assert!(marks.iter().any(|mark| mark.name == "here"));
    Ok(())
}

#[test]
fn a_signal_before_anything_is_shown_leaves_no_folder() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let dir = tempfile::tempdir()?;
        let mut command = top(["--once", "-p", &std::process::id().to_string()])?;
        let mut top = command
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let is_empty = || {
            dir.path()
                .read_dir()
                .is_ok_and(|mut files| files.next().is_none())
        };
        await_that("a folder", || !is_empty());
        // SAFETY: plain numbers; the child was not waited for.
        unsafe { libc::kill(top.id().cast_signed(), signal) };
        top.wait()?;
        assert!(is_empty(), "signal {signal}");
    }
    Ok(())
}

#[test]
fn it_says_when_the_recorder_closes_its_recording_and_when_it_is_killed() -> Result<()> {
    for (signal, words) in [
        (libc::SIGTERM, "recording closed"),
        (libc::SIGKILL, "recorder gone"),
    ] {
        let mut going = Going::start()?;
        let mut screen = going.shown(24, 80)?;
        screen.until("three processes", |text| text.contains("of 4"))?;
        going.end_by(signal)?;
        let last = screen.until_shown(words)?;
        assert!(last.contains("of 4"), "what was known stays: {last}");
        screen.press("q")?;
        assert!(screen.end()?.success());
    }
    Ok(())
}

#[test]
fn a_signal_gives_the_terminal_back_as_it_was() -> Result<()> {
    let going = Going::start()?;
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let mut screen = going.shown(24, 80)?;
        screen.until_shown("Held now")?;
        // SAFETY: plain numbers; the child was not waited for.
        unsafe { libc::kill(screen.program.id().cast_signed(), signal) };
        screen.end()?;
        assert!(!screen.is_alternate());
        assert_eq!(screen.settings(), [true; 3], "signal {signal}");
    }
    Ok(())
}

#[test]
fn a_terminal_that_goes_away_ends_it() -> Result<()> {
    let going = Going::start()?;
    let mut screen = going.shown(24, 80)?;
    screen.until_shown("Held now")?;
    screen.close()?;
    let start = Instant::now();
    while screen.program.try_wait()?.is_none() {
        let has_time = start.elapsed() < Duration::from_secs(20);
        anyhow::ensure!(has_time, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_anew() -> Result<()> {
    let going = Going::start()?;
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "--noediting", "-i"]);
    shell.env("PS1", "$ ");
    let mut screen = Screen::of(&mut shell, 24, 100)?;
    screen.until_shown("$ ")?;
    let program = program::memtrace()?;
    let place = going.place();
    let typed = format!("{} top -r {}\n", program.display(), place.display());
    screen.press(&typed)?;
    screen.until_shown("Held now")?;
    screen.press("\x1a")?;
    screen.until_shown("Stopped")?;
    assert!(!screen.is_alternate());
    screen.press("echo b'a'ck\n")?;
    screen.until_shown("back")?;
    screen.press("fg\n")?;
    screen.until_shown("Held now")?;
    screen.press("q")?;
    screen.until("the shell", |text| !text.contains("Held now"))?;
    screen.press("exit\n")?;
    screen.end()?;
    Ok(())
}

#[test]
fn one_screen_as_text_is_for_scripts_and_without_a_terminal_there_is_nothing_else() -> Result<()> {
    let going = Going::start()?;
    let place = going.place();
    let place = place.as_os_str();
    let output = memtrace(
        ["top", "--once", "-r"]
            .map(OsStr::new)
            .into_iter()
            .chain([place]),
    )?;
    assert!(output.status.success(), "{}", words(&output));
    let text = String::from_utf8(output.stdout)?;
    assert!(text.contains("Held now") && text.contains("PEAK"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let output = memtrace(["top", "-r"].map(OsStr::new).into_iter().chain([place]))?;
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output).contains("--once"), "{}", words(&output));
    Ok(())
}

fn is_empty(dir: &Path) -> Result<bool> {
    Ok(dir.read_dir()?.next().is_none())
}

#[test]
fn a_recording_of_its_own_ends_with_it_and_leaves_nothing() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut command = top(["--", "sh", "-c", "echo said; exec sleep 1000"])?;
    command.env("TMPDIR", temporary.path());
    let mut screen = Screen::of(&mut command, 24, 80)?;
    let shown = screen.until_shown("sleep 1000")?;
    assert!(!shown.contains("said\n"), "{shown}");
    assert!(!is_empty(temporary.path())?);
    screen.press("q")?;
    assert!(screen.end()?.success());
    assert!(is_empty(temporary.path())?);
    // And where it can't begin, it says why.
    let mut command = top(["--", "/no/such/command"])?;
    command.env("TMPDIR", temporary.path());
    let mut screen = Screen::of(&mut command, 24, 200)?;
    screen.until_shown("/no/such/command")?;
    assert_eq!(screen.end()?.code(), Some(1));
    assert!(is_empty(temporary.path())?);
    Ok(())
}
