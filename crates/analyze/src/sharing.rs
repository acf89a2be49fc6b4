//! When processes executed programs, and until when a fork is a copy that an exec replaces.

use super::process::Process;
use memtrace_model::{BootNs, FirstSeenBy, Upid};
use std::collections::HashMap;

/// When each process executed programs under observation.
pub(super) type Execs = HashMap<Upid, Vec<BootNs>>;

/// Until when a process that fork made was a copy, by its first exec.
pub(super) fn copy_until(process: &Process, execs: &Execs) -> Option<BootNs> {
    let first = execs.get(&process.upid)?.iter().copied().min();
    let is_copy = process.first_seen_by == Some(FirstSeenBy::Fork);
    first.filter(|first| is_copy && *first > process.start.boot_ns)
}
