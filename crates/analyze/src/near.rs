//! What moved around an instant, from one reading of a cgroup or of the node to the next: so that
//! what the processes held can be known for the very moment at which what is in use was read.
//!
//! The pass keeps the changes since the last reading, and gives them, together with those up to
//! the next one, to every snapshot in between.

use memtrace_model::{BootNs, DurationNs};
use memtrace_timeline::{Amounts, Change};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Readings that are no further apart were made in one go.
const TOGETHER: DurationNs = DurationNs(20_000_000);
/// So many changes are kept; in a storm of forks the stretch around an instant is shorter.
const CHANGES_MAX: usize = 1 << 15;

/// All that moved in a stretch of time.
#[derive(Clone, Debug)]
pub(super) struct Around {
    from: BootNs,
    to: BootNs,
    moved: Arc<[Moved]>,
}

/// A process holds something else from a time on.
#[derive(Clone, Copy, Debug)]
struct Moved {
    boot_ns: BootNs,
    process: usize,
    before: Amounts,
    after: Amounts,
}

impl Around {
    /// What processes held at another instant than `at`, where they held `held`; `None` outside
    /// of the stretch.
    pub(super) fn held_at(
        &self,
        held: impl Iterator<Item = (usize, Amounts)>,
        at: BootNs,
        wanted: BootNs,
    ) -> Option<Vec<(usize, Amounts)>> {
        if wanted < self.from || wanted > self.to {
            return None;
        }
        let mut all: BTreeMap<usize, Amounts> = held.collect();
        let undone = self.moved.iter().rev();
        for moved in undone.filter(|moved| wanted < moved.boot_ns && moved.boot_ns <= at) {
            all.insert(moved.process, moved.before);
        }
        let done = self.moved.iter();
        for moved in done.filter(|moved| at < moved.boot_ns && moved.boot_ns <= wanted) {
            all.insert(moved.process, moved.after);
        }
        let held = all.into_iter();
        Some(
            held.filter(|(_, amounts)| *amounts != Amounts::NONE)
                .collect(),
        )
    }

    /// The sum of RSS over the stretch.
    pub(super) fn sums(&self) -> Sums {
        let mut sum = 0;
        let after = self.moved.iter().map(|moved| {
            sum += moved.after.rss_or_zero() - moved.before.rss_or_zero();
            (moved.boot_ns, sum)
        });
        Sums {
            stretch: self.from..=self.to,
            after: after.collect(),
        }
    }
}

/// The sum of RSS over a stretch of time, against what it was at its start.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    stretch: RangeInclusive<BootNs>,
    after: Vec<(BootNs, i64)>,
}

impl Sums {
    #[cfg(test)]
    pub(super) fn new(stretch: RangeInclusive<BootNs>, after: Vec<(i64, i64)>) -> Self {
        let after = after.into_iter().map(|(at, sum)| (BootNs(at), sum));
        Self {
            stretch,
            after: after.collect(),
        }
    }

    /// By how much two instants differ; `None` outside of the stretch.
    pub(super) fn moved(&self, at: BootNs, wanted: BootNs) -> Option<i64> {
        let sum = |at: BootNs| {
            let count = self.after.partition_point(|(boot_ns, _)| *boot_ns <= at);
            count.checked_sub(1).map_or(0, |last| self.after[last].1)
        };
        let is_known = self.stretch.contains(&wanted);
        is_known.then(|| (sum(wanted) - sum(at)).abs())
    }
}

/// Follows the changes during the pass.
#[derive(Debug, Default)]
pub(super) struct NearReadings {
    has_readings: bool,
    /// Readings that were made in one go, the latest first.
    readings: Vec<(BootNs, BootNs)>,
    /// Since when all changes are kept; `None` before the first row.
    from: Option<BootNs>,
    moved: Vec<Moved>,
    /// Inside of a reading: how many changes came before it.
    before_reading: Option<usize>,
    is_peak_open: bool,
    peak: Option<Around>,
    open: Vec<usize>,
    asked: BTreeMap<usize, Around>,
}

