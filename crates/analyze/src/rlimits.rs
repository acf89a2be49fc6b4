//! Limits of memory that a process has. Most have none, so they take no room in its findings.

use memtrace_model::tables::ProcessRow;
use memtrace_model::{Bytes, keys};

/// Limits of memory that a process has; each `None` without one, and when unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rlimits {
    /// Of its address space: RLIMIT_AS.
    pub as_bytes: Option<Bytes>,
    /// Of its private writable memory: RLIMIT_DATA.
    pub data_bytes: Option<Bytes>,
}

impl Rlimits {
    /// Those of a process; `None` of one that has none.
    pub(super) fn of(row: &ProcessRow) -> Option<Box<Self>> {
        let limits = Self {
            as_bytes: row.rlimit_as_bytes,
            data_bytes: row.rlimit_data_bytes,
        };
        (limits != Self::default()).then(|| Box::new(limits))
    }
}

keys! {
    RlimitKeys of limits: Option<Box<Rlimits>> {
        /// Its limit of address space (RLIMIT_AS); null without one, and when unknown.
        rlimit_as_bytes: Option<Bytes> = limits.as_ref().and_then(|limits| limits.as_bytes),
        /// Its limit of private writable memory (RLIMIT_DATA).
        rlimit_data_bytes: Option<Bytes> = limits.as_ref().and_then(|limits| limits.data_bytes),
    }
}
