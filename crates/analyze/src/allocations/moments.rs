//! What was held in the last moments of a process, for comparisons: where a program holds memory for a
//! moment, whether a look falls into it differs from run to run.

use super::Sampled;
use memtrace_model::Bytes;

/// Sums as they stood at each moment of the last six seconds of a process; the last three count as held.
///
/// What was held only in the three before widens what can have been held at most: how long a program takes
/// from there to its end differs from run to run, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    /// All of a process have the same moments; empty where nothing was sampled.
    sums: Vec<Sampled>,
    /// How many of them come before the last three seconds.
    early_count: usize,
}

impl Moments {
    /// Nothing at any of so many moments.
    pub(super) fn none(count: usize, early_count: usize) -> Self {
        Self {
            sums: vec![Sampled::default(); count],
            early_count,
        }
    }

    /// Notes a sum from one moment on.
    pub(super) fn stand_from(&mut self, moment: usize, sum: Sampled) {
        self.sums[moment..].fill(sum);
    }

    /// Adds what another stack or function of the same process held.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.sums.is_empty() {
            *self = Self::none(other.sums.len(), other.early_count);
        }
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            sum.add(other);
        }
    }

    /// The sum at that moment of the last three seconds at which most was seen to be resident.
    pub(crate) fn fullest(&self) -> Sampled {
        let last = self.sums.iter().skip(self.early_count);
        let fullest = last.max_by_key(|sum| sum.resident_bytes);
        fullest.copied().unwrap_or_default()
    }

    /// The most that can have been held at any time of the six seconds, and its standard error. Between two
    /// looks memory can come and go: all that was touched by the second can have been there before any went.
    pub(crate) fn most(&self) -> (Bytes, f64) {
        let held = |before: &Sampled, after: &Sampled| {
            let shared = before.shared().min(after.shared());
            after.grown_bytes - before.returned_bytes - shared
        };
        let first = self.sums.first().map(|first| held(first, first));
        let between = self.sums.windows(2).map(|two| held(&two[0], &two[1]));
        let most = first.into_iter().chain(between).max();
        let most = most.unwrap_or_default().max(Bytes(0));
        let error = self.sums.last().map_or(0.0, |sum| sum.error_of(most));
        (most, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    /// What a stack had grown by at each moment, and what of that was resident and returned.
    fn moments(early_count: usize, of: &[[i64; 3]]) -> Moments {
        let mut moments = Moments::none(of.len(), early_count);
        for (moment, [grown, resident, returned]) in of.iter().enumerate() {
            let sum = Sampled {
                grown_bytes: Bytes(grown * MIB),
                resident_bytes: Bytes(resident * MIB),
                returned_bytes: Bytes(returned * MIB),
                ..Sampled::default()
            };
            moments.stand_from(moment, sum);
        }
        moments
    }

    fn held(moments: &Moments) -> [i64; 2] {
        [moments.fullest().resident_bytes, moments.most().0].map(|bytes| bytes.0 / MIB)
    }

    #[test]
    fn what_came_after_other_memory_went_is_not_held_beside_it() {
        let mut all = moments(0, &[[50, 50, 0], [50, 0, 50], [50, 0, 50]]);
        assert_eq!(held(&all), [50, 50]);
        all.add(&moments(0, &[[0, 0, 0], [0, 0, 0], [60, 60, 0]]));
        assert_eq!(held(&all), [60, 60]);
        // Nobody looked between the one and the other.
        let mut all = moments(0, &[[50, 50, 0], [50, 0, 50]]);
        all.add(&moments(0, &[[0, 0, 0], [60, 60, 0]]));
        assert_eq!(held(&all), [60, 110]);
    }

    #[test]
    fn what_went_before_the_last_moments_can_only_have_been_held() {
        assert_eq!(held(&moments(1, &[[50, 50, 0], [50, 0, 50]])), [0, 50]);
        assert_eq!(held(&Moments::default()), [0, 0]);
    }
}
