//! The memory of one process, asked for again and again.
//!
//! statm tells in 1 µs whether anything moved; only then is status read, which tells what
//! (6.7 µs). Both are kept open as long as the budget of descriptors lasts. Beyond it
//! stat takes the place of statm, opened by name (7.6 µs), because it also carries the
//! start time: a name can come to mean another process, a kept descriptor cannot.

use super::dir::is_gone;
use super::stat::Stat;
use super::status::Status;
use crate::kept::{KeptFile, TextBuffer};
use memtrace_model::Tgid;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many more descriptors may be kept; shared by all probes.
#[derive(Clone, Debug)]
pub(super) struct DescriptorBudget(Arc<AtomicUsize>);

impl DescriptorBudget {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(limit)))
    }

    /// Opens a file to keep; `Ok(None)` when the budget is spent.
    fn open(&self, path: &Path) -> io::Result<Option<BudgetedFile>> {
        let take = |left: usize| left.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            return Ok(None);
        }
        let lease = Lease(Arc::clone(&self.0));
        let file = KeptFile::open(path)?;
        Ok(Some(BudgetedFile {
            file,
            _lease: lease,
        }))
    }
}

#[derive(Debug)]
struct BudgetedFile {
    file: KeptFile,
    _lease: Lease,
}

/// Gives its descriptor back to the budget.
#[derive(Debug)]
struct Lease(Arc<AtomicUsize>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a look at a process showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// Its memory is as it was.
    Unchanged,
    /// Its memory moved.
    Changed,
    /// It has no memory: it is ending, or the leader has ended before its threads.
    NoMemory,
    /// What was looked at is no more.
    Gone,
}

/// A process (or, when its leader has ended, one of its threads) under observation.
#[derive(Debug)]
pub(super) struct Probe {
    directory: PathBuf,
    start_ticks: i64,
    statm: Option<BudgetedFile>,
    status: Option<BudgetedFile>,
    budget: DescriptorBudget,
    last_statm: Vec<u8>,
    last_size: Option<(u64, i64)>,
}

impl Probe {
    /// A probe on a process. What its first look shows counts as changed.
    pub(super) fn open(
        root: &Path,
        tgid: Tgid,
        start_ticks: i64,
        budget: &DescriptorBudget,
    ) -> Self {
        Self::at(root.join(tgid.to_string()), start_ticks, budget)
    }

    fn at(directory: PathBuf, start_ticks: i64, budget: &DescriptorBudget) -> Self {
        // When it can't be opened, the first look by name will say why.
        let statm = budget.open(&directory.join("statm")).ok().flatten();
        Self {
            directory,
            start_ticks,
            statm,
            status: None,
            budget: budget.clone(),
            last_statm: Vec::new(),
            last_size: None,
        }
    }

    /// Looks whether the memory moved since the last look.
    ///
    /// Before 6.17 the kernel shows counters here that lag behind by up to a batch of
    /// pages per CPU (get_mm_counter() reads a percpu_counter's shared part since 6.2), so
    /// a process can move a little without being seen to.
    pub(super) fn look(&mut self, buffer: &mut TextBuffer) -> io::Result<Observation> {
        let sight = match &self.statm {
            Some(statm) => statm.file.read(buffer).map(|text| {
                if text.starts_with(b"0 ") {
                    Observation::NoMemory
                } else if text == self.last_statm {
                    Observation::Unchanged
                } else {
                    self.last_statm.clear();
                    self.last_statm.extend_from_slice(text);
                    Observation::Changed
                }
            }),
            None => self.look_by_name(buffer),
        };
        match sight {
            Err(error) if is_gone(&error) => Ok(Observation::Gone),
            other => other,
        }
    }

    fn look_by_name(&mut self, buffer: &mut TextBuffer) -> io::Result<Observation> {
        let text = buffer.read_once(&self.directory.join("stat"))?;
        let stat = Stat::parse(text).ok_or(io::ErrorKind::InvalidData)?;
        Ok(if stat.start_ticks != self.start_ticks {
            Observation::Gone
        } else if stat.size.0 == 0 {
            Observation::NoMemory
        } else if self.last_size == Some(stat.size) {
            Observation::Unchanged
        } else {
            self.last_size = Some(stat.size);
            Observation::Changed
        })
    }

