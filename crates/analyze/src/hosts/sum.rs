//! What hosts hold together, bin by bin of the wall clock.
//!
//! Of a bin each host tells the least and the most that it held in it. All of them held no more at
//! any instant of it than the sum of the most. When the one that moves most was at its highest,
//! the others held their least or more, so that all of them held no less than the sum of the least
//! and what that one moves by; and at some instant they held no less than their mean, which is the
//! sum of the means. Both are so only of clocks that are not off at all: else a second of one host
//! is not that of another, and they held no less than the sum of the least that each held in and
//! around the bin. A host of whose clock nobody knows how far it is off can have held its most, or
//! nothing, at any time; what it held alone is sure all the same.

use super::part::HostPart;
use crate::bins::{BINS_MAX, Bin, SECOND_NS, WIDTHS_S};
use memtrace_model::WallNs;
use std::cmp::Reverse;

/// The recordings of one host, one after the other, as they are added up.
pub(super) struct Course<'a> {
    pub(super) parts: Vec<&'a HostPart>,
    /// How its clock stands to those of the others.
    pub(super) standing: Standing,
}

/// How the clock of a host stands to those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// By how much it is ahead, where nobody synchronizes it and steps tell.
    pub(super) ahead_ns: i64,
    /// By how much it can be off beside that; `None` where nobody knows.
    pub(super) error_ns: Option<i64>,
}

/// The bins of one host.
pub(super) struct Dense {
    pub(super) first: i64,
    pub(super) bins: Vec<Bin>,
    sure: Sure,
    /// The most that it surely held at some instant, whenever that was.
    alone: i64,
}

/// How sure it is in which bin an instant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sure {
    /// It is known.
    Exact,
    /// The bounds of a bin are those of all instants that can be in it.
    Within,
    /// It can be in any.
    Unknown,
}

/// Hosts of a job that come one after the other are no further apart than this from the middle one.
const FAR_S: i64 = 30 * 86_400;
/// Where a clock can be off by more bins than this, it is as good as unknown.
const BLUR_MAX: i64 = 64;

/// Where most is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Highest {
    /// The number of the bin.
    pub(super) number: i64,
    pub(super) width_s: i64,
    pub(super) at_least: i64,
    pub(super) bytes: i64,
    pub(super) at_most: i64,
    /// How many hosts have a clock of which nobody knows how far it is off.
    pub(super) unsure_host_count: usize,
}

impl Highest {
    /// The start of its bin.
    pub(super) fn begin(&self) -> WallNs {
        WallNs(self.number.saturating_mul(self.width_s * SECOND_NS))
    }
}

/// The sum over hosts in one bin.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    at_least: i64,
    least: i64,
    at_most: i64,
    /// The most that one host moves by, where its figures are exact.
    sure_spread: i64,
    /// The same by the best figures.
    spread: i64,
    /// Their means, where figures are exact; else the least that it can have been.
    sure_mean: i64,
    /// The same by the best figures.
    mean: i64,
}

impl Sum {
    fn add(&mut self, bin: &Bin, sure: Sure) {
        let spread = bin.most.saturating_sub(bin.least);
        self.least = self.least.saturating_add(bin.least);
        self.spread = self.spread.max(spread);
        self.mean = self.mean.saturating_add(bin.mean);
        if sure == Sure::Unknown {
            return;
        }
        self.at_least = self.at_least.saturating_add(bin.at_least);
        self.at_most = self.at_most.saturating_add(bin.at_most);
        let is_exact = sure == Sure::Exact && is_exact(bin);
        let sure_mean = if is_exact { bin.mean } else { bin.at_least };
        self.sure_mean = self.sure_mean.saturating_add(sure_mean);
        if is_exact {
            self.sure_spread = self.sure_spread.max(spread);
        }
    }

    fn at_least(&self) -> i64 {
        let one = self.at_least.saturating_add(self.sure_spread);
        one.max(self.sure_mean)
    }

    fn bytes(&self) -> i64 {
        self.least.saturating_add(self.spread).max(self.mean)
    }
}

/// Whether a recording of a host ended before another one of it began, as far as that is known.
pub(super) fn is_over_before(first: &HostPart, second: &HostPart) -> bool {
    let times = first.end_wall_ns.zip(second.start_wall_ns);
    times.is_some_and(|(end, start)| end <= start)
}

