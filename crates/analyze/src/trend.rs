//! A straight trend through points, and how sure it is.
//!
//! The slope is the median of the slopes through every pair of points (Theil 1950; Sen 1968,
//! "Estimates of the regression coefficient based on Kendall's tau", J. Am. Stat. Assoc. 63), so
//! that a single jump, a spike or a first point that is off moves it little, where least squares
//! follow them. Its 95 % interval is Sen's: the pair slopes of the ranks (N ± C) / 2, with
//! C = 1.96 √Var(S) and Var(S) = n (n - 1) (2n + 5) / 18 for independent points.
//!
//! Memory drifts: a point lies where the one before it lay. Var(S) is therefore multiplied by
//! n/n* of Hamed and Rao (1998, "A modified Mann-Kendall trend test for autocorrelated data",
//! J. Hydrology 204), from the autocorrelation of the ranks of what the trend leaves over, at the
//! lags at which it is significant. It never makes the interval narrower here.

/// Both sides of a normal distribution beyond this are 5 %.
pub(crate) const Z_95: f64 = 1.96;
/// More points are averaged with their neighbours first: there are n (n - 1) / 2 pairs.
const MAX_POINTS: usize = 256;

/// The later half must rise or fall by this part of the whole slope at least.
const LATE_PART: f64 = 1.0 / 3.0;

/// A slope, and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trend {
    pub(super) slope: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Trend {
    /// The trend through points of rising `x`; `None` when all lie at one `x`.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let thinned = thinned(points);
        let points = thinned.as_deref().unwrap_or(points);
        let slopes = pair_slopes(points);
        let slope = median(&slopes)?;
        let count = points.len() as f64;
        let independent = count * (count - 1.0) * (2.0 * count + 5.0) / 18.0;
        let rest: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
        let spread = Z_95 * (independent * inflation(&rest)).sqrt();
        let pairs = slopes.len() as f64;
        // Ranks count from 1; one beyond the ends has no slope that bounds it.
        let at = |rank: f64, beyond: f64| match rank >= 1.0 && rank <= pairs {
            true => slopes.get(rank as usize - 1).copied().unwrap_or(beyond),
            false => beyond,
        };
        Some(Self {
            slope,
            low: at(((pairs - spread) / 2.0).floor(), f64::NEG_INFINITY),
            high: at(((pairs + spread) / 2.0).ceil() + 1.0, f64::INFINITY),
        })
    }

    /// Half the width of the interval; infinite where it has no bound.
    pub(super) fn margin(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether the interval stays away from half of the slope: then its sign and its size are
    /// known.
    pub(super) fn is_sure(&self) -> bool {
        let nearest = match self.slope > 0.0 {
            true => self.low,
            false => -self.high,
        };
        let half = self.slope.abs() / 2.0;
        half > 0.0 && nearest > half && self.margin() < half
    }

    /// Whether the later half of the points still goes on by this part of the whole slope: a ramp
    /// that levelled off has a slope too.
    pub(super) fn goes_on(&self, points: &[(f64, f64)]) -> bool {
        let late = points.get(points.len() / 2..).and_then(Self::through);
        late.is_some_and(|late| late.slope / self.slope >= LATE_PART)
    }
}

/// Means of neighbours, where there are too many points.
fn thinned(points: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
    let size = points.len().div_ceil(MAX_POINTS);
    let mean = |chunk: &[(f64, f64)]| {
        let count = chunk.len() as f64;
        chunk.iter().fold((0.0, 0.0), |(x, y), point| {
            (x + point.0 / count, y + point.1 / count)
        })
    };
    (size > 1).then(|| points.chunks(size).map(mean).collect())
}

fn pair_slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (place, (x, y)) in points.iter().enumerate() {
        let later = points.iter().skip(place + 1).filter(|later| later.0 > *x);
        slopes.extend(later.map(|later| (later.1 - y) / (later.0 - x)));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    slopes
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len().is_multiple_of(2) {
        true => Some((sorted.get(middle - 1)? + upper) / 2.0),
        false => Some(upper),
    }
}

/// n/n* of Hamed and Rao, 1 at least.
fn inflation(rest: &[f64]) -> f64 {
    let ranks = ranks(rest);
    let count = ranks.len();
    let n = count as f64;
    let mean = (n + 1.0) / 2.0;
    let variance: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    if count < 4 || variance <= 0.0 {
        return 1.0;
    }
    let correlation = |lag: usize| {
        let pairs = ranks.iter().zip(ranks.iter().skip(lag));
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance
    };
    let significant = Z_95 / n.sqrt();
    let sum: f64 = (1..count - 2)
        .map(|lag| (lag as f64, correlation(lag)))
        .filter(|(_, correlation)| correlation.abs() > significant)
        .map(|(lag, correlation)| (n - lag) * (n - lag - 1.0) * (n - lag - 2.0) * correlation)
        .sum();
    (1.0 + 2.0 / (n * (n - 1.0) * (n - 2.0)) * sum).max(1.0)
}

