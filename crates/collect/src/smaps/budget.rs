//! The CPU time that readings may take: a share of one core, saved up for a few seconds.

pub(super) use crate::stop::{Stop, Stopped};
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs};

/// Unused time is kept for so long, unless asked otherwise, so that what is due can be read at once
/// after a calm.
const SAVED_NS: f64 = 10e9;
/// A debt is paid until so much is left over: pauses shorter than that cost more than they
/// spread.
const SLICE_NS: f64 = 1e6;

/// What may be spent, and what was.
#[derive(Debug)]
pub(super) struct Budget {
    share: f64,
    /// The most that is saved.
    saved_ns: f64,
    credit_ns: f64,
    filled: BootNs,
}

impl Budget {
    /// `share` is the share of one core, above 0 and at most 1; what is not spent of it is kept for
    /// `saved_ns`.
    pub(super) fn new(share: f64, saved_ns: f64, now: BootNs) -> Self {
        Self {
            share,
            saved_ns: saved_ns * share,
            credit_ns: saved_ns * share,
            filled: now,
        }
    }

    /// Takes the cost of some work. Answers how long to rest, if the credit is used up.
    pub(super) fn spend(&mut self, cost: DurationNs, now: BootNs) -> Option<DurationNs> {
        let earned = (now - self.filled).0 as f64 * self.share;
        self.filled = now;
        self.credit_ns = (self.credit_ns + earned).min(self.saved_ns) - cost.0 as f64;
        (self.credit_ns < 0.0).then(|| {
            let missing = SLICE_NS.min(self.saved_ns) - self.credit_ns;
            DurationNs((missing / self.share) as i64)
        })
    }
}

/// Meters the CPU time of this thread against a budget, and rests where it is used up.
pub(super) struct Meter<'a> {
    budget: Budget,
    stop: &'a Stop,
    metered: DurationNs,
    total: DurationNs,
    /// Above 0 and at most 1.
    pace: f64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(share: f64, stop: &'a Stop) -> Self {
        Self {
            budget: Budget::new(share, SAVED_NS, clock::boot()),
            stop,
            metered: clock::thread_cpu(),
            total: DurationNs(0),
            pace: 1.0,
        }
    }

    /// The same with what is not spent kept for so long.
    pub(super) fn saving(self, time: DurationNs) -> Self {
        Self {
            budget: Budget::new(self.budget.share, time.0 as f64, clock::boot()),
            ..self
        }
    }

    /// Rests so long.
    pub(super) fn rest(&self, time: DurationNs) -> Result<(), Stopped> {
        self.stop.rest(time).map(drop)
    }

    /// Called between two pieces of work, with no lock of another process held.
    pub(super) fn pause(&mut self) -> Result<(), Stopped> {
        let now = clock::thread_cpu();
        let cost = DurationNs(now.0 - self.metered.0);
        self.metered = now;
        self.total.0 += cost.0;
        let charged = DurationNs((cost.0 as f64 / self.pace) as i64);
        match self.budget.spend(charged, clock::boot()) {
            Some(rest) => self.rest(rest),
            None => Ok(()),
        }
    }

    /// From here on work is charged as if it took longer: at a pace of a quarter, four
    /// times as much.
    pub(super) fn set_pace(&mut self, pace: f64) {
        self.pace = pace;
    }

    /// CPU time metered so far.
    pub(super) fn total(&self) -> DurationNs {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn over_a_minute_no_more_than_the_share_and_what_was_saved_is_spent() {
        let mut budget = Budget::new(0.005, SAVED_NS, BootNs(0));
        let (mut now, mut spent) = (BootNs(0), 0);
        while now.0 < 60_000 * MS {
            now = now + DurationNs(MS);
            spent += MS;
            if let Some(rest) = budget.spend(DurationNs(MS), now) {
                now = now + rest;
            }
        }
        let allowed = (60_000.0 * 0.005 + 10_000.0 * 0.005) * MS as f64;
        assert!((spent as f64) <= allowed * 1.05, "{spent} of {allowed}");
        assert!((spent as f64) >= allowed * 0.9, "{spent} of {allowed}");
    }

    #[test]
    fn one_long_piece_is_paid_for_by_a_long_rest() {
        let mut budget = Budget::new(0.005, SAVED_NS, BootNs(0));
        let rest = budget.spend(DurationNs(150 * MS), BootNs(0)).unwrap();
        assert!(rest.0 >= 20_000 * MS, "{rest}");
        assert_eq!(budget.spend(DurationNs(0), BootNs(0) + rest), None);
    }
}
