//! One process of the recording: turns what its probe shows into rows.

use super::census::Started;
use super::dir::ProcDir;
use super::identity::Identity;
use super::names::Names;
use super::probe::{DescriptorBudget, Observation, Probe};
use super::refusals::{Refusal, Refusals};
use super::stat::Stat;
use super::status::{Status, StatusBytes};
use crate::kept::TextBuffer;
use crate::{Pass, Peak, ProcessTable, Tick, exit_row};
use memtrace_model::{
    BootNs, DurationNs, MemRow, MemSource, PeakSource, Record, Tgid, TitleRow, TitleSource, Upid,
};
use std::path::Path;
use std::sync::Arc;

/// The high-water mark and the cgroup are read this often also when nothing moved: a
/// spike between two looks can leave the memory as it was, and a process can be moved.
const SLOW_PERIOD: DurationNs = DurationNs(10_000_000_000);

/// How long after its start a process is likelier to call exec than to retitle itself.
const NEWBORN: DurationNs = DurationNs(1_000_000_000);

/// What one poll works with.
pub(super) struct Poll<'a> {
    pub(super) root: &'a Path,
    pub(super) tick: &'a Tick,
    pub(super) buffer: &'a mut TextBuffer,
    pub(super) refusals: &'a mut Refusals,
    pub(super) table: &'a mut ProcessTable,
    pub(super) out: &'a mut Vec<Record>,
}

impl<'a> Poll<'a> {
    pub(super) fn new(
        root: &'a Path,
        buffer: &'a mut TextBuffer,
        refusals: &'a mut Refusals,
        pass: &'a mut Pass<'_>,
    ) -> Self {
        let Pass { tick, table, out } = pass;
        Self {
            root,
            tick,
            buffer,
            refusals,
            table,
            out,
        }
    }
}

/// A process of the recording that is alive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) upid: Upid,
    tgid: Tgid,
    start_ticks: i64,
    /// The parent, until the process was seen in memory of its own.
    parent: Option<Tgid>,
    /// Whether we may ptrace it: then a wait status of 0 is one, and not a refusal.
    pub(super) is_inspectable: bool,
    budget: DescriptorBudget,
    probe: Probe,
    names: Names,
    last: Option<StatusBytes>,
    slow_at: BootNs,
}

/// What became of a process whose memory is not to be seen.
enum Vanished {
    Ended { stat: Option<Stat> },
    LostItsLeader,
    Goes,
}

impl Member {
    /// Starts to observe a process that has been entered into the process table as `upid`.
    pub(super) fn new(
        upid: Upid,
        started: &Started,
        parent: Option<Tgid>,
        identity: &Identity,
        budget: &DescriptorBudget,
        poll: &mut Poll<'_>,
    ) -> Self {
        let Started { tgid, stat } = started;
        let now = poll.tick.boot;
        let names = Names::new(
            identity.comm.clone(),
            identity.cmdline.clone(),
            stat.arg_start,
            identity.start,
            now,
            *tgid,
        );
        let member = Self {
            upid,
            tgid: *tgid,
            start_ticks: stat.start_ticks,
            parent,
            is_inspectable: stat.arg_start.is_some(),
            budget: budget.clone(),
            probe: Probe::open(poll.root, *tgid, stat.start_ticks, budget),
            names,
            last: None,
            slow_at: now + DurationNs(i64::from(tgid.0 % 100) * (SLOW_PERIOD.0 / 100)),
        };
        member.write_title(TitleSource::First, poll);
        member
    }

    /// Looks at its memory and writes what changed. When the process has ended, gives the
    /// last that /proc tells about it, if anything.
    pub(super) fn observe(&mut self, poll: &mut Poll<'_>) -> Option<Option<Stat>> {
        let mut is_written = false;
        match self.probe.look(poll.buffer) {
            Ok(Observation::Unchanged) => {}
            Ok(Observation::Changed) => is_written = self.read_amounts(poll),
            Ok(sight @ (Observation::NoMemory | Observation::Gone)) => match self.fate(poll) {
                Vanished::Ended { stat } => return Some(stat),
                Vanished::LostItsLeader => {
                    self.probe
                        .follow_a_thread(poll.root, self.tgid, poll.buffer);
                }
                Vanished::Goes if sight == Observation::Gone => {
                    self.probe = Probe::open(poll.root, self.tgid, self.start_ticks, &self.budget);
                }
                Vanished::Goes => {}
            },
            Err(error) => {
                poll.refusals.count(Refusal::Process, &error);
            }
        }
        if poll.tick.boot >= self.slow_at {
            self.slow_at = poll.tick.boot + SLOW_PERIOD;
            is_written |= self.read_amounts(poll);
        }
        if poll.tick.is_keyframe
            && !is_written
            && let Some(amounts) = self.last
        {
            self.write_mem(amounts, MemSource::Keyframe, poll);
        }
        None
    }

    /// Whether the names should be read again.
    pub(super) fn has_names_due(&self, now: BootNs) -> bool {
        self.names.is_due(now)
    }

