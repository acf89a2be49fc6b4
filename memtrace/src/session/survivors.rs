//! What is left of the tree when a recording ends: looked at, told, and ended where the
//! person asked for that.

#[cfg(target_os = "linux")]
mod watch;

use crate::model::{OrphanedShmRow, SurvivorRow};
#[cfg(target_os = "linux")]
pub(super) use watch::Watch;

/// A process that outlived its root.
#[derive(Clone, Debug)]
pub struct Outlived {
    /// What was recorded of it.
    pub row: SurvivorRow,
    /// The kernel's name for it.
    pub name: String,
}

/// What a recording left behind.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Processes that outlived the root of their tree, in the order in which they were met.
    pub outlived: Vec<Outlived>,
    /// Shared memory without an owner, the largest first.
    pub objects: Vec<OrphanedShmRow>,
}
