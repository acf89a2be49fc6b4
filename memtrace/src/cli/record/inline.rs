//! `record --inline`: what each phase took, between the lines of the command: a reader of the recording
//! (`report --style startup --follow`) that writes where this program speaks.

use super::afterwards::step_back;
use crate::cli::own_program::own_program;
use memtrace_host::{Person, give_up_rights_in_child};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So long the reader may take for the last lines once the recording is closed.
const LAST_LINES: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// The reader while it runs.
pub(super) struct Inline(Child);

impl Inline {
    /// Starts it for the recording in a directory, as that person and without rights beyond theirs.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn start(dir: &Path, person: Option<&Person>) -> io::Result<Self> {
        let out = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new(own_program()?);
        command
            .args(["report", "--style", "startup", "--follow", "--"])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(out)
            // Ctrl-C is for the command, whose last phases are still to come.
            .process_group(0);
        let person = person.cloned();
        let prepare = move || {
            step_back();
            if let Some(person) = &person {
                person.become_in_child()?;
            }
            give_up_rights_in_child()
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(prepare) };
        command.spawn().map(Self)
    }
}

impl Drop for Inline {
    /// Waits for the last lines.
    fn drop(&mut self) {
        let since = Instant::now();
        while let Ok(None) = self.0.try_wait() {
            if since.elapsed() > LAST_LINES {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
