//! Small statistics over finite numbers.

/// The percentile `p`, from 0 to 100, of sorted values, linear between ranks as numpy's is by default; `None` of
/// nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
