//! How much an amount changes from step to step, and how sure that is.

/// Too few points, and a line fits anything.
const MIN_POINTS: usize = 3;

/// From this many steps on, the first quarter is left out: caches fill, code is compiled.
const STEADY_FROM: usize = 8;

/// The least-squares line through amounts over the numbers of their steps.
///
/// The standard error of the slope is `sqrt(SSR / (n - 2) / Sxx)`, where SSR is the sum of the
/// squared residuals and Sxx that of the squared distances of the steps from their mean; the
/// interval is Student's t with n - 2 degrees of freedom times that on both sides (NIST/SEMATECH
/// e-Handbook of Statistical Methods, section 4.4.3.1; Draper and Smith, Applied Regression
/// Analysis, section 1.4). It takes the residuals as independent, which memory that drifts
/// is not: then the true interval is wider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub bytes_per_step: f64,
    /// Its standard error.
    pub standard_error_bytes: f64,
    /// Half the width of its 95 % interval.
    pub margin_bytes: f64,
    /// How many steps the line goes through.
    pub step_count: usize,
    /// The first of them.
    pub first_step: i64,
    /// The last of them.
    pub last_step: i64,
}

impl Slope {
    /// Whether the whole interval lies above zero.
    pub fn is_growing(&self) -> bool {
        self.bytes_per_step > self.margin_bytes
    }

    /// The line through the points that are left when the first quarter of many steps is taken
    /// for the start-up. One point for each step, in the order of their numbers.
    pub(super) fn steady(points: &[(i64, f64)]) -> Option<Self> {
        let start_up = match points.len() {
            count if count >= STEADY_FROM => count / 4,
            _ => 0,
        };
        Self::through(&points[start_up..])
    }

    fn through(points: &[(i64, f64)]) -> Option<Self> {
        let (&(first_step, _), &(last_step, _)) = points.first().zip(points.last())?;
        if points.len() < MIN_POINTS {
            return None;
        }
        let count = points.len() as f64;
        // Counted from the first, so that large numbers lose no digits.
        let x = |step: i64| step.saturating_sub(first_step) as f64;
        let mean_x = points.iter().map(|&(step, _)| x(step)).sum::<f64>() / count;
        let mean_y = points.iter().map(|&(_, bytes)| bytes).sum::<f64>() / count;
        let (mut sxx, mut sxy) = (0.0, 0.0);
        for &(step, bytes) in points {
            sxx += (x(step) - mean_x).powi(2);
            sxy += (x(step) - mean_x) * (bytes - mean_y);
        }
        if sxx <= 0.0 {
            return None;
        }
        let slope = sxy / sxx;
        let residual = |&(step, bytes): &(i64, f64)| bytes - mean_y - slope * (x(step) - mean_x);
        let squares: f64 = points.iter().map(|point| residual(point).powi(2)).sum();
        let freedom = points.len() - 2;
        let standard_error = (squares / freedom as f64 / sxx).sqrt();
        Some(Self {
            bytes_per_step: slope,
            standard_error_bytes: standard_error,
            margin_bytes: standard_error * student_95(freedom),
            step_count: points.len(),
            first_step,
            last_step,
        })
    }
}

/// The 97.5 % quantile of Student's t: exact for one and two degrees of freedom, else by the
/// expansion of Abramowitz and Stegun, 26.7.5, which is off by 0.1 % at three and less above.
fn student_95(freedom: usize) -> f64 {
    match freedom {
        0 | 1 => 12.706_204_736,
        2 => 4.302_652_730,
        freedom => {
            let z = 1.959_963_984_540_f64;
            let terms = [
                (z.powi(3) + z) / 4.0,
                (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
                (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
                (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1_482.0 * z.powi(5)
                    - 1_920.0 * z.powi(3)
                    - 945.0 * z)
                    / 92_160.0,
            ];
            let mut power = 1.0;
            terms.iter().fold(z, |sum, term| {
                power /= freedom as f64;
                sum + term * power
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected.abs() * 1e-3
    }

    #[test]
    fn the_quantiles_of_students_t_are_those_of_the_tables() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (10, 2.228),
            (30, 2.042),
            (120, 1.980),
        ];
        for (freedom, quantile) in table {
            let found = student_95(freedom);
            assert!(
                (found - quantile).abs() < quantile * 0.0015,
                "{freedom}: {found}"
            );
        }
    }

    #[test]
    fn a_line_without_noise_is_found_exactly_and_is_certain() {
        let points: Vec<(i64, f64)> = (0..40)
            .map(|step| (step, 1e9 + 4_096.0 * step as f64))
            .collect();
        let slope = Slope::steady(&points).unwrap();
        assert!(is_near(slope.bytes_per_step, 4_096.0), "{slope:?}");
        assert!(slope.margin_bytes < 1e-3, "{slope:?}");
        assert_eq!((slope.first_step, slope.last_step), (10, 39));
        assert_eq!(slope.step_count, 30);
        assert!(slope.is_growing());
    }

    // Worked by hand: mean of x 3, of y 4; Sxx 10, Sxy 6; slope 0.6; residuals -0.8, 0.6, 1,
    // -0.6, -0.2; SSR 2.4; standard error sqrt(2.4 / 3 / 10) = 0.28284; t(3) = 3.1824.
    #[test]
    fn the_error_of_a_slope_is_that_of_the_formula() {
        let points = [(1, 2.0), (2, 4.0), (3, 5.0), (4, 4.0), (5, 5.0)];
        let slope = Slope::steady(&points).unwrap();
        assert!(is_near(slope.bytes_per_step, 0.6), "{slope:?}");
        assert!(
            is_near(slope.standard_error_bytes, 0.282_842_7),
            "{slope:?}"
        );
        assert!((slope.margin_bytes - 0.900_1).abs() < 2e-3, "{slope:?}");
        assert!(!slope.is_growing());
    }

    #[test]
    fn the_start_up_of_many_steps_is_left_out() {
        let points: Vec<(i64, f64)> = (0..20)
            .map(|step| (step, (step.min(4) * 1_000) as f64))
            .collect();
        let slope = Slope::steady(&points).unwrap();
        assert!(slope.bytes_per_step.abs() < 1e-6, "{slope:?}");
    }

    #[test]
    fn two_points_or_one_step_are_no_line() {
        assert_eq!(Slope::steady(&[(1, 1.0), (2, 2.0)]), None);
        assert_eq!(Slope::steady(&[(1, 1.0), (1, 2.0), (1, 3.0)]), None);
        assert_eq!(Slope::steady(&[]), None);
        let far = [(i64::MIN, 0.0), (0, 1.0), (i64::MAX, 2.0)];
        assert!(Slope::steady(&far).is_some_and(|slope| slope.bytes_per_step.is_finite()));
    }
}
