//! What all processes of a host hold in each second of its wall clock: the least of it and the
//! most, so that hosts can be added up at instants. Of each role, the most of its anonymous memory.
//!
//! A host's wall clock is off by up to so much, so what it shows in a second is all that was held
//! from so much before that second until so much after it.

use super::held::{Held, Once};
use memtrace_model::{BootNs, Bytes, ClockOffset, ClockReading, DurationNs, Order, WallNs};
use std::collections::BTreeMap;

/// How long bins are, in seconds: the first that keeps them below [`BINS_MAX`]. Each is a multiple
/// of the one before.
pub(super) const WIDTHS_S: [i64; 5] = [1, 10, 60, 600, 3_600];
/// A day has 86,400 seconds.
pub(super) const BINS_MAX: usize = 100_000;
pub(super) const SECOND_NS: i64 = 1_000_000_000;

/// What is held within a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bin {
    /// The least that it can have been.
    pub(super) at_least: i64,
    /// The least, by the best figure there is.
    pub(super) least: i64,
    /// The mean over the bin; where nothing is known, nothing is held.
    pub(super) mean: i64,
    /// The most, by that figure.
    pub(super) most: i64,
    /// The most that it can have been.
    pub(super) at_most: i64,
}

impl Bin {
    /// Nobody is there.
    pub(super) const NOTHING: Self = Self {
        at_least: 0,
        least: 0,
        mean: 0,
        most: 0,
        at_most: 0,
    };

    fn of(held: Held) -> Self {
        Self {
            at_least: held.at_least.0,
            least: held.bytes.0,
            mean: 0,
            most: held.bytes.0,
            at_most: held.at_most.0,
        }
    }

    /// Both within one bin, the mean of which is that of both together.
    pub(super) fn hull(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.min(other.at_least),
            least: self.least.min(other.least),
            mean: self.mean.saturating_add(other.mean),
            most: self.most.max(other.most),
            at_most: self.at_most.max(other.at_most),
        }
    }

    /// The same bin of one host by two recordings, of which one ended before the other began.
    pub(super) fn then(self, other: Self) -> Self {
        let most = self.most.max(other.most);
        Self {
            mean: self.mean.saturating_add(other.mean).min(most),
            at_most: self.at_most.max(other.at_most),
            ..self.beside(other)
        }
    }

    /// The same bin of one host by two recordings at one time: of the same processes, or of others.
    pub(super) fn beside(self, other: Self) -> Self {
        Self {
            mean: self.mean.max(other.mean),
            at_least: self.at_least.max(other.at_least),
            least: self.least.max(other.least),
            most: self.most.max(other.most),
            at_most: self.at_most.saturating_add(other.at_most),
        }
    }
}

/// How the wall clock stands to that of the recording, and by how much it may be off.
#[derive(Clone, Debug)]
pub(super) struct WallClock {
    /// In the order of time.
    readings: Vec<ClockReading>,
    error: DurationNs,
}

impl WallClock {
    /// By readings of the clocks; an error counts only below a bin's length.
    pub(super) fn new(mut readings: Vec<ClockReading>, error: Option<DurationNs>) -> Self {
        readings.order_by_key(|reading| reading.boot_ns);
        let error = error.filter(|error| (0..SECOND_NS).contains(&error.0));
        Self {
            readings,
            error: error.unwrap_or_default(),
        }
    }

    /// The stretches of the wall clock that a stretch of the recording is, cut where it was read.
    fn stretches(&self, from: BootNs, until: BootNs) -> impl Iterator<Item = (i64, i64)> {
        let after = |at: BootNs| self.readings.partition_point(|one| one.boot_ns <= at);
        let first = after(from).saturating_sub(1);
        let last = after(until).max(first + 1).min(self.readings.len());
        let readings = self.readings.get(first..last).unwrap_or_default();
        readings
            .iter()
            .enumerate()
            .filter_map(move |(place, reading)| {
                let next = readings.get(place + 1).map(|next| next.boot_ns);
                let begin = if place == 0 {
                    from
                } else {
                    reading.boot_ns.max(from)
                };
                let end = next.map_or(until, |next| next.min(until));
                let wall = |at: BootNs| ClockOffset::at(*reading).to_wall(at).0;
                (begin < end).then(|| (wall(begin), wall(end)))
            })
    }

