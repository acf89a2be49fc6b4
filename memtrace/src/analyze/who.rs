//! Who a finding is about.

use super::endings::common_name;
use super::process::Process;
use crate::model::{Tgid, Upid};
use serde::Serialize;
use std::sync::Arc;

/// A process, as a finding names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Who {
    /// Its process id; `None` when only its memory was recorded.
    pub pid: Option<Tgid>,
    /// Its identity in the recording; `None` for one that is not recorded.
    pub upid: Option<Upid>,
    /// What it is called; `None` when that is unknown.
    pub name: Option<Arc<str>>,
}

impl From<&Process> for Who {
    fn from(process: &Process) -> Self {
        Self {
            pid: process.tgid,
            upid: Some(process.upid),
            name: Some(Arc::clone(&process.name)),
        }
    }
}

/// A process, or several that do the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bundle {
    /// What they are called.
    pub name: Arc<str>,
    /// How many they are.
    pub process_count: usize,
    /// The process id of one alone; `None` when only its memory was recorded.
    pub pid: Option<Tgid>,
    /// The identity of one alone.
    pub upid: Option<Upid>,
    /// Who, as indices into [`super::Analysis::processes`].
    #[serde(skip)]
    pub members: Vec<usize>,
}

impl Bundle {
    pub(super) fn of(processes: &[Process], members: Vec<usize>) -> Self {
        let only = match members.as_slice() {
            [only] => Some(&processes[*only]),
            _ => None,
        };
        Self {
            name: common_name(processes, &members),
            process_count: members.len(),
            pid: only.and_then(|process| process.tgid),
            upid: only.map(|process| process.upid),
            members,
        }
    }
}
