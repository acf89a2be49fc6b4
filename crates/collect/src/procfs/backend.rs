//! The backend that polls /proc: no privilege needed, and less to be seen.

use super::census::{Census, CensusInput, Started};
use super::dir::ProcDir;
use super::identity::Identity;
use super::member::{Member, Poll, wait_status};
use super::names;
use super::probe::DescriptorBudget;
use super::refusals::{Refusal, Refusals};
use crate::kept::TextBuffer;
use crate::{Birth, CollectError, Collector, Pass, Targets};
use memtrace_host::clock;
use memtrace_model::{
    DiagKind, DurationNs, FirstSeenBy, Severity, Tgid, TitleRow, TitleSource, Upid,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Two readings of one process's start that differ by less are of the same process: /proc
/// counts in ticks of 10 ms.
const START_TOLERANCE_NS: i64 = 20_000_000;
/// Names read per poll beyond the share of members that keeps each fresh to the second.
const SPARE_NAME_CHECKS: usize = 16;

/// How the backend polls.
#[derive(Clone, Copy, Debug)]
pub struct ProcfsOptions {
    /// Time between two polls.
    pub interval: DurationNs,
    /// The command that memtrace started: whether it was ever seen or not, its end is known.
    pub command: Option<Tgid>,
    /// How many descriptors may be kept open; see [`descriptor_limit`].
    pub descriptor_limit: usize,
}

/// A reasonable number of descriptors to keep under a soft limit: half of it, so that
/// the rest of the program has room.
pub fn descriptor_limit(nofile_soft: Option<u64>) -> usize {
    let half = nofile_soft.unwrap_or(1024) / 2;
    // Each costs the kernel about 5 KiB: the buffer of a seq_file stays allocated.
    usize::try_from(half).unwrap_or(usize::MAX).min(8192)
}

/// Observes processes by polling /proc.
#[derive(Debug)]
pub struct ProcfsBackend {
    root: PathBuf,
    targets: Targets,
    interval: DurationNs,
    command: Option<Tgid>,
    budget: DescriptorBudget,
    census: Census,
    members: BTreeMap<Tgid, Member>,
    names_checked_to: Tgid,
    buffer: TextBuffer,
    refusals: Refusals,
}

impl ProcfsBackend {
    /// A backend for the procfs that is mounted at `root`.
    pub fn new(root: &Path, targets: Targets, options: ProcfsOptions) -> Self {
        Self {
            root: root.to_owned(),
            census: Census::new(root, targets.clone()),
            targets,
            interval: options.interval,
            command: options.command,
            budget: DescriptorBudget::new(options.descriptor_limit),
            members: BTreeMap::new(),
            names_checked_to: Tgid(0),
            buffer: TextBuffer::default(),
            refusals: Refusals::default(),
        }
    }

    /// What a reader must know before trusting an absence.
    fn announce_limits(&self, pass: &mut Pass<'_>) {
        let interval_ms = self.interval.0 / 1_000_000;
        pass.tell_degraded(
            DiagKind::PollingLimit,
            "procfs",
            None,
            format!(
                "polled every {interval_ms} ms: a process that lives shorter can be missing, with \
                 its children; memory that comes and goes between two polls shows only in the \
                 high-water mark, up to the last poll before the end; exit codes are known only \
                 of processes found before they were waited for"
            ),
        );
    }

    fn announce_missing_roots(&self, pass: &mut Pass<'_>) {
        let Targets::Roots(roots) = &self.targets else {
            return;
        };
        let is_missing =
            |root: &&Tgid| self.command != Some(**root) && !self.members.contains_key(root);
        for root in roots.iter().filter(is_missing) {
            pass.tell(
                Severity::Loss,
                DiagKind::Unavailable,
                &format!("pid {root}"),
                None,
                "there was no such process when recording started".to_owned(),
            );
        }
    }

    fn observe_members(&mut self, pass: &mut Pass<'_>) {
        let mut poll = Poll::new(&self.root, &mut self.buffer, &mut self.refusals, pass);
        let mut ended = Vec::new();
        for (tgid, member) in &mut self.members {
            if let Some(stat) = member.observe(&mut poll) {
                ended.push((*tgid, stat));
            }
        }
        for (tgid, stat) in ended {
            if let Some(member) = self.members.remove(&tgid) {
                member.end(stat.as_ref(), &mut poll);
            }
            if let Some(stat) = stat {
                self.census.dismiss(tgid, &stat, poll.tick.boot);
            }
        }
    }

    /// Reads names whose turn it is, as many as the budget of one poll allows, going round.
    fn check_names(&mut self, pass: &mut Pass<'_>) {
        let mut due: Vec<Tgid> = self
            .members
            .iter()
            .filter(|(_, member)| member.has_names_due(pass.tick.boot))
            .map(|(tgid, _)| *tgid)
            .collect();
        let first = due.partition_point(|tgid| *tgid <= self.names_checked_to);
        due.rotate_left(first);
        let share = self.interval.0 as f64 / names::PERIOD.0 as f64;
        let budget = SPARE_NAME_CHECKS + (self.members.len() as f64 * share).ceil() as usize;
        let mut poll = Poll::new(&self.root, &mut self.buffer, &mut self.refusals, pass);
        for tgid in due.into_iter().take(budget) {
            self.names_checked_to = tgid;
            if let Some(member) = self.members.get_mut(&tgid) {
                member.check_names(&mut poll);
            }
        }
    }

    fn find_started(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let seen_by = if self.census.is_first() {
            FirstSeenBy::Snapshot
        } else {
            FirstSeenBy::Poll
        };
        for tgid in std::mem::take(&mut pass.table.news.adoption_requests) {
            self.census.request_adoption(tgid);
        }
        let members = &self.members;
        let mut input = CensusInput {
            now: pass.tick.boot,
            buffer: &mut self.buffer,
            refusals: &mut self.refusals,
        };
        let started = self
            .census
            .take(&|tgid| members.contains_key(&tgid), &mut input)
            .map_err(|error| CollectError::new(self.root.display().to_string(), error))?;
        for started in started {
            self.admit(&started, seen_by, pass);
        }
        Ok(())
    }

    fn admit(&mut self, started: &Started, seen_by: FirstSeenBy, pass: &mut Pass<'_>) {
        let Started { tgid, stat } = started;
        let birth = Birth {
            tgid: *tgid,
            start: stat.start(),
            seen_by,
            parent: None,
            comm: stat.comm.clone(),
        };
        let (parent, now) = (Some(stat.ppid), pass.tick.boot);
        let upid = pass
            .table
            .enter_polled(birth, parent, START_TOLERANCE_NS, now);
        if stat.has_ended() {
            self.end_vanished(started, upid, pass);
            return;
        }
        let Ok(Some(dir)) = ProcDir::open(&self.root, *tgid) else {
            pass.table.end(upid, pass.tick.boot, None);
            return;
        };
        if let Err(error) = dir.exe() {
            self.refusals.count(Refusal::Exe, &error);
        }
        let identity = Identity::read(&dir, stat, &mut self.buffer);
        if let Some(process) = pass.table.process_mut(upid) {
            identity.fill(process.row_mut());
        }
        let parent = self.members.contains_key(&stat.ppid).then_some(stat.ppid);
        let mut poll = Poll::new(&self.root, &mut self.buffer, &mut self.refusals, pass);
        let mut member = Member::new(upid, started, parent, &identity, &self.budget, &mut poll);
        // One that ended since will be found to have at the next poll.
        let _ = member.observe(&mut poll);
        self.members.insert(*tgid, member);
    }

    /// Records a process that had ended before it was seen: all that is left of it are
    /// its name, its parent and how it ended.
    fn end_vanished(&mut self, started: &Started, upid: Upid, pass: &mut Pass<'_>) {
        let Started { tgid, stat } = started;
        if let Some(process) = pass.table.process_mut(upid) {
            // The parent's, which it may have left by exec.
            let row = process.row_mut();
            row.exe = None;
            row.cmdline = None;
        }
        pass.write(TitleRow {
            ts: pass.tick.wall(),
            boot_ns: pass.tick.boot,
            upid,
            comm: stat.comm.clone(),
            source: Some(TitleSource::First),
            ..TitleRow::default()
        });
        let parent = self.members.get(&stat.ppid);
        let is_inspectable = parent.is_some_and(|parent| parent.is_inspectable);
        pass.table
            .end(upid, pass.tick.boot, wait_status(stat, is_inspectable));
        self.census.dismiss(*tgid, stat, pass.tick.boot);
    }
}

impl Collector for ProcfsBackend {
    fn name(&self) -> &'static str {
        "procfs"
    }

    fn period(&self) -> DurationNs {
        self.interval
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let started = clock::thread_cpu().0;
        let is_first = self.census.is_first();
        if is_first {
            self.announce_limits(pass);
        }
        // The dead first: their ids may already be those of new processes.
        self.observe_members(pass);
        self.check_names(pass);
        let found = self.find_started(pass);
        if is_first && found.is_ok() {
            self.announce_missing_roots(pass);
        }
        self.refusals.write(pass);
        let cost = DurationNs(clock::thread_cpu().0 - started);
        pass.table.note_snapshot(pass.tick.boot, cost);
        found
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let result = self.collect(pass);
        let mut poll = Poll::new(&self.root, &mut self.buffer, &mut self.refusals, pass);
        for member in self.members.values_mut() {
            member.finish(&mut poll);
        }
        result
    }
}
