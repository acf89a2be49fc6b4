//! Who asked a process to end, and when. What the process did then is its own doing: it can end by
//! that signal, exit, abort, or go on for as long as it likes.

use super::endings::Ending;
use super::name::Interner;
use super::sender::Sender;
use super::signal::signal_name;
use memtrace_model::tables::ProcessRow;
use memtrace_model::{DurationNs, Instant, Tgid, Upid, keys};
use memtrace_report::words;
use std::sync::Arc;

/// The last termination signal that another process or the kernel sent to a process.
#[derive(Clone, Debug)]
pub struct Termination {
    /// SIGHUP, SIGINT, SIGQUIT or SIGTERM.
    pub signal: i32,
    /// When it was sent.
    pub at: Instant,
    /// Who sent it.
    pub sender: Sender,
    /// How long after that the process ended; `None` of several that did.
    pub until_end: Option<DurationNs>,
}

/// How a process ended, with who sent the signal and who had asked it to end.
pub(super) fn end_in_words(ending: Ending, killer: &Sender, asked: Option<&Termination>) -> String {
    let asked = asked.map(|asked| asked.in_words(ending, killer));
    killer.of_end(ending, true) + &asked.unwrap_or_default()
}

/// The same for a column: a recorded process by its id alone.
pub(super) fn end_in_short(ending: Ending, killer: &Sender, asked: Option<&Termination>) -> String {
    let asked = asked.map(|asked| asked.in_short(ending, killer));
    killer.of_end(ending, false) + &asked.unwrap_or_default()
}

impl Termination {
    pub(super) fn of(row: &ProcessRow, texts: &mut Interner) -> Option<Box<Self>> {
        let (signal, at) = (row.termination_signal?, row.termination_signal_boot_ns?);
        let comm = row.termination_signal_sender_comm.as_deref();
        let (pid, upid) = (
            row.termination_signal_sender_tgid,
            row.termination_signal_sender_upid,
        );
        Some(Box::new(Self {
            signal,
            at: Instant::unsettled(at),
            sender: Sender::observed(pid, upid, comm, texts),
            until_end: row.exit_boot_ns.map(|end| end - at),
        }))
    }

    /// `, 0.8s after SIGTERM from 99 bash (not recorded)`: behind how the process ended; empty where it
    /// ended by that, and without who sent it where the same process sent the signal that ended it.
    pub(super) fn in_words(&self, ending: Ending, killer: &Sender) -> String {
        let until = self.until_end.map(words::duration);
        let until = until.map_or_else(String::new, |until| format!(", {until}"));
        match self.behind(ending, killer, true) {
            Some(behind) => format!("{until} {behind}"),
            None => String::new(),
        }
    }

    fn in_short(&self, ending: Ending, killer: &Sender) -> String {
        let comma = if self.sender.is_same(killer) { "," } else { "" };
        match self.behind(ending, killer, false) {
            Some(behind) => format!("{comma} {behind}"),
            None => String::new(),
        }
    }

    fn behind(&self, ending: Ending, killer: &Sender, is_long: bool) -> Option<String> {
        let is_by_same = self.sender.is_same(killer);
        let from = match is_by_same {
            true if ending.exit_signal() == Some(self.signal) => return None,
            true => String::new(),
            false => self.sender.from(is_long),
        };
        Some(format!("after {}{from}", self.shown()))
    }

    fn shown(&self) -> String {
        signal_name(self.signal).map_or_else(|| format!("signal {}", self.signal), str::to_owned)
    }
}

keys! {
    TerminationKeys of asked: Option<Box<Termination>> {
        /// Number of the last SIGHUP, SIGINT, SIGQUIT or SIGTERM that another process or the kernel sent
        /// it, whether it ended by that or handled it; null where none was sent, and where that was
        /// not observed.
        termination_signal: Option<i32> = asked.as_ref().map(|asked| asked.signal),
        /// When that was sent.
        termination_signal_at: Option<Instant> = asked.as_ref().map(|asked| asked.at),
        /// Who sent it: `kernel`, `other`.
        termination_signal_sender: Option<&'static str> =
            asked.as_ref().and_then(|asked| asked.sender.as_str()),
        /// Process id of another process that sent it.
        termination_signal_sender_pid: Option<Tgid> =
            asked.as_ref().and_then(|asked| asked.sender.pid()),
        /// Its identity in the recording; null where it is not recorded.
        termination_signal_sender_upid: Option<Upid> =
            asked.as_ref().and_then(|asked| asked.sender.upid()),
        /// What it is called.
        termination_signal_sender_name: Option<Arc<str>> =
            asked.as_ref().and_then(|asked| asked.sender.name().map(Arc::from)),
    }
}
