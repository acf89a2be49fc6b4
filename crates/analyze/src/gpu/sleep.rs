//! The sleep audit: what a mark that names a sleep, or a waking, did to the memory of GPUs.
//! A sharp fall is reported without a mark too; here the answer can be that nothing left.

use super::cuda::CudaParts;
use super::falls::{HostGain, before};
use super::ledger::{GpuHolder, GpuLedger, GpuPart};
use crate::phases::{Named, stage};
use crate::process::Process;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order};
use memtrace_timeline::Totals;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Parts of a name that say that memory comes back: vLLM's `wake_up`, SGLang's
/// `resume_memory_occupation`. Looked for before the others.
const BACK: &[&str] = &["wake", "resume_memory", "onload"];
/// Parts of a name that say that memory leaves.
const AWAY: &[&str] = &["sleep", "release_memory", "offload"];
/// A line that tells the outcome is no sleep of its own (vLLM's "Sleep mode freed").
const OUTCOME: &str = "freed";

/// A moment can be marked before what it names, or after it.
const BEFORE_MOMENT: DurationNs = DurationNs(2_000_000_000);
const AFTER_MOMENT: DurationNs = DurationNs(10_000_000_000);
/// A device is read a little later than what is marked: so long after another mark what it says
/// can still be what was before that.
const AFTER_MARK: DurationNs = DurationNs(250_000_000);
/// The start of a phase can come from a log line whose time is in seconds; the device is read
/// a little later than its end.
const AROUND_PHASE: DurationNs = DurationNs(1_000_000_000);
/// What appears in the machine's memory so long after the device's last change counts too.
const LATER: DurationNs = DurationNs(1_000_000_000);
/// More windows are not looked at: a training run of days has one for every step.
const WINDOWS_MAX: usize = 4_096;
/// What moved less than this part of what could has not moved.
const NOTHING: f64 = 0.01;
/// So many names are reported.
const NAMES_MAX: usize = 4;

/// What the marks of one name that names a sleep or a waking did, or of names that differ by the
/// number of a step. The figures are those of the one of them that did least.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Audit {
    /// The name of the mark.
    pub name: Arc<str>,
    /// Whether memory was to come back to the device, and not to leave it.
    pub is_return: bool,
    /// How many marks of that name there are; those of several processes at once are one.
    pub count: usize,
    /// Just before memory moved.
    pub from: Instant,
    /// From when on the machine's memory was looked at: a second before.
    #[serde(skip)]
    pub host_from: BootNs,
    /// When it had.
    pub to: Instant,
    /// Until when the machine's memory was looked at: a second after it had; where it did not,
    /// the end of the time that was looked at.
    #[serde(skip)]
    pub host_to: BootNs,
    /// The devices that recorded processes were on.
    pub devices: Vec<Arc<str>>,
    /// The driver's numbers for them, in the same order; null where it gave none.
    pub device_indices: Vec<Option<i32>>,
    /// What recorded processes held on them before; `None` where the driver does not tell of each.
    pub before_bytes: Option<Bytes>,
    /// The same after it.
    pub after_bytes: Option<Bytes>,
    /// What left the devices, or came back to them, as the name says; `None` when unknown.
    pub moved_bytes: Option<Bytes>,
    /// What those that it concerns held, by its parts; absent where calls of the CUDA driver were not
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaMoved>,
    /// Who of them held how much after it, the largest first.
    pub holders: Vec<GpuPart>,
    /// What came to the host meanwhile.
    #[serde(flatten)]
    pub host: HostGain,
    /// What was used on all devices together before.
    pub used_before_bytes: Bytes,
    /// The same after it.
    pub used_after_bytes: Bytes,
    /// What all devices together changed by at the one that did most, in the sense of the name.
    pub most_moved_bytes: Bytes,
}

/// What recorded processes held before and after it whose memory moved, and those that do the same as
/// they do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaMoved {
    /// Who, as indices into [`crate::Analysis::processes`].
    #[serde(skip)]
    pub processes: Vec<usize>,
    /// How many processes.
    pub process_count: usize,
    /// What they held on devices before.
    pub before_bytes: Bytes,
    /// What that was made of.
    pub cuda_before: CudaParts,
    /// What they held after it.
    pub after_bytes: Bytes,
    /// What that was made of.
    pub cuda_after: CudaParts,
}

/// Recorded processes by their place, with what each holds on devices.
type Held<'a> = BTreeMap<usize, (&'a GpuHolder, Option<Bytes>)>;

/// Devices by their place, with the driver's number for each.
type Devices = BTreeMap<usize, (Arc<str>, Option<i32>)>;

