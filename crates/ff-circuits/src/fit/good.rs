//! The goodness of a fitted distribution: Kolmogorov-Smirnov, Anderson-Darling, chi-square.
//!
//! All p-values assume a distribution that does not depend on the values; for parameters that were
//! fitted to the same values they are too large. With thousands of values every model is rejected,
//! so the distance D is more useful than its p.
//!
//! Values that were given up count with their bounds: D is the distance from the Kaplan-Meier
//! estimate, up to the greatest value or bound. The probability of a greater D then depends on the
//! bounds, so it is not given, nor are A² and chi-square, which require that all values are known.

use serde::Serialize;
use statrs::function::gamma::checked_gamma_ur;

use super::sample::Sample;

/// Distances, and the probabilities of greater ones. If values were given up there is only D.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodness {
    /// Kolmogorov-Smirnov's D: the greatest distance between the distribution functions.
    pub ks: f64,
    /// The probability of a greater D.
    pub ks_p: Option<f64>,
    /// Anderson-Darling's A².
    pub anderson_darling: Option<f64>,
    /// The probability of a greater A².
    pub anderson_darling_p: Option<f64>,
    /// The chi-square statistic with equally likely classes; none without degrees of freedom.
    pub chi_square: Option<f64>,
    /// Its degrees of freedom: classes - 1 - fitted parameters.
    pub chi_square_df: Option<u32>,
    /// The probability of a greater value.
    pub chi_square_p: Option<f64>,
}

/// The goodness of a distribution with this number of fitted parameters.
#[must_use]
pub fn goodness(sample: &Sample, parameters: u32, below: impl Fn(f64) -> f64) -> Goodness {
    let ks = distance(sample, &below);
    let parts: Vec<(f64, f64)> =
        sample.seen().iter().map(|(x, times)| (below(*x), *times)).collect();
    let n = sample.count().max(1.0);
    let is_whole = sample.beyond().is_empty();
    let squared = is_whole.then(|| anderson_darling(&parts, n));
    let classes = if is_whole { chi_square(&parts, n, parameters) } else { None };
    Goodness {
        ks,
        ks_p: is_whole.then(|| kolmogorov(ks * n.sqrt())),
        anderson_darling: squared,
        anderson_darling_p: squared.map(|squared| 1.0 - anderson_darling_part(squared)),
        chi_square: classes.map(|(value, _)| value),
        chi_square_df: classes.map(|(_, df)| df),
        chi_square_p: classes.map(|(value, df)| chi_square_above(value, f64::from(df))),
    }
}

/// The probability of a greater chi-square value with these degrees of freedom.
#[must_use]
pub fn chi_square_above(value: f64, df: f64) -> f64 {
    if value.is_nan() || value <= 0.0 || df <= 0.0 {
        return 1.0;
    }
    checked_gamma_ur(df / 2.0, value / 2.0).unwrap_or(f64::NAN)
}

/// The greatest distance between a model's distribution function and the Kaplan-Meier estimate from
/// values.
fn distance(sample: &Sample, below: impl Fn(f64) -> f64) -> f64 {
    let given_up = sample.beyond().iter().map(|(_, times)| times).sum::<f64>();
    let (mut bounds, mut at_risk) = (sample.beyond().iter().peekable(), sample.count() + given_up);
    let (mut above, mut most) = (1.0, 0.0_f64);
    for &(x, times) in sample.seen() {
        // A value that was given up at the time of another one is above that one.
        while let Some((_, times)) = bounds.next_if(|(bound, _)| *bound < x) {
            at_risk -= times;
        }
        let part = below(x);
        most = most.max(part - (1.0 - above));
        above *= ((at_risk - times) / at_risk).max(0.0);
        at_risk -= times;
        most = most.max(1.0 - above - part);
    }
    // Up to the last bound, the estimate stays the same.
    let last = bounds.last().map_or(0.0, |(bound, _)| below(*bound) - (1.0 - above));
    most.max(last)
}

/// The probability of a greater sqrt(n) D, for many values.
fn kolmogorov(distance: f64) -> f64 {
    if distance < 0.2 {
        return 1.0;
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * (f64::from(k) * distance).powi(2)).exp()
    };
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// Anderson-Darling's A². It is unbounded if the least value has a probability of 0, as in a fitted
/// Pareto distribution, so 1e-300 replaces 0.
fn anderson_darling(parts: &[(f64, f64)], n: f64) -> f64 {
    let (mut before, mut sum) = (0.0, 0.0);
    for &(part, times) in parts {
        // The ranks i of equal values: the sums of 2i - 1 and of 2(n - i) + 1 over them.
        let low = times * (2.0 * before + times);
        let high = times * (2.0 * (n - before) - times);
        let part = part.clamp(1e-300, 1.0 - 1e-16);
        sum += low * part.ln() + high * (-part).ln_1p();
        before += times;
    }
    -n - sum / n
}

/// The distribution function of A², for many values (Marsaglia and Marsaglia 2004, short form).
fn anderson_darling_part(z: f64) -> f64 {
    if z.is_nan() || z <= 0.0 {
        return 0.0;
    }
    let polynomial = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * z + term);
    if z < 2.0 {
        let terms = [2.00012, 0.247_105, -0.064_982_1, 0.034_796_2, -0.011_672_0, 0.001_686_91];
        return (-1.233_714_1 / z).exp() / z.sqrt() * polynomial(&terms);
    }
    let terms = [1.0776, -2.30695, 0.43424, -0.082_433, 0.008_056, -0.000_314_6];
    (-polynomial(&terms).exp()).exp()
}

