//! What became of ancestors that sent signals: what no process says alone.

use super::endings::Ending;
use super::process::Process;
use super::sender::{OtherSender, Sender, SenderFate};
use memtrace_model::{BootNs, DurationNs, Upid};
use std::sync::Arc;

/// A process that kills its children and then ends by itself has ended by so much later: what it held
/// takes seconds to give back.
const SOON_NS: DurationNs = DurationNs(15_000_000_000);
/// What takes longer to end after it was asked to went on: SIGHUP asks many servers to read their
/// configuration.
const LONGEST_SHUTDOWN_NS: DurationNs = DurationNs(300_000_000_000);
/// Servers nest a few levels deep.
const MAX_LEVELS: usize = 16;

/// Adds to senders that are recorded what only all processes together say. Names must be known by
/// now.
pub(super) fn settle(processes: &mut [Process], find: impl Fn(Upid) -> Option<usize>) {
    let mut last_starts = vec![None; processes.len()];
    for process in &*processes {
        let above = std::iter::successors(process.parent, |place| processes[*place].parent);
        for place in above.take(MAX_LEVELS) {
            last_starts[place] = last_starts[place].max(Some(process.start.boot_ns));
        }
    }
    let killers = processes.iter().map(|process| find(process.sender.upid()?));
    let all = All {
        killers: killers.collect(),
        last_starts,
        processes,
    };
    let settled = |place: usize| {
        let process = &all.processes[place];
        let end = process.exit_boot_ns();
        let sent = |sender: &Sender, at| all.settled(place, find(sender.upid()?)?, at);
        let asked = process.asked.as_ref();
        let asked = asked.and_then(|asked| sent(&asked.sender, None));
        (sent(&process.sender, end), asked)
    };
    let settled: Vec<_> = (0..all.processes.len()).map(settled).collect();
    for (process, (sender, asked_by)) in processes.iter_mut().zip(settled) {
        if let Some(sender) = sender {
            process.sender = sender;
        }
        if let (Some(asked), Some(sender)) = (&mut process.asked, asked_by) {
            asked.sender = sender;
        }
    }
}

/// All processes, as indices.
struct All<'a> {
    processes: &'a [Process],
    /// Who ended each by a signal, where that one is recorded.
    killers: Vec<Option<usize>>,
    /// When the last process that descends from each started.
    last_starts: Vec<Option<BootNs>>,
}

impl All<'_> {
    /// A recorded sender, and where its signal ended the process at an instant, what became of it.
    fn settled(&self, place: usize, sender: usize, ended: Option<BootNs>) -> Option<Sender> {
        let of = &self.processes[sender];
        let is_ancestor = self.above(place).any(|ancestor| ancestor == sender);
        let fate = ended.filter(|_| is_ancestor);
        let fate = fate.map(|killed| self.fate(sender, killed, MAX_LEVELS));
        Some(Sender::Other(Box::new(OtherSender {
            pid: of.tgid?,
            upid: Some(of.upid),
            name: Arc::clone(&of.name),
            is_ancestor,
            fate: fate.unwrap_or_default(),
        })))
    }

    fn above(&self, place: usize) -> impl Iterator<Item = usize> {
        let parent = |place: &usize| self.processes[*place].parent;
        std::iter::successors(parent(&place), parent).take(MAX_LEVELS)
    }

    fn fate(&self, sender: usize, killed: BootNs, levels: usize) -> SenderFate {
        let mut up = std::iter::once(sender).chain(self.above(sender));
        if up.any(|place| self.was_ending(place, killed)) {
            return SenderFate::ShutDown;
        }
        let process = &self.processes[sender];
        let end = process.exit_boot_ns();
        let Some(end) = end.filter(|end| (*end - killed).0 <= SOON_NS.0) else {
            return SenderFate::Other;
        };
        match (process.ending, self.killers[sender]) {
            _ if self.has_started_after(sender, killed) => SenderFate::Other,
            (Ending::Exited(0), _) => SenderFate::EndedSoon,
            (ending, _) if ending.is_orderly() => SenderFate::FailedSoon,
            // One above it ended it in turn.
            (_, Some(next)) if levels > 0 && self.above(sender).any(|above| above == next) => {
                self.fate(next, end, levels - 1)
            }
            _ => SenderFate::Other,
        }
    }

    /// Whether a process was ending at an instant: it had ended (the kernel sends signals of a process
    /// that ended, by PR_SET_PDEATHSIG or with its pid namespace), or it had been asked to, started
    /// nothing since, and did within some minutes.
    fn was_ending(&self, place: usize, then: BootNs) -> bool {
        let process = &self.processes[place];
        let Some(end) = process.exit_boot_ns() else {
            return false;
        };
        let asked = process.asked.as_ref().map(|asked| asked.at.boot_ns);
        let was_asked =
            |asked: &BootNs| *asked <= then && (end - *asked).0 <= LONGEST_SHUTDOWN_NS.0;
        let asked = asked.filter(was_asked);
        end <= then || asked.is_some_and(|asked| !self.has_started_after(place, asked))
    }

    fn has_started_after(&self, place: usize, then: BootNs) -> bool {
        self.last_starts[place].is_some_and(|start| start > then)
    }
}
