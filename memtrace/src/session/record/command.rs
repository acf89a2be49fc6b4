//! The command of a recording: before the backend knows it, while it is followed, and without one.

use crate::session::signals::{Request, Signals, pass_on, signals_end_us_again, stop_with_command};
use crate::session::{Held, held};
use memtrace_collect::{Birth, ProcessTable, Tick};
use memtrace_model::{BootNs, DurationNs, FirstSeenBy, Tgid};

/// After its command has ended a recording goes on for so long while descendants are there:
/// most are on their way down (vLLM's workers take 1 to 2 s).
const SETTLE: DurationNs = DurationNs(2_000_000_000);

/// The command, if there is one, and what signals asked of the recording and of it.
pub(super) struct Followed {
    command: Option<Tgid>,
    pub(super) is_running: bool,
    /// A signal came: somebody waits for the end.
    pub(super) is_asked: bool,
    has_interrupted: bool,
    /// A second SIGINT ended the recording while the command ran.
    pub(super) is_interrupted: bool,
    settled: Option<BootNs>,
}

impl Followed {
    pub(super) fn new(command: Option<Tgid>, is_running: bool) -> Self {
        Self {
            command,
            is_running,
            is_asked: false,
            has_interrupted: false,
            is_interrupted: false,
            settled: None,
        }
    }

    /// Until when those that outlived the command are waited for; `None` while it runs, and without one.
    pub(super) fn settled(&mut self, now: BootNs) -> Option<BootNs> {
        let has_ended = self.command.is_some() && !self.is_running;
        has_ended.then(|| *self.settled.get_or_insert(now + SETTLE))
    }

    /// Passes on what is meant for the command. Answers whether the recording ends. `reap` takes the
    /// command's end, if it has ended.
    pub(super) fn is_end(&mut self, request: Request, reap: impl FnOnce(Tgid) -> bool) -> bool {
        let running = self.command.filter(|_| self.is_running);
        match request {
            Request::Child => {
                if let Some(command) = running {
                    self.is_running = !reap(command);
                    if let Some(number) = held::stopped_by(command) {
                        stop_with_command(number);
                    }
                }
                false
            }
            // It may be in a process group of its own.
            Request::Resumed => {
                if let Some(command) = running {
                    pass_on(libc::SIGCONT, command);
                }
                false
            }
            Request::Stop => {
                self.is_asked = true;
                true
            }
            Request::End => true,
            Request::PassOn(number) => {
                self.is_asked = true;
                // The command has ended, and we wait only for what it left.
                if self.settled.is_some() {
                    return true;
                }
                // A command may take its time to end, or not care: the second Ctrl-C ends the recording
                // and leaves the command alone.
                if number == libc::SIGINT && std::mem::replace(&mut self.has_interrupted, true) {
                    self.is_interrupted = true;
                    return true;
                }
                if let Some(command) = self.command {
                    pass_on(number, command);
                }
                false
            }
        }
    }
}

/// Enters the command where the backend has not: a poll may come too late to see it, and
/// that it ran and how it ended is known without one.
pub(super) fn enter_command(held: &Held, tick: &Tick, table: &mut ProcessTable) {
    let birth = Birth {
        tgid: held.tgid(),
        start: held.forked(),
        seen_by: FirstSeenBy::Command,
        parent: None,
        comm: held.comm(),
    };
    // Until its exec it goes by the recorder's own command line.
    let upid = match table.upid(held.tgid()) {
        Some(upid) => upid,
        None => table.enter(birth, tick.boot),
    };
    if let Some(process) = table.process_mut(upid) {
        process.row_mut().cmdline = Some(held.argv().join(" ").into());
    }
}

/// Waits for the command without recording it. Answers its exit code.
pub(super) async fn outlive(command: Tgid, signals: &mut Signals) -> i32 {
    loop {
        if let Some(end) = held::wait(command) {
            return end.exit_code();
        }
        if let Request::PassOn(number) = signals.next().await {
            pass_on(number, command);
            // Nothing is left to lose: the next one ends us.
            signals_end_us_again(true);
        }
    }
}
