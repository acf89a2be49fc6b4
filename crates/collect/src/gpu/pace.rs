//! What the calls cost, and how often to make them: as asked, or less often where they take
//! more than their share of the time. Their time counts and not their CPU time: whoever
//! works on the GPU waits for the same lock.

use crate::stop::lock;
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The middle of so many rounds counts: one call that waited for the driver, or for a CPU, is
/// no reason to slow down.
const ROUNDS: usize = 7;
/// Fewer have no middle: the first call of all is slow where the driver was not loaded.
const ROUNDS_LEAST: usize = 3;

/// The lists of processes are read at least this often, where the driver's pace allows it.
pub(super) const LIST_PERIOD: DurationNs = DurationNs(1_000_000_000);
/// A row of each device at least this often; also when lists that were empty are read again,
/// and what accounting mode remembers.
pub(super) const KEYFRAME_PERIOD: DurationNs = DurationNs(10_000_000_000);

/// A call that takes longer hangs: what was known before it is not known any longer.
pub(super) const HANG: DurationNs = DurationNs(1_000_000_000);

/// All calls of a thread, which another one can look at while one of them hangs.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<Counts>>);

/// How many calls there were, and what they took.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) total: DurationNs,
    pub(super) count: i64,
    /// The call that has not come back.
    pub(super) open: Option<Open>,
    has_hung: bool,
}

/// A call that is under way.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) since: BootNs,
    /// What of which device it asks for, where it is one of those that rows tell of.
    pub(super) asked: Option<(Asked, Arc<str>)>,
}

/// What a call asks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Memory,
    Processes,
}

impl Counts {
    /// The same with the open call as far as it has come.
    pub(super) fn at(self, now: BootNs) -> Self {
        let open = self.open_for(now);
        Self {
            total: DurationNs(self.total.0 + open.map_or(0, |open| open.0.max(0))),
            count: self.count + i64::from(open.is_some()),
            ..self
        }
    }

    /// For how long a call has been under way.
    pub(super) fn open_for(&self, now: BootNs) -> Option<DurationNs> {
        self.open.as_ref().map(|open| now - open.since)
    }
}

impl Calls {
    /// Makes a call and takes its time.
    pub(super) fn timed<T>(&self, call: impl FnOnce() -> T) -> (T, DurationNs) {
        self.noted(None, call)
    }

    /// The same of one that asks a device for what its rows tell the time of.
    pub(super) fn timed_of<T>(
        &self,
        asked: Asked,
        device: &Arc<str>,
        call: impl FnOnce() -> T,
    ) -> (T, DurationNs) {
        self.noted(Some((asked, Arc::clone(device))), call)
    }

    fn noted<T>(
        &self,
        asked: Option<(Asked, Arc<str>)>,
        call: impl FnOnce() -> T,
    ) -> (T, DurationNs) {
        let before = clock::boot();
        self.change(|counts| {
            counts.open = Some(Open {
                since: before,
                asked,
            });
        });
        let answer = call();
        let took = clock::boot() - before;
        self.change(|counts| {
            counts.total.0 += took.0;
            counts.count += 1;
            counts.open = None;
            counts.has_hung |= took >= HANG;
        });
        (answer, took)
    }

    /// What they are by now.
    pub(super) fn counts(&self) -> Counts {
        self.change(|counts| counts.clone())
    }

    /// Whether a call has hung since that was last cleared.
    pub(super) fn has_hung(&self) -> bool {
        self.change(|counts| counts.has_hung)
    }

    /// The same, and clears it.
    pub(super) fn clear_hung(&self) -> bool {
        self.change(|counts| std::mem::take(&mut counts.has_hung))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut lock(&self.0))
    }
}

/// How often a kind of call is made.
#[derive(Debug)]
pub(super) struct Pace {
    asked: DurationNs,
    slowest: DurationNs,
    share: f64,
    latest: VecDeque<i64>,
    is_reported: bool,
}

