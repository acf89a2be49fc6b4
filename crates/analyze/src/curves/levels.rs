//! The RSS of one process over its life in few steps, for a colour: no more than that can be seen
//! of thousands of processes at once.

use memtrace_model::{BootNs, Bytes, DurationNs};

/// So many steps a process has at most.
const STEPS_MAX: usize = 48;
/// How long a step is at first.
const FIRST_LENGTH_NS: i64 = 1_000_000;
/// Below any amount.
const UNKNOWN: i64 = -1;

/// The highest of each step. Steps become twice as long when time runs past the last.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// `None` before the first row.
    start: Option<BootNs>,
    length_ns: i64,
    highest: Vec<i64>,
    /// Where the last step ends.
    end: BootNs,
    since: BootNs,
    now: i64,
    /// Whether nobody is there from `since` on.
    is_over: bool,
}

impl Levels {
    /// It holds this from an instant on; `None` where that is unknown.
    pub(crate) fn set(&mut self, at: BootNs, rss: Option<Bytes>) {
        if self.start.is_none() {
            *self = Self {
                start: Some(at),
                length_ns: FIRST_LENGTH_NS,
                end: at,
                since: at,
                ..Self::default()
            };
        }
        self.hold_until(at);
        self.now = rss.map_or(UNKNOWN, |rss| rss.0);
        self.is_over = false;
    }

    /// The process is over, or the recording: no step is spent on what comes after.
    pub(crate) fn finish(&mut self, end: BootNs) {
        if self.start.is_none() || self.is_over {
            return;
        }
        self.hold_until(end);
        self.is_over = true;
        // What came at the very end was held by then.
        match self.highest.last_mut() {
            Some(last) => *last = self.now.max(*last),
            None => self.highest.push(self.now),
        }
    }

    #[inline]
    fn hold_until(&mut self, to: BootNs) {
        if to <= self.since {
            return;
        }
        match self.highest.last_mut() {
            Some(last) if to <= self.end => *last = self.now.max(*last),
            _ => self.hold_beyond(to),
        }
        self.since = to;
    }

    fn hold_beyond(&mut self, to: BootNs) {
        let start = self.start.unwrap_or(to);
        while ((to - start).0 - 1) / self.length_ns >= STEPS_MAX as i64 {
            self.lengthen();
        }
        let mut from = self.since;
        while from < to {
            let step = (from - start).0 / self.length_ns;
            self.highest.resize(step as usize + 1, UNKNOWN);
            let end = self.length_ns.saturating_mul(step + 1);
            self.end = start + DurationNs(end);
            if let Some(last) = self.highest.last_mut() {
                *last = self.now.max(*last);
            }
            if self.end <= from {
                break;
            }
            from = self.end;
        }
    }

    fn lengthen(&mut self) {
        self.length_ns = self.length_ns.saturating_mul(2);
        let pairs = self.highest.chunks(2);
        self.highest = pairs
            .filter_map(|pair| pair.iter().copied().max())
            .collect();
    }

    /// From when on how much, since the start of the recording, in at most so many steps; those
    /// that do not differ are one. All but the highest are reported with two digits.
    pub fn steps(&self, start: BootNs, most: usize) -> Vec<(DurationNs, Option<Bytes>)> {
        let Some(begin) = self.start else {
            return Vec::new();
        };
        let together = self.highest.len().div_ceil(most.max(1)).max(1);
        let length_ns = self.length_ns.saturating_mul(together as i64);
        let levels = self.highest.chunks(together);
        let levels = levels.filter_map(|levels| levels.iter().copied().max());
        let highest = self.highest.iter().copied().max().unwrap_or_default();
        let mut steps: Vec<(DurationNs, Option<Bytes>)> = Vec::new();
        for (place, bytes) in levels.enumerate() {
            let reported = match bytes {
                UNKNOWN => None,
                bytes if bytes == highest => Some(Bytes(bytes)),
                bytes => Some(Bytes(rounded(bytes).min(highest))),
            };
            if steps.last().is_none_or(|(_, before)| *before != reported) {
                let after = length_ns.saturating_mul(place as i64);
                steps.push((begin + DurationNs(after) - start, reported));
            }
        }
        steps
    }
}

/// An amount with two digits.
fn rounded(bytes: i64) -> i64 {
    let mut unit = 1;
    while bytes / unit >= 100 {
        unit *= 10;
    }
    bytes / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_fits_and_its_highest_is_reported_to_the_byte() {
        let mut levels = Levels::default();
        for second in 0..86_400 {
            let bytes = if second == 40_000 {
                987_654_321
            } else {
                10_000 + second % 3
            };
            levels.set(BootNs(second * 1_000_000_000), Some(Bytes(bytes)));
        }
        levels.finish(BootNs(86_400_000_000_000));
        let steps = levels.steps(BootNs(0), STEPS_MAX);
        assert!(levels.highest.len() <= STEPS_MAX);
        let text: Vec<i64> = steps.iter().map(|(_, bytes)| bytes.unwrap().0).collect();
        assert_eq!(text, [10_000, 987_654_321, 10_000]);
    }

    #[test]
    fn no_step_is_spent_on_the_time_after_the_end() {
        let mut levels = Levels::default();
        for millisecond in 0..32 {
            let bytes = Bytes(10 + millisecond);
            levels.set(BootNs(millisecond * FIRST_LENGTH_NS), Some(bytes));
        }
        levels.finish(BootNs(32 * FIRST_LENGTH_NS));
        levels.finish(BootNs(3_600_000_000_000));
        let steps = levels.steps(BootNs(0), STEPS_MAX);
        let text: Vec<i64> = steps.iter().map(|(_, bytes)| bytes.unwrap().0).collect();
        assert_eq!(text, (10..42).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_unknown_and_absurd_times_are_reported_as_that() {
        let mut levels = Levels::default();
        levels.set(BootNs(5), None);
        levels.finish(BootNs(i64::MAX));
        assert_eq!(levels.steps(BootNs(0), 9), [(DurationNs(5), None)]);
        assert_eq!(Levels::default().steps(BootNs(0), 9), []);
    }
}
