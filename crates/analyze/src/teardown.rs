//! Whether a signal was sent by an ancestor that was shutting down: what no process says alone.

use super::process::Process;
use super::sender::Sender;
use memtrace_model::{BootNs, DurationNs, Upid};
use std::sync::Arc;

/// A process that kills its children and then ends has ended by so much later: what it held takes
/// seconds to give back.
const SHUTDOWN_NS: DurationNs = DurationNs(15_000_000_000);
/// Servers nest a few levels deep.
const MAX_LEVELS: usize = 16;

/// Adds to senders that are recorded what only all processes together say. Names must be known by
/// now.
pub(super) fn settle(processes: &mut [Process], find: impl Fn(Upid) -> Option<usize>) {
    let senders = processes.iter().map(|process| find(process.sender.upid()?));
    let mut last_starts = vec![None; processes.len()];
    for process in &*processes {
        let above = std::iter::successors(process.parent, |place| processes[*place].parent);
        for place in above.take(MAX_LEVELS) {
            last_starts[place] = last_starts[place].max(Some(process.start.boot_ns));
        }
    }
    let all = All {
        senders: senders.collect(),
        last_starts,
        processes,
    };
    let settled = |(place, sender): (usize, &Option<usize>)| {
        let sender = &all.processes[(*sender)?];
        let sender = Sender::Other {
            pid: sender.tgid?,
            upid: Some(sender.upid),
            name: Arc::clone(&sender.name),
            is_ancestor: all.ancestor_that_sent(place).is_some(),
            is_teardown: all.is_teardown(place, MAX_LEVELS),
        };
        Some((place, sender))
    };
    let settled: Vec<_> = all.senders.iter().enumerate().filter_map(settled).collect();
    for (place, sender) in settled {
        processes[place].sender = sender;
    }
}

/// All processes, as indices.
struct All<'a> {
    processes: &'a [Process],
    /// Who ended each by a signal, where that one is recorded.
    senders: Vec<Option<usize>>,
    /// When the last process that descends from each started.
    last_starts: Vec<Option<BootNs>>,
}

impl All<'_> {
    fn ancestor_that_sent(&self, place: usize) -> Option<usize> {
        let parent = |place: &usize| self.processes[*place].parent;
        let ancestors = std::iter::successors(parent(&place), parent);
        let mut ancestors = ancestors.take(MAX_LEVELS);
        ancestors.find(|ancestor| self.senders[place] == Some(*ancestor))
    }

    /// Whether an ancestor sent the signal and was shutting down: it had ended before the process had,
    /// or nothing more was started below it and it ended soon after, orderly. The kernel sends signals of a process
    /// that ended too (PR_SET_PDEATHSIG, a pid namespace).
    fn is_teardown(&self, place: usize, levels: usize) -> bool {
        let ends = || {
            let ancestor = self.ancestor_that_sent(place)?;
            let end = |place: usize| self.processes[place].exit_boot_ns();
            Some((ancestor, end(place)?, end(ancestor)?))
        };
        let Some((ancestor, killed, ended)) = ends().filter(|_| levels > 0) else {
            return false;
        };
        let is_orderly = self.processes[ancestor].ending.is_orderly();
        let has_gone_on = self.last_starts[ancestor].is_some_and(|start| start > killed);
        ended <= killed
            || !has_gone_on
                && (ended - killed).0 <= SHUTDOWN_NS.0
                && (is_orderly || self.is_teardown(ancestor, levels - 1))
    }
}
