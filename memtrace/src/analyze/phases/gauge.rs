//! Memory at given instants, and its maximum between them, noted while a step function goes by.
//!
//! An instant costs its reading and one maximum, whatever the number of processes. The maximum
//! over any stretch is then a question to a tree of maxima, so that phases inside phases do not
//! multiply the work.

use crate::analyze::amounts::Amounts;
use crate::model::{BootNs, Bytes};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The end of what is still open at the end of the recording.
pub(super) const OPEN: BootNs = BootNs(i64::MAX - 1);

/// The highest first, of two as high the earlier.
type High = Option<(i64, Reverse<i64>)>;

/// Where the pass over memory notes what phases need.
#[derive(Debug, Default)]
pub(in crate::analyze) struct Gauges {
    /// All processes together.
    pub(in crate::analyze) tree: Gauge,
    /// By position in the roster: the processes that have phases.
    pub(in crate::analyze) own: HashMap<usize, Gauge>,
}

/// One step function at its instants.
#[derive(Debug, Default)]
pub(in crate::analyze) struct Gauge {
    instants: Vec<BootNs>,
    at: Vec<Amounts>,
    /// From each instant until the next.
    highest: Vec<High>,
    /// The first instant that is not reached.
    next: usize,
    is_partly_unknown: bool,
}

impl Gauge {
    /// A gauge for these instants.
    pub(super) fn new(mut instants: Vec<BootNs>) -> Self {
        instants.sort_unstable();
        instants.dedup();
        Self {
            at: vec![Amounts::UNKNOWN; instants.len()],
            highest: vec![None; instants.len()],
            instants,
            ..Self::default()
        }
    }

    /// Whether there is anything to note.
    pub(in crate::analyze) fn is_empty(&self) -> bool {
        self.instants.is_empty()
    }

    /// The amounts were held from `from` until `until`, which is no longer part of it.
    pub(in crate::analyze) fn hold(&mut self, from: BootNs, until: BootNs, amounts: Amounts) {
        if until <= from {
            return;
        }
        // Nothing is known of what lies before.
        while self.instants.get(self.next).is_some_and(|&at| at < from) {
            self.next += 1;
        }
        let high = |since: BootNs| amounts.rss().map(|rss| (rss.0, Reverse(since.0)));
        if let Some(before) = self.next.checked_sub(1) {
            self.highest[before] = self.highest[before].max(high(from));
        }
        while let Some(&at) = self.instants.get(self.next)
            && at < until
        {
            self.at[self.next] = amounts;
            self.highest[self.next] = high(at);
            self.next += 1;
        }
    }

    /// The amounts are held from `from` to the end.
    pub(in crate::analyze) fn hold_to_the_end(&mut self, from: BootNs, amounts: Amounts) {
        self.hold(from, BootNs(i64::MAX), amounts);
    }

    /// Some process's memory is not part of what is held.
    pub(in crate::analyze) fn note_unknown(&mut self) {
        self.is_partly_unknown = true;
    }

    pub(super) fn is_partly_unknown(&self) -> bool {
        self.is_partly_unknown
    }

    /// What was noted, for questions.
    pub(super) fn read(self) -> Readings {
        let mut maxima = vec![None; self.instants.len()];
        maxima.extend(self.highest);
        for place in (1..self.instants.len()).rev() {
            maxima[place] = maxima[2 * place].max(maxima[2 * place + 1]);
        }
        Readings {
            instants: self.instants,
            at: self.at,
            maxima,
        }
    }
}

/// What a gauge noted.
#[derive(Debug)]
pub(super) struct Readings {
    instants: Vec<BootNs>,
    at: Vec<Amounts>,
    /// A tree: the maximum of two nodes stands at half their place, those of the instants in
    /// the second half.
    maxima: Vec<High>,
}

impl Readings {
    fn place(&self, instant: BootNs) -> Option<usize> {
        self.instants.binary_search(&instant).ok()
    }

