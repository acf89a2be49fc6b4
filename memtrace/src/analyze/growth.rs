//! Whether memory grows steadily, and how fast: least squares over the last three quarters of
//! a curve, and a verdict that noise, a single step and a start-up ramp do not pass.

use super::series::SeriesPoint;
use crate::model::{BootNs, Bytes, DurationNs};

/// Below this length, a slope per hour says nothing.
const MIN_LIFE_NS: i64 = 60_000_000_000;
/// Fewer rows than this, and the curve is mostly our own interpolation.
const MIN_ROWS: u32 = 12;
/// A single step in the middle of a window fits a line with R² = 0.75; a ramp that stops half
/// way with 0.80. Neither is a leak.
const MIN_R_SQUARED: f64 = 0.85;
/// A rise below both of these is not worth a line.
const MIN_RISE_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MIN_RISE_SHARE: f64 = 0.02;
/// The second half of the window must go on rising at this share of the whole slope.
const MIN_LATE_SHARE: f64 = 1.0 / 3.0;

/// A straight line through the last three quarters of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The slope.
    pub bytes_per_hour: f64,
    /// The share of the variance that the line explains, 0 to 1.
    pub r_squared: f64,
    /// The slope times the length of the window.
    pub rise_bytes: Bytes,
    /// The start of the window.
    pub from_boot_ns: BootNs,
    /// The end of the window.
    pub to_boot_ns: BootNs,
    /// What to make of it.
    pub verdict: Verdict,
}

/// What a slope means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It rose steadily and was still rising at the end.
    Growing,
    /// It fell steadily.
    Shrinking,
    /// The line does not describe it: flat, noisy, a step, or a ramp that levelled off.
    NoTrend,
}

impl Growth {
    /// The time until `headroom` is used up at this rate; `None` when it does not grow.
    pub fn time_to_fill(&self, headroom: Bytes) -> Option<DurationNs> {
        let hours = headroom.0 as f64 / self.bytes_per_hour;
        (self.verdict == Verdict::Growing && hours.is_finite() && hours >= 0.0)
            .then_some(DurationNs((hours * 3.6e12) as i64))
    }
}

/// Fits the last three quarters of a life from `first` to `last`; `None` when it is too short,
/// or was looked at too rarely, to tell.
pub(super) fn fit(
    points: impl Iterator<Item = SeriesPoint>,
    (first, last): (BootNs, BootNs),
    row_count: u32,
) -> Option<Growth> {
    let life_ns = (last - first).0;
    if life_ns < MIN_LIFE_NS || row_count < MIN_ROWS {
        return None;
    }
    let from = BootNs(first.0 + life_ns / 4);
    let window: Vec<SeriesPoint> = points.filter(|point| point.boot_ns >= from).collect();
    let line = Line::through(&window)?;
    let hours = (last - from).as_secs_f64() / 3600.0;
    let rise = line.bytes_per_hour * hours;
    Some(Growth {
        bytes_per_hour: line.bytes_per_hour,
        r_squared: line.r_squared,
        rise_bytes: Bytes(rise as i64),
        from_boot_ns: from,
        to_boot_ns: last,
        verdict: judge(&line, &window, rise),
    })
}

fn judge(line: &Line, window: &[SeriesPoint], rise: f64) -> Verdict {
    let is_worth_telling =
        rise.abs() >= MIN_RISE_BYTES && rise.abs() >= line.mean_bytes * MIN_RISE_SHARE;
    if !is_worth_telling || line.r_squared < MIN_R_SQUARED {
        return Verdict::NoTrend;
    }
    if rise < 0.0 {
        return Verdict::Shrinking;
    }
    let late = Line::through(&window[window.len() / 2..]);
    match late {
        Some(late) if late.bytes_per_hour >= line.bytes_per_hour * MIN_LATE_SHARE => {
            Verdict::Growing
        }
        _ => Verdict::NoTrend,
    }
}

struct Line {
    bytes_per_hour: f64,
    r_squared: f64,
    mean_bytes: f64,
}

