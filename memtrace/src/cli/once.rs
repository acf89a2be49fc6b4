//! What happened to a process, once: two recorders of one machine see it at nearly the same time.

use memtrace_model::BootNs;
use std::collections::HashSet;
use std::hash::Hash;

const SECOND_NS: i64 = 1_000_000_000;

/// What is known, and in which second on the boot clock it was.
#[derive(Debug)]
pub(super) struct Once<K>(HashSet<(K, i64)>);

impl<K> Default for Once<K> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<K: Copy + Eq + Hash> Once<K> {
    /// From now on that is known. Answers whether it was not.
    pub(super) fn note(&mut self, what: K, at: BootNs) -> bool {
        let second = at.0 / SECOND_NS;
        let mut near = second - 1..=second + 1;
        !near.any(|second| self.0.contains(&(what, second))) && self.0.insert((what, second))
    }

    /// Forgets what was earlier.
    pub(super) fn forget_before(&mut self, at: BootNs) {
        let oldest = at.0 / SECOND_NS;
        self.0.retain(|(_, second)| *second >= oldest);
    }

    /// How many things are known.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}