/// The chi-square statistic with equally likely classes, and its degrees of freedom; none without
/// any.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a class: parts lie between 0 and 1"
)]
fn chi_square(parts: &[(f64, f64)], n: f64, parameters: u32) -> Option<(f64, u32)> {
    // Half of Mann and Wald's number of classes, as is usual, with at least five expected values in
    // each.
    let classes = (2.0 * n.powf(0.4)).min(n / 5.0).floor().max(1.0);
    let df = (classes as u32).checked_sub(1 + parameters).filter(|df| *df > 0)?;
    let mut seen = vec![0.0; classes as usize];
    let last = seen.len() - 1;
    for &(part, times) in parts {
        seen[((part * classes) as usize).min(last)] += times;
    }
    let expected = n / classes;
    let value = seen.iter().map(|count| (count - expected).powi(2) / expected).sum();
    Some((value, df))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goodness for values that are all known: D, A² and chi-square, each with its probability.
    fn known(values: &[f64], below: impl Fn(f64) -> f64) -> [(f64, f64); 3] {
        let good = goodness(&Sample::new(values, &[]), 0, below);
        let both =
            |value: Option<f64>, p: Option<f64>| (value.expect("a value"), p.expect("its p"));
        [
            both(Some(good.ks), good.ks_p),
            both(good.anderson_darling, good.anderson_darling_p),
            both(good.chi_square, good.chi_square_p),
        ]
    }

    #[test]
    fn even_values_of_an_even_distribution_are_near_it() {
        let values: Vec<f64> = (1..=1000).map(|k| (f64::from(k) - 0.5) / 1000.0).collect();
        let [(ks, ks_p), (squared, squared_p), (chi_square, chi_square_p)] = known(&values, |x| x);
        assert!((ks - 0.0005).abs() < 1e-12 && ks_p > 0.999, "{ks} {ks_p}");
        assert!(squared < 0.02 && squared_p > 0.999, "{squared} {squared_p}");
        assert!(chi_square < 0.5 && chi_square_p > 0.999, "{chi_square} {chi_square_p}");
    }

    #[test]
    fn the_wrong_distribution_is_far_away() {
        let values: Vec<f64> = (1..=1000).map(|k| (f64::from(k) / 1001.0).powi(2)).collect();
        let [(ks, ks_p), (_, squared_p), (_, chi_square_p)] = known(&values, |x| x);
        // The greatest distance of sqrt(x) from x is a quarter.
        assert!((ks - 0.25).abs() < 0.002, "{ks}");
        assert!(ks_p < 1e-9 && squared_p < 1e-6 && chi_square_p < 1e-9);
    }

    #[test]
    fn values_that_were_given_up_lie_above_their_bounds() {
        let even: Vec<f64> = (1..=1000).map(|k| (f64::from(k) - 0.5) / 1000.0).collect();
        let (seen, cut) = even.split_at(800);
        let found = goodness(&Sample::new(seen, &[0.8; 200]), 3, |x| x);
        assert_eq!(cut.len(), 200);
        assert!((found.ks - 0.0005).abs() < 1e-9, "{found:?}");
        assert_eq!((found.ks_p, found.anderson_darling, found.chi_square), (None, None, None));
        // Above the last value the model continues up to the bound, and the values do not.
        let found = goodness(&Sample::new(&even[..500], &[0.8; 500]), 3, |x| x);
        assert!((found.ks - 0.3).abs() < 1e-9, "{found:?}");
        // Kaplan and Meier's steps by hand: 1/4, then one of the remaining two, half of 3/4.
        let found = goodness(&Sample::new(&[0.2, 0.6], &[0.2, 0.9]), 3, |_| 0.0);
        assert!((found.ks - 0.625).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn few_values_have_no_chi_square() {
        let values: Vec<f64> = (1..=25).map(|k| (f64::from(k) - 0.5) / 25.0).collect();
        let found = |count| goodness(&Sample::new(&values[..count], &[]), 3, |x| x);
        let (few, enough) = (found(24), found(25));
        assert_eq!((few.chi_square, few.chi_square_df, few.chi_square_p), (None, None, None));
        assert_eq!(enough.chi_square_df, Some(1));
        assert!(enough.chi_square_p.is_some() && few.anderson_darling_p.is_some());
    }

    #[test]
    fn critical_values_are_the_tables() {
        // scipy.stats.kstwobign.sf(1.3580986), scipy.stats.chi2.isf(0.05, 1); A²: 2.492 at 5 %
        // (Stephens).
        assert!((kolmogorov(1.358_098_6) - 0.05).abs() < 1e-6);
        assert!((chi_square_above(3.841_458_820_694_124, 1.0) - 0.05).abs() < 1e-12);
        assert!((1.0 - anderson_darling_part(2.492) - 0.05).abs() < 2e-4);
    }

    #[test]
    fn the_papers_critical_value_is_no_level_of_significance() {
        // NavigaTor prints 68.76: the probability beyond it is 2^-53, where 1 - p is the last
        // number below 1.
        let chance = chi_square_above(68.76, 1.0);
        assert!((chance / f64::EPSILON - 0.5).abs() < 0.01, "{chance:e}");
    }
}