    /// The amounts now; `Ok(None)` when the process is gone.
    pub(super) fn status(&mut self, buffer: &mut TextBuffer) -> io::Result<Option<Status>> {
        if self.status.is_none() {
            let path = self.directory.join("status");
            self.status = match self.budget.open(&path) {
                Err(error) if is_gone(&error) => return Ok(None),
                other => other?,
            };
        }
        let text = match &self.status {
            Some(status) => status.file.read(buffer),
            None => buffer.read_once(&self.directory.join("status")),
        };
        match text {
            Ok(text) => Ok(Some(Status::parse(text))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the last look showed the very same address space as `other` has now. That
    /// is a child of vfork(2) before it calls exec: it runs in its parent's memory, and
    /// the parent stands still. A forked child has fewer pages than its parent, because
    /// fork leaves out those of files (vma_needs_copy() in mm/memory.c).
    pub(super) fn is_in_memory_of(
        &self,
        root: &Path,
        other: Tgid,
        buffer: &mut TextBuffer,
    ) -> bool {
        let statm = |directory: PathBuf, buffer: &mut TextBuffer| {
            let text = buffer.read_once(&directory.join("statm")).ok()?;
            Some(text.to_vec())
        };
        // Beyond the budget of descriptors the looks were not at statm.
        let own = match self.last_statm.as_slice() {
            [] => statm(self.directory.clone(), buffer),
            last => Some(last.to_vec()),
        };
        own.is_some() && own == statm(root.join(other.to_string()), buffer)
    }

    /// Goes on with a living thread of the process, whose leader has ended: the kernel
    /// shows a process's memory through the leader, and that has none any more. False
    /// when there is none.
    pub(super) fn follow_a_thread(
        &mut self,
        root: &Path,
        tgid: Tgid,
        buffer: &mut TextBuffer,
    ) -> bool {
        let tasks = root.join(tgid.to_string()).join("task");
        let Ok(threads) = std::fs::read_dir(tasks) else {
            return false;
        };
        for thread in threads.flatten() {
            let directory = thread.path();
            let stat = buffer.read_once(&directory.join("stat"));
            let Some(stat) = stat.ok().and_then(Stat::parse) else {
                continue;
            };
            if stat.size.0 != 0 {
                *self = Self::at(directory, stat.start_ticks, &self.budget.clone());
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fake::FakeProc;

    fn probe(proc: &FakeProc, limit: usize) -> Probe {
        Probe::open(proc.root(), Tgid(42), 1000, &DescriptorBudget::new(limit))
    }

    #[test]
    fn the_first_look_and_every_move_is_a_change() {
        for limit in [0, 2] {
            let proc = FakeProc::new();
            proc.process(42, "worker", 1);
            let mut probe = probe(&proc, limit);
            let mut buffer = TextBuffer::default();
            let mut look = || probe.look(&mut buffer).unwrap();
            assert_eq!(look(), Observation::Changed);
            assert_eq!(look(), Observation::Unchanged);
            proc.set_rss(42, 777);
            assert_eq!(look(), Observation::Changed);
            assert_eq!(look(), Observation::Unchanged);
            proc.set_rss(42, 0);
            assert_eq!(look(), Observation::NoMemory);
        }
    }

    #[test]
    fn beyond_the_budget_another_process_with_the_same_id_is_noticed() {
        let proc = FakeProc::new();
        proc.process(42, "worker", 1);
        let mut probe = probe(&proc, 0);
        let mut buffer = TextBuffer::default();
        assert_eq!(probe.look(&mut buffer).unwrap(), Observation::Changed);
        proc.process_started_at(42, "other", 1, 2000);
        assert_eq!(probe.look(&mut buffer).unwrap(), Observation::Gone);
    }

    #[test]
    fn descriptors_are_given_back() {
        let proc = FakeProc::new();
        proc.process(42, "worker", 1);
        let budget = DescriptorBudget::new(1);
        let first = Probe::open(proc.root(), Tgid(42), 1000, &budget);
        assert!(first.statm.is_some());
        assert!(
            Probe::open(proc.root(), Tgid(42), 1000, &budget)
                .statm
                .is_none()
        );
        drop(first);
        assert!(
            Probe::open(proc.root(), Tgid(42), 1000, &budget)
                .statm
                .is_some()
        );
    }

    #[test]
    fn a_process_whose_leader_has_ended_is_seen_through_a_thread() {
        let proc = FakeProc::new();
        proc.process(42, "worker", 1);
        proc.set_rss(42, 0);
        proc.thread(42, 43, "worker", 555);
        let mut probe = probe(&proc, 2);
        let mut buffer = TextBuffer::default();
        assert_eq!(probe.look(&mut buffer).unwrap(), Observation::NoMemory);
        assert!(probe.follow_a_thread(proc.root(), Tgid(42), &mut buffer));
        assert_eq!(probe.look(&mut buffer).unwrap(), Observation::Changed);
        assert!(
            probe
                .status(&mut buffer)
                .unwrap()
                .unwrap()
                .amounts
                .rss
                .is_some()
        );
    }

    #[test]
    fn a_child_in_its_parent_s_memory_is_distinguished_from_one_with_its_own() {
        for limit in [0, 2] {
            let proc = FakeProc::new();
            proc.process(7, "shell", 1);
            proc.process(42, "shell", 7);
            let mut probe = probe(&proc, limit);
            let mut buffer = TextBuffer::default();
            probe.look(&mut buffer).unwrap();
            assert!(probe.is_in_memory_of(proc.root(), Tgid(7), &mut buffer));
            proc.set_rss(42, 12);
            probe.look(&mut buffer).unwrap();
            assert!(!probe.is_in_memory_of(proc.root(), Tgid(7), &mut buffer));
        }
    }
}