impl Pace {
    /// `share` is the part of the time that the calls may take, 0 to 1.
    pub(super) fn new(asked: DurationNs, slowest: DurationNs, share: f64) -> Self {
        Self {
            asked,
            slowest: DurationNs(slowest.0.max(asked.0)),
            share,
            latest: VecDeque::with_capacity(ROUNDS),
            is_reported: false,
        }
    }

    /// The time that must lie between two rounds of calls.
    pub(super) fn least_interval(&self) -> DurationNs {
        let least = (self.usual().0 as f64 / self.share) as i64;
        DurationNs(least.min(self.slowest.0))
    }

    /// The time between two rounds of calls where nothing hurries.
    pub(super) fn interval(&self) -> DurationNs {
        DurationNs(self.least_interval().0.max(self.asked.0))
    }

    /// What a round usually costs: the middle of the latest, and nothing while they are few.
    pub(super) fn usual(&self) -> DurationNs {
        if self.latest.len() < ROUNDS_LEAST {
            return DurationNs(0);
        }
        let mut sorted: Vec<i64> = self.latest.iter().copied().collect();
        sorted.sort_unstable();
        DurationNs(sorted.get((sorted.len() - 1) / 2).copied().unwrap_or(0))
    }

    /// Takes the cost of a round. Answers whether it has begun or ceased to be too slow.
    pub(super) fn note(&mut self, cost: DurationNs) -> Option<bool> {
        if self.latest.len() == ROUNDS {
            self.latest.pop_front();
        }
        self.latest.push_back(cost.0);
        let is_slow = match self.is_reported {
            true => self.interval().0 > self.asked.0,
            false => self.interval().0 > self.asked.0 * 3 / 2,
        };
        (std::mem::replace(&mut self.is_reported, is_slow) != is_slow).then_some(is_slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn pace() -> Pace {
        Pace::new(DurationNs(100 * MS), DurationNs(5_000 * MS), 0.005)
    }

    #[test]
    fn fast_calls_are_made_as_often_as_asked() {
        let mut pace = pace();
        for _ in 0..50 {
            assert_eq!(pace.note(DurationNs(12_000)), None);
        }
        assert_eq!(pace.interval(), DurationNs(100 * MS));
        assert!(pace.least_interval().0 < 3 * MS);
    }

    #[test]
    fn slow_calls_are_made_less_often_and_that_is_reported_once() {
        let mut pace = pace();
        let text: Vec<bool> = (0..50)
            .filter_map(|_| pace.note(DurationNs(5 * MS)))
            .collect();
        assert_eq!(text, [true]);
        let share = 5.0 * MS as f64 / pace.interval().0 as f64;
        assert!(share <= 0.0051, "{share}");
        let text: Vec<bool> = (0..50)
            .filter_map(|_| pace.note(DurationNs(10_000)))
            .collect();
        assert_eq!(text, [false]);
        assert_eq!(pace.interval(), DurationNs(100 * MS));
    }

    #[test]
    fn one_call_that_waited_changes_nothing() {
        let mut pace = pace();
        for round in 0..50 {
            let cost = if round % 5 == 4 { 400 * MS } else { 12_000 };
            assert_eq!(pace.note(DurationNs(cost)), None);
            assert_eq!(pace.interval(), DurationNs(100 * MS));
        }
    }

    #[test]
    fn a_slow_first_call_changes_nothing() {
        let mut pace = pace();
        for round in 0..50 {
            let cost = if round == 0 { 400 * MS } else { 12_000 };
            assert_eq!(pace.note(DurationNs(cost)), None);
            assert_eq!(pace.interval(), DurationNs(100 * MS), "round {round}");
        }
    }

    #[test]
    fn a_call_that_hangs_does_not_end_the_observation() {
        let mut pace = pace();
        for _ in 0..50 {
            pace.note(DurationNs(60_000 * MS));
        }
        assert_eq!(pace.interval(), DurationNs(5_000 * MS));
    }
}