impl Audit {
    /// By how much an amount changed in the sense of the name.
    pub fn moved(&self, before: Bytes, after: Bytes) -> Bytes {
        match self.is_return {
            true => after - before,
            false => before - after,
        }
    }

    /// Completes it with who held what before and after.
    pub(super) fn explain(
        &mut self,
        (before, after): (&[GpuLedger], &[GpuLedger]),
        (host_before, host_after): (Option<&Totals>, Option<&Totals>),
        processes: &[Process],
    ) {
        fn recorded(ledgers: &[GpuLedger]) -> (Held<'_>, Devices) {
            let mut held = Held::new();
            let mut devices = Devices::new();
            for ledger in ledgers.iter().filter(|ledger| !ledger.is_divided) {
                for line in &ledger.lines {
                    let Some(process) = line.holder.process else {
                        continue;
                    };
                    devices.insert(
                        ledger.place,
                        (Arc::clone(&ledger.device), ledger.device_index),
                    );
                    if !line.is_counted_elsewhere {
                        let nothing = (&line.holder, Some(Bytes(0)));
                        let (_, sum) = held.entry(process).or_insert(nothing);
                        *sum = sum.zip(line.bytes).map(|(sum, bytes)| sum + bytes);
                    }
                }
            }
            (held, devices)
        }
        let ledgers = (before, after);
        let ((before, mut devices), (after, then)) = (recorded(before), recorded(after));
        devices.extend(then);
        (self.devices, self.device_indices) = devices.into_values().unzip();
        self.cuda = CudaMoved::of(ledgers, (&before, &after), processes);
        self.before_bytes = before.values().map(|(_, bytes)| *bytes).sum();
        self.after_bytes = after.values().map(|(_, bytes)| *bytes).sum();
        let both = self.before_bytes.zip(self.after_bytes);
        self.moved_bytes = both.map(|(before, after)| self.moved(before, after));
        let holders = after.into_values().map(|(holder, bytes)| GpuPart {
            holder: holder.clone(),
            bytes,
        });
        self.holders = holders.collect();
        self.holders
            .order_by_key(|part| std::cmp::Reverse(part.bytes));
        self.host = HostGain::of(host_before, host_after);
    }
}

impl CudaMoved {
    /// `None` where it is not known of all of it what it was made of.
    fn of(
        (before, after): (&[GpuLedger], &[GpuLedger]),
        held: (&Held<'_>, &Held<'_>),
        processes: &[Process],
    ) -> Option<Self> {
        let bytes = |held: &Held<'_>, process: usize| {
            held.get(&process)
                .map_or(Some(Bytes(0)), |(_, bytes)| *bytes)
        };
        let has_moved = |process: usize| {
            let (before, after) = (bytes(held.0, process)?, bytes(held.1, process)?);
            let least = before.max(after).0 as f64 * NOTHING;
            Some((before.0 - after.0).abs() as f64 > least)
        };
        let all: BTreeSet<usize> = held.0.keys().chain(held.1.keys()).copied().collect();
        let moved = all
            .iter()
            .filter(|process| has_moved(**process) == Some(true));
        let shapes: HashSet<&str> = moved.map(|process| &*processes[*process].shape).collect();
        let concerned = all
            .into_iter()
            .filter(|process| shapes.is_empty() || shapes.contains(&*processes[*process].shape));
        let concerned: Vec<usize> = concerned.collect();
        let (before_bytes, cuda_before) = parts(before, &concerned)?;
        let (after_bytes, cuda_after) = parts(after, &concerned)?;
        Some(Self {
            process_count: concerned.len(),
            processes: concerned,
            before_bytes,
            cuda_before,
            after_bytes,
            cuda_after,
        })
    }
}

/// What some processes hold, and what that is made of; `None` where that is not known of all of it.
fn parts(ledgers: &[GpuLedger], of: &[usize]) -> Option<(Bytes, CudaParts)> {
    let whole = ledgers.iter().filter(|ledger| !ledger.is_divided);
    let lines = whole.flat_map(|ledger| &ledger.lines);
    let own = lines.filter(|line| line.holder.process.is_some_and(|one| of.contains(&one)));
    let mut known = own.map(|line| line.bytes.zip(line.cuda));
    let first = known.next()??;
    known.try_fold(first, |(bytes, parts), line| {
        let (more, of_it) = line?;
        Some((bytes + more, parts.and(&of_it)))
    })
}

/// Recorded processes that are on GPUs, and when they ended.
#[derive(Debug, Default)]
pub(super) struct Holders(pub(super) HashMap<usize, Option<BootNs>>);

