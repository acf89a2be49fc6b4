//! `memtrace record`, as a person runs it, with its cost taken from outside.

use crate::program;
use anyhow::{Context, Result, bail};
use memtrace_store::{Recording, Recordings};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a recorder may take to attach or to finish before that is a failure: an emulated
/// machine that shares its host with others is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Between run.json and the last probe; the file is written before they attach.
pub(crate) const SETTLE: Duration = Duration::from_millis(300);

/// A recorder that runs.
#[derive(Debug)]
pub struct Recorder {
    child: Child,
    /// What its command says, where it started one.
    output: Option<BufReader<ChildStdout>>,
    dir: TempDir,
}

/// A recording, and what it cost by the kernel's accounts.
#[derive(Debug)]
pub struct Recorded {
    /// The recording that was made.
    pub recording: Recording,
    /// CPU time of the recorder, and of the command where it started one.
    pub cpu_ns: i64,
    /// Peak RSS of the recorder, or of its command where that had more.
    pub maxrss_bytes: i64,
    /// How it ended, as a shell tells it.
    pub exit_code: i32,
    /// What the recorder's command said, where it started one; of what a test read while
    /// it ran, the rest.
    pub output: Vec<u8>,
    dir: TempDir,
}

impl Recorded {
    /// Where the recording is.
    pub fn path(&self) -> PathBuf {
        place(&self.dir)
    }

    /// A report of it, as text on lines that are never too short, with these words beside.
    ///
    /// # Errors
    /// When the report fails, with what it said.
    pub fn report_text(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(program::memtrace()?)
            .arg("report")
            .arg(self.path())
            .args(words)
            .env("COLUMNS", "10000")
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// As for the text.
    pub fn report(&self, words: &[&str]) -> Result<serde_json::Value> {
        let text = self.report_text(&[&["--format", "json"], words].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// What memtrace has said.
    ///
    /// # Errors
    /// When it was not started with [`Recorder::of_command`].
    pub fn words(&self) -> Result<String> {
        Ok(std::fs::read_to_string(words_file(&self.dir))?)
    }
}

/// The recording is below a directory of the test's, since the recorder makes its own.
fn place(dir: &TempDir) -> PathBuf {
    dir.path().join("recording")
}

/// What memtrace itself says is kept beside the recording.
fn words_file(dir: &TempDir) -> PathBuf {
    dir.path().join("stderr")
}

fn command_line(words: &[&str], dir: &Path) -> Result<Command> {
    let mut command = Command::new(program::memtrace()?);
    // What saves findings afterwards is no part of what recording costs.
    let record = ["record", "--no-findings", "-o"];
    command.args(record).arg(dir).args(words);
    Ok(command)
}

/// Records a command from its start to its end.
///
/// # Errors
/// When memtrace can't be started, or left no recording.
pub fn record(words: &[&str], command: &Command) -> Result<Recorded> {
    record_in(words, command, |recorder| recorder)
}

/// The same, with the recorder's command wrapped, to start it in a cgroup for example.
///
/// # Errors
/// When memtrace can't be started, or left no recording.
pub fn record_in(
    words: &[&str],
    command: &Command,
    wrap: impl FnOnce(Command) -> Command,
) -> Result<Recorded> {
    let dir = tempfile::tempdir()?;
    let mut recorder = command_line(words, &place(&dir))?;
    recorder
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    let mut recorder = wrap(recorder);
    let mut child = recorder
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().map(BufReader::new);
    finish(child, output, dir)
}

impl Recorder {
    /// Starts recording something that runs, and waits until it is attached.
    ///
    /// # Errors
    /// When it ends before that, or takes too long.
    pub fn start(words: &[&str]) -> Result<Self> {
        Self::start_with(words, &[])
    }

    /// The same, with variables in the recorder's environment.
    ///
    /// # Errors
    /// When it ends before that, or takes too long.
    pub fn start_with(words: &[&str], environment: &[(&str, OsString)]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let run_json = place(&dir).join("run.json");
        let mut command = command_line(words, &place(&dir))?;
        let mut child = command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("failed to start memtrace")?;
        let start = Instant::now();
        while !run_json.exists() {
            if let Some(status) = child.try_wait()? {
                bail!("memtrace {words:?} ended with {status} before it recorded");
            }
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                bail!("memtrace {words:?} did not begin to record");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(SETTLE);
        Ok(Self {
            child,
            output: None,
            dir,
        })
    }

    /// Starts recording a command, and goes on while it runs. What memtrace says is kept:
    /// [`Recorder::words`].
    ///
    /// # Errors
    /// When memtrace can't be started.
    pub fn of_command(words: &[&str], command: &Command) -> Result<Self> {
        Self::of_command_with(words, command, &[])
    }

    /// The same, with variables in the recorder's environment.
    ///
    /// # Errors
    /// When memtrace can't be started.
    pub fn of_command_with(
        words: &[&str],
        command: &Command,
        environment: &[(&str, OsString)],
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut recorder = command_line(words, &place(&dir))?;
        let mut child = recorder
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(words_file(&dir))?)
            .spawn()
            .context("failed to start memtrace")?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Self { child, output, dir })
    }

    /// The next line that the command says.
    ///
    /// # Errors
    /// When it ends instead.
    pub fn line(&mut self) -> Result<String> {
        let output = self.output.as_mut().context("there is no command")?;
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            let words = self.words()?;
            bail!("the command ended before it said a line; memtrace said {words:?}");
        }
        Ok(line.trim_end().to_owned())
    }

    /// What memtrace has said so far.
    ///
    /// # Errors
    /// When it was not started with a command.
    pub fn words(&self) -> Result<String> {
        Ok(std::fs::read_to_string(words_file(&self.dir))?)
    }

    /// Where the recording is going to be.
    pub fn path(&self) -> PathBuf {
        place(&self.dir)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, number: i32) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("a process id out of range")?;
        // SAFETY: the child is not waited for yet, so the id is still its own.
        if unsafe { libc::kill(pid, number) } != 0 {
            bail!(
                "failed to send memtrace signal {number}: {}",
                std::io::Error::last_os_error()
            );
        }
        Ok(())
    }

