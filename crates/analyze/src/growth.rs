//! Whether memory grows steadily, and how fast: the trend of a curve after its warm-up, and a
//! verdict that noise, a single step and a start-up do not pass.

use super::clock::RunClock;
use super::trend::Trend;
use memtrace_model::labels;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Kind};
use memtrace_timeline::{Amounts, CURVE_AFTER, SeriesPoint, Track};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The start of a life that is warm-up: imports, loading, caches that fill. It is the first
/// quarter, and this at least, for a program that imports an ML framework takes the better part of
/// a minute to do so, and that is no growth per hour.
const WARM_UP_NS: i64 = CURVE_AFTER.0;
const WARM_UP_PART: i64 = 4;
/// Below this length after the warm-up, a slope per hour says nothing.
const MIN_WINDOW_NS: i64 = 60_000_000_000;
/// What is too short for that can still be seen to rise: over its later half, and this at least. It has
/// to rise by much, since a start-up does so too.
const SHORT_WARM_UP_NS: i64 = 10_000_000_000;
const SHORT_WINDOW_NS: i64 = 15_000_000_000;
const SHORT_RISE_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
const SHORT_RISE_SHARE: f64 = 0.2;
/// Fewer rows than this, and the curve is mostly our own interpolation.
const MIN_ROWS: u32 = 12;
/// Fewer points than this, and chance draws a line through anything.
const MIN_POINTS: usize = 8;
/// A rise below both of these is not worth a line.
const MIN_RISE_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MIN_RISE_SHARE: f64 = 0.02;

/// The trend of a curve after its warm-up. docs/report.md says what makes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Growth {
    /// The slope in bytes per hour.
    #[serde(serialize_with = "whole")]
    #[schemars(with = "Option<i64>")]
    pub bytes_per_hour: f64,
    /// The lower end of its 95 % interval; `None` where it has no bound.
    #[serde(serialize_with = "whole")]
    #[schemars(with = "Option<i64>")]
    pub low_bytes_per_hour: f64,
    /// The upper end of it.
    #[serde(serialize_with = "whole")]
    #[schemars(with = "Option<i64>")]
    pub high_bytes_per_hour: f64,
    /// What it rose by over the window: the slope times the window's length.
    pub rise_bytes: Bytes,
    /// The start of the window.
    pub from: Instant,
    /// The end of the window.
    pub to: Instant,
    /// What to make of it.
    pub verdict: Verdict,
    /// The kind of memory that makes up more than half of what came, of a process since the start of the
    /// window or some time before it; null of all together, of a role, and where none does.
    pub kind: Option<Kind>,
}

labels! {
    /// What a slope means.
    pub enum Verdict {
        /// It rose steadily and was still rising at the end.
        Growing = "growing",
        /// It rose by much until the end, in too short a time to tell a start-up from a leak.
        Rising = "rising",
        /// It fell steadily.
        Shrinking = "shrinking",
        /// The line does not describe it: flat, noisy, a step, or a ramp that levelled off.
        NoTrend = "no_trend",
    }
}

impl Growth {
    /// Half the width of the 95 % interval of the slope; infinite where that has no bound.
    pub fn margin_bytes_per_hour(&self) -> f64 {
        (self.high_bytes_per_hour - self.low_bytes_per_hour) / 2.0
    }

    pub(super) fn settled(self, clock: &RunClock) -> Self {
        Self {
            from: clock.at(self.from.boot_ns),
            to: clock.at(self.to.boot_ns),
            ..self
        }
    }

    /// The time until `headroom` is used up at this rate; `None` when it does not grow.
    pub fn time_to_fill(&self, headroom: Bytes) -> Option<DurationNs> {
        let hours = headroom.0 as f64 / self.bytes_per_hour;
        (self.verdict == Verdict::Growing && hours.is_finite() && hours >= 0.0)
            .then_some(DurationNs((hours * 3.6e12) as i64))
    }
}

/// Bytes as an integer, as everywhere in JSON; null where there is no bound.
pub(super) fn whole<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value as i64).serialize(to)
}

/// The trend of a process until then, with the kind that makes up most of it.
pub(super) fn of(track: &Track, end: BootNs) -> Option<Growth> {
    let curve = track.curve.as_ref()?;
    let growth = fit(curve.points(), (track.first, end), track.row_count)?;
    let before = curve.level_before(growth.from.boot_ns);
    let kind = before.and_then(|before| {
        let end = track.held().unwrap_or(&track.at_end);
        // One that ends gives back what it gained before its last row.
        let is_later = track.highest_boot_ns >= growth.from.boot_ns;
        let highest = Some(&track.highest).filter(|_| is_later);
        most_of(&end.since(before)).or_else(|| most_of(&highest?.since(before)))
    });
    Some(Growth { kind, ..growth })
}

