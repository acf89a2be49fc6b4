//! How often to look: the interval that was asked for, or longer when looking costs more
//! than its share of a CPU.

use memtrace_model::DurationNs;

/// Never slower than this: what is lost between two looks must stay tellable.
const SLOWEST: DurationNs = DurationNs(2_000_000_000);

/// Weight of the newest cost in the running mean: one expensive look is no reason to slow
/// down.
const NEWEST_WEIGHT: f64 = 0.2;

/// The present pace.
#[derive(Debug)]
pub(super) struct Pace {
    asked: DurationNs,
    present: DurationNs,
    budget: f64,
    mean_cost_ns: f64,
}

impl Pace {
    /// `budget` is the share of one CPU, 0 to 1.
    pub(super) fn new(asked: DurationNs, budget: f64) -> Self {
        Self {
            asked,
            present: asked,
            budget,
            mean_cost_ns: 0.0,
        }
    }

    /// Time between two looks at present.
    pub(super) fn interval(&self) -> DurationNs {
        self.present
    }

    /// The share of one CPU that may be taken.
    pub(super) fn budget(&self) -> f64 {
        self.budget
    }

    /// Whether it looks as often as was asked for.
    pub(super) fn is_as_asked(&self) -> bool {
        self.present <= self.asked
    }

    /// Takes the CPU time of a look. Answers the new interval when it changed.
    pub(super) fn note(&mut self, cost: DurationNs) -> Option<DurationNs> {
        self.mean_cost_ns += NEWEST_WEIGHT * (cost.0 as f64 - self.mean_cost_ns);
        let share = self.mean_cost_ns / self.present.0 as f64;
        let next = if share > self.budget {
            DurationNs((self.present.0 * 2).min(SLOWEST.0.max(self.asked.0)))
        } else if share < self.budget / 4.0 {
            DurationNs((self.present.0 / 2).max(self.asked.0))
        } else {
            self.present
        };
        (next != self.present).then(|| {
            self.present = next;
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: DurationNs = DurationNs(100_000_000);

    #[test]
    fn a_cheap_look_keeps_the_pace_that_was_asked_for() {
        let mut pace = Pace::new(TENTH, 0.02);
        for _ in 0..100 {
            assert_eq!(pace.note(DurationNs(500_000)), None);
        }
        assert_eq!(pace.interval(), TENTH);
    }

    #[test]
    fn a_look_over_budget_slows_down_and_a_cheap_one_recovers() {
        let mut pace = Pace::new(TENTH, 0.02);
        for _ in 0..100 {
            pace.note(DurationNs(10_000_000));
        }
        assert!(!pace.is_as_asked());
        let share = 10_000_000.0 / pace.interval().0 as f64;
        assert!(share <= 0.02, "{share} of a CPU");
        for _ in 0..100 {
            pace.note(DurationNs(10_000));
        }
        assert_eq!(pace.interval(), TENTH);
        assert!(pace.is_as_asked());
    }

    #[test]
    fn a_single_expensive_look_changes_nothing() {
        let mut pace = Pace::new(TENTH, 0.02);
        for _ in 0..50 {
            pace.note(DurationNs(200_000));
        }
        assert_eq!(pace.note(DurationNs(8_000_000)), None);
    }
}
