//! What the one pass over `mem` notes for phases.

use super::doubts::Doubts;
use memtrace_model::{BootNs, Bytes};
use memtrace_timeline::{Amounts, Gauge, Readings};
use std::collections::HashMap;
use std::sync::Arc;

/// What the pass over memory is to note for phases: who is looked at when.
#[derive(Debug)]
pub(crate) struct Boundaries {
    /// All processes together.
    pub(crate) all: Arc<[BootNs]>,
    /// By position in the process table: the processes that have phases.
    pub(crate) own: HashMap<usize, Arc<[BootNs]>>,
    /// The instants at which each role is looked at.
    pub(crate) roles: Arc<[BootNs]>,
    /// Where any of these is not to be relied on.
    pub(crate) doubts: Doubts,
}

/// What the pass noted.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// All processes together; `None` where nothing was ever held.
    pub(crate) tree: Option<Gauge<Amounts>>,
    /// The same, every page once.
    pub(crate) held: Arc<Readings<Option<Bytes>>>,
    /// By position in the process table.
    pub(crate) own: HashMap<usize, Gauge<Amounts>>,
    /// Of what descends from each of these; `None` where that is not wanted, or was too much.
    pub(crate) below: Option<HashMap<usize, Gauge<Amounts>>>,
    /// By group; `None` where there was too much to note.
    pub(crate) roles: Option<Vec<Option<Gauge<Amounts>>>>,
    pub(crate) doubts: Doubts,
}
