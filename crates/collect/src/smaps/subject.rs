//! Whom a reading is of.

use super::queue;
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
    /// How many recorded processes ran its program image then, copies that forks made of it.
    pub(super) image_count: usize,
}

impl Subject {
    /// How many can share its anonymous pages.
    pub(super) fn sharers(&self) -> usize {
        if self.is_unshared {
            queue::UNSHARED
        } else {
            self.image_count
        }
    }
}