    /// From when until when a reading of the clocks counts, and what it says.
    fn around(&self, at: BootNs) -> Option<(BootNs, BootNs, ClockOffset)> {
        let after = self.readings.partition_point(|one| one.boot_ns <= at);
        let reading = self.readings.get(after.saturating_sub(1))?;
        let first = if after > 1 {
            reading.boot_ns
        } else {
            BootNs(i64::MIN)
        };
        let next = self.readings.get(after.max(1));
        let next = next.map_or(BootNs(i64::MAX), |next| next.boot_ns);
        Some((first, next, ClockOffset::at(*reading)))
    }

    fn at(&self, at: BootNs) -> Option<i64> {
        let (.., offset) = self.around(at)?;
        Some(offset.to_wall(at).0)
    }
}

/// Bins that are being filled.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    clock: WallClock,
    /// Which of [`WIDTHS_S`].
    width: usize,
    /// By number since the epoch; what is not there is not known.
    bins: BTreeMap<i64, Gathered>,
    /// One that may still grow.
    latest: Option<(i64, Gathered)>,
    /// What lies within this stretch of the recording is all of that bin.
    within: Option<(BootNs, BootNs)>,
    roles: Vec<Course>,
    shared: Course,
    /// Which part of what roles have counts, as it was last.
    once: Once,
}

/// A bin that is being filled.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    bin: Bin,
    /// What was held in it, times how long.
    byte_ns: i128,
}

impl Gathered {
    fn and(self, other: Self) -> Self {
        Self {
            bin: self.bin.hull(other.bin),
            byte_ns: self.byte_ns + other.byte_ns,
        }
    }
}

/// The most of one thing in each bin: what it was at most, and what holds from its end on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Course(Vec<(i64, i64, i64)>);

impl Course {
    fn set(&mut self, bin: i64, bytes: i64) {
        match self.0.last_mut() {
            // A clock that was set back is still in the bin it was in.
            Some((last, most, now)) if bin <= *last => {
                *most = bytes.max(*most);
                *now = bytes;
            }
            Some((.., now)) if *now == bytes => {}
            before => {
                let before = before.map_or(0, |(.., now)| *now);
                self.0.push((bin, bytes.max(before), bytes));
            }
        }
    }

    fn widen(&mut self, times: i64) {
        let mut wide = Self::default();
        let mut now = 0;
        for &(bin, most, after) in &self.0 {
            let bin = bin.div_euclid(times);
            match wide.0.last_mut() {
                Some((last, so_far, held)) if *last == bin => {
                    *so_far = most.max(*so_far);
                    *held = after;
                }
                _ => wide.0.push((bin, most.max(now), after)),
            }
            now = after;
        }
        *self = wide;
    }

    /// In each bin from the first to the last.
    fn dense(&self, first: i64, count: usize) -> Vec<i64> {
        let mut dense = vec![0; count];
        for (place, &(bin, most, after)) in self.0.iter().enumerate() {
            let next = self.0.get(place + 1).map_or(i64::MAX, |(next, ..)| *next);
            let at = |bin: i64| {
                usize::try_from(bin.saturating_sub(first))
                    .unwrap_or(0)
                    .min(count)
            };
            let (from, until) = (at(bin), at(next));
            dense[from..until].fill(after);
            if let Some(own) = dense.get_mut(from).filter(|_| bin >= first) {
                *own = most;
            }
        }
        dense
    }
}

/// What was held in each bin.
#[derive(Clone, Debug, Default)]
pub struct Binned {
    /// The length of each.
    pub(super) width_s: i64,
    /// The number of the first since the epoch.
    pub(super) first: i64,
    /// All of it.
    pub(super) held: Vec<Bin>,
    /// By role: the most of its anonymous memory.
    pub(super) roles: Vec<Vec<i64>>,
    /// The most of shared memory.
    pub(super) shared: Vec<i64>,
}

impl Bins {
    /// Nothing is known yet of so many roles.
    pub(super) fn new(clock: WallClock, role_count: usize) -> Self {
        Self {
            clock,
            width: 0,
            bins: BTreeMap::new(),
            latest: None,
            within: None,
            roles: vec![Course::default(); role_count],
            shared: Course::default(),
            once: Once::default(),
        }
    }

    fn number(&self, wall_ns: i64) -> i64 {
        wall_ns.div_euclid(WIDTHS_S[self.width] * SECOND_NS)
    }