    /// What was held at an instant, with all that was written for that instant.
    pub(super) fn at(&self, instant: BootNs) -> Amounts {
        let place = self.place(instant);
        place.map_or(Amounts::UNKNOWN, |place| self.at[place])
    }

    /// The highest RSS from an instant to another, both included.
    pub(super) fn peak(&self, from: BootNs, to: BootNs) -> Option<(Bytes, BootNs)> {
        let (first, last) = (self.place(from)?, self.place(to)?);
        let at_end = self.at[last].rss().map(|rss| (rss.0, Reverse(to.0)));
        let (bytes, Reverse(boot_ns)) = self.highest_between(first, last).max(at_end)?;
        Some((Bytes(bytes), BootNs(boot_ns)))
    }

    fn highest_between(&self, first: usize, last: usize) -> High {
        let leaves = self.instants.len();
        let (mut low, mut high) = (first + leaves, last + leaves);
        let mut best = None;
        while low < high {
            if low % 2 == 1 {
                best = best.max(self.maxima[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                best = best.max(self.maxima[high]);
            }
            low /= 2;
            high /= 2;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::mem_row;
    use proptest::prelude::*;

    fn amounts(bytes: i64) -> Amounts {
        Amounts::of(&mem_row(1, 0, Some(bytes)))
    }

    fn noted(instants: &[i64], held: &[(i64, i64)]) -> Readings {
        let mut gauge = Gauge::new(instants.iter().map(|&at| BootNs(at)).collect());
        for pair in held.windows(2) {
            gauge.hold(BootNs(pair[0].0), BootNs(pair[1].0), amounts(pair[0].1));
        }
        if let Some(&(from, bytes)) = held.last() {
            gauge.hold_to_the_end(BootNs(from), amounts(bytes));
        }
        gauge.read()
    }

    fn bytes_at(readings: &Readings, at: i64) -> Option<i64> {
        readings.at(BootNs(at)).rss().map(|rss| rss.0)
    }

    #[test]
    fn a_reading_is_what_was_held_then_and_unknown_before_the_first_row() {
        let readings = noted(&[5, 10, 20, 25, 90], &[(10, 100), (20, 300), (30, 200)]);
        let read = [5, 10, 20, 25, 90].map(|at| bytes_at(&readings, at));
        assert_eq!(read, [None, Some(100), Some(300), Some(300), Some(200)]);
        assert_eq!(bytes_at(&readings, OPEN.0), None);
    }

    #[test]
    fn a_spike_inside_of_a_stretch_is_its_peak_and_one_outside_is_not() {
        let held = [(0, 10), (12, 500), (13, 20), (30, 900)];
        let readings = noted(&[10, 20, 25, OPEN.0], &held);
        let peak = |from: i64, to: i64| {
            let (bytes, at) = readings.peak(BootNs(from), BootNs(to))?;
            Some((bytes.0, at.0))
        };
        assert_eq!(peak(10, 20), Some((500, 12)));
        assert_eq!(peak(20, 25), Some((20, 20)));
        assert_eq!(peak(10, OPEN.0), Some((900, 30)));
        assert_eq!(peak(25, 25), Some((20, 25)));
    }

    proptest! {
        #[test]
        fn every_peak_is_what_looking_at_every_nanosecond_finds(
            instants in prop::collection::btree_set(0_i64..60, 1..12),
            rows in prop::collection::btree_map(0_i64..60, 0_i64..100, 1..20),
        ) {
            let instants: Vec<i64> = instants.into_iter().collect();
            let rows: Vec<(i64, i64)> = rows.into_iter().collect();
            let readings = noted(&instants, &rows);
            let held = |at: i64| rows.iter().rev().find(|row| row.0 <= at).map(|row| row.1);
            for &from in &instants {
                prop_assert_eq!(bytes_at(&readings, from), held(from));
                for &to in instants.iter().filter(|&&to| to >= from) {
                    let found = readings.peak(BootNs(from), BootNs(to));
                    let expected = (from..=to).filter_map(held).max();
                    prop_assert_eq!(found.map(|(bytes, _)| bytes.0), expected);
                }
            }
        }
    }
}