/// Whether its figures are what was held.
fn is_exact(bin: &Bin) -> bool {
    bin.at_least == bin.least && bin.at_most == bin.most
}

/// Takes out the recordings that were at another time than most by their clocks, and says which: one
/// that is decades off would make the bins of all others hours long.
pub(super) fn take_far<'a>(courses: &mut [Course<'a>]) -> Vec<&'a HostPart> {
    let mut known: Vec<(i64, i64)> = spans(courses).collect();
    known.sort_unstable();
    let Some(&(first, last)) = known.get(known.len() / 2) else {
        return Vec::new();
    };
    let reach = FAR_S.max(last.saturating_sub(first));
    let (from, until) = (first.saturating_sub(reach), last.saturating_add(reach));
    let mut far = Vec::new();
    for course in courses {
        let ahead_ns = course.standing.ahead_ns;
        course.parts.retain(|part| {
            let is_near =
                span_s(part, ahead_ns).is_none_or(|(first, last)| first <= until && last >= from);
            if !is_near {
                far.push(*part);
            }
            is_near
        });
    }
    far
}

/// From when until when anything is known of a recording, in seconds.
fn span_s(part: &HostPart, ahead_ns: i64) -> Option<(i64, i64)> {
    let curve = part.held.as_ref()?;
    let begin = curve.first_bin.saturating_mul(curve.bin_s) - ahead_ns / SECOND_NS;
    let length = curve.bin_count().saturating_mul(curve.bin_s);
    Some((begin, begin.saturating_add(length)))
}