    /// Reads the names again and writes a change.
    pub(super) fn check_names(&mut self, poll: &mut Poll<'_>) {
        let directory = poll.root.join(self.tgid.to_string());
        let Ok(Some((comm, title))) = super::dir::names(&directory, poll.buffer) else {
            return;
        };
        if !self.names.update(comm, title, poll.tick.boot) {
            return;
        }
        self.write_title(TitleSource::Poll, poll);
        let Ok(Some(dir)) = ProcDir::open(poll.root, self.tgid) else {
            return;
        };
        let stat = dir.read("stat", poll.buffer).ok().flatten();
        let Some(stat) = stat.and_then(Stat::parse) else {
            return;
        };
        // A new image has its arguments elsewhere; a title is written over the old ones.
        // Where that is hidden, a process that has just started is taken to call exec.
        let is_exec = match stat.arg_start {
            Some(_) => stat.arg_start != self.names.arg_start,
            None => poll.tick.boot - stat.start() <= NEWBORN,
        };
        let identity = is_exec.then(|| Identity::read(&dir, &stat, poll.buffer));
        let Some(process) = poll.table.process_mut(self.upid) else {
            return;
        };
        match identity {
            Some(identity) => {
                self.names.arg_start = stat.arg_start;
                identity.fill(process.row_mut());
            }
            None => process.row_mut().comm.clone_from(&self.names.comm),
        }
    }

    /// Reads the high-water mark once more, for the end of the recording.
    pub(super) fn finish(&mut self, poll: &mut Poll<'_>) {
        self.read_amounts(poll);
    }

    /// Ends it: nothing is held from now on.
    pub(super) fn end(self, stat: Option<&Stat>, poll: &mut Poll<'_>) {
        let at = poll.tick.boot;
        if self.last.is_some() {
            poll.out.push(exit_row(self.upid, at, poll.tick).into());
        }
        let wait_status = stat.and_then(|stat| wait_status(stat, self.is_inspectable));
        poll.table.end(self.upid, at, wait_status);
    }

    fn fate(&self, poll: &mut Poll<'_>) -> Vanished {
        let path = poll.root.join(self.tgid.to_string()).join("stat");
        let stat = poll.buffer.read_once(&path).ok().and_then(Stat::parse);
        match stat {
            Some(stat) if stat.start_ticks != self.start_ticks => Vanished::Ended { stat: None },
            Some(stat) if stat.has_ended() => Vanished::Ended { stat: Some(stat) },
            Some(stat) if stat.has_lost_its_leader() => Vanished::LostItsLeader,
            Some(_) => Vanished::Goes,
            None => Vanished::Ended { stat: None },
        }
    }

    /// Reads the amounts and writes them where they changed; whether a row was written.
    fn read_amounts(&mut self, poll: &mut Poll<'_>) -> bool {
        let status = match self.probe.status(poll.buffer) {
            Ok(Some(status)) => status,
            Ok(None) => return false,
            Err(error) => {
                poll.refusals.count(Refusal::Process, &error);
                return false;
            }
        };
        // No amounts: it ended between the look and the reading.
        if status.amounts.rss.is_none() || self.is_borrowing(poll) {
            return false;
        }
        self.raise_peak(&status, poll);
        if self.last == Some(status.amounts) {
            return false;
        }
        let source = match self.last {
            None => MemSource::First,
            Some(_) => MemSource::Procfs,
        };
        self.write_mem(status.amounts, source, poll);
        if source != MemSource::First {
            // What moves memory also moves names: exec, a model loaded, a new phase.
            self.names.hasten();
        }
        true
    }

    /// Whether it still runs in its parent's memory, as between vfork and exec. Then the
    /// amounts are the parent's.
    fn is_borrowing(&mut self, poll: &mut Poll<'_>) -> bool {
        let Some(parent) = self.parent else {
            return false;
        };
        let is_borrowing = self.probe.is_in_memory_of(poll.root, parent, poll.buffer);
        if !is_borrowing {
            self.parent = None;
        }
        is_borrowing
    }

    /// VmHWM is of the present image only; the process table keeps the highest over all images.
    /// When the process is at its mark right now, that is a time at which it was reached.
    fn raise_peak(&self, status: &Status, poll: &mut Poll<'_>) {
        let Some(bytes) = status.peak_rss else {
            return;
        };
        let is_at_peak = status.amounts.rss == Some(bytes);
        let peak = Peak {
            bytes,
            source: PeakSource::VmHwm,
            error: None,
            at: is_at_peak.then_some(poll.tick.boot),
        };
        poll.table.raise_peak(self.upid, peak);
    }

    fn write_mem(&mut self, amounts: StatusBytes, source: MemSource, poll: &mut Poll<'_>) {
        self.last = Some(amounts);
        poll.out.push(Record::Mem(MemRow {
            ts: poll.tick.wall().whole_ms(),
            boot_ns: poll.tick.boot,
            upid: self.upid,
            rss_bytes: amounts.rss,
            rss_anon_bytes: amounts.rss_anon,
            rss_file_bytes: amounts.rss_file,
            rss_shmem_bytes: amounts.rss_shmem,
            swap_bytes: amounts.swap,
            vm_size_bytes: amounts.vm_size,
            source: Some(source),
            // Of the heap /proc/PID/stat has only the start; VmData counts every private
            // writable mapping.
            ..MemRow::default()
        }));
    }

    fn write_title(&self, source: TitleSource, poll: &mut Poll<'_>) {
        poll.out.push(Record::Title(TitleRow {
            ts: poll.tick.wall(),
            boot_ns: poll.tick.boot,
            upid: self.upid,
            comm: self.names.comm.clone(),
            title: self.names.title.as_deref().map(Arc::from),
            role: None,
            source: Some(source),
        }));
    }
}

/// The wait status of a zombie. The kernel shows 0 where we may not ptrace it
/// (do_task_stat()), so 0 counts only where we may.
pub(super) fn wait_status(stat: &Stat, is_inspectable: bool) -> Option<i32> {
    (is_inspectable || stat.wait_status != 0).then_some(stat.wait_status)
}
