//! Medians, and how far they can be trusted.

/// Below this many values a bootstrap says nothing that the range does not.
const FEWEST_TO_DRAW_FROM: usize = 6;

/// A median and where it lies: with 95 % confidence, or the range of few values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The middle of the values.
    pub(crate) median: f64,
    /// Lower end of the interval.
    pub(crate) low: f64,
    /// Upper end of the interval.
    pub(crate) high: f64,
    /// How many values.
    pub(crate) count: usize,
}

/// The median; of nothing it is not a number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

impl Estimate {
    /// What its interval is.
    pub(crate) fn meaning(&self) -> String {
        match self.count {
            1 => "1 run".to_owned(),
            count if count < FEWEST_TO_DRAW_FROM => format!("range of {count} runs"),
            count => format!("95 % of {count} runs"),
        }
    }
}

/// The median and its interval, by the percentile bootstrap: ratios of times have a long
/// tail on a shared machine, so nothing is assumed about their distribution. The draws
/// repeat from run to run.
pub(crate) fn estimate(values: &[f64]) -> Estimate {
    const DRAWS: usize = 4_000;
    if values.len() < FEWEST_TO_DRAW_FROM {
        return Estimate {
            median: median(values),
            low: values.iter().copied().fold(f64::NAN, f64::min),
            high: values.iter().copied().fold(f64::NAN, f64::max),
            count: values.len(),
        };
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % (end.max(1) as u64)).unwrap_or(0)
    };
    let mut medians: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let draw: Vec<f64> = values.iter().map(|_| values[next(values.len())]).collect();
            median(&draw)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Estimate {
        median: median(values),
        low: medians[DRAWS / 40],
        high: medians[DRAWS - 1 - DRAWS / 40],
        count: values.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn of_few_values_the_interval_is_their_range() {
        let few = estimate(&[2.0, 1.0, 4.0]);
        assert_eq!((few.low, few.median, few.high), (1.0, 2.0, 4.0));
        assert_eq!(few.meaning(), "range of 3 runs");
    }

    #[test]
    fn of_nothing_there_is_no_number_that_could_meet_a_limit() {
        let none = estimate(&[]);
        assert!(none.low.is_nan() && none.median.is_nan() && none.high.is_nan());
    }

    #[test]
    fn the_interval_holds_the_median_and_is_narrow_where_values_agree() {
        let same = estimate(&[1.0; 9]);
        assert_eq!((same.low, same.median, same.high), (1.0, 1.0, 1.0));
        let spread = estimate(&[0.9, 1.0, 1.1, 1.0, 0.95, 1.05, 1.0, 3.0, 1.0]);
        assert!(spread.low <= spread.median && spread.median <= spread.high);
        assert!(
            spread.high < 3.0,
            "one outlier must not move it: {spread:?}"
        );
    }
}
