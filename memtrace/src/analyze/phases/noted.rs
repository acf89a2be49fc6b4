//! What the one pass over `mem` notes for phases.

use super::doubts::Doubts;
use crate::model::{BootNs, Bytes};
use crate::sweep::{Amounts, Gauge, Readings};
use std::collections::HashMap;
use std::sync::Arc;

/// What the pass over memory is to note for phases: who is looked at when.
#[derive(Debug)]
pub(in crate::analyze) struct Boundaries {
    /// All processes together.
    pub(in crate::analyze) all: Arc<[BootNs]>,
    /// By position in the process table: the processes that have phases.
    pub(in crate::analyze) own: HashMap<usize, Arc<[BootNs]>>,
    /// Each role.
    pub(in crate::analyze) roles: Arc<[BootNs]>,
    /// Where any of these is not to be relied on.
    pub(in crate::analyze) doubts: Doubts,
}

/// What the pass noted.
#[derive(Debug)]
pub(in crate::analyze) struct Gauges {
    /// All processes together; `None` where nothing was ever held.
    pub(in crate::analyze) tree: Option<Gauge<Amounts>>,
    /// The same, every page once.
    pub(in crate::analyze) held: Arc<Readings<Option<Bytes>>>,
    /// By position in the process table.
    pub(in crate::analyze) own: HashMap<usize, Gauge<Amounts>>,
    /// Of what descends from each of these; `None` where that is not wanted, or was too much.
    pub(in crate::analyze) below: Option<HashMap<usize, Gauge<Amounts>>>,
    /// By group; `None` where there was too much to note.
    pub(in crate::analyze) roles: Option<Vec<Option<Gauge<Amounts>>>>,
    pub(in crate::analyze) doubts: Doubts,
}
