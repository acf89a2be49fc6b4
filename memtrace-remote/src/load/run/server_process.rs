//! The server as a process of this machine, which is to end when its load does.

use anyhow::{Context, bail};
use memtrace::cli::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A server that was asked to end by SIGINT gets SIGTERM after this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process, for as long as this lives; then it is ended.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pid: i32,
    /// It stays this process's, also when its id is another's.
    fd: OwnedFd,
    is_left: bool,
}

impl ServerProcess {
    /// The process with that id.
    ///
    /// # Errors
    /// When there is none, or the kernel is older than 5.3.
    pub(super) fn of(pid: i32) -> anyhow::Result<Self> {
        let id = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
        let Some(id) = id else {
            bail!("{pid} is not a process id");
        };
        let fd = pidfd_open(id, PidfdFlags::empty());
        Ok(Self {
            pid,
            fd: fd.with_context(|| format!("failed to find process {pid}"))?,
            is_left: false,
        })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// It is not ended: whoever ended the load sees to it.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0)
    }

    fn send(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.fd, signal) {
            say(&format!("failed to end process {}: {error}", self.pid));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.is_left || self.has_ended() {
            return;
        }
        say(&format!("ending the server, process {}", self.pid));
        self.send(Signal::INT);
        if !self.ends_within(PATIENCE) {
            self.send(Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn the_server_ends_by_sigint_when_its_load_does() {
        let mut child = sleeper();
        let server = ServerProcess::of(child.id().cast_signed()).unwrap();
        assert!(!server.has_ended());
        drop(server);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    }

    #[test]
    fn one_that_is_left_goes_on() {
        let mut child = sleeper();
        let mut server = ServerProcess::of(child.id().cast_signed()).unwrap();
        server.leave();
        drop(server);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_process_is_refused() {
        for pid in [0, -1, i32::MAX] {
            assert!(ServerProcess::of(pid).is_err(), "{pid}");
        }
    }
}