    /// That much was held from one instant until another.
    pub(super) fn hold(&mut self, from: BootNs, until: BootNs, held: Held) {
        if let (Some((first, last)), Some((_, of))) = (self.within, &mut self.latest)
            && first <= from
            && until <= last
        {
            let byte_ns = i128::from(held.bytes.0) * i128::from((until - from).0);
            let bin = Bin::of(held);
            *of = of.and(Gathered { bin, byte_ns });
            return;
        }
        let error = self.clock.error.0;
        let stretches: Vec<(i64, i64)> = self.clock.stretches(from, until).collect();
        for (from, until) in stretches {
            let mut last = self.number((until + error - 1).max(from));
            let mut first = self.number(from - error);
            while last - first > BINS_MAX as i64 && self.widen() {
                (first, last) = (self.number(from - error), self.number(until + error - 1));
            }
            let width_ns = WIDTHS_S[self.width] * SECOND_NS;
            for number in first.max(last - BINS_MAX as i64)..=last {
                let (begin, end) = (number * width_ns, (number + 1) * width_ns);
                let length = (until.min(end) - from.max(begin)).max(0);
                let byte_ns = i128::from(held.bytes.0) * i128::from(length);
                let bin = Bin::of(held);
                self.take(number, Gathered { bin, byte_ns });
            }
            while self.bins.len() > BINS_MAX && self.widen() {}
        }
        self.note_within(until);
    }

    /// Notes which stretch around an instant is of one bin, the latest: most of what comes next is.
    fn note_within(&mut self, at: BootNs) {
        self.within = None;
        let (Some((latest, _)), Some((first, next, offset))) =
            (self.latest.as_ref(), self.clock.around(at))
        else {
            return;
        };
        let width_ns = WIDTHS_S[self.width] * SECOND_NS;
        let begin = offset.to_boot(WallNs(latest * width_ns + self.clock.error.0));
        let end = offset.to_boot(WallNs((latest + 1) * width_ns - self.clock.error.0));
        self.within = Some((begin.max(first), end.min(next)));
    }

    /// Most of what is taken is in the bin of what was taken before it.
    fn take(&mut self, number: i64, more: Gathered) {
        match &mut self.latest {
            Some((latest, of)) if *latest == number => *of = of.and(more),
            latest => {
                let before = latest.replace((number, more));
                self.keep(before);
            }
        }
    }

    fn keep(&mut self, taken: Option<(i64, Gathered)>) {
        if let Some((number, more)) = taken {
            let of = self.bins.entry(number);
            of.and_modify(|of| *of = of.and(more)).or_insert(more);
        }
    }

    /// A role holds that much anonymous memory from an instant on.
    pub(super) fn set_role(&mut self, role: usize, at: BootNs, anon: Bytes) {
        let bin = self.clock.at(at).map(|wall| self.number(wall));
        if let Some((course, bin)) = self.roles.get_mut(role).zip(bin) {
            course.set(bin, anon.0);
        }
    }

    /// Which part of what roles have counts from now on. Answers whether it is another one.
    pub(super) fn note_once(&mut self, once: Once) -> bool {
        let is_other = !self.once.is_like(once);
        if is_other {
            self.once = once;
        }
        is_other
    }

    /// So much is shared from an instant on.
    pub(super) fn set_shared(&mut self, at: BootNs, shared: Bytes) {
        if let Some(wall) = self.clock.at(at) {
            self.shared.set(self.number(wall), shared.0);
        }
    }

    /// Makes bins longer; false where they are as long as can be.
    fn widen(&mut self) -> bool {
        let Some(wider) = WIDTHS_S.get(self.width + 1) else {
            return false;
        };
        let times = wider / WIDTHS_S[self.width];
        self.within = None;
        let latest = self.latest.take();
        self.keep(latest);
        self.width += 1;
        for (number, bin) in std::mem::take(&mut self.bins) {
            self.keep(Some((number.div_euclid(times), bin)));
        }
        let courses = self.roles.iter_mut().chain([&mut self.shared]);
        courses.for_each(|course| course.widen(times));
        true
    }

