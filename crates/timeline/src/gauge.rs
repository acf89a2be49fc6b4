//! Memory at given instants, and its maximum between them, noted while a step function goes by.
//!
//! Only what changes between two instants takes room, so that many gauges can share many
//! instants. The maximum over any stretch is then a question to a tree of maxima, so that phases
//! inside phases do not multiply the work.

use super::Amounts;
use memtrace_model::{BootNs, Bytes};
use std::cmp::Reverse;
use std::sync::Arc;

/// The highest first, of two as high the earlier.
type High = Option<(i64, Reverse<i64>)>;

/// What a gauge can note.
pub trait Gauged: Copy + PartialEq {
    /// Nothing is known.
    const UNKNOWN: Self;

    /// By what maxima are compared.
    fn height(&self) -> Option<Bytes>;
}

impl Gauged for Amounts {
    const UNKNOWN: Self = Amounts::UNKNOWN;

    fn height(&self) -> Option<Bytes> {
        self.rss()
    }
}

impl Gauged for Option<Bytes> {
    const UNKNOWN: Self = None;

    fn height(&self) -> Option<Bytes> {
        *self
    }
}

/// Instants in order, each once.
pub fn in_order(mut instants: Vec<BootNs>) -> Arc<[BootNs]> {
    instants.sort_unstable();
    instants.dedup();
    instants.into()
}

/// One step function at its instants.
#[derive(Clone, Debug)]
pub struct Gauge<V> {
    instants: Arc<[BootNs]>,
    steps: Vec<Step<V>>,
    /// The first instant that is not reached.
    next: usize,
    known_from: BootNs,
    is_partly_unknown: bool,
}

/// From an instant on, until the next step: what was held at each, and the highest from each
/// until the one after it.
#[derive(Clone, Debug)]
struct Step<V> {
    place: usize,
    at: V,
    highest: High,
}

impl<V: Gauged> Gauge<V> {
    /// A gauge for these instants.
    pub fn new(instants: Arc<[BootNs]>) -> Self {
        Self {
            instants,
            steps: Vec::new(),
            next: 0,
            known_from: BootNs(i64::MIN),
            is_partly_unknown: false,
        }
    }

    /// Whether there is anything to note.
    pub fn is_empty(&self) -> bool {
        self.instants.is_empty()
    }

    /// How many changes were noted.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// The amounts were held from `from` until `until`, which is no longer part of it.
    pub fn hold(&mut self, from: BootNs, until: BootNs, amounts: V) {
        if until <= from {
            return;
        }
        // Nothing is known of what lies before.
        self.cross(from, V::UNKNOWN, None);
        let high = |since: BootNs| amounts.height().map(|bytes| (bytes.0, Reverse(since.0)));
        if self.instants.get(self.next) != Some(&from) {
            self.raise(high(from));
        }
        let next = self.instants.get(self.next);
        if let Some(&at) = next.filter(|at| **at < until) {
            self.cross(until, amounts, high(at));
        }
    }

    /// Passes the instants before `until`, at each of which `at` was held.
    fn cross(&mut self, until: BootNs, at: V, highest: High) {
        let place = self.next;
        while self.instants.get(self.next).is_some_and(|&at| at < until) {
            self.next += 1;
        }
        let is_new = |last: &Step<V>| {
            let bytes = |high: High| high.map(|(bytes, _)| bytes);
            last.at != at || bytes(last.highest) != bytes(highest)
        };
        if self.next > place && self.steps.last().is_none_or(is_new) {
            self.steps.push(Step { place, at, highest });
        }
    }

    /// More was held since the last instant.
    fn raise(&mut self, high: High) {
        let (Some(place), Some(last)) = (self.next.checked_sub(1), self.steps.last_mut()) else {
            return;
        };
        if last.place == place {
            last.highest = last.highest.max(high);
        } else if high.map(|(bytes, _)| bytes) > last.highest.map(|(bytes, _)| bytes) {
            let at = last.at;
            self.steps.push(Step {
                place,
                at,
                highest: high,
            });
        }
    }

    /// The amounts are held from `from` to the end.
    pub fn hold_to_the_end(&mut self, from: BootNs, amounts: V) {
        self.hold(from, BootNs(i64::MAX), amounts);
    }

    /// What was noted of the time before is not all that there was.
    pub fn forget_before(&mut self, instant: BootNs) {
        self.known_from = instant;
    }

    /// Some process's memory is not part of what is held.
    pub fn note_unknown(&mut self) {
        self.is_partly_unknown = true;
    }

    /// Whether any amount of it is unknown.
    pub fn is_partly_unknown(&self) -> bool {
        self.is_partly_unknown
    }

    /// What was noted, for questions.
    pub fn read(self) -> Readings<V> {
        let count = self.steps.len();
        let mut readings = Readings {
            instants: self.instants,
            known_from: self.known_from,
            steps: self.steps,
            maxima: vec![None; count],
        };
        for node in (1..count).rev() {
            readings.maxima[node] = readings
                .maximum(2 * node)
                .max(readings.maximum(2 * node + 1));
        }
        readings
    }
}

/// What a gauge noted.
#[derive(Debug)]
pub struct Readings<V> {
    instants: Arc<[BootNs]>,
    known_from: BootNs,
    steps: Vec<Step<V>>,
    /// A tree whose leaves are the steps: the maximum of two nodes stands at half their place.
    maxima: Vec<High>,
}

