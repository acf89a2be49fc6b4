//! The sleep audit: what a mark that names a sleep, or a waking, did to the memory of GPUs.
//! A sharp fall is told without a mark too; here the answer can be that nothing left.

use super::falls::before;
use super::ledger::{GpuHolder, GpuLedger};
use crate::analyze::composition::Composition;
use crate::model::{BootNs, Bytes, DurationNs};
use std::collections::{BTreeMap, HashMap};
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
/// The begin of a phase can come from a log line whose time is in seconds; the device is read
/// a little later than its end.
const AROUND_PHASE: DurationNs = DurationNs(1_000_000_000);
/// What appears in the machine's memory so long after the device's last change counts too.
const LATER: DurationNs = DurationNs(1_000_000_000);
/// More windows are not looked at: a training run of days has one for every step.
const WINDOWS_MAX: usize = 4_096;
/// What moved less than this part of what could has not moved.
const NOTHING: f64 = 0.01;
/// So many names are told.
const NAMES_MAX: usize = 4;

/// What the marks of one name did. The figures are those of the one of them that did least.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The mark.
    pub name: Arc<str>,
    /// Whether memory was to come back to the device, and not to leave it.
    pub is_return: bool,
    /// How many marks of that name there are; those of several processes at once are one.
    pub count: usize,
    /// Just before memory moved.
    pub from: BootNs,
    /// From when on the machine's memory was looked at: a second before.
    pub host_from: BootNs,
    /// When it had.
    pub to: BootNs,
    /// Until when the machine's memory was looked at: a second after it had; where it did not,
    /// the end of the time that was looked at.
    pub host_to: BootNs,
    /// The devices that recorded processes were on, by their position.
    pub devices: Vec<usize>,
    /// What recorded processes held on them before, and after; unknown where the driver does
    /// not tell of each.
    pub before_bytes: Option<Bytes>,
    /// The same after it.
    pub after_bytes: Option<Bytes>,
    /// Who of them held how much after it, the largest first.
    pub holders: Vec<(GpuHolder, Option<Bytes>)>,
    /// What the recorded processes gained in anonymous memory meanwhile; `None` when unknown.
    pub anon_bytes: Option<Bytes>,
    /// The same of shared memory, where pinned memory is.
    pub shmem_bytes: Option<Bytes>,
    /// The same of mapped files.
    pub file_bytes: Option<Bytes>,
    /// What was used on all devices together before, and after.
    pub used_bytes: (Bytes, Bytes),
    /// What all devices together changed by at the one that did most, in the sense of the name.
    pub most_bytes: Bytes,
}

impl Audit {
    /// What left the devices, or came back to them; `None` when unknown.
    pub fn moved_bytes(&self) -> Option<Bytes> {
        let (before, after) = self.before_bytes.zip(self.after_bytes)?;
        Some(match self.is_return {
            true => after - before,
            false => before - after,
        })
    }

    /// Completes it with who held what before and after.
    pub(super) fn explain(
        &mut self,
        (before, after): (&[GpuLedger], &[GpuLedger]),
        (host_before, host_after): (Option<&Composition>, Option<&Composition>),
    ) {
        let recorded = |ledgers: &[GpuLedger]| {
            let mut held: BTreeMap<usize, Option<Bytes>> = BTreeMap::new();
            let mut devices = Vec::new();
            for ledger in ledgers.iter().filter(|ledger| !ledger.is_divided) {
                for line in &ledger.lines {
                    let GpuHolder::Process(process) = line.holder else {
                        continue;
                    };
                    devices.push(ledger.device);
                    if !line.is_counted_elsewhere {
                        let sum = held.entry(process).or_insert(Some(Bytes(0)));
                        *sum = sum.zip(line.bytes).map(|(sum, bytes)| sum + bytes);
                    }
                }
            }
            (held, devices)
        };
        let ((before, first), (after, then)) = (recorded(before), recorded(after));
        self.devices = first.into_iter().chain(then).collect();
        self.devices.sort_unstable();
        self.devices.dedup();
        self.before_bytes = before.values().copied().sum();
        self.after_bytes = after.values().copied().sum();
        let holders = after.into_iter();
        self.holders = holders
            .map(|(process, bytes)| (GpuHolder::Process(process), bytes))
            .collect();
        self.holders
            .sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        if let Some((before, after)) = host_before.zip(host_after) {
            let gained = |of: fn(&Composition) -> Option<Bytes>| Some(of(after)? - of(before)?);
            self.anon_bytes = gained(|state| state.totals.anon.bytes());
            self.shmem_bytes = gained(|state| state.totals.shmem.bytes());
            self.file_bytes = gained(|state| state.totals.file.bytes());
        }
    }
}

