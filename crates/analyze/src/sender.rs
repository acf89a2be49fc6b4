//! Who sent a process the signal that ended it, as the kernel said when it was sent.

use super::endings::Ending;
use super::name::{self, Interner};
use memtrace_model::keys;
use memtrace_model::tables::ProcessRow;
use memtrace_model::{Tgid, Upid};
use std::sync::Arc;

/// Who sent the signal that ended a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sender {
    /// No signal ended it, or who sent it was not observed.
    #[default]
    Unknown,
    Kernel,
    /// The process itself, as abort() does.
    Itself,
    Other {
        /// Its process id.
        pid: Tgid,
        /// Its identity in the recording; `None` where it is not recorded.
        upid: Option<Upid>,
        /// What it is called.
        name: Arc<str>,
        /// Whether it forked the process that it ended, or an ancestor of it.
        is_ancestor: bool,
        /// Whether that ancestor ended then too: what it kills as it shuts down is no failure.
        is_teardown: bool,
    },
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
        /// Whether that is an ancestor which ended then too: what it kills as it shuts down is no
        /// failure.
        is_teardown: bool = sender.is_teardown(),
    }
}

impl Sender {
    /// As the row has it; [`settle`](super::teardown::settle) adds what needs all rows.
    pub(super) fn of(row: &ProcessRow, texts: &mut Interner) -> Self {
        let upid = row.exit_signal_sender_upid;
        match (row.exit_signal_code, row.exit_signal_sender_tgid) {
            (None, _) => Self::Unknown,
            (Some(_), None) => Self::Kernel,
            (Some(_), Some(_)) if upid == Some(row.upid) => Self::Itself,
            (Some(_), Some(pid)) => Self::Other {
                pid,
                upid,
                name: texts.intern(row.exit_signal_sender_comm.as_deref().unwrap_or_default()),
                is_ancestor: false,
                is_teardown: false,
            },
        }
    }

    /// The word for who that is; `None` without a signal, and where that was not observed.
    pub(super) fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Kernel => Some("kernel"),
            Self::Itself => Some("itself"),
            Self::Other { .. } => Some("other"),
        }
    }

    /// The process id of another process that sent it.
    pub(super) fn pid(&self) -> Option<Tgid> {
        match self {
            Self::Other { pid, .. } => Some(*pid),
            _ => None,
        }
    }

    /// What that is called.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Other { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The identity of another process that sent it, where that is recorded.
    pub(super) fn upid(&self) -> Option<Upid> {
        match self {
            Self::Other { upid, .. } => *upid,
            _ => None,
        }
    }

    /// Whether an ancestor sent it that ended then too.
    pub(super) fn is_teardown(&self) -> bool {
        matches!(
            self,
            Self::Other {
                is_teardown: true,
                ..
            }
        )
    }

    /// Whether an ancestor sent it.
    pub(super) fn is_ancestor(&self) -> bool {
        matches!(
            self,
            Self::Other {
                is_ancestor: true,
                ..
            }
        )
    }

    /// How a process ended, with who sent the signal.
    pub(super) fn in_words(&self, ending: Ending) -> String {
        self.reported(ending, true)
    }

    /// The same for a column: a recorded process by its id alone.
    pub(super) fn in_short(&self, ending: Ending) -> String {
        self.reported(ending, false)
    }

    fn reported(&self, ending: Ending, is_long: bool) -> String {
        let signal = ending.shown();
        let (pid, upid, name, is_teardown) = match self {
            _ if ending.by_oom_killer() == Some(true) => return signal,
            Self::Unknown => return ending.shown_in_full(),
            Self::Kernel => return format!("{signal} from the kernel"),
            Self::Itself => return format!("{signal} from itself"),
            Self::Other {
                pid,
                upid,
                name,
                is_teardown,
                ..
            } => (pid, upid, name, *is_teardown),
        };
        let pid = pid.to_string();
        let who = match is_long || upid.is_none() {
            true if name.contains(' ') => format!("{pid} \"{}\"", name::in_words(name)),
            true => format!("{pid} {}", name::in_words(name)),
            false => pid,
        };
        let note = match upid {
            None if is_long => " (not recorded)",
            Some(_) if is_teardown => " as it shut down",
            _ => "",
        };
        format!("{signal} from {who}{note}")
    }
}
