//! Signals: those for the command are passed on, those for memtrace stop it. So does the end of
//! standard input, where whoever started it holds it by that.

use memtrace_model::Tgid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A child changed its state.
    Child,
    /// We were stopped, and go on.
    Resumed,
    /// Stop and close the recording.
    Stop,
    /// The same, where who started it no longer needs it: a signal that comes then is the first.
    End,
    /// Meant for the command: pass it on.
    PassOn(i32),
}

/// The signals that are listened to.
pub(crate) struct Signals {
    child: Signal,
    resume: Signal,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
    has_command: bool,
    /// Standard input, until it ends.
    stdin: Option<pipe::Receiver>,
}

impl Signals {
    /// Begins to listen: also to the end of standard input, a pipe, where `ends_with_stdin`.
    pub(crate) fn listen(has_command: bool, ends_with_stdin: bool) -> io::Result<Self> {
        let stdin = ends_with_stdin.then(|| io::stdin().as_fd().try_clone_to_owned());
        let stdin = stdin.transpose()?.map(pipe::Receiver::from_owned_fd);
        Ok(Self {
            child: signal(SignalKind::child())?,
            resume: signal(SignalKind::from_raw(libc::SIGCONT))?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            has_command,
            stdin: stdin.transpose()?,
        })
    }

    /// The next request. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Request {
        let number = tokio::select! {
            _ = self.child.recv() => return Request::Child,
            _ = self.resume.recv() => return Request::Resumed,
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hangup.recv() => libc::SIGHUP,
            _ = self.quit.recv() => libc::SIGQUIT,
            _ = self.user1.recv() => libc::SIGUSR1,
            _ = self.user2.recv() => libc::SIGUSR2,
            () = end(&mut self.stdin) => return Request::End,
        };
        if self.has_command {
            Request::PassOn(number)
        } else {
            Request::Stop
        }
    }
}

/// Waits until a pipe has ended, which it does once. Cancel-safe.
async fn end(pipe: &mut Option<pipe::Receiver>) {
    let Some(open) = pipe else {
        return std::future::pending().await;
    };
    while open.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
    *pipe = None;
}

/// Passes a signal on to the command. One that the terminal sends (Ctrl-C, Ctrl-\) reaches
/// the command by itself, for it is in our process group, and must not come twice.
pub(super) fn pass_on(number: i32, command: Tgid) {
    let is_from_keyboard = matches!(number, libc::SIGINT | libc::SIGQUIT);
    if is_from_keyboard && is_terminals_foreground() {
        return;
    }
    // SAFETY: plain numbers; the command is our child and was not waited for, so its
    // process id can't have been reused.
    unsafe { libc::kill(command.0.cast_signed(), number) };
}

/// Asked of the controlling terminal itself: standard input may be a file.
fn is_terminals_foreground() -> bool {
    // SAFETY: takes nothing.
    foreground().is_some_and(|group| group == unsafe { libc::getpgrp() })
}

/// The process group that has the controlling terminal; `None` where there is no terminal.
fn foreground() -> Option<libc::pid_t> {
    let terminal = File::open("/dev/tty").ok()?;
    // SAFETY: plain numbers.
    Some(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) })
}

/// Stops with a command that was stopped, so that the shell takes the terminal back as it would
/// without memtrace. The whole job stops, as by Ctrl-Z: a shell waits for all of a pipeline. Where
/// no shell waits that could have it go on, the kernel stops nobody by this signal.
///
/// A command that was stopped by SIGSTOP in the background waits for whoever stopped it, and the
/// recording goes on.
pub(super) fn stop_with_command(number: i32) {
    let has_shell = match number {
        libc::SIGSTOP => is_terminals_foreground(),
        _ => foreground().is_some(),
    };
    if has_shell {
        // SAFETY: plain numbers; 0 is our own process group.
        unsafe { libc::kill(0, libc::SIGTSTP) };
    }
}

/// From here on a signal ends memtrace, as if it had never been listened to: closing a long
/// recording takes time, and what is on disk can be closed later. Unless the end `is_asked` for,
/// the first of each still asks for it: whoever sent it did not know that the recording was over.
pub(super) fn signals_end_us_again(is_asked: bool) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeroes is a valid sigaction, that of the default.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if !is_asked {
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    }
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the action is valid and its handler does nothing; what was there before is not
        // asked for.
        unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    }
}
