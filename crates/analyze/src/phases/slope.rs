//! How much an amount changes from step to step, and how sure that is.

use crate::trend::Trend;
use schemars::JsonSchema;
use serde::Serialize;

/// Fewer steps than this after the warm-up, and chance draws a line through anything: of four, one
/// loop in eight rises three times in a row.
const MIN_STEPS: usize = 8;

/// Of the steps, one in so many at their start is warm-up: caches fill, code is compiled.
const WARM_UP_PART: usize = 4;
/// These are warm-up however few there are: the first makes what all later ones use, and the
/// second may still be compiled for.
const MIN_WARM_UP: usize = 2;

/// The trend of amounts over the numbers of their steps, the warm-up left out. docs/report.md has
/// the formula.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Slope {
    /// The slope in bytes per step.
    pub bytes_per_step: f64,
    /// The lower end of its 95 % interval; `None` where it has no bound.
    #[schemars(with = "Option<f64>")]
    pub low_bytes_per_step: f64,
    /// The upper end of it.
    #[schemars(with = "Option<f64>")]
    pub high_bytes_per_step: f64,
    /// How many steps the line goes through.
    pub step_count: usize,
    /// The first of them.
    pub first_step: i64,
    /// The last of them.
    pub last_step: i64,
    /// Whether the interval stays away from half of the slope, and the later half of the steps
    /// goes on as the whole does.
    #[serde(skip)]
    is_sure: bool,
}

impl Slope {
    /// Whether it surely rises.
    pub fn is_growing(&self) -> bool {
        self.is_sure && self.bytes_per_step > 0.0
    }

    /// Half the width of its 95 % interval; infinite where that has no bound.
    pub fn margin_bytes(&self) -> f64 {
        (self.high_bytes_per_step - self.low_bytes_per_step) / 2.0
    }

    /// By how much the line rises from its first step to its last.
    pub fn rise_bytes(&self) -> f64 {
        self.bytes_per_step * self.last_step.abs_diff(self.first_step) as f64
    }

    /// The trend after the warm-up; `None` where too few steps are left. One point for each step,
    /// in the order of their numbers.
    pub(crate) fn steady(points: &[(i64, f64)]) -> Option<Self> {
        let warm_up = (points.len() / WARM_UP_PART).max(MIN_WARM_UP);
        let points = points.get(warm_up..)?;
        let (&(first_step, _), &(last_step, _)) = points.first().zip(points.last())?;
        if points.len() < MIN_STEPS {
            return None;
        }
        // Counted from the first, so that large numbers lose no digits.
        let x = |step: i64| step.saturating_sub(first_step) as f64;
        let points: Vec<(f64, f64)> = points.iter().map(|&(step, y)| (x(step), y)).collect();
        let trend = Trend::through(&points)?;
        Some(Self {
            bytes_per_step: trend.slope,
            low_bytes_per_step: trend.low,
            high_bytes_per_step: trend.high,
            step_count: points.len(),
            first_step,
            last_step,
            is_sure: trend.is_sure() && trend.goes_on(&points),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(count: i64, amount: impl Fn(i64) -> f64) -> Option<Slope> {
        let points: Vec<(i64, f64)> = (0..count).map(|step| (step, amount(step))).collect();
        Slope::steady(&points)
    }

    #[test]
    fn a_leak_is_found_without_the_first_quarter_of_the_steps() {
        let slope = steady(40, |step| 1e9 + 4_096.0 * step as f64).unwrap();
        assert!((slope.bytes_per_step - 4_096.0).abs() < 1e-3, "{slope:?}");
        assert!(
            slope.margin_bytes() < 1e-3 && slope.is_growing(),
            "{slope:?}"
        );
        assert_eq!((slope.first_step, slope.last_step), (10, 39));
        assert_eq!(slope.step_count, 30);
    }

    #[test]
    fn nothing_is_said_of_fewer_than_eight_steps_after_two_of_warm_up() {
        let leak = |step: i64| 118e6 * step as f64;
        for count in 0..10 {
            assert_eq!(steady(count, leak), None, "{count}");
        }
        let slope = steady(10, leak).unwrap();
        assert_eq!((slope.first_step, slope.step_count), (2, 8));
        assert!(slope.is_growing());
    }

    #[test]
    fn what_levels_off_is_warm_up_and_no_leak() {
        let level = |until: i64| move |step: i64| 1e8 * step.min(until) as f64;
        for until in 1..14 {
            let slope = steady(20, level(until)).unwrap();
            assert!(!slope.is_growing(), "{until}: {slope:?}");
        }
    }

    #[test]
    fn steps_of_one_number_are_no_line_and_huge_numbers_do_no_harm() {
        assert_eq!(Slope::steady(&[(1, 1.0); 20]), None);
        let far: Vec<(i64, f64)> = [i64::MIN, i64::MIN, i64::MIN]
            .into_iter()
            .chain(-4..4)
            .chain([i64::MAX])
            .map(|step| (step, 1.0))
            .collect();
        assert!(Slope::steady(&far).is_some_and(|slope| slope.bytes_per_step.is_finite()));
    }
}
