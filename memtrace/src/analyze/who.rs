//! Who a finding is about.

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