impl<V: Gauged> Readings<V> {
    fn place(&self, instant: BootNs) -> Option<usize> {
        let place = self.instants.binary_search(&instant).ok();
        place.filter(|_| instant >= self.known_from)
    }

    /// The step that an instant is part of.
    fn step(&self, place: usize) -> Option<usize> {
        let steps = self.steps.partition_point(|step| step.place <= place);
        steps.checked_sub(1)
    }

    /// Of a node of the tree; the leaves come after the others.
    fn maximum(&self, node: usize) -> High {
        match node.checked_sub(self.steps.len()) {
            Some(leaf) => self.steps[leaf].highest,
            None => self.maxima[node],
        }
    }

    /// What was held at an instant, with all that was written for that instant.
    pub fn at(&self, instant: BootNs) -> V {
        let step = self.place(instant).and_then(|place| self.step(place));
        step.map_or(V::UNKNOWN, |step| self.steps[step].at)
    }

    /// The highest from an instant to another, both included.
    pub fn peak(&self, from: BootNs, to: BootNs) -> Option<(Bytes, BootNs)> {
        let (first, last) = (self.place(from)?, self.place(to)?);
        let at_end = self.at(to).height().map(|bytes| (bytes.0, Reverse(to.0)));
        let within = match first < last {
            true => {
                let until = self.steps.partition_point(|step| step.place < last);
                self.highest_between(self.step(first).unwrap_or(0), until)
            }
            false => None,
        };
        // A step can have begun before.
        let within = within.map(|(bytes, Reverse(at))| (bytes, Reverse(at.max(from.0))));
        let (bytes, Reverse(boot_ns)) = within.max(at_end)?;
        Some((Bytes(bytes), BootNs(boot_ns)))
    }

    /// The highest ever.
    pub fn highest(&self) -> Option<Bytes> {
        let (bytes, _) = self.highest_between(0, self.steps.len())?;
        Some(Bytes(bytes))
    }

    fn highest_between(&self, first: usize, last: usize) -> High {
        let leaves = self.steps.len();
        let (mut low, mut high) = (first + leaves, last + leaves);
        let mut best = None;
        while low < high {
            if low % 2 == 1 {
                best = best.max(self.maximum(low));
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                best = best.max(self.maximum(high));
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
    use memtrace_model::tables::MemRow;
    use proptest::prelude::*;

    fn amounts(bytes: i64) -> Amounts {
        Amounts::of(&MemRow {
            rss_bytes: Some(Bytes(bytes)),
            ..MemRow::default()
        })
    }

    fn noted(instants: &[i64], held: &[(i64, i64)]) -> Readings<Amounts> {
        let instants = instants.iter().map(|&at| BootNs(at)).collect();
        let mut gauge = Gauge::new(in_order(instants));
        for pair in held.windows(2) {
            gauge.hold(BootNs(pair[0].0), BootNs(pair[1].0), amounts(pair[0].1));
        }
        if let Some(&(from, bytes)) = held.last() {
            gauge.hold_to_the_end(BootNs(from), amounts(bytes));
        }
        gauge.read()
    }

    fn bytes_at(readings: &Readings<Amounts>, at: i64) -> Option<i64> {
        readings.at(BootNs(at)).rss().map(|rss| rss.0)
    }

    #[test]
    fn a_reading_is_what_was_held_then_and_unknown_before_the_first_row() {
        let readings = noted(&[5, 10, 20, 25, 90], &[(10, 100), (20, 300), (30, 200)]);
        let read = [5, 10, 20, 25, 90].map(|at| bytes_at(&readings, at));
        assert_eq!(read, [None, Some(100), Some(300), Some(300), Some(200)]);
        assert_eq!(bytes_at(&readings, i64::MAX - 1), None);
    }

    #[test]
    fn a_spike_inside_of_a_stretch_is_its_peak_and_one_outside_is_not() {
        let held = [(0, 10), (12, 500), (13, 20), (30, 900)];
        let readings = noted(&[10, 20, 25, i64::MAX - 1], &held);
        let peak = |from: i64, to: i64| {
            let (bytes, at) = readings.peak(BootNs(from), BootNs(to))?;
            Some((bytes.0, at.0))
        };
        assert_eq!(peak(10, 20), Some((500, 12)));
        assert_eq!(peak(20, 25), Some((20, 20)));
        assert_eq!(peak(10, i64::MAX - 1), Some((900, 30)));
        assert_eq!(peak(25, 25), Some((20, 25)));
    }

    #[test]
    fn what_stays_the_same_takes_no_room_and_what_is_not_known_between_is_reported_so() {
        let instants: Vec<BootNs> = (0..1_000).map(BootNs).collect();
        let mut gauge = Gauge::new(in_order(instants));
        gauge.hold(BootNs(0), BootNs(400), amounts(7));
        gauge.hold(BootNs(400), BootNs(600), amounts(7));
        assert_eq!(gauge.step_count(), 1);
        gauge.hold_to_the_end(BootNs(700), amounts(8));
        assert_eq!(gauge.step_count(), 3);
        let readings = gauge.read();
        let read = [599, 600, 699, 700, 999].map(|at| bytes_at(&readings, at));
        assert_eq!(read, [Some(7), None, None, Some(8), Some(8)]);
        assert_eq!(readings.highest(), Some(Bytes(8)));
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
                    let at = (from..=to).find(|&at| held(at) == expected);
                    let expected = expected.zip(at);
                    prop_assert_eq!(found.map(|(bytes, at)| (bytes.0, at.0)), expected);
                }
            }
        }
    }
}
