//! Who sent a process a signal that ended it or asked it to end, as the kernel said when it was sent.

use super::endings::Ending;
use super::name::{self, Interner};
use memtrace_model::keys;
use memtrace_model::tables::ProcessRow;
use memtrace_model::{Tgid, Upid};
use std::sync::Arc;

/// Who sent a process a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sender {
    /// No signal ended it, or who sent it was not observed.
    #[default]
    Unknown,
    Kernel,
    /// The process itself, as abort() does.
    Itself,
    Other(Box<OtherSender>),
}

/// Another process that sent a process a signal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherSender {
    /// Its process id.
    pub pid: Tgid,
    /// Its identity in the recording; `None` where it is not recorded.
    pub upid: Option<Upid>,
    /// What it is called.
    pub name: Arc<str>,
    /// Whether it forked the process that it sent it to, or an ancestor of it.
    pub is_ancestor: bool,
    /// What became of that ancestor.
    pub fate: SenderFate,
}

/// What became of an ancestor that ended a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SenderFate {
    /// It went on, crashed, or is no ancestor.
    #[default]
    Other,
    /// It ended by itself soon after. Nothing says whether it was ending when it sent the signal.
    EndedSoon,
    /// The same with an error.
    FailedSoon,
    /// It had been asked to end, or had ended: what it kills as it shuts down is no failure.
    ShutDown,
}

keys! {
    as
    /// Who sent the signal that ended a process.
    SenderKeys of sender: Sender {
        /// Who sent the signal that ended it: `kernel`, `itself`, `other`; null without a signal, and
        /// where that was not observed.
        exit_signal_sender: Option<&'static str> = sender.as_str(),
        /// Process id of another process that sent it.
        exit_signal_sender_pid: Option<Tgid> = sender.pid(),
        /// Its identity in the recording; null where it is not recorded.
        exit_signal_sender_upid: Option<Upid> = sender.upid(),
        /// What it is called.
        exit_signal_sender_name: Option<Arc<str>> = sender.name().map(Arc::from),
        /// Whether that is an ancestor which had been asked to end, or had ended: what it kills as it
        /// shuts down is no failure.
        is_teardown: bool = sender.fate() == SenderFate::ShutDown,
    }
}

impl Sender {
    /// Of the signal that ended a process, as its row has it; [`settle`](super::teardown::settle) adds
    /// what needs all rows.
    pub(super) fn of(row: &ProcessRow, texts: &mut Interner) -> Self {
        let (upid, comm) = (row.exit_signal_sender_upid, &row.exit_signal_sender_comm);
        match (row.exit_signal_code, row.exit_signal_sender_tgid) {
            (None, _) => Self::Unknown,
            (Some(_), Some(_)) if upid == Some(row.upid) => Self::Itself,
            (Some(_), pid) => Self::observed(pid, upid, comm.as_deref(), texts),
        }
    }

    /// Of a signal that was observed: without a process the kernel sent it.
    pub(super) fn observed(
        pid: Option<Tgid>,
        upid: Option<Upid>,
        comm: Option<&str>,
        texts: &mut Interner,
    ) -> Self {
        pid.map_or(Self::Kernel, |pid| {
            Self::Other(Box::new(OtherSender {
                pid,
                upid,
                name: texts.intern(comm.unwrap_or_default()),
                is_ancestor: false,
                fate: SenderFate::Other,
            }))
        })
    }

    /// The word for who that is; `None` without a signal, and where that was not observed.
    pub(super) fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Kernel => Some("kernel"),
            Self::Itself => Some("itself"),
            Self::Other(_) => Some("other"),
        }
    }

    /// The process id of another process that sent it.
    pub(super) fn pid(&self) -> Option<Tgid> {
        match self {
            Self::Other(other) => Some(other.pid),
            _ => None,
        }
    }

    /// What that is called.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Other(other) => Some(&other.name),
            _ => None,
        }
    }

    /// The identity of another process that sent it, where that is recorded.
    pub(super) fn upid(&self) -> Option<Upid> {
        match self {
            Self::Other(other) => other.upid,
            _ => None,
        }
    }

    /// Whether both are the same process, or the kernel.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.as_str(), self.pid()) == (other.as_str(), other.pid())
    }

    /// What became of it, where it is an ancestor.
    pub(super) fn fate(&self) -> SenderFate {
        match self {
            Self::Other(other) => other.fate,
            _ => SenderFate::Other,
        }
    }

    /// Whether an ancestor sent it.
    pub(super) fn is_ancestor(&self) -> bool {
        matches!(self, Self::Other(other) if other.is_ancestor)
    }

    /// How a process ended, with who sent the signal; for a column a recorded process by its id alone.
    pub(super) fn of_end(&self, ending: Ending, is_long: bool) -> String {
        match (self, ending.by_oom_killer()) {
            (_, Some(true)) => ending.shown(),
            (Self::Unknown, _) => ending.shown_in_full(),
            _ => ending.shown() + &self.from(is_long),
        }
    }

    /// ` from 99 bash (not recorded)`, behind the name of a signal.
    pub(super) fn from(&self, is_long: bool) -> String {
        let other = match self {
            Self::Unknown => return String::new(),
            Self::Kernel => return " from the kernel".to_owned(),
            Self::Itself => return " from itself".to_owned(),
            Self::Other(other) => other,
        };
        let (pid, name) = (other.pid.to_string(), &other.name);
        let who = match is_long || other.upid.is_none() {
            true if name.contains(' ') => format!("{pid} \"{}\"", name::in_words(name)),
            true => format!("{pid} {}", name::in_words(name)),
            false => pid.clone(),
        };
        let note = match (other.upid, other.fate) {
            // It passes signals on, and ends survivors where that is asked for.
            (None, _) if is_long && **name == *"memtrace" => " (the recorder)".to_owned(),
            (None, _) if is_long => " (not recorded)".to_owned(),
            (Some(_), SenderFate::ShutDown) => " as it shut down".to_owned(),
            (Some(_), SenderFate::EndedSoon | SenderFate::FailedSoon) => {
                format!(" before {pid} ended")
            }
            _ => String::new(),
        };
        format!(" from {who}{note}")
    }
}
