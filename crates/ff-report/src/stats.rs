//! Small statistics over finite numbers.

/// The percentile `p`, from 0 to 100, of sorted values, linear between ranks as numpy's is by
/// default; `None` of nothing.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts lie far below 2^53, and p is not negative"
)]
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (p.clamp(0.0, 100.0) / 100.0) * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let (low, high) = (sorted.get(low)?, sorted.get(low + 1).or(sorted.last())?);
    Some(low + (high - low) * part)
}

/// Sorts values, which must not be NaN.
#[must_use]
pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The median of values in any order.
#[must_use]
pub fn median(values: Vec<f64>) -> Option<f64> {
    percentile(&sorted(values), 50.0)
}

/// Their mean.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Their standard deviation, of all there are and not of a sample.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean_value = mean(values)?;
    let squares: Vec<f64> = values.iter().map(|value| (value - mean_value).powi(2)).collect();
    mean(&squares).map(f64::sqrt)
}

/// Half the width of the 95 % interval of a mean by Student's t, from the deviation of the sample;
/// `None` of fewer than two values.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(2)? + 1;
    let variance = deviation(values)?.powi(2) * values.len() as f64 / freedom as f64;
    Some(student_t_95(freedom) * (variance / values.len() as f64).sqrt())
}

/// Student's t at 97.5 %, by degrees of freedom from 1.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn student_t_95(freedom: usize) -> f64 {
    const SMALL: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let n = freedom as f64;
    // After the table two terms of the expansion in 1/n (Cornish and Fisher) are exact to four
    // digits.
    let far = 1.959_964 + 2.372_27 / n + 2.822_5 / (n * n);
    freedom.checked_sub(1).and_then(|at| SMALL.get(at)).copied().unwrap_or(far)
}

/// The points of a distribution function: each distinct value with the part of all values that are
/// at most as great.
///
/// The values have to be sorted.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub fn cdf(sorted: &[f64]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (value, count) in sorted.iter().zip(1_usize..) {
        let part = count as f64 / sorted.len() as f64;
        match points.last_mut() {
            Some(last) if last.0.total_cmp(value).is_eq() => last.1 = part,
            _ => points.push((*value, part)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_counts_equal_values_once() {
        assert_eq!(cdf(&[]), []);
        assert_eq!(cdf(&[0.0, 0.0, 0.5, 2.0]), [(0.0, 0.5), (0.5, 0.75), (2.0, 1.0)]);
    }

    #[test]
    fn percentiles_are_numpys() {
        // numpy.percentile([1, 2, 4, 8], [0, 25, 50, 75, 90, 100])
        let values = [1.0, 2.0, 4.0, 8.0];
        for (p, expected) in
            [(0.0, 1.0), (25.0, 1.75), (50.0, 3.0), (75.0, 5.0), (90.0, 6.8), (100.0, 8.0)]
        {
            let found = percentile(&values, p).expect("there are values");
            assert!((found - expected).abs() < 1e-12, "{p}: {found}");
        }
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        // numpy.std([1, 2, 4, 8])
        assert!((deviation(&values).expect("some") - 2.680_951_323_690_902).abs() < 1e-12);
    }

    #[test]
    fn intervals_are_students() {
        // scipy.stats.t.interval(0.95, 3, loc=3.75, scale=scipy.stats.sem([1, 2, 4, 8])): 3.75 ±
        // 4.926
        let half = half_width_95(&[1.0, 2.0, 4.0, 8.0]).expect("some");
        assert!((half - 4.926).abs() < 0.002, "{half}");
        assert_eq!((half_width_95(&[1.0]), half_width_95(&[])), (None, None));
        // scipy.stats.t.ppf(0.975, [30, 31, 100]): 2.0423, 2.0395, 1.9840
        let found = [30, 31, 100].map(student_t_95);
        for (found, expected) in found.into_iter().zip([2.0423, 2.0395, 1.9840]) {
            assert!((found - expected).abs() < 5e-4, "{found}, {expected}");
        }
    }
}