fn spans(courses: &[Course<'_>]) -> impl Iterator<Item = (i64, i64)> {
    courses.iter().flat_map(|course| {
        let ahead_ns = course.standing.ahead_ns;
        course
            .parts
            .iter()
            .filter_map(move |part| span_s(part, ahead_ns))
    })
}

/// The length of bins in which all of them can be added up.
pub(super) fn width_of(courses: &[Course<'_>]) -> i64 {
    let first = spans(courses).map(|(first, _)| first).min().unwrap_or(0);
    let last = spans(courses).map(|(_, last)| last).max().unwrap_or(0);
    let parts = courses.iter().flat_map(|course| &course.parts);
    let widest = parts
        .filter_map(|part| Some(part.held.as_ref()?.bin_s))
        .max();
    let (span, widest) = (last.saturating_sub(first), widest.unwrap_or(WIDTHS_S[0]));
    let is_enough = |width: &&i64| **width >= widest && span / **width <= 2 * BINS_MAX as i64;
    WIDTHS_S
        .iter()
        .find(is_enough)
        .copied()
        .unwrap_or(WIDTHS_S[WIDTHS_S.len() - 1])
}

/// What all hosts hold together, bin by bin.
pub(super) struct Sums {
    /// The number of the first bin.
    pub(super) first: i64,
    width_s: i64,
    sums: Vec<Sum>,
    /// The most that one of them surely held, whenever that was.
    alone: i64,
    /// What those whose clocks show anything can have held at any time.
    at_any_time: i64,
    unsure_host_count: usize,
}

impl Sums {
    pub(super) fn of(courses: &[Course<'_>], width_s: i64) -> Self {
        let mut all = Self {
            first: 0,
            width_s,
            sums: Vec::new(),
            alone: 0,
            at_any_time: 0,
            unsure_host_count: 0,
        };
        let dense = courses.iter().filter_map(|course| course.dense(width_s));
        dense.for_each(|one| all.add(&one));
        all
    }

    fn add(&mut self, one: &Dense) {
        self.alone = one.alone.max(self.alone);
        if one.sure == Sure::Unknown {
            let most = one.bins.iter().map(|bin| bin.at_most).max();
            self.at_any_time = self.at_any_time.saturating_add(most.unwrap_or(0));
            self.unsure_host_count += 1;
        }
        if self.sums.is_empty() {
            self.first = one.first;
        }
        if one.first < self.first {
            let missing = usize::try_from(self.first - one.first).unwrap_or(0);
            let nothing = std::iter::repeat_n(Sum::default(), missing);
            self.sums.splice(0..0, nothing);
            self.first = one.first;
        }
        let from = usize::try_from(one.first - self.first).unwrap_or(0);
        let count = self.sums.len().max(from + one.bins.len());
        self.sums.resize(count, Sum::default());
        for (sum, bin) in self.sums[from..].iter_mut().zip(&one.bins) {
            sum.add(bin, one.sure);
        }
    }

    pub(super) fn unsure_host_count(&self) -> usize {
        self.unsure_host_count
    }

    pub(super) fn bin_count(&self) -> usize {
        self.sums.len()
    }

    /// Of each bin what was held in it at one instant no less than, by the best figure, and no more
    /// than.
    pub(super) fn bounds(&self) -> impl Iterator<Item = [i64; 3]> {
        self.sums.iter().map(|sum| {
            let at_most = sum.at_most.saturating_add(self.at_any_time);
            [sum.at_least(), sum.bytes(), at_most]
        })
    }

    /// Where all of them hold most; `None` without a row of memory.
    pub(super) fn highest(&self) -> Option<Highest> {
        let bounds = || self.bounds().zip(self.first..);
        // Of bins as high the first.
        let ([_, bytes, _], number) =
            bounds().max_by_key(|([_, bytes, _], number)| (*bytes, Reverse(*number)))?;
        Some(Highest {
            number,
            width_s: self.width_s,
            at_least: bounds()
                .map(|([at_least, ..], _)| at_least)
                .max()?
                .max(self.alone),
            bytes,
            at_most: bounds().map(|([.., at_most], _)| at_most).max()?,
            unsure_host_count: self.unsure_host_count,
        })
    }
}

impl Course<'_> {
    /// All its recordings in bins of that length.
    pub(super) fn dense(&self, width_s: i64) -> Option<Dense> {
        let mut dense: Option<Dense> = None;
        for (place, part) in self.parts.iter().enumerate() {
            let one = self.dense_of(part, width_s);
            let is_after = |first: &&HostPart| is_over_before(first, part);
            let and = match self.parts[..place].iter().all(is_after) {
                true => Bin::then,
                false => Bin::beside,
            };
            dense = match (dense, one) {
                (Some(a), Some(b)) => Some(a.with(b, and)),
                (a, b) => a.or(b),
            };
        }
        dense
    }

    fn dense_of(&self, part: &HostPart, width_s: i64) -> Option<Dense> {
        let curve = part.held.as_ref()?;
        let times = width_s / curve.bin_s.max(1);
        if !WIDTHS_S.contains(&curve.bin_s) || times < 1 {
            return None;
        }
        let width_ns = width_s * SECOND_NS;
        // Half a bin to either side is a whole one.
        let ahead = self.standing.ahead_ns.saturating_add(width_ns / 2);
        let ahead = ahead.div_euclid(width_ns);
        let first = curve.first_bin.div_euclid(times);
        let mut bins: Vec<Bin> = Vec::new();
        let mut number = curve.first_bin;
        for (count, bin) in curve.runs() {
            let until = number.saturating_add(count);
            while number < until && bins.len() <= 2 * BINS_MAX {
                let place = usize::try_from(number.div_euclid(times) - first).ok()?;
                let end = (number.div_euclid(times) + 1).saturating_mul(times);
                let end = end.min(until);
                // Of so many bins it is the mean.
                let bin = Bin {
                    mean: bin.mean.saturating_mul(end - number),
                    ..bin
                };
                match bins.get_mut(place) {
                    Some(of) => *of = of.hull(bin),
                    None => bins.push(bin),
                }
                number = end;
            }
        }
        // Of those at both ends only a part is known.
        if times > 1 {
            let last = bins.len().checked_sub(1)?;
            bins[0] = bins[0].hull(Bin::NOTHING);
            bins[last] = bins[last].hull(Bin::NOTHING);
            bins.iter_mut().for_each(|bin| bin.mean /= times);
        }
        let at_least = part.peak.as_ref().map(|peak| peak.at_least_bytes.0);
        let dense = Dense {
            first: first - ahead,
            alone: at_least.unwrap_or(0),
            bins,
            sure: Sure::Exact,
        };
        Some(dense.off_by(self.standing, width_ns))
    }

    /// What it held in a bin.
    pub(super) fn at(&self, highest: &Highest) -> Option<Bin> {
        let dense = self.dense(highest.width_s)?;
        let place = usize::try_from(highest.number - dense.first).ok()?;
        dense.bins.get(place).copied()
    }

    /// What its roles held in a bin, and what was shared: the most of each.
    pub(super) fn parts_at(&self, highest: &Highest) -> Vec<(Option<&str>, i64)> {
        let mut most: Vec<(Option<&str>, i64)> = Vec::new();
        for curve in self.parts.iter().filter_map(|part| part.held.as_ref()) {
            let times = highest.width_s / curve.bin_s.max(1);
            let bin_ns = curve.bin_s.max(1) * SECOND_NS;
            let ahead = self.standing.ahead_ns.saturating_add(bin_ns / 2);
            let ahead = ahead.div_euclid(bin_ns);
            let first = highest.number.saturating_mul(times) + ahead - curve.first_bin;
            let inside = (first..first.saturating_add(times)).filter(|place| *place >= 0);
            let inside: Vec<i64> = inside.take(WIDTHS_S[4] as usize).collect();
            for part in &curve.parts {
                let bytes = inside.iter().map(|&place| part.at(place)).max();
                let bytes = bytes.filter(|bytes| *bytes > 0);
                let Some(bytes) = bytes else { continue };
                match most
                    .iter_mut()
                    .find(|(role, _)| *role == part.role.as_deref())
                {
                    Some((_, so_far)) => *so_far = bytes.max(*so_far),
                    None => most.push((part.role.as_deref(), bytes)),
                }
            }
        }
        most
    }
}

impl Dense {
    /// Two recordings of one host.
    fn with(self, other: Self, and: fn(Bin, Bin) -> Bin) -> Self {
        let (mut a, b) = if self.first <= other.first {
            (self, other)
        } else {
            (other, self)
        };
        let from = usize::try_from(b.first - a.first).unwrap_or(usize::MAX);
        if from > 20 * BINS_MAX {
            return a;
        }
        a.alone = a.alone.max(b.alone);
        a.bins
            .resize(a.bins.len().max(from + b.bins.len()), Bin::NOTHING);
        for (bin, more) in a.bins[from..].iter_mut().zip(b.bins) {
            *bin = and(*bin, more);
        }
        a
    }

    /// With the bounds that a clock leaves, which may be off.
    fn off_by(mut self, clock: Standing, width_ns: i64) -> Self {
        let Some(error) = clock.error_ns else {
            self.sure = Sure::Unknown;
            return self;
        };
        // It was moved by whole bins, which leaves half of one; and what is less than the shortest
        // bin is in its figures (`WallClock`).
        let apart = match clock.ahead_ns {
            0 if error < SECOND_NS => 0,
            0 => error,
            _ => error.saturating_add(width_ns / 2),
        };
        let times = apart.saturating_add(width_ns - 1) / width_ns;
        if times > BLUR_MAX {
            self.sure = Sure::Unknown;
            return self;
        }
        if error > 0 || clock.ahead_ns != 0 {
            self.sure = Sure::Within;
        }
        (0..times).fold(self, |dense, _| dense.blurred())
    }

    /// Each instant may be in the bin before its own or in the one after it: that is as far as the
    /// bounds are.
    fn blurred(self) -> Self {
        let at = |place: Option<usize>| place.and_then(|place| self.bins.get(place)).copied();
        let blurred = (0..self.bins.len() + 2).map(|place| {
            let own = at(place.checked_sub(1)).unwrap_or(Bin::NOTHING);
            let around = [at(Some(place)), at(place.checked_sub(2))];
            let around = around.map(|bin| bin.unwrap_or(Bin::NOTHING));
            Bin {
                at_least: around
                    .iter()
                    .fold(own.at_least, |least, bin| least.min(bin.at_least)),
                at_most: around
                    .iter()
                    .fold(own.at_most, |most, bin| most.max(bin.at_most)),
                ..own
            }
        });
        Self {
            first: self.first - 1,
            bins: blurred.collect(),
            ..self
        }
    }
}
