//! Rank statistics: Spearman's rho (NavigaTor, section 7.2), Kruskal-Wallis (7.3) and Mann-Whitney.

use serde::Serialize;
use statrs::function::beta::checked_beta_reg;

use crate::fit::good::chi_square_above;
use crate::interval::Z;

/// The largest result of [`more_to_decide`].
pub const MOST_MORE: u64 = 1_000_000;
/// The 80 % quantile of the normal distribution.
const Z_POWER: f64 = 0.841_621_234;

/// The rank correlation of two measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spearman {
    /// From -1 to 1.
    pub rho: f64,
    /// The probability of a rho further from 0 if they are independent.
    pub p: f64,
    /// The number of pairs.
    pub pairs: u64,
}

/// Whether groups of values come from the same distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KruskalWallis {
    /// The statistic, corrected for ties.
    pub h: f64,
    /// Its degrees of freedom: groups - 1.
    pub df: u32,
    /// The probability of a greater one, if they do.
    pub p: f64,
}

/// Whether values of one group tend to be greater than those of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MannWhitney {
    /// The share of pairs in which the value of the first group is greater; equal pairs count half.
    pub greater: f64,
    /// The probability of a share further from one half if both groups have the same distribution.
    pub p: f64,
}

/// Spearman's rho of pairs; none with fewer than three, or if all values on one side are equal.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> Option<Spearman> {
    if pairs.len() < 3 {
        return None;
    }
    let sides: [Vec<f64>; 2] = pairs.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>().into();
    let [one, other] = sides.map(|side| ranks(&side).0);
    // The mean of all ranks, with or without ties.
    let (n, mean) = (pairs.len() as f64, (pairs.len() as f64 + 1.0) / 2.0);
    let sum = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let both = (sum(&one, &one) * sum(&other, &other)).sqrt();
    if both.is_nan() || both <= 0.0 {
        return None;
    }
    let rho = (sum(&one, &other) / both).clamp(-1.0, 1.0);
    // The two-sided probability of Student's t with n - 2 degrees of freedom, as an incomplete beta
    // function.
    let p = checked_beta_reg((n - 2.0) / 2.0, 0.5, 1.0 - rho * rho).unwrap_or(f64::NAN);
    Some(Spearman { rho, p, pairs: pairs.len() as u64 })
}

/// The Kruskal-Wallis test of groups; none with fewer than two groups with values, or if all values
/// are equal.
#[must_use]
pub fn kruskal_wallis(groups: &[&[f64]]) -> Option<KruskalWallis> {
    let groups: Vec<&[f64]> = groups.iter().copied().filter(|group| !group.is_empty()).collect();
    let df = u32::try_from(groups.len().checked_sub(1)?).ok().filter(|df| *df > 0)?;
    let all: Vec<f64> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let (ranks, ties) = ranks(&all);
    let n = all.len() as f64;
    let mean = (n + 1.0) / 2.0;
    let (mut at, mut sum) = (0, 0.0);
    for group in &groups {
        let size = group.len() as f64;
        // Sums of distances from the mean rank lose less precision than sums of ranks.
        let apart: f64 = ranks[at..at + group.len()].iter().map(|rank| rank - mean).sum();
        sum += apart * apart / size;
        at += group.len();
    }
    let untied = 1.0 - ties / (n * n * n - n);
    if untied.is_nan() || untied <= 0.0 {
        return None;
    }
    let h = 12.0 * sum / (n * (n + 1.0)) / untied;
    Some(KruskalWallis { h, df, p: chi_square_above(h, f64::from(df)) })
}

/// The Mann-Whitney test of two groups by the normal approximation, which is good from about 8
/// values each; none if a group is empty, or if all values are equal.
#[must_use]
pub fn mann_whitney(one: &[f64], other: &[f64]) -> Option<MannWhitney> {
    // For two groups, the Kruskal-Wallis statistic is the square of this one, without a correction
    // for continuity.
    let p = kruskal_wallis(&[one, other])?.p;
    let (ranks, _) = ranks(&[one, other].concat());
    let (n, m) = (one.len() as f64, other.len() as f64);
    let sum: f64 = ranks[..one.len()].iter().sum();
    Some(MannWhitney { greater: (sum - n * (n + 1.0) / 2.0) / (n * m), p })
}

