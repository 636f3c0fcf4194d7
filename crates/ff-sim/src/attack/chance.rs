//! Probabilities.

/// The probability of at least `least` of `count` events, each with probability `p`.
pub(super) fn at_least(count: u32, p: f64, least: u32) -> f64 {
    (least..=count).map(|k| exactly(count, p, k)).sum()
}

/// The probability of exactly `k` of `count` events.
fn exactly(count: u32, p: f64, k: u32) -> f64 {
    let ways: f64 = (0..k).map(|index| f64::from(count - index) / f64::from(index + 1)).product();
    let times = |p: f64, n: u32| i32::try_from(n).map_or(0.0, |n| p.powi(n));
    ways * times(p, k) * times(1.0 - p, count - k)
}

/// Three standard deviations of a share of `trials` trials.
pub(super) fn three_deviations(share: f64, trials: u32) -> f64 {
    3.0 * (share * (1.0 - share) / f64::from(trials.max(1))).max(0.0).sqrt()
}

/// The share of trials in which something happens; `happens` gets the trial's number.
pub(super) fn share(trials: u32, happens: impl FnMut(&u32) -> bool) -> f64 {
    let count = (0..trials).filter(happens).count();
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / f64::from(trials.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_sums_come_out() {
        // Σ_{k ≥ n/2} Pr[B(n, 0.75) = k].
        for (n, expected) in
            [(1, 0.75), (3, 0.843_75), (5, 0.896_484), (6, 0.962_402), (9, 0.951_073)]
        {
            let found = at_least(n, 0.75, u32::div_ceil(n, 2));
            assert!((found - expected).abs() < 1e-6, "{n}: {found}");
        }
        assert!((at_least(7, 0.3, 0) - 1.0).abs() < 1e-12);
        assert!(at_least(3, 0.5, 4).abs() < 1e-12);
    }
}