impl NearReadings {
    /// `readings` are the times of all of them.
    pub(super) fn new(mut readings: Vec<BootNs>) -> Self {
        readings.sort_unstable();
        let mut together: Vec<(BootNs, BootNs)> = Vec::new();
        for at in readings {
            match together.last_mut() {
                Some((_, end)) if at - *end <= TOGETHER => *end = at,
                _ => together.push((at, at)),
            }
        }
        together.reverse();
        Self {
            has_readings: !together.is_empty(),
            readings: together,
            from: None,
            moved: Vec::new(),
            before_reading: None,
            is_peak_open: false,
            peak: None,
            open: Vec::new(),
            asked: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, change: Change<'_>) {
        if !self.has_readings {
            return;
        }
        if self.moved.len() >= CHANGES_MAX {
            self.close(change.boot_ns);
            self.moved.clear();
            self.from = None;
            self.before_reading = self.before_reading.map(|_| 0);
        }
        // What held before that time is not known from here.
        self.from.get_or_insert(change.boot_ns);
        self.moved.push(Moved {
            boot_ns: change.boot_ns,
            process: change.process,
            before: *change.before.unwrap_or(&Amounts::NONE),
            after: *change.after.unwrap_or(&Amounts::NONE),
        });
    }

    /// The latest state is that of the peak so far.
    pub(super) fn note_peak(&mut self) {
        self.is_peak_open = true;
    }

    /// A state was asked for.
    pub(super) fn note_asked(&mut self, place: usize) {
        self.open.push(place);
    }

    /// Every change before `time` is noted.
    pub(super) fn pass(&mut self, time: BootNs) {
        while let Some(&(begin, end)) = self.readings.last()
            && begin < time
        {
            let before = *self.before_reading.get_or_insert(self.moved.len());
            if end >= time {
                return;
            }
            self.readings.pop();
            self.before_reading = None;
            self.close(end);
            self.moved.drain(..before.min(self.moved.len()));
            self.from = Some(begin);
        }
    }

    /// The stretches that are open end here.
    fn close(&mut self, to: BootNs) {
        if !self.has_readings || !self.is_peak_open && self.open.is_empty() {
            return;
        }
        let around = Around {
            from: self.from.unwrap_or(to),
            to,
            moved: self.moved.as_slice().into(),
        };
        for place in self.open.drain(..) {
            self.asked.insert(place, around.clone());
        }
        if std::mem::take(&mut self.is_peak_open) {
            self.peak = Some(around);
        }
    }

    /// What was around the peak, and around each state that was asked for, in that order.
    pub(super) fn finish(mut self, end: BootNs) -> (Option<Around>, BTreeMap<usize, Around>) {
        self.close(end);
        (self.peak, self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::mem_row;

    fn note(near: &mut NearReadings, ms: i64, before: &Amounts, after: &Amounts) {
        near.note(Change {
            boot_ns: BootNs(ms * 1_000_000),
            process: 0,
            before: Some(before),
            after: Some(after),
            since: BootNs(0),
        });
    }

    fn holds(bytes: i64) -> Amounts {
        Amounts::of(&mem_row(1, 0, Some(bytes)))
    }

    /// Process 0 holds as many bytes as it is late, at every full ten, and the peak is at `peak`.
    fn around(readings: &[i64], peak: i64, until: i64) -> (NearReadings, Amounts) {
        let readings = readings.iter().map(|at| BootNs(at * 1_000_000)).collect();
        let mut near = NearReadings::new(readings);
        let mut held = (Amounts::NONE, Amounts::NONE);
        for time in (10..=until).step_by(10) {
            near.pass(BootNs(time * 1_000_000));
            let before = std::mem::replace(&mut held.0, holds(time));
            note(&mut near, time, &before, &held.0);
            if time == peak {
                near.note_peak();
                held.1 = held.0;
            }
        }
        (near, held.1)
    }

    fn at(readings: &[i64], peak: i64, wanted: i64) -> Option<i64> {
        let (near, held) = around(readings, peak, 1_000);
        let (peak_around, _) = near.finish(BootNs(2_000_000_000));
        let ms = |ms: i64| BootNs(ms * 1_000_000);
        let held = [(0, held)].into_iter();
        let state = peak_around?.held_at(held, ms(peak), ms(wanted))?;
        Some(
            state
                .first()
                .map_or(0, |(_, amounts)| amounts.rss_or_zero()),
        )
    }

    #[test]
    fn what_was_held_when_it_was_read_is_reported_on_both_sides_of_the_peak() {
        let readings = [105, 305, 505, 705];
        assert_eq!(at(&readings, 400, 305), Some(300));
        assert_eq!(at(&readings, 400, 505), Some(500));
        assert_eq!(at(&readings, 400, 400), Some(400));
    }

    #[test]
    fn by_how_much_the_sum_moved_is_known_between_the_two_readings() {
        let ms = |ms: i64| BootNs(ms * 1_000_000);
        let (near, _) = around(&[105, 305, 505, 705], 400, 1_000);
        let (peak_around, _) = near.finish(ms(2_000));
        let sums = peak_around.unwrap().sums();
        let moved = |wanted| sums.moved(ms(400), ms(wanted));
        assert_eq!(moved(400), Some(0));
        assert_eq!(moved(409), Some(0));
        assert_eq!(moved(505), Some(100));
        assert_eq!(moved(305), Some(100));
        assert_eq!((moved(304), moved(506)), (None, None));
    }

    #[test]
    fn outside_of_the_two_readings_nothing_is_reported() {
        let readings = [105, 305, 505, 705];
        assert_eq!(at(&readings, 400, 304), None);
        assert_eq!(at(&readings, 400, 506), None);
    }

    #[test]
    fn readings_of_one_go_are_both_reported() {
        // The cgroup and, some milliseconds later, the node.
        let readings = [105, 112, 305, 312];
        for (peak, wanted, held) in [(200, 105, 100), (200, 112, 110), (310, 305, 300)] {
            assert_eq!(at(&readings, peak, wanted), Some(held), "{peak} {wanted}");
        }
        assert_eq!(at(&readings, 310, 312), Some(310));
    }

    #[test]
    fn a_state_that_was_asked_for_is_between_its_own_readings_also_where_nothing_moves() {
        let ms = |ms: i64| BootNs(ms * 1_000_000);
        let readings = [100, 300, 500, 700].map(ms).to_vec();
        let mut near = NearReadings::new(readings);
        note(&mut near, 10, &Amounts::NONE, &holds(10));
        near.pass(ms(400));
        near.note_asked(0);
        near.pass(ms(900));
        let (_, asked) = near.finish(ms(1_000));
        let around = &asked[&0];
        for (wanted, is_reported) in [(299, false), (300, true), (500, true), (501, false)] {
            let held = [(0, holds(10))].into_iter();
            let text = around.held_at(held, ms(400), ms(wanted));
            assert_eq!(text.is_some(), is_reported, "{wanted}");
        }
    }

    #[test]
    fn before_the_first_reading_and_after_the_last_one_the_other_is_reported() {
        assert_eq!(at(&[505], 300, 505), Some(500));
        assert_eq!(at(&[505], 700, 505), Some(500));
        assert_eq!(at(&[], 700, 505), None);
    }
}
