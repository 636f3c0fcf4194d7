//! Medians and shares with 95 % intervals that do not depend on the distribution: by order
//! statistics, and Wilson's.

use ff_report::stats;
use serde::Serialize;
use statrs::function::beta::checked_beta_reg;

/// The part outside of a 95 % interval at each end.
const TAIL: f64 = 0.025;
/// The 97.5 % quantile of the normal distribution.
pub(crate) const Z: f64 = 1.959_963_985;

/// A measured value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median, or the share.
    pub value: f64,
    /// The lower bound; none if there are too few values.
    pub low: Option<f64>,
    /// The upper bound; none if there are too few values.
    pub high: Option<f64>,
}

/// The rank `k`, from 1, of the sorted value at the lower bound of the interval of the median of
/// `n` values; the upper bound is at rank `n + 1 - k`. None if there are too few values for an
/// interval.
///
/// `k` is the greatest rank for which at most `k - 1` of `n` values are below the median with a
/// probability of at most 2.5 %.
#[must_use]
pub fn median_place(n: usize) -> Option<usize> {
    // The probability of fewer than k of n below the median, as an incomplete beta function.
    let fewer = |k: usize| checked_beta_reg((n - k + 1) as f64, k as f64, 0.5).unwrap_or(1.0);
    let (mut low, mut high) = (0, n / 2 + 1);
    while low + 1 < high {
        let k = low.midpoint(high);
        if fewer(k) <= TAIL { low = k } else { high = k }
    }
    (low > 0).then_some(low)
}

/// The median of sorted values, and its interval: from the value at [`median_place`] to its
/// counterpart from the end.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<Interval> {
    let value = stats::percentile(sorted, 50.0)?;
    let n = sorted.len();
    let low = median_place(n).unwrap_or(0);
    let place = |k: usize| sorted.get(k).copied();
    Some(Interval {
        value,
        low: low.checked_sub(1).and_then(place),
        high: if low > 0 { place(n - low) } else { None },
    })
}

/// The difference of two independent medians, with an interval from theirs (Zou and Donner 2008);
/// without one if either has none.
#[must_use]
pub fn difference(one: Interval, other: Interval) -> Interval {
    let value = one.value - other.value;
    // The distance of a bound from the median.
    let reach = |end: Option<f64>, from: f64| end.map(|end| end - from);
    let together = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.hypot(b));
    let down = together(reach(one.low, one.value), reach(other.high, other.value));
    let up = together(reach(one.high, one.value), reach(other.low, other.value));
    Interval { value, low: down.map(|down| value - down), high: up.map(|up| value + up) }
}

/// A share with Wilson's interval.
#[must_use]
pub fn wilson(hits: f64, of: f64) -> Interval {
    if of <= 0.0 {
        return Interval { value: f64::NAN, low: None, high: None };
    }
    let (share, z2) = (hits / of, Z * Z);
    let middle = (share + z2 / (2.0 * of)) / (1.0 + z2 / of);
    let half = Z / (1.0 + z2 / of) * (share * (1.0 - share) / of + z2 / (4.0 * of * of)).sqrt();
    let (low, high) = ((middle - half).max(0.0), (middle + half).min(1.0));
    Interval { value: share, low: Some(low), high: Some(high) }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::chance;

    #[test]
    fn intervals_of_medians_are_those_of_tables() {
        // Ranks from tables of the sign test: 6 values need both ends, 20 the 6th, 100 the 40th.
        for (n, k) in [(5, None), (6, Some(1)), (20, Some(6)), (100, Some(40))] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let found = median(&sorted).expect("values");
            assert_eq!(found.low, k.map(f64::from), "{n}");
            assert_eq!(found.high, k.map(|k| f64::from(n + 1 - k)), "{n}");
        }
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_difference_has_the_interval_that_its_medians_give() {
        let of = |value, low, high| Interval { value, low: Some(low), high: Some(high) };
        let found = difference(of(10.0, 7.0, 14.0), of(4.0, 1.0, 8.0));
        assert_eq!(found, of(6.0, 1.0, 11.0));
        let few = Interval { low: None, high: None, ..of(4.0, 0.0, 0.0) };
        assert_eq!(difference(of(10.0, 7.0, 13.0), few), Interval { value: 6.0, ..few });
    }

    #[test]
    fn intervals_hold_the_truth_in_19_of_20_samples() {
        let mut rng = chance::generator();
        let (mut medians, mut shares) = (0, 0);
        for _ in 0..2000 {
            let sample: Vec<f64> = (0..41).map(|_| rng.random::<f64>()).collect();
            let holds = |found: Interval, truth: f64| {
                found.low.is_some_and(|low| low <= truth)
                    && found.high.is_some_and(|high| high >= truth)
            };
            let below = sample.iter().filter(|value| **value < 0.3).count();
            shares += i32::from(holds(wilson(below as f64, 41.0), 0.3));
            medians += i32::from(holds(median(&stats::sorted(sample)).expect("values"), 0.5));
        }
        // Both are discrete. Of 41 values the interval from the 14th to the 28th contains the
        // median in 1 - 2 P(Bin(41, 1/2) <= 13) = 0.9725 of samples, and Wilson's contains 0.3 in
        // 0.9609: the bounds are five standard deviations away.
        assert!((1908..=1976).contains(&medians), "{medians} of 2000");
        assert!((1876..=1960).contains(&shares), "{shares} of 2000");
    }
}
