//! The thread that asks NVML: whose turn it is, and what is reported of it.

use super::LibraryError;
use super::device;
use super::holders::Walk;
use super::library;
use super::list::{Buffer, Entry, List};
use super::memory::{DeviceMemory, bytes};
use super::merge::{Listed, merge};
use super::pace::{Asked, Calls, HANG, KEYFRAME_PERIOD, LIST_PERIOD, Pace};
use super::steps::Stamp;
use super::turn::Turn;
use crate::stop::{Rest, Stop, Stopped};
use memtrace_host::clock;
use memtrace_model::tables::GpuDeviceRow;
use memtrace_model::{BootNs, Bytes, DiagKind, DurationNs, GpuInfo, Severity, Tgid, WallNs};
use nvml_wrapper::error::NvmlError;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

const SECOND: i64 = 1_000_000_000;
/// A device that has fallen off the bus is asked again this often.
const LOST_PERIOD: DurationNs = DurationNs(10 * SECOND);
/// Of all time, calls for the devices' memory may take so much.
const MEMORY_SHARE: f64 = 0.005;
const MEMORY_SLOWEST: DurationNs = DurationNs(5 * SECOND);
/// Of all time, calls for lists of processes may take so much.
const LIST_SHARE: f64 = 0.02;
const LIST_SLOWEST: DurationNs = DurationNs(30 * SECOND);
/// Between two rounds, also where somebody hurries.
const LEAST_REST: DurationNs = DurationNs(20_000_000);
/// So much more that no process explains, and lists that were empty are read again.
const NEWS: Bytes = Bytes(16 << 20);

/// What the thread is started with.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) interval: DurationNs,
    pub(super) wanted: Vec<String>,
    pub(super) proc: PathBuf,
    pub(super) is_initial_pid_ns: bool,
    /// Where the calls are noted.
    pub(super) calls: Calls,
}

/// A process that accounting mode remembers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) pid: u32,
    pub(super) peak: Option<Bytes>,
    pub(super) start: WallNs,
}

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Found {
    /// The devices, once.
    Ready(Vec<GpuInfo>),
    /// There is nothing to ask.
    Failed(LibraryError),
    Device(Box<GpuDeviceRow>),
    /// All processes of a device.
    Processes(Arc<str>, Stamp, Vec<Listed>),
    /// The amounts of a device's processes are no longer known.
    Unknown(Arc<str>, Stamp),
    Past(Arc<str>, Stamp, Vec<Past>),
    /// Who has the device open where memory is unexplained.
    Holders(Arc<str>, Stamp, Vec<Tgid>),
    Diag(Severity, DiagKind, String, String),
}

impl Found {
    /// When it was so, where it has a time.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Device(row) => Some(Stamp {
                ts: row.ts,
                boot: row.boot_ns,
            }),
            Self::Processes(_, stamp, _)
            | Self::Unknown(_, stamp)
            | Self::Past(_, stamp, _)
            | Self::Holders(_, stamp, _) => Some(*stamp),
            Self::Ready(_) | Self::Failed(_) | Self::Diag(..) => None,
        }
    }
}

/// Asks until the order to stop comes, and once more then.
pub(super) fn run(order: Order, stop: &Stop, tell: &SyncSender<Found>) {
    let nvml = match library::open() {
        Ok(nvml) => nvml,
        Err(error) => return drop(tell.send(Found::Failed(error))),
    };
    let (gpus, problems) = match device::open_all(&nvml, &order.wanted, &order.calls) {
        Ok(opened) => opened,
        Err(error) => return drop(tell.send(Found::Failed(error))),
    };
    let ready = gpus.iter().map(|gpu| gpu.info.clone()).collect();
    let mut worker = Worker {
        turns: gpus.into_iter().map(Turn::new).collect(),
        tell,
        reported: HashSet::new(),
        calls: order.calls.clone(),
        memory_pace: Pace::new(order.interval, MEMORY_SLOWEST, MEMORY_SHARE),
        list_pace: Pace::new(LIST_PERIOD, LIST_SLOWEST, LIST_SHARE),
        listed_at: None,
        walk: Walk::new(&order.proc),
        buffer: Buffer::default(),
        order,
    };
    // The other end goes only when the recording ends.
    let _ = worker.run(ready, problems, stop);
}