impl Line {
    /// Weighted least squares; the weight of a bucket is the time it covers.
    fn through(points: &[SeriesPoint]) -> Option<Self> {
        let origin = points.first()?.boot_ns;
        let hours = |point: &SeriesPoint| (point.boot_ns - origin).as_secs_f64() / 3600.0;
        let weight: f64 = points.iter().map(|point| point.seconds).sum();
        let mean = |value: &dyn Fn(&SeriesPoint) -> f64| {
            points
                .iter()
                .map(|point| value(point) * point.seconds)
                .sum::<f64>()
                / weight
        };
        let mean_hours = mean(&hours);
        let mean_bytes = mean(&|point| point.mean_bytes);
        let time_variance = mean(&|point| (hours(point) - mean_hours).powi(2));
        let bytes_variance = mean(&|point| (point.mean_bytes - mean_bytes).powi(2));
        let covariance =
            mean(&|point| (hours(point) - mean_hours) * (point.mean_bytes - mean_bytes));
        if points.len() < 3 || time_variance <= 0.0 {
            return None;
        }
        let r_squared = if bytes_variance > 0.0 {
            covariance * covariance / (time_variance * bytes_variance)
        } else {
            0.0
        };
        Some(Self {
            bytes_per_hour: covariance / time_variance,
            r_squared,
            mean_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::Series;
    use super::*;

    const S: i64 = 1_000_000_000;
    const MIB: f64 = 1024.0 * 1024.0;

    fn grown(seconds: i64, curve: impl Fn(f64) -> f64) -> Option<Growth> {
        let mut series = Series::new(BootNs(0), 64);
        for second in 0..seconds {
            let mib = curve(second as f64 / seconds as f64);
            let (from, to) = (BootNs(second * S), BootNs((second + 1) * S));
            series.hold(from, to, (mib * MIB) as i64);
        }
        fit(series.points(), (BootNs(0), BootNs(seconds * S)), 1_000)
    }

    fn noise(x: f64) -> f64 {
        ((x * 7_919.0).sin() * 43_758.545_3).fract()
    }

    #[test]
    fn a_steady_leak_is_found_with_its_slope_per_hour() {
        let growth = grown(3_600, |x| 1_000.0 + 500.0 * x).unwrap();
        assert_eq!(growth.verdict, Verdict::Growing);
        assert!((growth.bytes_per_hour / MIB - 500.0).abs() < 1.0);
        assert!(growth.r_squared > 0.999);
        let until_full = growth.time_to_fill(Bytes((1_000.0 * MIB) as i64)).unwrap();
        assert!((until_full.as_secs_f64() / 3600.0 - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_leak_under_noise_is_still_found() {
        let growth = grown(3_600, |x| 1_000.0 + 500.0 * x + 100.0 * noise(x)).unwrap();
        assert_eq!(growth.verdict, Verdict::Growing);
    }

    #[test]
    fn noise_a_single_step_and_a_ramp_that_stops_are_not_leaks() {
        let curves: [fn(f64) -> f64; 4] = [
            |x| 1_000.0 + 100.0 * noise(x),
            |x| if x < 0.6 { 1_000.0 } else { 3_000.0 },
            |x| 4_000.0 * x.min(0.6),
            |_| 1_000.0,
        ];
        for curve in curves {
            assert_eq!(grown(3_600, curve).unwrap().verdict, Verdict::NoTrend);
        }
    }

    #[test]
    fn the_ramp_at_start_up_is_left_out() {
        let growth = grown(3_600, |x| (x * 100_000.0).min(20_000.0)).unwrap();
        assert_eq!(growth.verdict, Verdict::NoTrend);
        assert!(growth.bytes_per_hour.abs() < 1.0);
    }

    #[test]
    fn a_short_life_or_too_few_rows_say_nothing() {
        assert_eq!(grown(59, |x| 1_000.0 * x), None);
        let points = Series::new(BootNs(0), 64);
        assert_eq!(fit(points.points(), (BootNs(0), BootNs(90 * S)), 3), None);
    }
}
