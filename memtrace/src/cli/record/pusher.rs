//! `record --root`: the process without privileges that carries the recording to its root while it
//! is made, `memtrace push --watch`.
//!
//! It is forked before this process has threads, so that a recording by name knows it for one of
//! ours, and waits in a session of its own until there is a recording. Then it needs nobody: killing
//! the recorder leaves it to carry what there is. Nothing here opens the root, which can be a mount
//! that hangs: who owns it is asked by the process itself, and nobody waits for it longer than is
//! said here.

use super::afterwards::{is_signalled, keep_last, signals_end_the_wait, step_back};
use super::many_hosts::directory_of;
use crate::cli::caller::as_caller;
use crate::cli::output::say;
use crate::cli::remote;
use anyhow::Context;
use memtrace_host::{HostFacts, Person, give_up_rights_in_child};
use memtrace_report::visible;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// When the recording is closed, so long is waited for what is on its way.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Who owns the root is known by then, or not asked any more.
const OWNER_WITHIN: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};
/// After SIGTERM, and again after SIGKILL. Who hangs in the kernel ends by neither.
const END_WITHIN: Duration = Duration::from_secs(2);
/// The person is reported what takes longer than this.
const SILENCE_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// What carries a recording.
#[derive(Debug)]
pub(super) struct Pusher {
    line: Line,
    process: Process,
    /// Written to when there is something to carry; closed, it has the process end.
    go: Option<File>,
    was_let_go: bool,
}

/// How the program is started.
#[derive(Debug)]
struct Line {
    program: PathBuf,
    source: PathBuf,
    root: String,
    as_root: bool,
    /// As whom, where that is neither this user nor the one behind sudo.
    owner: Option<Person>,
}

/// A child, and what it says.
#[derive(Debug)]
struct Process {
    pid: libc::pid_t,
    pipe: File,
    said: Vec<u8>,
    is_failure_reported: bool,
    end: Option<ExitStatus>,
}

impl Pusher {
    /// Forks it. No thread may have been started.
    ///
    /// # Errors
    /// When the program is not there, or the system refuses.
    pub(super) fn fork(
        source: &Path,
        root: &str,
        facts: &HostFacts,
        as_root: bool,
    ) -> anyhow::Result<Self> {
        let mut line = Line {
            program: remote::found()?,
            source: source.to_path_buf(),
            root: root.to_owned(),
            as_root,
            owner: None,
        };
        // Behind sudo it is the caller, and who is no root is who they are.
        let is_root_itself = facts.euid == Some(0)
            && (as_root || facts.sudo.as_ref().is_none_or(|sudo| sudo.uid == 0));
        let asked = directory_of(root).filter(|_| is_root_itself);
        let pipe = || -> anyhow::Result<[File; 2]> {
            let (from, to) = io::pipe().context("failed to make a pipe")?;
            Ok([OwnedFd::from(from), to.into()].map(File::from))
        };
        let ([wait_end, go], [mut owner_end, tell_end], [said_end, say_end]) =
            (pipe()?, pipe()?, pipe()?);
        // SAFETY: no thread has been started, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()).context("failed to start the upload"),
            0 => {
                drop((go, owner_end, said_end));
                line.wait_and_go(asked, wait_end, tell_end, say_end)
            }
            pid => {
                drop((wait_end, tell_end, say_end));
                if asked.is_some() {
                    line.owner = owner_reported(&mut owner_end).unwrap_or_else(|NotInTime| {
                        let within = OWNER_WITHIN.tv_sec;
                        say(&format!(
                            "{root} has not answered within {within} s, so its owner is unknown: \
                             the upload runs as root without capabilities"
                        ));
                        None
                    });
                }
                Ok(Self {
                    line,
                    process: Process::new(pid, said_end)?,
                    go: Some(go),
                    was_let_go: false,
                })
            }
        }
    }

    /// Whose files it can read, where that is neither this user nor the one behind sudo.
    pub(super) fn owner(&self) -> Option<&Person> {
        self.line.owner.as_ref()
    }

    /// There is a recording to carry. What goes wrong with that is reported, the first time.
    pub(super) fn look(&mut self) {
        if let Some(mut go) = self.go.take() {
            let message = go_message(self.line.owner.as_ref());
            // Who is gone has said why.
            self.was_let_go = go.write_all(&message).is_ok();
        }
        self.process.hear();
        self.process.report_first_failure();
    }

    /// The recording is closed, as far as it will be: waits until all of it has arrived. `has_more`
    /// says that files have come to it since it was closed.
    ///
    /// # Errors
    /// Why it has not.
    pub(super) fn finish(mut self, has_more: bool, is_quiet: bool) -> Result<(), String> {
        signals_end_the_wait();
        let until = Instant::now() + WAIT_MAX;
        let mut slow = (!is_quiet).then(|| format!("uploading the rest to {} ...", self.line.root));
        drop(self.go.take());
        let arrived = self.process.wait(until, &mut slow);
        if arrived.is_ok() && self.was_let_go && !has_more {
            return Ok(());
        }
        if let Err(reason) = arrived
            && (Instant::now() >= until || is_signalled())
        {
            return Err(reason);
        }
        let mut last = self.line.start().map_err(|error| error.to_string())?;
        last.wait(until, &mut slow)
    }

    /// The root that it uploads to.
    pub(super) fn root(&self) -> &str {
        &self.line.root
    }

    /// The words by which a person carries what has not arrived.
    pub(super) fn words(&self) -> [&OsStr; 2] {
        [self.line.source.as_ref(), self.line.root.as_ref()]
    }
}