/// Why a round is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// It is time.
    Usual,
    /// Somebody wants to know who holds what at once.
    Urgent,
    /// The recording ends.
    Last,
}

impl Round {
    fn after(rest: Rest) -> Self {
        match rest {
            Rest::Whole => Self::Usual,
            Rest::Short => Self::Urgent,
        }
    }
}

struct Worker<'n, 't> {
    order: Order,
    turns: Vec<Turn<'n>>,
    tell: &'t SyncSender<Found>,
    reported: HashSet<String>,
    calls: Calls,
    memory_pace: Pace,
    list_pace: Pace,
    listed_at: Option<BootNs>,
    walk: Walk,
    buffer: Buffer,
}

impl Worker<'_, '_> {
    fn run(
        &mut self,
        ready: Vec<GpuInfo>,
        problems: Vec<String>,
        stop: &Stop,
    ) -> Result<(), Stopped> {
        self.say(Found::Ready(ready))?;
        if !problems.is_empty() {
            self.warn(DiagKind::Unavailable, "nvml", &problems.join("; "))?;
        }
        let mut next = clock::boot();
        let mut next_accounting = next;
        let mut rest = Rest::Whole;
        loop {
            let stamp = Stamp::now();
            self.round(stamp, Round::after(rest))?;
            if stamp.boot >= next_accounting {
                self.read_accounting(stamp)?;
                next_accounting = stamp.boot + KEYFRAME_PERIOD;
            }
            if rest == Rest::Whole {
                next = (next + self.memory_pace.interval()).max(stamp.boot);
            }
            // Whoever hurries does not hold the driver's lock all the time.
            let least = LEAST_REST.min(next - clock::boot());
            let rested = stop
                .rest_well(least)
                .and_then(|()| stop.rest(next - clock::boot()));
            rest = match rested {
                Ok(rest) => rest,
                Err(Stopped) => {
                    let stamp = Stamp::now();
                    self.round(stamp, Round::Last)?;
                    return self.read_accounting(stamp);
                }
            };
        }
    }

    fn say(&self, found: Found) -> Result<(), Stopped> {
        self.tell.send(found).map_err(|_| Stopped)
    }

    /// Tells of something once.
    fn warn(&mut self, kind: DiagKind, subject: &str, detail: &str) -> Result<(), Stopped> {
        if !self.reported.insert(format!("{subject}: {detail}")) {
            return Ok(());
        }
        let (subject, detail) = (subject.to_owned(), detail.to_owned());
        self.say(Found::Diag(Severity::Degraded, kind, subject, detail))
    }

    fn back_off(
        &mut self,
        is_slow: Option<bool>,
        subject: &str,
        pace: fn(&Self) -> &Pace,
    ) -> Result<(), Stopped> {
        let Some(is_slow) = is_slow else {
            return Ok(());
        };
        let pace = pace(self);
        let millis = |time: DurationNs| time.0 as f64 / 1e6;
        let detail = format!(
            "read every {:.0} ms by now: a round of calls takes {:.1} ms",
            millis(pace.interval()),
            millis(pace.usual())
        );
        let severity = if is_slow {
            Severity::Degraded
        } else {
            Severity::Info
        };
        self.say(Found::Diag(
            severity,
            DiagKind::BackOff,
            subject.to_owned(),
            detail,
        ))
    }

