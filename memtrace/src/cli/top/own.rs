//! The recorder that `memtrace top` starts where there is something of its own to record.

use crate::cli::output::say;
use crate::cli::own_program::own_program;
use crate::cli::recorded::no_option;
use crate::cli::targets::Targets;
use anyhow::{Context, bail};
use memtrace_model::DurationNs;
use memtrace_store::read_run_info;
use memtrace_top::{end_with_signals, is_to_end};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A recorder that has not begun by then will not.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to close the recording.
const CLOSING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// What it has said is reported so far, where it could not begin.
const LINES_MAX: usize = 5;

/// A recorder, ended when this is dropped.
pub(super) struct OwnRecorder {
    child: Child,
    dir: PathBuf,
    /// Its folder, where it is not kept.
    folder: Option<TempDir>,
    is_kept: bool,
}

impl OwnRecorder {
    /// Starts it, and waits until there is a recording.
    ///
    /// # Errors
    /// When it can't be started, or ends without one.
    pub(super) fn start(
        targets: &Targets,
        output: Option<&Path>,
        is_kept: bool,
        interval: DurationNs,
        has_stacks: bool,
    ) -> anyhow::Result<Self> {
        // The folder is there before the screen is, and goes with a Ctrl-C in between too.
        end_with_signals();
        let folder = tempfile::Builder::new().prefix("memtrace-top-").tempdir();
        let folder = folder.context("failed to make a folder for the recording")?;
        let log_path = folder.path().join("output.log");
        let log = File::create(&log_path).context("failed to make the log of the command")?;
        let dir = match output {
            Some(dir) => no_option(dir),
            None => folder.path().join("recording"),
        };
        let own = own_program().context("failed to find memtrace itself")?;
        let mut command = Command::new(own);
        command
            .arg("record")
            .arg("--quiet")
            .arg("--output")
            .arg(&dir);
        command.arg(format!("--interval={}ms", interval.0 / 1_000_000));
        if has_stacks {
            command.arg("--stacks");
        }
        if !targets.command.is_empty() {
            command.arg("--kill-child");
        }
        command.args(targets.words());
        command.stdin(Stdio::null());
        let errors = log.try_clone().context("failed to pass on the log")?;
        command.stdout(log).stderr(errors);
        // Keys and the stops of a terminal are for the one who shows it.
        command.process_group(0);
        end_with_us(&mut command);
        let child = command.spawn().context("failed to start the recorder")?;
        let mut own = Self {
            child,
            dir,
            folder: Some(folder),
            is_kept: is_kept || output.is_some(),
        };
        own.await_begin(&log_path)?;
        Ok(own)
    }

    /// Where it records.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn await_begin(&mut self, log: &Path) -> anyhow::Result<()> {
        let begin = Instant::now();
        while read_run_info(&self.dir).is_err() {
            let ended = self
                .child
                .try_wait()
                .context("failed to watch the recorder")?;
            if is_to_end() {
                bail!("ended by a signal before anything was recorded");
            }
            if ended.is_some() || begin.elapsed() >= PATIENCE {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let said: Vec<&str> = said.lines().take(LINES_MAX).collect();
                bail!("nothing is recorded: {}", said.join("; "));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends it, and removes its folder or says where it is.
    pub(super) fn end(&mut self) {
        self.stop();
        let Some(folder) = self.folder.take() else {
            return;
        };
        if !self.is_kept {
            // What is left of it is in a folder for what may go.
            return drop(folder.close());
        }
        let log = folder.keep();
        say(&format!(
            "the recording is in {}, the output of its command in {}",
            self.dir.display(),
            log.join("output.log").display()
        ));
    }

    fn stop(&mut self) {
        let begin = Instant::now();
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if is_running(&mut self.child) {
            let pid = self.child.id().cast_signed();
            // SAFETY: plain numbers; the child was not waited for, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        while is_running(&mut self.child) {
            if begin.elapsed() >= CLOSING {
                // With --kill-child its command goes with it.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for OwnRecorder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has the recorder close its recording when this process is killed.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    // SAFETY: prctl with plain numbers is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_us(_command: &mut Command) {}