/// The kind that makes up more than half of what came.
fn most_of(gained: &Amounts) -> Option<Kind> {
    let kinds = [Kind::Anon, Kind::File, Kind::Shmem].into_iter();
    let most = kinds.max_by_key(|kind| gained.get(*kind))?;
    let more = gained.get(most)?.0;
    (more > 0 && more.saturating_mul(2) > gained.rss()?.0).then_some(most)
}

/// The trend of a stretch from `first` to `last` after its warm-up; `None` when it is too short, or
/// was looked at too rarely, to tell.
pub(super) fn fit(
    points: impl Iterator<Item = SeriesPoint>,
    (first, last): (BootNs, BootNs),
    row_count: u32,
) -> Option<Growth> {
    let life_ns = (last - first).0;
    let warm_up_ns = (life_ns / WARM_UP_PART).max(WARM_UP_NS);
    let is_short = life_ns - warm_up_ns < MIN_WINDOW_NS;
    let warm_up_ns = match is_short {
        true => (life_ns / 2).max(SHORT_WARM_UP_NS),
        false => warm_up_ns,
    };
    let from = BootNs(first.0 + warm_up_ns);
    let points = points.filter(|point| (from..=last).contains(&point.boot_ns));
    let points: Vec<SeriesPoint> = points.collect();
    // A curve can begin later than that.
    let from = match is_short {
        true => points.first()?.boot_ns,
        false => from,
    };
    let window_ns = (last - from).0;
    if window_ns < SHORT_WINDOW_NS || row_count < MIN_ROWS || points.len() < MIN_POINTS {
        return None;
    }
    let hours = |point: &SeriesPoint| (point.boot_ns - from).as_secs_f64() / 3600.0;
    let points = points.iter().map(|point| (hours(point), point.mean_bytes));
    let points: Vec<(f64, f64)> = points.collect();
    let trend = Trend::through(&points)?;
    let rise = trend.slope * DurationNs(window_ns).as_secs_f64() / 3600.0;
    let verdict = judge(&trend, &points, rise, is_short)?;
    Some(Growth {
        bytes_per_hour: trend.slope,
        low_bytes_per_hour: trend.low,
        high_bytes_per_hour: trend.high,
        rise_bytes: Bytes(rise as i64),
        from: Instant::unsettled(from),
        to: Instant::unsettled(last),
        verdict,
        kind: None,
    })
}

/// `None` where a short stretch shows nothing.
fn judge(trend: &Trend, points: &[(f64, f64)], rise: f64, is_short: bool) -> Option<Verdict> {
    let mean = points.iter().map(|(_, bytes)| bytes).sum::<f64>() / points.len() as f64;
    let (least, share) = match is_short {
        true => (SHORT_RISE_BYTES, SHORT_RISE_SHARE),
        false => (MIN_RISE_BYTES, MIN_RISE_SHARE),
    };
    let is_worth_telling = rise.abs() >= least && rise.abs() >= mean * share;
    let is_trend = is_worth_telling && trend.is_sure() && trend.goes_on(points);
    match (is_trend, rise < 0.0) {
        (true, false) if is_short => Some(Verdict::Rising),
        _ if is_short => None,
        (true, false) => Some(Verdict::Growing),
        (true, true) => Some(Verdict::Shrinking),
        (false, _) => Some(Verdict::NoTrend),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_timeline::Series;

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
        assert!(growth.margin_bytes_per_hour() / MIB < 1.0, "{growth:?}");
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
    fn imports_and_loading_are_no_growth_per_hour() {
        // Two minutes, of which the first 55 s load 1 GiB.
        let growth = grown(120, |x| 1_024.0 * (x * 120.0 / 55.0).min(1.0)).unwrap();
        assert_eq!(growth.verdict, Verdict::NoTrend, "{growth:?}");
    }

    #[test]
    fn a_steep_rise_in_a_short_run_is_said_and_is_no_verdict_on_a_leak() {
        let verdict =
            |seconds, curve: fn(f64) -> f64| grown(seconds, curve).map(|growth| growth.verdict);
        let rising = Some(Verdict::Rising);
        assert_eq!(verdict(70, |x| 100.0 + 585.0 * x), rising);
        assert_eq!(verdict(119, |x| 1_000.0 * x), rising);
        assert_eq!(verdict(119, |x| 1_000.0 + 100.0 * x), None, "little");
        assert_eq!(verdict(70, |x| 1_000.0 * x.min(0.6)), None, "over");
        assert_eq!(verdict(70, |x| 1_000.0 * (1.0 - x)), None);
    }

    #[test]
    fn a_short_life_or_too_few_rows_say_nothing() {
        assert_eq!(grown(24, |x| 1_000.0 * x), None);
        let points = Series::new(BootNs(0), 64);
        assert_eq!(fit(points.points(), (BootNs(0), BootNs(190 * S)), 3), None);
    }
}