impl Line {
    /// The program with its words.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if !self.as_root && self.owner.is_none() {
            as_caller(&mut command);
        }
        command.args(["push", "--quiet"]).args(options);
        command.arg("--").arg(&self.source).arg(&self.root);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let owner = self.owner.clone();
        if owner.is_some() {
            // Nothing of root's is theirs.
            let path = std::env::var_os("PATH").unwrap_or_default();
            command.env_clear().env("PATH", path);
        }
        let prepare = move || {
            step_back();
            if let Some(owner) = &owner {
                owner.become_in_child()?;
            }
            give_up_rights_in_child()
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// In the forked child.
    fn wait_and_go(
        mut self,
        asked: Option<&Path>,
        mut wait_end: File,
        mut tell_end: File,
        mut say_end: File,
    ) -> ! {
        // SAFETY: no arguments. The terminal's signals are not for it.
        unsafe { libc::setsid() };
        if let Some(root) = asked
            && let Ok(root) = std::fs::metadata(root)
            && root.is_dir()
        {
            let _ = tell_end.write_all(&owner_message(root.uid(), root.gid()));
        }
        drop(tell_end);
        let mut message = [0; OWNER_BYTES];
        if wait_end.read_exact(&mut message).is_err() {
            // There is nothing to carry, or nobody who could say so.
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        self.owner = owner_of(message);
        let mut command = self.command(&["--watch"]);
        if let Ok(stderr) = say_end.try_clone() {
            command.stderr(stderr);
        }
        let error = command.exec();
        let _ = writeln!(
            say_end,
            "failed to execute {}: {error}",
            self.program.display()
        );
        // SAFETY: ends the child.
        unsafe { libc::_exit(127) };
    }

    /// Carries what there is, once.
    fn start(&self) -> io::Result<Process> {
        let (said_end, say_end) = io::pipe()?;
        let mut command = self.command(&[]);
        command.stderr(say_end);
        let child = command.process_group(0).spawn()?;
        Process::new(
            child.id().cast_signed(),
            File::from(OwnedFd::from(said_end)),
        )
    }
}

/// A user and a group as they are reported through a pipe; root stands for nobody else.
const OWNER_BYTES: usize = 8;

fn owner_message(uid: u32, gid: u32) -> [u8; OWNER_BYTES] {
    let mut message = [0; OWNER_BYTES];
    let (first, last) = message.split_at_mut(OWNER_BYTES / 2);
    first.copy_from_slice(&uid.to_ne_bytes());
    last.copy_from_slice(&gid.to_ne_bytes());
    message
}

fn owner_of([u0, u1, u2, u3, g0, g1, g2, g3]: [u8; OWNER_BYTES]) -> Option<Person> {
    let (uid, gid) = (
        u32::from_ne_bytes([u0, u1, u2, u3]),
        u32::from_ne_bytes([g0, g1, g2, g3]),
    );
    (uid != 0).then(|| Person::with_ids(uid, gid))
}

fn go_message(owner: Option<&Person>) -> [u8; OWNER_BYTES] {
    let (uid, gid) = owner.map_or((0, 0), Person::ids);
    owner_message(uid, gid)
}

/// The root hangs, or is slow.
#[derive(Debug)]
struct NotInTime;

/// Who owns the root, where that is a directory of somebody else.
fn owner_reported(owner_end: &mut File) -> Result<Option<Person>, NotInTime> {
    let mut polled = [PollFd::new(owner_end, PollFlags::IN)];
    if poll(&mut polled, Some(&OWNER_WITHIN)).is_ok_and(|count| count == 0) {
        return Err(NotInTime);
    }
    let mut message = [0; OWNER_BYTES];
    let read = owner_end.read_exact(&mut message);
    Ok(read.ok().and_then(|()| owner_of(message)))
}

impl Process {
    fn new(pid: libc::pid_t, pipe: File) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pid,
            pipe,
            said: Vec::new(),
            is_failure_reported: false,
            end: None,
        })
    }

    fn hear(&mut self) {
        keep_last(&mut self.pipe, &mut self.said);
    }

    /// What it said last, or first.
    fn line(&self, is_wanted: impl Fn(usize, usize) -> bool) -> Option<String> {
        let said = String::from_utf8_lossy(&self.said);
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let wanted = (0..lines.len()).find(|&place| is_wanted(place, lines.len()))?;
        let line = lines.get(wanted)?;
        let line = line.strip_prefix("memtrace: ").unwrap_or(line);
        Some(visible(line).into_owned())
    }

    fn report_first_failure(&mut self) {
        if !self.is_failure_reported
            && let Some(line) = self.line(|place, _| place == 0)
        {
            self.is_failure_reported = true;
            say(&format!(
                "the recording goes on; the upload reports: {line}"
            ));
        }
    }

    fn has_ended(&mut self) -> bool {
        if self.end.is_none() {
            let mut status = 0;
            // SAFETY: a child that has not been waited for, and a place for its status.
            let ended = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
            self.end = (ended == self.pid).then(|| ExitStatus::from_raw(status));
        }
        self.end.is_some()
    }

    fn has_ended_within(&mut self, time: Duration) -> bool {
        let since = Instant::now();
        while !self.has_ended() && since.elapsed() < time {
            self.hear();
            std::thread::sleep(PAUSE);
        }
        self.end.is_some()
    }

    /// Waits for its end; one that takes too long is ended. `slow` is said, once, where it takes long.
    fn wait(&mut self, until: Instant, slow: &mut Option<String>) -> Result<(), String> {
        let since = Instant::now();
        while !self.has_ended() {
            self.hear();
            if is_signalled() {
                self.terminate();
                return Err("a signal arrived in the meantime".to_owned());
            }
            if Instant::now() >= until {
                self.terminate();
                let within = WAIT_MAX.as_secs();
                return Err(format!("it has not arrived {within} s after the end"));
            }
            if since.elapsed() > SILENCE_MAX
                && let Some(slow) = slow.take()
            {
                say(&slow);
            }
            std::thread::sleep(PAUSE);
        }
        self.hear();
        match self.end {
            Some(end) if end.success() => Ok(()),
            end => {
                let ended = end.map(|end| end.to_string()).unwrap_or_default();
                Err(self
                    .line(|place, count| place + 1 == count)
                    .unwrap_or(ended))
            }
        }
    }

    fn terminate(&mut self) {
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            if self.has_ended_within(Duration::ZERO) {
                return;
            }
            // SAFETY: a signal to a child that has not been waited for.
            unsafe { libc::kill(self.pid, signal) };
            if self.has_ended_within(END_WITHIN) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_does_not_answer_is_known_from_one_that_is_nobody_else_s() {
        let pipe = || {
            let (from, to) = io::pipe().unwrap();
            (File::from(OwnedFd::from(from)), to)
        };
        let (mut from, _to) = pipe();
        assert!(owner_reported(&mut from).is_err());
        let (mut from, to) = pipe();
        drop(to);
        assert!(owner_reported(&mut from).unwrap().is_none());
        let (mut from, mut to) = pipe();
        to.write_all(&owner_message(7, 8)).unwrap();
        let owner = owner_reported(&mut from).unwrap();
        assert_eq!(owner.map(|owner| owner.ids()), Some((7, 8)));
    }
}