/// The number of further values that each of two groups of these sizes needs so that a Mann-Whitney
/// test at 5 % finds a difference with a probability of 80 %, by the normal approximation and if
/// this is the true share of greater pairs. None if it is above [`MOST_MORE`].
#[must_use]
pub fn more_to_decide(greater: f64, sizes: [usize; 2]) -> Option<u64> {
    let apart = (greater - 0.5).abs();
    let is_enough = |more: u64| {
        let [n, m] = sizes.map(|size| size as f64 + more as f64);
        apart >= (Z + Z_POWER) * ((n + m + 1.0) / (12.0 * n * m)).sqrt()
    };
    if !is_enough(MOST_MORE) {
        return None;
    }
    let (mut low, mut high) = (0, MOST_MORE);
    while low < high {
        let middle = low.midpoint(high);
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// Each value's rank, from 1; equal values have the mean of their ranks. Also the sum of t³ - t
/// over all groups of t equal values.
fn ranks(values: &[f64]) -> (Vec<f64>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|one, other| values[*one].total_cmp(&values[*other]));
    let (mut ranks, mut ties, mut before) = (vec![0.0; values.len()], 0.0, 0);
    for equal in order.chunk_by(|one, other| values[*one].total_cmp(&values[*other]).is_eq()) {
        let size = equal.len() as f64;
        let rank = before as f64 + (size + 1.0) / 2.0;
        equal.iter().for_each(|index| ranks[*index] = rank);
        ties += size * size * size - size;
        before += equal.len();
    }
    (ranks, ties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_equal_values_are_shared() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 2.0]), (vec![3.5, 1.0, 3.5, 2.0], 6.0));
    }

    #[test]
    fn rho_is_scipys() {
        // scipy.stats.spearmanr([1, 2, 3, 4, 5, 5], [2, 1, 4, 3, 7, 9]): (0.8696565534786727,
        // 0.02437689168569078)
        let pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 7.0), (5.0, 9.0)];
        let found = spearman(&pairs).expect("pairs");
        assert!((found.rho - 0.869_656_553_478_672_7).abs() < 1e-12, "{found:?}");
        assert!(
            (found.p - 0.024_376_891_685_690_78).abs() < 1e-12 && found.pairs == 6,
            "{found:?}"
        );
        let rising: Vec<(f64, f64)> = (0..50).map(|k| (f64::from(k), f64::from(k * k))).collect();
        let found = spearman(&rising).expect("pairs");
        assert!((found.rho - 1.0).abs() < 1e-12 && found.p < 1e-12, "{found:?}");
        assert_eq!(spearman(&[(1.0, 2.0), (1.0, 3.0), (1.0, 4.0)]), None);
    }

    #[test]
    fn groups_that_differ_are_told_apart() {
        // H of 1..5 and 6..10 is 6.8181...: 12/(10 11) (5 (3 - 5.5)² + 5 (8 - 5.5)²).
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        let found = kruskal_wallis(&[&low, &high]).expect("groups");
        assert!((found.h - 75.0 / 11.0).abs() < 1e-12 && found.df == 1, "{found:?}");
        // scipy.stats.chi2.sf(75/11, 1)
        assert!((found.p - 0.009_023_438_818_080_3).abs() < 1e-12, "{found:?}");
        // scipy.stats.mannwhitneyu(low, high, use_continuity=False, method="asymptotic"): U 0 of
        // 25, the same p.
        let both = mann_whitney(&low, &high).expect("groups");
        assert_eq!((both.greater, both.p), (0.0, found.p));
        assert_eq!(mann_whitney(&high, &low).expect("groups").greater, 1.0);
        assert_eq!(mann_whitney(&[1.0, 2.0], &[1.0, 2.0]).expect("groups").greater, 0.5);
        assert_eq!(mann_whitney(&low, &[]), None);
        assert_eq!(kruskal_wallis(&[&low, &[]]), None);
        assert_eq!(kruskal_wallis(&[&[1.0, 1.0], &[1.0]]), None);
    }

    #[test]
    fn what_would_decide_is_the_least_that_does() {
        // Noether (1987): (1.96 + 0.842)² / (12 / 4 (0.6 - 0.5)²) are 261.6 for both groups.
        // Without the approximation of n + 1 by n it is 132 for each.
        assert_eq!(more_to_decide(0.6, [100, 100]), Some(32));
        assert_eq!(more_to_decide(0.4, [100, 100]), Some(32));
        assert_eq!(more_to_decide(0.6, [132, 132]), Some(0));
        assert_eq!(more_to_decide(0.9, [500, 8]), Some(0));
        assert_eq!(more_to_decide(0.5, [100, 100]), None);
        assert_eq!(more_to_decide(0.500_1, [100, 100]), None);
    }
}
