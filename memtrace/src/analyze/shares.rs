//! What each process holds when a page that several share is divided among them, so that the
//! parts add up to what exists.

use super::attribution::Basis;
use crate::model::Bytes;

/// A process's part of the memory at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which process.
    pub process: usize,
    /// Anonymous memory; `None` when unknown.
    pub anon_bytes: Option<Bytes>,
    /// How well that is known.
    pub anon_basis: Basis,
    /// Its part of the shared objects that it maps: each object's allocation is divided among
    /// its mappers in proportion to the shared memory in their RSS. `None` where it has shared
    /// memory, and none of its objects was known by then.
    pub shmem_bytes: Option<Bytes>,
}
