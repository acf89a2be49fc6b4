//! A curve in a fixed number of buckets, whatever the length of the recording.
//!
//! `mem` is a step function with rows where something changed, so a mean over rows would lean
//! to the busy moments. Each bucket holds the time-weighted mean and the maximum of the curve.
//! When time runs past the last bucket, pairs are merged and the buckets become twice as wide.

use memtrace_model::{BootNs, Bytes, DurationNs};

/// The width of a bucket at the start: a run of a second still has a curve, and a run of a day
/// has doubled it some twenty times.
const FIRST_WIDTH_NS: i64 = 1_000_000;

/// In whole numbers, which add up whatever the order, and faster.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    byte_ns: i128,
    ns: i64,
    max: i64,
}

impl Bucket {
    fn add(&mut self, ns: i64, bytes: i64) {
        self.byte_ns += i128::from(bytes) * i128::from(ns);
        self.ns += ns;
        self.max = self.max.max(bytes);
    }
}

/// One bucket of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesPoint {
    /// The middle of the bucket.
    pub boot_ns: BootNs,
    /// For how much of the bucket the curve is known.
    pub seconds: f64,
    /// The time-weighted mean, in bytes.
    pub mean_bytes: f64,
    /// The highest value.
    pub max_bytes: Bytes,
}

/// A curve that is built segment by segment, forward in time.
#[derive(Clone, Debug)]
pub struct Series {
    start_ns: i64,
    width_ns: i64,
    capacity: usize,
    /// Those that are over.
    buckets: Vec<Bucket>,
    /// The one after them.
    open: Bucket,
    /// Where that ends.
    end_ns: i64,
}

impl Series {
    /// An empty curve from `start` on, in at most `capacity` buckets.
    pub fn new(start: BootNs, capacity: usize) -> Self {
        Self {
            start_ns: start.0,
            width_ns: FIRST_WIDTH_NS,
            capacity: capacity.max(2),
            buckets: Vec::new(),
            open: Bucket::default(),
            end_ns: start.0.saturating_add(FIRST_WIDTH_NS),
        }
    }

    /// The curve held `bytes` from `from`, where it was held last or later, until `to`.
    #[inline]
    pub fn hold(&mut self, from: BootNs, to: BootNs, bytes: i64) {
        let (from, to) = (from.0.max(self.start_ns), to.0);
        // Most rows come long before the bucket is over.
        if from < to && to <= self.end_ns {
            self.open.add(to - from, bytes);
        } else if from < to {
            self.hold_beyond(from, to, bytes);
        }
    }

    /// The same, past the end of the last bucket.
    fn hold_beyond(&mut self, mut from: i64, to: i64, bytes: i64) {
        while (to - 1 - self.start_ns) / self.width_ns >= self.capacity as i64 {
            self.widen();
        }
        while from < to {
            let index = (from - self.start_ns) / self.width_ns;
            if index as usize > self.buckets.len() {
                self.buckets.push(std::mem::take(&mut self.open));
                self.buckets.resize(index as usize, Bucket::default());
            }
            self.end_ns = self.start_ns + (index + 1) * self.width_ns;
            let until = self.end_ns.min(to);
            self.open.add(until - from, bytes);
            from = until;
        }
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        self.buckets.push(std::mem::take(&mut self.open));
        self.buckets = self
            .buckets
            .chunks(2)
            .map(|pair| {
                pair.iter().fold(Bucket::default(), |sum, bucket| Bucket {
                    byte_ns: sum.byte_ns + bucket.byte_ns,
                    ns: sum.ns + bucket.ns,
                    max: sum.max.max(bucket.max),
                })
            })
            .collect();
        self.open = self.buckets.pop().unwrap_or_default();
        let open = self.buckets.len() as i64;
        self.end_ns = self.start_ns + (open + 1) * self.width_ns;
    }

    /// The buckets in which the curve is known, in order.
    pub fn points(&self) -> impl Iterator<Item = SeriesPoint> + '_ {
        let open = std::iter::once(&self.open);
        (self.buckets.iter().chain(open))
            .enumerate()
            .filter(|(_, bucket)| bucket.ns > 0)
            .map(|(index, bucket)| SeriesPoint {
                boot_ns: BootNs(self.start_ns + index as i64 * self.width_ns + self.width_ns / 2),
                seconds: DurationNs(bucket.ns).as_secs_f64(),
                mean_bytes: bucket.byte_ns as f64 / bucket.ns as f64,
                max_bytes: Bytes(bucket.max),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_bucket_is_the_time_weighted_mean_and_the_maximum() {
        const MS: i64 = FIRST_WIDTH_NS;
        let mut series = Series::new(BootNs(0), 4);
        series.hold(BootNs(0), BootNs(MS * 9 / 10), 100);
        series.hold(BootNs(MS * 9 / 10), BootNs(MS), 1_100);
        let points: Vec<_> = series.points().collect();
        assert_eq!(points.len(), 1);
        assert!((points[0].mean_bytes - 200.0).abs() < 1e-6);
        assert_eq!(points[0].max_bytes, Bytes(1_100));
    }

    #[test]
    fn a_day_fits_into_the_same_buckets_and_keeps_its_maximum() {
        let mut series = Series::new(BootNs(0), 64);
        for second in 0..86_400 {
            let bytes = if second == 40_000 { 999 } else { 10 };
            series.hold(BootNs(second * S), BootNs((second + 1) * S), bytes);
        }
        let points: Vec<_> = series.points().collect();
        assert!((32..=64).contains(&points.len()));
        let max = points.iter().map(|point| point.max_bytes).max();
        assert_eq!(max, Some(Bytes(999)));
        let seconds: f64 = points.iter().map(|point| point.seconds).sum();
        assert!((seconds - 86_400.0).abs() < 1e-6);
    }

    #[test]
    fn one_long_gap_costs_no_more_than_the_buckets() {
        let mut series = Series::new(BootNs(5), 16);
        series.hold(BootNs(0), BootNs(S * 1_000_000), 7);
        assert!(series.points().count() <= 16);
    }
}