impl Holders {
    /// Until when what comes after a moment can be what it names: until whoever marked it, or
    /// one of these, marks something else, and until one of these ends.
    fn until(&self, moment: &Named, others: &[(BootNs, Option<usize>)]) -> BootNs {
        let concerns = |process: Option<usize>| {
            let is_own = process == moment.process;
            is_own || process.is_some_and(|process| self.0.contains_key(&process))
        };
        let later = others.partition_point(|(at, _)| *at <= moment.end);
        let later = others.get(later..).unwrap_or_default().iter();
        let soon = later.take_while(|(at, _)| *at < moment.end + AFTER_MOMENT);
        let mut marks = soon.filter(|(_, process)| concerns(*process));
        let mark = marks.next().map(|(at, _)| *at + AFTER_MARK);
        let ends = self.0.values().copied().flatten();
        let ends = ends.filter(|at| *at > moment.end);
        let last = moment.end + AFTER_MOMENT;
        mark.into_iter()
            .chain(ends)
            .min()
            .map_or(last, |at| at.min(last))
    }
}

/// Where a device's memory is looked at for one sleep.
#[derive(Clone, Debug)]
struct Window {
    name: Arc<str>,
    is_return: bool,
    from: BootNs,
    /// What stood until here is before; what comes after, after.
    at: BootNs,
    until: BootNs,
    before: Option<(Bytes, BootNs)>,
    after: Option<After>,
}

/// What stood after it.
#[derive(Clone, Copy, Debug)]
struct After {
    used: Bytes,
    first: BootNs,
    last: BootNs,
}

/// Watches all devices together around every sleep.
#[derive(Debug)]
pub(super) struct Sleeps {
    /// By their start.
    windows: Vec<Window>,
    first_open: usize,
    devices: HashMap<usize, Option<Bytes>>,
    now: BootNs,
}

fn direction(name: &str) -> Option<bool> {
    let name = name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match () {
        () if name.contains(OUTCOME) => None,
        () if has(BACK) => Some(true),
        () if has(AWAY) => Some(false),
        () => None,
    }
}

/// Whether it tells of a sleep or a waking, the outcome of one included.
fn is_of_sleeps(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    BACK.iter().chain(AWAY).any(|part| name.contains(part))
}

/// When something else was marked, and by which process, in order.
fn marks_of_others(named: &[Named]) -> Vec<(BootNs, Option<usize>)> {
    if !has_moments(named) {
        return Vec::new();
    }
    let others = named.iter().filter(|named| !is_of_sleeps(&named.name));
    let marks = others.flat_map(|other| {
        let marks = other.begin.into_iter().chain([other.end]);
        marks.map(|at| (at, other.process))
    });
    let mut marks: Vec<_> = marks.collect();
    marks.sort_unstable();
    marks
}

/// Whether any of them is a moment that is looked into.
pub(super) fn has_moments(named: &[Named]) -> bool {
    let mut moments = named.iter().filter(|named| named.begin.is_none());
    moments.any(|named| direction(&named.name).is_some())
}

impl Sleeps {
    pub(super) fn of(named: &[Named], holders: &Holders, end: BootNs) -> Self {
        let others = marks_of_others(named);
        let mut windows: Vec<Window> = named
            .iter()
            .filter_map(|named| {
                let is_return = direction(&named.name)?;
                let (from, at, until) = match named.begin {
                    Some(begin) => (
                        BootNs(begin.0 - AROUND_PHASE.0),
                        begin,
                        BootNs(named.end.0.saturating_add(AROUND_PHASE.0)),
                    ),
                    None => (
                        BootNs(named.end.0 - BEFORE_MOMENT.0),
                        named.end,
                        holders.until(named, &others),
                    ),
                };
                Some(Window {
                    name: Arc::clone(&named.name),
                    is_return,
                    from,
                    at,
                    until: until.min(end),
                    before: None,
                    after: None,
                })
            })
            .take(WINDOWS_MAX)
            .collect();
        windows.order_by_key(|window| window.from);
        let mut merged: Vec<Window> = Vec::new();
        for window in windows {
            // What was marked by every worker is one sleep.
            let mut before = merged.iter_mut().rev();
            let same = before.find(|last| last.name == window.name && window.from <= last.at);
            match same {
                Some(last) => last.until = last.until.max(window.until),
                None => merged.push(window),
            }
        }
        // The opposite bounds it.
        for place in 1..merged.len() {
            let (earlier, later) = merged.split_at_mut(place);
            let next = &mut later[0];
            let is_opposite = |window: &&mut Window| window.is_return != next.is_return;
            if let Some(last) = earlier.iter_mut().rev().find(is_opposite) {
                last.until = last.until.min(next.at.max(last.at));
                next.from = next.from.max(last.at.min(next.at));
            }
        }
        Self {
            windows: merged,
            first_open: 0,
            devices: HashMap::new(),
            now: BootNs(i64::MIN),
        }
    }