/// Something that was named, and when. A moment has no begin.
#[derive(Clone, Debug)]
pub(in crate::analyze) struct Named {
    pub(in crate::analyze) name: Arc<str>,
    /// Whose mark it is, by position.
    pub(in crate::analyze) process: Option<usize>,
    pub(in crate::analyze) begin: Option<BootNs>,
    pub(in crate::analyze) end: BootNs,
}

/// Recorded processes that are on GPUs, and when they ended.
#[derive(Debug, Default)]
pub(super) struct Holders(pub(super) HashMap<usize, Option<BootNs>>);

impl Holders {
    /// Until when what comes after a moment can be what it names: until whoever marked it, or
    /// one of these, marks something else, and until one of these ends.
    fn until(&self, moment: &Named, others: &[&Named]) -> BootNs {
        let concerns = |process: Option<usize>| {
            let is_own = process == moment.process;
            is_own || process.is_some_and(|process| self.0.contains_key(&process))
        };
        let marks = others.iter().filter(|other| concerns(other.process));
        let marks = marks.flat_map(|other| other.begin.into_iter().chain([other.end]));
        let marks = marks.map(|at| BootNs(at.0.saturating_add(AFTER_MARK.0)));
        let marks = marks.filter(|at| *at > moment.end + AFTER_MARK);
        let ends = self.0.values().copied().flatten();
        let ends = ends.filter(|at| *at > moment.end);
        let last = moment.end + AFTER_MOMENT;
        marks.chain(ends).min().map_or(last, |at| at.min(last))
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
    /// By their begin.
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

/// Whether any of them is a moment that is looked into.
pub(super) fn has_moments(named: &[Named]) -> bool {
    let mut moments = named.iter().filter(|named| named.begin.is_none());
    moments.any(|named| direction(&named.name).is_some())
}

impl Sleeps {
    pub(super) fn of(named: &[Named], holders: &Holders, end: BootNs) -> Self {
        let others = named.iter().filter(|named| !is_of_sleeps(&named.name));
        let others: Vec<&Named> = others.collect();
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
        windows.sort_by_key(|window| window.from);
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
                from,
                host_from: before(from),
                // Lists of processes are read a little later than the device.
                to: match is_no_return {
                    true => from,
                    false => last.last.min(later),
                },
                host_to,
                devices: Vec::new(),
                before_bytes: None,
                after_bytes: None,
                holders: Vec::new(),
                anon_bytes: None,
                shmem_bytes: None,
                file_bytes: None,
                used_bytes: (held, after),
                most_bytes: moved,
            };
            match audits.iter_mut().find(|(_, one)| one.name == audit.name) {
                Some((least, known)) => {
                    let (count, most) = (known.count + 1, known.most_bytes.max(moved));
                    if share < *least {
                        (*least, *known) = (share, audit);
                    }
                    (known.count, known.most_bytes) = (count, most);
                }
                None => audits.push((share, audit)),
            }
        }
        audits.truncate(NAMES_MAX);
        audits.into_iter().map(|(_, audit)| audit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;
    const END: BootNs = BootNs(1_000 * SECOND);
    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: f64) -> BootNs {
        BootNs((seconds * 1e9) as i64)
    }

    fn named(name: &str, begin: Option<f64>, end: f64) -> Named {
        Named {
            name: Arc::from(name),
            process: Some(0),
            begin: begin.map(at),
            end: at(end),
        }
    }

    /// Name, count, and GiB before and after of every audit of a device with these rows.
    fn audits(named: &[Named], rows: &[(f64, Option<i64>)]) -> Vec<(String, usize, i64, i64)> {
        audits_beside(named, &Holders::default(), rows)
    }

    /// The same beside processes that end.
    fn audits_beside(
        named: &[Named],
        holders: &Holders,
        rows: &[(f64, Option<i64>)],
    ) -> Vec<(String, usize, i64, i64)> {
        let mut sleeps = Sleeps::of(named, holders, END);
        for (seconds, used) in rows {
            sleeps.take(0, at(*seconds), used.map(|gib| Bytes(gib * GIB)));
        }
        let audits = sleeps.finish(END).into_iter();
        let told = audits.map(|audit| {
            let (before, after) = audit.used_bytes;
            (
                audit.name.to_string(),
                audit.count,
                before.0 / GIB,
                after.0 / GIB,
            )
        });
        told.collect()
    }

    fn told(name: &str, count: usize, before: i64, after: i64) -> (String, usize, i64, i64) {
        (name.to_owned(), count, before, after)
    }

    const NIGHT: [(f64, Option<i64>); 4] = [
        (0.0, Some(2)),
        (10.0, Some(70)),
        (51.0, Some(5)),
        (80.5, Some(70)),
    ];

    #[test]
    fn a_phase_and_a_moment_before_or_after_it_tell_the_same_sleep() {
        for mark in [
            named("vllm.sleep", Some(50.0), 52.0),
            named("sleep", None, 50.0),
            named("sleep", None, 52.0),
            named("Release_Memory_Occupation", None, 50.9),
        ] {
            let expected = told(&mark.name, 1, 70, 5);
            assert_eq!(audits(&[mark], &NIGHT), [expected]);
        }
    }

    #[test]
    fn a_sleep_that_frees_nothing_is_told_with_what_stayed() {
        let mark = [named("sleep", Some(20.0), 21.0)];
        assert_eq!(audits(&mark, &NIGHT), [told("sleep", 1, 70, 70)]);
    }

    #[test]
    fn waking_is_told_the_other_way_round_and_ends_a_sleep() {
        let marks = [named("sleep", None, 50.0), named("wake_up", None, 58.0)];
        let rows = [
            (0.0, Some(70)),
            (51.0, Some(5)),
            (58.5, Some(70)),
            (59.0, Some(0)),
        ];
        let expected = [told("sleep", 1, 70, 5), told("wake_up", 1, 5, 70)];
        assert_eq!(audits(&marks, &rows), expected);
        // What it held before it slept is not what it woke from.
        let marks = [named("sleep", None, 9.0), named("wake_up", None, 10.5)];
        let rows = [
            (0.0, Some(1)),
            (8.8, Some(70)),
            (9.1, Some(5)),
            (10.7, Some(70)),
        ];
        let expected = [told("sleep", 1, 70, 5), told("wake_up", 1, 5, 70)];
        assert_eq!(audits(&marks, &rows), expected);
    }

    #[test]
    fn what_grows_after_the_next_mark_did_not_come_back() {
        let marks = [
            named("sleep", None, 50.0),
            named("wake_up", None, 58.0),
            named("train_step", Some(60.0), 60.4),
        ];
        let rows = [
            (0.0, Some(70)),
            (51.0, Some(5)),
            (58.5, Some(70)),
            (61.0, Some(79)),
        ];
        let expected = [told("sleep", 1, 70, 5), told("wake_up", 1, 5, 70)];
        assert_eq!(audits(&marks, &rows), expected);
        // Marks of others who are on no GPU say nothing of it.
        let mut other = marks.clone();
        other[2].process = Some(7);
        let grown = [told("sleep", 1, 70, 5), told("wake_up", 1, 5, 79)];
        assert_eq!(audits(&other, &rows), grown);
        let holders = Holders(HashMap::from([(7, None)]));
        assert_eq!(audits_beside(&other, &holders, &rows), expected);
    }

    #[test]
    fn what_grows_after_a_sleep_that_freed_nothing_did_not_come_back() {
        let marks = [named("sleep", None, 50.0), named("wake_up", None, 53.0)];
        let rows = [(0.0, Some(60)), (55.0, Some(79))];
        let expected = [told("sleep", 1, 60, 60), told("wake_up", 1, 60, 60)];
        assert_eq!(audits(&marks, &rows), expected);
    }

    #[test]
    fn what_a_process_leaves_as_it_ends_was_not_freed_by_the_sleep_before() {
        let mark = [named("sleep", None, 50.0)];
        let rows = [(0.0, Some(60)), (54.1, Some(0))];
        assert_eq!(audits(&mark, &rows), [told("sleep", 1, 60, 0)]);
        let holders = Holders(HashMap::from([(7, Some(at(54.0)))]));
        let expected = [told("sleep", 1, 60, 60)];
        assert_eq!(audits_beside(&mark, &holders, &rows), expected);
    }

    #[test]
    fn what_every_worker_marks_is_one_sleep_and_of_many_the_least_is_told() {
        let ranks: Vec<Named> = (0..4)
            .map(|rank| named("sleep", Some(50.0 + f64::from(rank) * 0.01), 52.0))
            .collect();
        assert_eq!(audits(&ranks, &NIGHT), [told("sleep", 1, 70, 5)]);
        let two = [
            named("sleep", Some(20.0), 21.0),
            named("sleep", Some(50.0), 52.0),
        ];
        assert_eq!(audits(&two, &NIGHT), [told("sleep", 2, 70, 70)]);
    }

    #[test]
    fn other_marks_unknown_memory_and_a_device_without_its_own_tell_nothing() {
        let others = [
            named("step 7", None, 50.0),
            named("vllm.sleep_freed", None, 52.0),
        ];
        assert_eq!(audits(&others, &NIGHT), []);
        let mark = [named("sleep", Some(50.0), 52.0)];
        let lost = [(10.0, Some(70)), (49.0, None), (80.0, Some(5))];
        assert_eq!(audits(&mark, &lost), []);
        assert_eq!(audits(&mark, &[(10.0, None)]), []);
        assert_eq!(audits(&mark, &[]), []);
    }
}
