//! Whom a reading is of.

use memtrace_model::{Tgid, Upid};

/// A process to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) upid: Upid,
    pub(super) tgid: Tgid,
    /// Changes when it executes another program.
    pub(super) image: u64,
    /// Whether no other process could share its anonymous pages when it was listed.
    pub(super) is_unshared: bool,
}