    /// The memory of every device, and the processes of those that moved or are due.
    fn round(&mut self, stamp: Stamp, round: Round) -> Result<(), Stopped> {
        let is_last = round == Round::Last;
        if self.calls.clear_hung() {
            self.turns.iter_mut().for_each(Turn::forget);
        }
        let before = self.calls.counts().total;
        let is_second = self
            .listed_at
            .is_none_or(|at| stamp.boot - at >= LIST_PERIOD);
        for place in 0..self.turns.len() {
            self.read_memory(place, stamp, is_second)?;
        }
        let cost = DurationNs(self.calls.counts().total.0 - before.0);
        let is_slow = self.memory_pace.note(cost);
        self.back_off(is_slow, "nvml memory", |worker| &worker.memory_pace)?;

        let since = self.listed_at.map(|at| stamp.boot - at);
        let may_list = round != Round::Usual
            || since.is_none_or(|since| since >= self.list_pace.least_interval());
        let has_moved = self.turns.iter().any(|turn| turn.has_moved);
        let is_due = since.is_none_or(|since| since >= self.list_pace.interval());
        if may_list && (has_moved || is_due || is_last) {
            let before = self.calls.counts().total;
            for place in 0..self.turns.len() {
                if is_due || is_last || self.turns[place].has_moved {
                    self.read_lists(place, stamp, is_last)?;
                }
            }
            self.listed_at = Some(stamp.boot);
            let cost = DurationNs(self.calls.counts().total.0 - before.0);
            let is_slow = self.list_pace.note(cost);
            self.back_off(is_slow, "nvml processes", |worker| &worker.list_pace)?;
        }
        // What was read before a call that hung is reported to be unknown by now.
        if self.calls.has_hung() {
            return Ok(());
        }
        for place in 0..self.turns.len() {
            self.say_device(place, stamp, is_last)?;
        }
        Ok(())
    }

    fn say_device(&mut self, place: usize, stamp: Stamp, must: bool) -> Result<(), Stopped> {
        let calls = self.calls.counts();
        match self.turns[place].row(stamp, &calls, must) {
            Some(row) => self.say(Found::Device(Box::new(row))),
            None => Ok(()),
        }
    }

    fn read_memory(&mut self, place: usize, stamp: Stamp, is_second: bool) -> Result<(), Stopped> {
        let turn = &mut self.turns[place];
        if stamp.boot < turn.next_try {
            return Ok(());
        }
        let (answer, took) = self
            .calls
            .timed_of(Asked::Memory, &turn.device, || turn.gpu.memory());
        turn.memory_call = turn.memory_call.max(Some(took));
        match answer {
            Ok(memory) => {
                let used = |memory: Option<DeviceMemory>| memory.and_then(|memory| memory.used);
                turn.has_moved |= used(memory) != used(turn.memory) || turn.error.is_some();
                turn.memory = memory;
                turn.error = None;
            }
            Err(error) => return self.note_failure(place, stamp, &error),
        }
        if took >= HANG {
            return self.say_device(place, Stamp::now(), true);
        }
        if is_second {
            // A figure beside the memory: where it can't be had it is unknown.
            let (utilization, _) = self.calls.timed(|| turn.gpu.utilization());
            turn.utilization = utilization.ok();
        }
        Ok(())
    }

