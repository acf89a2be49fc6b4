//! Who a finding is about.

use super::name;
use super::process::Process;
use memtrace_model::keys;
use memtrace_model::{Tgid, Upid};
use memtrace_report::{Cell, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Which process it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub struct Who {
    /// Its process id; `None` when only its memory was recorded.
    pub pid: Option<Tgid>,
    /// Its identity in the recording; `None` for one that is not recorded.
    pub upid: Option<Upid>,
    /// What it is called; `None` when that is unknown.
    pub name: Option<Arc<str>>,
    /// Whether it is what the person thinks of as the program.
    #[serde(skip)]
    pub is_main: bool,
}

impl Who {
    /// Its name, marked where it is the main one.
    pub(super) fn shown(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        match self.is_main {
            true => format!("{name} (main)"),
            false => name.to_owned(),
        }
    }

    /// Its process id and its name, for two columns.
    pub(super) fn cells(&self) -> [Cell; 2] {
        let name = Cell::known(self.name.as_deref());
        [Cell::known(self.pid), name.shown_as(self.shown())]
    }

    /// `22924 VLLM::Worker_TP0`: inside a sentence, its name kept short.
    pub(super) fn in_words(&self) -> String {
        let name = name::in_words(self.name.as_deref().unwrap_or_default());
        format!("{} {name}", Cell::known(self.pid).shown())
    }
}

impl From<&Process> for Who {
    fn from(process: &Process) -> Self {
        Self {
            pid: process.tgid,
            upid: Some(process.upid),
            name: Some(Arc::clone(&process.name)),
            is_main: process.is_main,
        }
    }
}

keys! {
    OwnerKeys of who: Who {
        /// Process id of the recorded process that made it, or was first seen to map it, or to have it open.
        owner_pid: Option<Tgid> = who.pid,
        /// Its identity in the recording.
        owner_upid: Option<Upid> = who.upid,
        /// What it is called.
        owner_name: Option<Arc<str>> = who.name.clone(),
    }
}

keys! {
    ProcessKeys of who: Who {
        /// Process id of whose it is; null for what a person marked, and where it is those of
        /// several.
        pid: Option<Tgid> = who.pid,
        /// Its identity in the recording; null as `pid` is.
        upid: Option<Upid> = who.upid,
        /// What it is called; null as `pid` is.
        process_name: Option<Arc<str>> = who.name.clone(),
    }
}

/// A process, or several that do the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Bundle {
    /// One alone; of several what they are called.
    #[serde(flatten)]
    pub who: Who,
    /// How many they are.
    pub process_count: usize,
    /// Who, as indices into [`super::Analysis::processes`].
    #[serde(skip)]
    pub members: Vec<usize>,
}

impl Bundle {
    /// Inside of a sentence: as one process, or how many and what they are called.
    pub(super) fn in_words(&self) -> String {
        let name = self.who.name.as_deref().unwrap_or_default();
        match self.process_count {
            1 => self.who.in_words(),
            count => format!("{} {name}", words::times(count)),
        }
    }

    /// For two columns: as one process, or how many and what they are called.
    pub(super) fn cells(&self) -> [Cell; 2] {
        self.cells_as(self.who.shown())
    }

    /// The same, with other words for several.
    pub(super) fn cells_as(&self, several: String) -> [Cell; 2] {
        match self.process_count {
            1 => self.who.cells(),
            count => [Cell::shown_only(&words::times(count)), several.into()],
        }
    }

    pub(super) fn of(processes: &[Process], members: Vec<usize>) -> Self {
        Self {
            who: match members.as_slice() {
                [only] => Who::from(&processes[*only]),
                many => Who {
                    name: Some(common_name(processes, many)),
                    ..Who::default()
                },
            },
            process_count: members.len(),
            members,
        }
    }
}

/// What to call several processes: by their name where it is one, else by their shape, else
/// "various".
pub(super) fn common_name(processes: &[Process], members: &[usize]) -> Arc<str> {
    let all = || members.iter().map(|&position| &processes[position]);
    let Some(first) = all().next() else {
        return Arc::from("");
    };
    if all().all(|process| process.name == first.name) {
        Arc::clone(&first.name)
    } else if all().all(|process| process.shape == first.shape) {
        Arc::clone(&first.shape)
    } else {
        Arc::from("various")
    }
}