    /// Waits for its end, and for that of its command where it started one.
    ///
    /// # Errors
    /// When it left no recording.
    pub fn wait(self) -> Result<Recorded> {
        finish(self.child, self.output, self.dir)
    }

    /// Waits for its end alone, for its command lives on. Gives what the command goes on
    /// to say, too.
    ///
    /// # Errors
    /// When it left no recording.
    pub fn wait_alone(self) -> Result<(Recorded, Option<BufReader<ChildStdout>>)> {
        Ok((finish(self.child, None, self.dir)?, self.output))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, as Ctrl-C does, and waits for the recording to be closed.
    ///
    /// # Errors
    /// When it does not close the recording.
    pub fn stop(self) -> Result<Recorded> {
        self.signal(libc::SIGINT)?;
        self.wait()
    }
}

fn finish(child: Child, pipe: Option<BufReader<ChildStdout>>, dir: TempDir) -> Result<Recorded> {
    let mut output = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut output)?;
    }
    let pid = i32::try_from(child.id()).context("a process id out of range")?;
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values, and the child is ours: it is
    // waited for here and nowhere else.
    if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        bail!(
            "failed to wait for memtrace: {}",
            std::io::Error::last_os_error()
        );
    }
    let exit_code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    let recording = Recordings::default()
        .open(&place(&dir))
        .with_context(|| format!("memtrace ended with {exit_code} and left no recording"))?;
    Ok(Recorded {
        recording,
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        maxrss_bytes: usage.ru_maxrss * 1024,
        exit_code,
        output,
        dir,
    })
}
