//! How far a fitted distribution is from the values: Kolmogorov-Smirnov, Anderson-Darling, chi-square.
//!
//! All p-values are those for a distribution that was known before; parameters that are fitted to the same values make
//! them too great. At some thousand values every model is rejected, so the distance D says more than its p.

use serde::Serialize;
use statrs::function::gamma::checked_gamma_ur;

use super::sample::Sample;

/// Distances and what chance there is of greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodness {
    /// Kolmogorov-Smirnov's D: the greatest distance of both distribution functions.
    pub ks: f64,
    /// The chance of a greater D.
    pub ks_p: f64,
    /// Anderson-Darling's A².
    pub anderson_darling: f64,
    /// The chance of a greater A².
    pub anderson_darling_p: f64,
    /// The chi-square statistic over classes that are equally likely.
    pub chi_square: f64,
    /// Its degrees of freedom: classes - 1 - fitted parameters.
    pub chi_square_df: u32,
    /// The chance of a greater one.
    pub chi_square_p: f64,
}

/// How good a distribution of so many fitted parameters is for what was seen of a sample.
#[must_use]
pub fn goodness(sample: &Sample, parameters: u32, below: impl Fn(f64) -> f64) -> Goodness {
    let parts: Vec<(f64, f64)> =
        sample.seen().iter().map(|(x, times)| (below(*x), *times)).collect();
    let n = sample.count().max(1.0);
    let ks = distance(&parts, n);
    let squared = anderson_darling(&parts, n);
    let (chi_square, chi_square_df) = chi_square(&parts, n, parameters);
    Goodness {
        ks,
        ks_p: kolmogorov(ks * n.sqrt()),
        anderson_darling: squared,
        anderson_darling_p: 1.0 - anderson_darling_part(squared),
        chi_square,
        chi_square_df,
        chi_square_p: chi_square_above(chi_square, f64::from(chi_square_df)),
    }
}

/// The chance that a chi-square value of these degrees of freedom is greater.
#[must_use]
pub fn chi_square_above(value: f64, df: f64) -> f64 {
    if value.is_nan() || value <= 0.0 || df <= 0.0 {
        return 1.0;
    }
    checked_gamma_ur(df / 2.0, value / 2.0).unwrap_or(f64::NAN)
}

/// The greatest distance of the distribution function of values from theirs under a model.
fn distance(parts: &[(f64, f64)], n: f64) -> f64 {
    let (mut before, mut most) = (0.0_f64, 0.0_f64);
    for &(part, times) in parts {
        most = most.max(part - before / n);
        before += times;
        most = most.max(before / n - part);
    }
    most
}

/// The chance of a greater sqrt(n) D, for many values.
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

/// Anderson and Darling's A². It has no bound if the least value has a part of 0, as that of a fitted Pareto
/// distribution: 1e-300 stands for 0.
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

/// The part of values of A² at or below one, for many values (Marsaglia and Marsaglia 2004, their short form).
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

/// The chi-square statistic over equally likely classes, and its degrees of freedom.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a class: parts lie between 0 and 1"
)]
fn chi_square(parts: &[(f64, f64)], n: f64, parameters: u32) -> (f64, u32) {
    // Mann and Wald's number of classes, half of it as is usual, with at least five values expected in each.
    let classes = (2.0 * n.powf(0.4)).min(n / 5.0).floor().max(1.0);
    let mut seen = vec![0.0; classes as usize];
    let last = seen.len() - 1;
    for &(part, times) in parts {
        seen[((part * classes) as usize).min(last)] += times;
    }
    let expected = n / classes;
    let value = seen.iter().map(|count| (count - expected).powi(2) / expected).sum();
    (value, (classes as u32).saturating_sub(1 + parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_values_of_an_even_distribution_are_near_it() {
        let values: Vec<f64> = (1..=1000).map(|k| (f64::from(k) - 0.5) / 1000.0).collect();
        let found = goodness(&Sample::new(&values, &[]), 0, |x| x);
        assert!((found.ks - 0.0005).abs() < 1e-12 && found.ks_p > 0.999, "{found:?}");
        assert!(found.anderson_darling < 0.02 && found.chi_square < 0.5, "{found:?}");
        assert!(found.anderson_darling_p > 0.999 && found.chi_square_p > 0.999, "{found:?}");
    }

    #[test]
    fn the_wrong_distribution_is_far_away() {
        let values: Vec<f64> = (1..=1000).map(|k| (f64::from(k) / 1001.0).powi(2)).collect();
        let found = goodness(&Sample::new(&values, &[]), 0, |x| x);
        // The greatest distance of sqrt(x) from x is a quarter.
        assert!((found.ks - 0.25).abs() < 0.002, "{found:?}");
        assert!(found.ks_p < 1e-9 && found.anderson_darling_p < 1e-6 && found.chi_square_p < 1e-9);
    }

    #[test]
    fn critical_values_are_the_tables() {
        // scipy.stats.kstwobign.sf(1.3580986), scipy.stats.chi2.isf(0.05, 1); A²: 2.492 at 5 % (Stephens).
        assert!((kolmogorov(1.358_098_6) - 0.05).abs() < 1e-6);
        assert!((chi_square_above(3.841_458_820_694_124, 1.0) - 0.05).abs() < 1e-12);
        assert!((1.0 - anderson_darling_part(2.492) - 0.05).abs() < 2e-4);
    }

    #[test]
    fn the_papers_critical_value_is_no_level_of_significance() {
        // 002 gives 68.76: beyond it lies 2^-53, where 1 - p is the last number below 1.
        let chance = chi_square_above(68.76, 1.0);
        assert!((chance / f64::EPSILON - 0.5).abs() < 0.01, "{chance:e}");
    }
}
