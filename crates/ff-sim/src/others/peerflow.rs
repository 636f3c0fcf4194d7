//! PeerFlow's estimate (paper §8 and Table 2): relays report the bytes that they exchanged with
//! each other, and the reports of trusted relays are used.
//!
//! Clients choose relays by weight, so a relay with weight share w takes part in about a share w of
//! every relay's traffic: the bytes that a trusted relay exchanged with a target, divided by its
//! own share, estimate all bytes of the target. The weighted median of these estimates is used. So
//! a relay that exchanges bytes only with just over half of the trusted weight, and with no other
//! relay, is overestimated by a factor of 2/τ, where τ is the trusted share of the weight.
//!
//! Limits: only the estimate and its bound are modelled. PeerFlow's rule for the growth of weights
//! and its time are cited ([`CITED`]); the noise that hides clients' traffic is left out.

use serde::Serialize;

/// The traffic of a relay with one that measures it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanged {
    /// The bytes exchanged by the two.
    pub bytes: f64,
    /// The measuring relay's share of total weight.
    pub share: f64,
}

/// A number of PeerFlow that is cited from the paper and not computed here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cited {
    /// A description.
    pub what: &'static str,
    /// Its value.
    pub value: f64,
    /// Its place in the paper.
    pub source: &'static str,
}

/// All cited numbers.
pub const CITED: [Cited; 3] = [
    Cited {
        what: "factor by which a claimed capacity may grow in one period",
        value: 4.5,
        source: "FlashFlow §8, from PeerFlow's Theorem 1",
    },
    Cited {
        what: "days to measure the largest 96.8 % of relays",
        value: 14.0,
        source: "FlashFlow Table 2",
    },
    Cited {
        what: "share of the weight above which an adversary's grows without bound if nobody is trusted",
        value: 0.04,
        source: "FlashFlow §8",
    },
];

/// All bytes of a relay, estimated by its trusted peers: the weighted median of bytes / share.
/// `None` if no peer has both a share and a report.
#[must_use]
pub fn estimate(trusted: &[Exchanged]) -> Option<f64> {
    let is_good = |one: &&Exchanged| {
        one.share.is_finite() && one.share > 0.0 && one.bytes.is_finite() && one.bytes >= 0.0
    };
    let mut all: Vec<(f64, f64)> =
        trusted.iter().filter(is_good).map(|one| (one.bytes / one.share, one.share)).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let half = all.iter().map(|(_, share)| share).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for &(value, share) in &all {
        below += share;
        if below >= half {
            return Some(value);
        }
    }
    all.last().map(|&(value, _)| value)
}

/// 2/τ: the greatest factor that a relay can gain if a share τ of the weight is trusted; infinite
/// for 0.
#[must_use]
pub fn bound(trusted_share: f64) -> f64 {
    if trusted_share > 0.0 { 2.0 / trusted_share } else { f64::INFINITY }
}

/// The bytes that a relay exchanges with trusted peers of these shares if it has `bytes` in total
/// and maximises its estimate: none with as many peers as the median allows, and with the others in
/// proportion to their shares.
///
/// The peers that are left out are found as a subset sum, to a thousandth of the trusted weight.
#[must_use]
pub fn greatest_lie(bytes: f64, shares: &[f64]) -> Vec<Exchanged> {
    let total: f64 = shares.iter().sum();
    let left_out = left_out(shares, total / 2.0);
    let shown: f64 =
        shares.iter().zip(&left_out).filter(|(_, out)| !**out).map(|(share, _)| share).sum();
    let each = |(&share, &out): (&f64, &bool)| Exchanged {
        bytes: if out || shown <= 0.0 { 0.0 } else { bytes * share / shown },
        share,
    };
    shares.iter().zip(&left_out).map(each).collect()
}

/// The shares to leave out: as much as possible, but less than `most`.
fn left_out(shares: &[f64], most: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&one, &other| shares[other].total_cmp(&shares[one]));
    let mut out = vec![false; shares.len()];
    let mut sum = 0.0;
    // Greatest first: the small ones after them fill the rest.
    for index in order {
        if sum + shares[index] < most * (1.0 - 1e-9) {
            sum += shares[index];
            out[index] = true;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of relays with these shares, each with the given bytes.
    fn reports(of: &[(f64, f64)]) -> Vec<Exchanged> {
        of.iter().map(|&(bytes, share)| Exchanged { bytes, share }).collect()
    }

    #[test]
    fn an_honest_relay_is_what_it_is_whoever_is_trusted() {
        for shares in [&[0.1, 0.02, 0.03][..], &[0.2], &[0.001; 50]] {
            let honest: Vec<_> = shares.iter().map(|&share| (700.0 * share, share)).collect();
            let found = estimate(&reports(&honest)).expect("there are reports");
            assert!((found - 700.0).abs() < 1e-9, "{found}");
        }
    }

    #[test]
    fn the_median_goes_by_weight_and_not_by_number() {
        let many = reports(&[(9.0, 0.01), (9.0, 0.01), (9.0, 0.01), (0.1, 0.1)]);
        assert_eq!(estimate(&many), Some(1.0));
        assert_eq!(estimate(&[]), None);
        let odd = [(f64::NAN, 0.1), (1.0, f64::NAN), (1.0, 0.0), (-1.0, 0.1), (f64::INFINITY, 0.1)];
        assert_eq!(estimate(&reports(&odd)), None);
    }

    #[test]
    fn a_liar_gains_two_over_tau_and_no_more() {
        for (count, tau) in [(1000_u32, 0.2), (1000, 0.05), (101, 0.5), (3, 0.2)] {
            let shares = vec![tau / f64::from(count); count as usize];
            let found = estimate(&greatest_lie(100.0, &shares)).expect("reports") / 100.0;
            assert!(found <= bound(tau) + 1e-9, "{found}");
            // With n equal peers, more than half is at least (n + 1) / 2 of them, or n / 2 + 1.
            let shown = f64::from(count / 2 + 1) / f64::from(count);
            assert!(found >= 1.0 / (shown * tau) - 1e-9, "{count}, {tau}: {found}");
        }
        assert!(bound(0.0).is_infinite());
    }
}
