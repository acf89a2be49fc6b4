//! Job control: a recorded command that is stopped gives the terminal back to the shell.

use super::*;
use std::fs::File;
use std::io::Write;
use std::process::Child;

/// A shell on a terminal of its own.
struct Terminal {
    ours: File,
    shell: Child,
    shown: String,
}

impl Terminal {
    fn open() -> Result<Self> {
        let (ours, theirs) = pty::open(24, 80)?;
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "--noediting", "-i"]);
        shell.env("PS1", "$ ");
        let shell = pty::start(&mut shell, theirs)?;
        // The parent's copies of the shell's end go with the command.
        Ok(Self {
            ours,
            shell,
            shown: String::new(),
        })
    }

    fn type_in(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.ours, "{line}")?)
    }

    /// Reads until that is shown. Answers what was shown until then, and forgets it.
    fn await_shown(&mut self, text: &str) -> Result<String> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.shown.find(text).map(|at| at + text.len()) {
                let rest = self.shown.split_off(end);
                return Ok(std::mem::replace(&mut self.shown, rest));
            }
            anyhow::ensure!(
                start.elapsed() < PATIENCE,
                "no {text:?} in {:?}",
                self.shown
            );
            let mut bytes = Vec::new();
            pty::read(&mut self.ours, &mut bytes)?;
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn signal(pid: &str, number: i32) -> Result<()> {
    let pid: i32 = pid.parse().context("not a process id")?;
    // SAFETY: plain numbers.
    unsafe { libc::kill(pid, number) };
    Ok(())
}

fn state(pid: &str) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.unwrap_or('-')
}

/// Records, in a shell on a terminal, a command that says its id. Answers the terminal and the id.
fn recorded_job(dir: &std::path::Path, command: &str) -> Result<(Terminal, String)> {
    let mut terminal = Terminal::open()?;
    let program = program::memtrace()?;
    let place = dir.join("recording");
    terminal.await_shown("$ ")?;
    terminal.type_in(&format!(
        "{} record --quiet -o {} -- {command}",
        program.display(),
        place.display()
    ))?;
    terminal.await_shown("pid=")?;
    let pid = loop {
        // What was typed is shown too.
        let line = terminal.await_shown("\n")?;
        let digits = line.trim_end();
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            break digits.to_owned();
        }
        terminal.await_shown("pid=")?;
    };
    Ok((terminal, pid))
}

#[test]
fn a_command_that_is_stopped_gives_the_terminal_back_and_goes_on_by_fg() -> Result<()> {
    // In the process group of memtrace, and in one of its own, which a shell does not know.
    for wrap in ["sh -c", "setsid sh -c"] {
        let dir = tempfile::tempdir()?;
        let command = format!("{wrap} 'echo pid=$$; while sleep 0.05; do :; done'");
        let (mut terminal, pid) = recorded_job(dir.path(), &command)?;
        signal(&pid, libc::SIGSTOP)?;
        terminal.await_shown("Stopped")?;
        terminal.type_in("echo b'a'ck")?;
        terminal.await_shown("back")?;
        assert_eq!(state(&pid), 'T', "{wrap}");
        terminal.type_in("fg")?;
        await_that("it goes on", || state(&pid) != 'T');
        // And once more, by the key.
        if wrap == "sh -c" {
            std::thread::sleep(Duration::from_millis(200));
            terminal.ours.write_all(&[0x1a])?;
            terminal.await_shown("Stopped")?;
            terminal.type_in("fg")?;
            await_that("it goes on", || state(&pid) != 'T');
        }
        signal(&pid, libc::SIGTERM)?;
        terminal.type_in("echo c'od'e=$?")?;
        terminal.await_shown("code=143")?;
        let recording =
            memtrace_store::Recordings::default().open(&dir.path().join("recording"))?;
        assert!(recording.is_closed());
    }
    Ok(())
}

#[test]
fn without_a_terminal_the_recording_goes_on_while_the_command_is_stopped() -> Result<()> {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let mut recorder = Command::new(program::memtrace()?);
    recorder.args(["record", "--quiet", "-o"]).arg(&place);
    recorder.args(["--", "sh", "-c", "echo $$; exec sleep 60"]);
    // SAFETY: safe between fork and exec; without a terminal and a shell.
    unsafe {
        recorder.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut recorder = recorder.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = recorder.stdout.take().context("a pipe")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
    let pid = line.trim();
    signal(pid, libc::SIGSTOP)?;
    await_that("it is stopped", || state(pid) == 'T');
    std::thread::sleep(Duration::from_millis(300));
    assert_ne!(state(&recorder.id().to_string()), 'T');
    signal(pid, libc::SIGCONT)?;
    signal(pid, libc::SIGTERM)?;
    assert_eq!(recorder.wait()?.code(), Some(143));
    Ok(())
}