/// The rank of each value, counted from 1, equal ones sharing their mean. Values are equal when
/// they differ by less than arithmetic can tell.
fn ranks(values: &[f64]) -> Vec<f64> {
    let largest = values
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    let same = largest * 1e-12;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let value = values[order[first]];
        let tied = order[first..]
            .iter()
            .take_while(|place| values[**place] - value <= same)
            .count();
        let mean = first as f64 + (tied as f64 + 1.0) / 2.0;
        for place in &order[first..first + tied] {
            ranks[*place] = mean;
        }
        first += tied;
    }
    ranks
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Numbers that look random, of mean 0 and standard deviation 1 (the sum of twelve uniform
    /// ones), and repeat with the seed.
    pub(crate) struct Noise(pub(crate) u64);

    impl Noise {
        pub(crate) fn next(&mut self) -> f64 {
            let mut uniform = || {
                self.0 = self
                    .0
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (self.0 >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    fn through(values: impl Iterator<Item = f64>) -> Trend {
        let points: Vec<(f64, f64)> = (0..).map(f64::from).zip(values).collect();
        Trend::through(&points).unwrap()
    }

    /// In how many of a hundred runs of `count` points a trend was sure.
    fn sure(count: usize, mut run: impl FnMut(&mut Noise) -> Vec<f64>) -> usize {
        let reported = (0..100).filter(|seed| {
            let values = run(&mut Noise(7 + seed * 7_919));
            assert_eq!(values.len(), count);
            through(values.into_iter()).is_sure()
        });
        reported.count()
    }

    // Worked by hand: the pair slopes of (0, 1), (1, 3), (2, 2), (3, 6), (4, 8) are
    // -1, 0.5, 1.5, 5/3, 5/3, 1.75, 2, 2, 3, 4.
    #[test]
    fn the_slope_is_the_median_of_the_slopes_of_all_pairs() {
        let trend = through([1.0, 3.0, 2.0, 6.0, 8.0].into_iter());
        assert!(
            (trend.slope - (5.0 / 3.0 + 1.75) / 2.0).abs() < 1e-9,
            "{trend:?}"
        );
        // Var(S) = 5 × 4 × 15 / 18, C = 8.002: the ranks 0.999 and 10.001, which nothing has.
        assert_eq!((trend.low, trend.high), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(!trend.is_sure());
    }

    #[test]
    fn a_line_without_noise_is_certain_and_nothing_is_no_line() {
        let trend = through((0..8).map(|step| 1e9 + 4_096.0 * f64::from(step)));
        assert!(
            (trend.slope - 4_096.0).abs() < 1e-3 && trend.margin() < 1e-3,
            "{trend:?}"
        );
        assert!(trend.is_sure());
        assert!(!through((0..8).map(|_| 1e9)).is_sure());
        assert_eq!(Trend::through(&[]), None);
        assert_eq!(Trend::through(&[(1.0, 1.0), (1.0, 9.0)]), None);
    }

    #[test]
    fn many_points_are_averaged_first_and_give_the_same_line() {
        let trend = through((0..100_000).map(|step| 3.0 * f64::from(step)));
        assert!((trend.slope - 3.0).abs() < 1e-6, "{trend:?}");
    }

    #[test]
    fn a_jump_anywhere_is_no_trend_and_a_spike_changes_none() {
        for jump in 1..23 {
            let trend = through((0..24).map(|step| if step < jump { 0.0 } else { 500.0 }));
            assert!(!trend.is_sure(), "{jump}: {trend:?}");
        }
        let trend = through((0..24).map(|step| match step {
            5 => 9_000.0,
            step => 20.0 * f64::from(step),
        }));
        assert!(
            trend.is_sure() && (trend.slope - 20.0).abs() < 1.0,
            "{trend:?}"
        );
    }

    #[test]
    fn noise_also_one_that_drifts_is_seldom_taken_for_a_trend() {
        for count in [8, 12, 18, 30, 75] {
            let noise = sure(count, |noise| {
                (0..count).map(|_| 30.0 * noise.next()).collect()
            });
            let drift = sure(count, |noise| {
                let mut level = 0.0;
                let next = (0..count).map(|_| {
                    level = 0.8 * level + 30.0 * noise.next();
                    level
                });
                next.collect()
            });
            assert!(noise <= 3 && drift <= 12, "{count}: {noise}, {drift}");
        }
    }

    #[test]
    fn a_leak_of_two_thirds_of_the_noise_a_step_is_sure_within_some_dozen_steps() {
        let leaks = |count: usize| {
            sure(count, |noise| {
                let step = (0..count).map(|step| 20.0 * step as f64 + 30.0 * noise.next());
                step.collect()
            })
        };
        assert!(
            leaks(12) >= 60 && leaks(18) >= 98,
            "{} {}",
            leaks(12),
            leaks(18)
        );
    }
}