    /// A device that did not answer: unknown from here on, and asked again.
    fn note_failure(
        &mut self,
        place: usize,
        stamp: Stamp,
        error: &NvmlError,
    ) -> Result<(), Stopped> {
        let turn = &mut self.turns[place];
        if matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired) {
            turn.next_try = stamp.boot + LOST_PERIOD;
        }
        let had_answered = turn.error.is_none();
        turn.error = Some(error.to_string());
        turn.memory = None;
        turn.utilization = None;
        turn.has_moved = false;
        let device = Arc::clone(&turn.device);
        let what = format!("its memory is unknown from here on: {error}");
        if had_answered {
            self.say(Found::Unknown(Arc::clone(&device), stamp))?;
        }
        self.warn(DiagKind::Unavailable, &device, &what)
    }

    fn read_lists(&mut self, place: usize, stamp: Stamp, is_last: bool) -> Result<(), Stopped> {
        let turn = &mut self.turns[place];
        // The instances of a divided device have its processes.
        if turn.error.is_some() || turn.gpu.is_divided {
            turn.has_moved = false;
            return Ok(());
        }
        let is_full = is_last || stamp.boot >= turn.next_full_list;
        turn.has_moved = false;
        let mut failures = self.ask_lists(place, |list, known| {
            is_full || list == List::Compute || !known.is_empty()
        });
        let is_initial_pid_ns = self.order.is_initial_pid_ns;
        let turn = &mut self.turns[place];
        let rest = turn.rest(&merge(&turn.lists, is_initial_pid_ns));
        // Somebody came whom the lists that were empty may have.
        let is_news = rest > turn.last_rest.map(|rest| rest + NEWS);
        if is_full || is_news {
            turn.next_full_list = stamp.boot + KEYFRAME_PERIOD;
        }
        if is_news && !is_full {
            let more = self.ask_lists(place, |list, known| {
                list != List::Compute && known.is_empty()
            });
            failures.extend(more);
        }
        let turn = &mut self.turns[place];
        let merged = merge(&turn.lists, is_initial_pid_ns);
        turn.last_rest = turn.rest(&merged);
        let (device, is_listed) = (Arc::clone(&turn.device), turn.is_listed);
        for (list, error) in failures {
            let detail = format!("{}: {error}", list.call());
            let subject = format!("processes of {device}");
            self.warn(DiagKind::Unavailable, &subject, &detail)?;
        }
        if is_listed {
            let stamp = match self.calls.has_hung() {
                true => Stamp::now(),
                false => stamp,
            };
            self.look_for_holders(place, stamp, &merged)?;
            self.say(Found::Processes(device, stamp, merged))?;
        }
        Ok(())
    }

    /// Reads those lists of a device that are wanted. Gives the calls that failed.
    fn ask_lists(
        &mut self,
        place: usize,
        is_wanted: impl Fn(List, &[Entry]) -> bool,
    ) -> Vec<(List, NvmlError)> {
        let turn = &mut self.turns[place];
        let mut failures = Vec::new();
        for list in List::ALL {
            let known = turn.lists[list as usize].as_deref();
            if !known.is_some_and(|known| is_wanted(list, known)) {
                continue;
            }
            let (answer, took) = self.calls.timed_of(Asked::Processes, &turn.device, || {
                turn.gpu.list(list, &mut self.buffer)
            });
            turn.process_call = turn.process_call.max(Some(took));
            match answer {
                Ok(entries) => {
                    turn.is_listed = true;
                    turn.lists[list as usize] = Some(entries);
                }
                Err(error) if device::is_unsupported(&error) => {
                    turn.lists[list as usize] = None;
                    // The others matter only where there are such processes.
                    if list == List::Compute {
                        failures.push((list, error));
                    }
                }
                // What it said before stands until it answers again.
                Err(error) => failures.push((list, error)),
            }
        }
        failures
    }

    /// Where memory is unexplained: who has the device open.
    fn look_for_holders(
        &mut self,
        place: usize,
        stamp: Stamp,
        listed: &[Listed],
    ) -> Result<(), Stopped> {
        let turn = &mut self.turns[place];
        let Some(minor) = turn.gpu.minor else {
            return Ok(());
        };
        let device = Arc::clone(&turn.device);
        if turn.unexplained(listed).is_none() {
            return match std::mem::take(&mut turn.holds_candidates) {
                true => self.say(Found::Holders(device, stamp, Vec::new())),
                false => Ok(()),
            };
        }
        let Some(open) = self.walk.of(minor, stamp.boot) else {
            return Ok(());
        };
        turn.holds_candidates = true;
        let is_listed = |tgid: &Tgid| listed.iter().any(|one| one.pid == tgid.0);
        let open = open.filter(|tgid| !is_listed(tgid)).collect();
        self.say(Found::Holders(device, stamp, open))
    }

    fn read_accounting(&mut self, stamp: Stamp) -> Result<(), Stopped> {
        for place in 0..self.turns.len() {
            let turn = &self.turns[place];
            if turn.error.is_some() {
                continue;
            }
            let (is_on, _) = self.calls.timed(|| turn.gpu.has_accounting());
            if !is_on.unwrap_or(false) {
                continue;
            }
            let (accounted, _) = self.calls.timed(|| turn.gpu.accounted());
            let ended = accounted.into_iter().flatten();
            let ended = ended.filter(|(_, stats)| !stats.is_running);
            let past: Vec<Past> = ended
                .map(|(pid, stats)| Past {
                    pid,
                    peak: device::accounted_peak(&stats),
                    // Microseconds since the epoch.
                    start: WallNs(bytes(stats.start_time).0.saturating_mul(1_000)),
                })
                .collect();
            if !past.is_empty() {
                self.say(Found::Past(Arc::clone(&turn.device), stamp, past))?;
            }
        }
        Ok(())
    }
}