    /// What was held in each bin; of those at both ends the recording knows only a part. Of a
    /// recording whose clock was set by days, what came after that.
    pub(super) fn finish(mut self) -> Option<Binned> {
        let latest = self.latest.take();
        self.keep(latest);
        let last = *self.bins.keys().next_back()?;
        self.bins = self.bins.split_off(&(last - 2 * BINS_MAX as i64));
        let first = *self.bins.keys().next()?;
        for edge in [first, last] {
            if let Some(Gathered { bin, .. }) = self.bins.get_mut(&edge) {
                *bin = bin.hull(Bin::NOTHING);
            }
        }
        let width_ns = i128::from(WIDTHS_S[self.width] * SECOND_NS);
        let reported = |of: &Gathered| Bin {
            mean: i64::try_from(of.byte_ns / width_ns)
                .unwrap_or(of.bin.most)
                .min(of.bin.most),
            ..of.bin
        };
        let held = (first..=last).map(|number| self.bins.get(&number).map(reported));
        let held: Vec<Bin> = held.map(|bin| bin.unwrap_or(Bin::NOTHING)).collect();
        let dense = |course: &Course| course.dense(first, held.len());
        Some(Binned {
            width_s: WIDTHS_S[self.width],
            first,
            roles: self.roles.iter().map(dense).collect(),
            shared: dense(&self.shared),
            held,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(boot: i64, wall: i64) -> ClockReading {
        ClockReading {
            boot_ns: BootNs(boot),
            monotonic_ns: boot,
            wall_ns: WallNs(wall),
        }
    }

    fn bins(readings: &[(i64, i64)], error: i64) -> Bins {
        let readings = readings.iter().map(|&(boot, wall)| reading(boot, wall));
        Bins::new(
            WallClock::new(readings.collect(), Some(DurationNs(error))),
            1,
        )
    }

    proptest! {
        #[test]
        fn within_its_bin_no_instant_is_outside_of_the_bounds(
            steps in proptest::collection::vec((1..3_000_000_000_i64, 0..100_i64), 1..60),
            error in 0..900_000_000_i64,
        ) {
            let mut binning = bins(&[(0, 500_000_000)], error);
            let (mut at, mut held) = (0, Vec::new());
            for &(length, bytes) in &steps {
                binning.hold(BootNs(at), BootNs(at + length), Held::exact(bytes));
                held.push((at, at + length, bytes));
                at += length;
            }
            let binned = binning.finish().expect("bins");
            for (from, until, bytes) in held {
                for instant in [from, (from + until) / 2, until - 1] {
                    for off in [-error, 0, error] {
                        let wall = instant + 500_000_000 + off;
                        let bin = wall.div_euclid(SECOND_NS) - binned.first;
                        let bin = usize::try_from(bin).ok().and_then(|bin| binned.held.get(bin));
                        let Some(bin) = bin else { continue };
                        prop_assert!(bin.at_least <= bytes && bytes <= bin.at_most);
                        prop_assert!(bin.mean <= bin.most);
                    }
                }
            }
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_what_comes_after_it() {
        let second = SECOND_NS;
        let mut binning = bins(&[(0, 0), (5 * second, 15 * second)], 0);
        binning.hold(BootNs(0), BootNs(10 * second), Held::exact(7));
        let binned = binning.finish().expect("bins");
        let known: Vec<i64> = (binned.held.iter().zip(binned.first..))
            .filter(|(bin, _)| bin.most > 0)
            .map(|(_, number)| number)
            .collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn bins_become_longer_where_there_would_be_too_many_and_lose_no_peak() {
        let days = 3 * 86_400;
        let mut binning = bins(&[(0, 0)], 0);
        for second in 0..days {
            let (from, until) = (second * SECOND_NS, (second + 1) * SECOND_NS);
            let bytes = if second == 200_000 { 99 } else { 5 };
            binning.hold(BootNs(from), BootNs(until), Held::exact(bytes));
            binning.set_role(0, BootNs(from), Bytes(bytes));
        }
        let binned = binning.finish().expect("bins");
        assert_eq!((binned.width_s, binned.held.len()), (10, 25_920));
        assert_eq!(binned.held[20_000].at_most, 99);
        assert_eq!(binned.held[20_000].at_least, 5);
        assert_eq!(binned.roles[0][19_999..20_002], [5, 99, 5]);
    }

    #[test]
    fn a_clock_that_no_recording_can_have_takes_no_room() {
        let far = 50 * 366 * 86_400 * SECOND_NS;
        let mut binning = bins(&[(0, 0), (SECOND_NS, far)], 0);
        binning.hold(BootNs(0), BootNs(3 * SECOND_NS), Held::exact(7));
        assert_eq!(binning.finish().expect("bins").held.len(), 2);
        let mut binning = bins(&[(0, 0)], 0);
        binning.hold(BootNs(0), BootNs(far), Held::exact(7));
        assert!(binning.finish().expect("bins").held.len() <= BINS_MAX + 1);
    }
}
