//! tor's own estimator of the time after which a circuit is given up (path-spec 2.4): a Pareto tail
//! above the mean of the ten most frequent build times.

use serde::Serialize;

/// The width of a bin of tor's histogram, in ms.
const BIN_MS: f64 = 10.0;
/// The number of most frequent bins whose mean is the least build time: `cbtnummodes`.
const MODES: usize = 10;
/// The least number of build times: `cbtmincircs`.
pub const LEAST: usize = 100;
/// The least timeout to close circuits, in ms: `cbtinitialtimeout`.
const LEAST_CLOSE_MS: f64 = 60_000.0;
/// The quantile of the timeout to close circuits: `cbtclosequantile`.
const CLOSE_PART: f64 = 0.99;

/// tor's estimate from build times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The start of the Pareto curve, in ms.
    pub xm_ms: f64,
    /// The exponent of the Pareto curve.
    pub alpha: f64,
    /// The greatest build time, in ms.
    pub greatest_ms: f64,
}

impl Estimate {
    /// From build times in ms; none with fewer than [`LEAST`], or if they are all equal.
    #[must_use]
    pub fn of(values_ms: &[f64]) -> Option<Self> {
        if values_ms.len() < LEAST {
            return None;
        }
        let xm_ms = begin(values_ms)?;
        // path-spec 2.4.3: "alpha = n/(Sum_n{ln(MAX(Xm, x_i))} - n*ln(Xm))"
        let n = values_ms.len() as f64;
        let logarithms: f64 = values_ms.iter().map(|value| value.max(xm_ms).ln()).sum();
        let above = logarithms - n * xm_ms.ln();
        let greatest_ms = values_ms.iter().copied().fold(0.0, f64::max);
        // If all are at the start of the curve, the sum is only a rounding error.
        (above > n * 1e-12).then_some(Self { xm_ms, alpha: n / above, greatest_ms })
    }

    /// The quantile of the curve for a part of circuits, in ms.
    #[must_use]
    pub fn quantile_ms(self, part: f64) -> f64 {
        self.xm_ms / (1.0 - part).powf(1.0 / self.alpha)
    }

    /// The timeout for circuits of three hops that accepts this part of them (`cbtquantile`), in
    /// ms.
    #[must_use]
    pub fn timeout_ms(self, part: f64) -> f64 {
        self.quantile_ms(part).min(self.greatest_ms)
    }

    /// The timeout to close circuits, in ms.
    #[must_use]
    pub fn close_ms(self) -> f64 {
        self.quantile_ms(CLOSE_PART).min(2.0 * self.greatest_ms).max(LEAST_CLOSE_MS)
    }

    /// The part of the curve at or below a value.
    #[must_use]
    pub fn below(self, ms: f64) -> f64 {
        if ms <= self.xm_ms { 0.0 } else { 1.0 - (self.xm_ms / ms).powf(self.alpha) }
    }
}

/// The mean of the midpoints of the most frequent bins, weighted by frequency; of equally frequent
/// bins the earlier ones are used.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bin's number: too great ones become the last"
)]
fn begin(values_ms: &[f64]) -> Option<f64> {
    let mut bins = std::collections::BTreeMap::<u64, u64>::new();
    for value in values_ms {
        *bins.entry((value / BIN_MS) as u64).or_default() += 1;
    }
    let mut all: Vec<(u64, u64)> = bins.into_iter().collect();
    all.sort_by_key(|&(bin, count)| (std::cmp::Reverse(count), bin));
    all.truncate(MODES);
    let count: u64 = all.iter().map(|(_, count)| count).sum();
    let middle = |bin: u64| (bin as f64 + 0.5) * BIN_MS;
    let sum: f64 = all.iter().map(|&(bin, count)| middle(bin) * count as f64).sum();
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_that_of_path_spec() {
        // Twenty each of 100 and 110 ms, ten of 200 to 270 ms and so on; there is one bin more than
        // ten modes.
        let mut values = Vec::new();
        for (ms, times) in [(101.0, 20), (112.0, 20), (205.0, 10), (1000.0, 50)] {
            values.extend(std::iter::repeat_n(ms, times));
        }
        let found = Estimate::of(&values).expect("a hundred");
        let xm = (105.0 * 20.0 + 115.0 * 20.0 + 205.0 * 10.0 + 1005.0 * 50.0) / 100.0;
        assert!((found.xm_ms - xm).abs() < 1e-9, "{found:?}");
        let sum = 50.0 * (1000.0_f64 / xm).ln();
        assert!((found.alpha - 100.0 / sum).abs() < 1e-9, "{found:?}");
        let curve = xm / 0.2_f64.powf(1.0 / found.alpha);
        assert!((found.quantile_ms(0.8) - curve).abs() < 1e-9);
        assert!((found.below(curve) - 0.8).abs() < 1e-9);
        assert_eq!(found.timeout_ms(0.99), 1000.0, "no more than the greatest seen");
        assert_eq!(found.close_ms(), 60_000.0);
    }

    #[test]
    fn ties_of_bins_go_to_the_earlier_ones() {
        let values: Vec<f64> = (0..110).map(|k| 5.0 + 10.0 * f64::from(k % 11)).collect();
        let found = Estimate::of(&values).expect("enough");
        assert!((found.xm_ms - 50.0).abs() < 1e-9, "bins 0 to 9, not 10: {found:?}");
    }

    #[test]
    fn too_few_and_equal_values_have_no_curve() {
        assert_eq!(Estimate::of(&[5.0; 99]), None);
        assert_eq!(Estimate::of(&[5.0; 100]), None);
    }
}