    /// A device was read, by its position: one that is no instance of another. The rows come
    /// in the order of time.
    pub(super) fn take(&mut self, place: usize, boot: BootNs, used: Option<Bytes>) {
        if self.first_open >= self.windows.len() {
            return;
        }
        if boot > self.now {
            self.note(boot);
            self.now = boot;
        }
        // One that never tells its memory has none of its own.
        if used.is_some() || self.devices.contains_key(&place) {
            self.devices.insert(place, used);
        }
    }

    /// What stood from `now` until `boot`.
    fn note(&mut self, boot: BootNs) {
        let held: Option<Bytes> = self.devices.values().copied().sum();
        let Some(held) = held.filter(|_| !self.devices.is_empty()) else {
            return;
        };
        for window in self.windows.iter_mut().skip(self.first_open) {
            if window.from >= boot {
                break;
            }
            let beats = |best: Option<(Bytes, BootNs)>, is_higher: bool| {
                best.is_none_or(|(bytes, _)| match is_higher {
                    true => held >= bytes,
                    false => held < bytes,
                })
            };
            if self.now <= window.at && beats(window.before, !window.is_return) {
                let last = BootNs(boot.0 - 1).min(window.at);
                window.before = Some((held, last));
            }
            if boot > window.at && self.now < window.until {
                let last = BootNs(boot.0 - 1).min(window.until);
                let known = window.after.map(|after| (after.used, after.first));
                match &mut window.after {
                    Some(after) if after.used == held => after.last = last,
                    _ if beats(known, window.is_return) => {
                        let (used, first) = (held, self.now.max(window.at));
                        window.after = Some(After { used, first, last });
                    }
                    _ => {}
                }
            }
        }
        while let Some(window) = self.windows.get(self.first_open)
            && window.until <= boot
        {
            self.first_open += 1;
        }
    }

    /// One audit for each name: of its windows the one that moved least.
    pub(super) fn finish(mut self, end: BootNs) -> Vec<Audit> {
        self.first_open = 0;
        self.note(BootNs(end.0 + 1));
        let mut audits: Vec<(f64, Audit)> = Vec::new();
        let mut has_freed_nothing = false;
        for window in &self.windows {
            let Some(((held, from), last)) = window.before.zip(window.after) else {
                has_freed_nothing = false;
                continue;
            };
            // What never left does not come back.
            let is_no_return = std::mem::take(&mut has_freed_nothing) && window.is_return;
            let after = if is_no_return { held } else { last.used };
            let (moved, whole) = match window.is_return {
                true => (after - held, after),
                false => (held - after, held),
            };
            let share = moved.0 as f64 / whole.0.max(1) as f64;
            has_freed_nothing = !window.is_return && share < NOTHING;
            let later = last.first + LATER;
            let host_to = match share < NOTHING {
                // Whatever came to the host came without it.
                true => window.until,
                false => later.min(end.max(last.first)),
            };
            let audit = Audit {
                name: Arc::clone(&window.name),
                is_return: window.is_return,
                count: 1,
                from: Instant::unsettled(from),
                host_from: before(from),
                // Lists of processes are read a little later than the device.
                to: Instant::unsettled(match is_no_return {
                    true => from,
                    false => last.last.min(later),
                }),
                host_to,
                used_before_bytes: held,
                used_after_bytes: after,
                most_moved_bytes: moved,
                ..Audit::default()
            };
            let is_same = |one: &Audit| stage(&one.name) == stage(&audit.name);
            match audits.iter_mut().find(|(_, one)| is_same(one)) {
                Some((least, known)) => {
                    let (count, most) = (known.count + 1, known.most_moved_bytes.max(moved));
                    if share < *least {
                        (*least, *known) = (share, audit);
                    }
                    (known.count, known.most_moved_bytes) = (count, most);
                }
                None => audits.push((share, audit)),
            }
        }
        // Those that did least are what a person asks about.
        audits.order_by(|(a, _), (b, _)| a.total_cmp(b));
        audits.truncate(NAMES_MAX);
        let mut reported: Vec<Audit> = audits.into_iter().map(|(_, audit)| audit).collect();
        reported.order_by_key(|audit| audit.from);
        reported
    }
}

#[cfg(test)]
mod tests;
