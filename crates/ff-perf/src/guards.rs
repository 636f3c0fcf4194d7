//! Guards beside each other: what circuits get that begin with each of them.
//!
//! A client keeps a guard for months, so a slow one is slow for all that it does. Medians have distribution-free 95 %
//! intervals (order statistics), shares have Wilson's; whether guards differ at all, Kruskal and Wallis' test says.
//! Circuits of one number of hops count: with hops grow build times and round trips, whatever the guard is.

use std::collections::BTreeMap;

use ff_sim::stats;
use serde::Serialize;
use statrs::function::beta::checked_beta_reg;

use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::read::{Circuits, Seen};

/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;
/// The normal distribution's quantile at 97.5 %.
const Z: f64 = 1.959_963_985;

/// Something that was measured, and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median, or the share.
    pub value: f64,
    /// From here; none where there are too few values for an interval.
    pub low: Option<f64>,
    /// To here.
    pub high: Option<f64>,
}

/// What circuits get that begin with a guard. Each is none where nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guard {
    /// Its fingerprint.
    pub id: String,
    /// Circuits that were begun.
    pub circuits: u64,
    /// How many of them, of 1, were built.
    pub built: Interval,
    /// Median time to build.
    pub build_ms: Option<Interval>,
    /// The same without the opening of links, where that is kept apart.
    pub build_without_link_ms: Option<Interval>,
    /// Median round trip.
    pub rtt_ms: Option<Interval>,
    /// Median congestion delay.
    pub congestion_ms: Option<Interval>,
    /// Median time to first byte.
    pub ttfb_ms: Option<Interval>,
    /// Median throughput.
    pub throughput_mbit_per_sec: Option<Interval>,
}

/// Whether guards differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differ {
    /// In time to build.
    pub build: Option<KruskalWallis>,
    /// In that without the link's opening.
    pub build_without_link: Option<KruskalWallis>,
    /// In round trips.
    pub rtt: Option<KruskalWallis>,
    /// In congestion delay.
    pub congestion: Option<KruskalWallis>,
    /// In time to first byte.
    pub ttfb: Option<KruskalWallis>,
    /// In throughput.
    pub throughput: Option<KruskalWallis>,
}

/// All guards.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guards {
    /// Those with enough circuits, the one with the shortest median round trip first.
    pub guards: Vec<Guard>,
    /// How many had too few.
    pub with_too_few_circuits: u64,
    /// How many relays the circuits have that count.
    pub hops: u8,
    /// Circuits of known guards that have another number of relays.
    pub other_hops: u64,
    /// Whether those differ.
    pub differ: Differ,
}

impl Guards {
    /// Of circuits of so many relays, for guards with at least so many of them.
    #[must_use]
    pub fn of(circuits: &Circuits, hops: u8, least: u64) -> Self {
        let (mut by_guard, mut other_hops) = (BTreeMap::<&str, Vec<&Seen>>::new(), 0);
        for seen in &circuits.all {
            let guard = seen.path.first().and_then(|&relay| circuits.relays.get(relay as usize));
            match guard {
                Some(id) if seen.may_have(hops) => by_guard.entry(id).or_default().push(seen),
                Some(_) => other_hops += 1,
                None => {}
            }
        }
        let before = by_guard.len();
        by_guard.retain(|_, seen| seen.len() as u64 >= least);
        let differ = Differ {
            build: differ(&by_guard, |seen| seen.build_ms),
            build_without_link: differ(&by_guard, |seen| seen.build_without_link_ms),
            rtt: differ(&by_guard, |seen| seen.rtt_ms),
            congestion: differ(&by_guard, |seen| seen.congestion_ms),
            ttfb: differ(&by_guard, |seen| seen.ttfb_ms),
            throughput: differ(&by_guard, |seen| seen.mbit_per_sec),
        };
        let with_too_few_circuits = (before - by_guard.len()) as u64;
        let mut guards: Vec<_> = by_guard.iter().map(|(id, seen)| guard(id, seen)).collect();
        let rtt = |guard: &Guard| guard.rtt_ms.map_or(f64::INFINITY, |rtt| rtt.value);
        guards.sort_by(|one, other| rtt(one).total_cmp(&rtt(other)));
        Self { guards, with_too_few_circuits, hops, other_hops, differ }
    }
}

/// What a guard's circuits get.
fn guard(id: &str, seen: &[&Seen]) -> Guard {
    let values = |of: fn(&Seen) -> Option<f64>| {
        median(&stats::sorted(seen.iter().filter_map(|seen| of(seen)).collect()))
    };
    let built = seen.iter().filter(|seen| seen.build_ms.is_some()).count();
    Guard {
        id: id.to_owned(),
        circuits: seen.len() as u64,
        built: wilson(built as f64, seen.len() as f64),
        build_ms: values(|seen| seen.build_ms),
        build_without_link_ms: values(|seen| seen.build_without_link_ms),
        rtt_ms: values(|seen| seen.rtt_ms),
        congestion_ms: values(|seen| seen.congestion_ms),
        ttfb_ms: values(|seen| seen.ttfb_ms),
        throughput_mbit_per_sec: values(|seen| seen.mbit_per_sec),
    }
}

/// Whether guards differ in something.
fn differ(
    by_guard: &BTreeMap<&str, Vec<&Seen>>,
    of: fn(&Seen) -> Option<f64>,
) -> Option<KruskalWallis> {
    let values = |seen: &Vec<&Seen>| seen.iter().filter_map(|seen| of(seen)).collect::<Vec<_>>();
    let groups: Vec<Vec<f64>> = by_guard.values().map(values).collect();
    kruskal_wallis(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The median of sorted values, and its interval.
///
/// It reaches from the value at place `k` to that at place `n + 1 - k`, where `k` is the greatest place that so few as
/// `k - 1` of `n` values lie below the median with a chance of 2.5 % at most.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<Interval> {
    let value = stats::percentile(sorted, 50.0)?;
    let n = sorted.len();
    // The chance of fewer than k of n below the median, as an incomplete beta function.
    let fewer = |k: usize| checked_beta_reg((n - k + 1) as f64, k as f64, 0.5).unwrap_or(1.0);
    let (mut low, mut high) = (0, n / 2 + 1);
    while low + 1 < high {
        let k = low.midpoint(high);
        if fewer(k) <= TAIL { low = k } else { high = k }
    }
    let place = |k: usize| sorted.get(k).copied();
    Some(Interval {
        value,
        low: low.checked_sub(1).and_then(place),
        high: if low > 0 { place(n - low) } else { None },
    })
}

/// A share, and Wilson's interval of it.
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
        // Places from tables of the sign test: 6 values need both ends, 20 the 6th, 100 the 40th.
        for (n, k) in [(5, None), (6, Some(1)), (20, Some(6)), (100, Some(40))] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let found = median(&sorted).expect("values");
            assert_eq!(found.low, k.map(f64::from), "{n}");
            assert_eq!(found.high, k.map(|k| f64::from(n + 1 - k)), "{n}");
        }
        assert_eq!(median(&[]), None);
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
        // Both come in whole steps. Of 41 values the interval from the 14th to the 28th holds the median in
        // 1 - 2 P(Bin(41, 1/2) <= 13) = 0.9725 of samples, and Wilson's 0.3 in 0.9609: bounds are five deviations away.
        assert!((1908..=1976).contains(&medians), "{medians} of 2000");
        assert!((1876..=1960).contains(&shares), "{shares} of 2000");
    }

    #[test]
    fn guards_are_told_apart() {
        let mut circuits = Circuits::default();
        let guards = ["AA", "BB", "CC"].map(|id| circuits.relay(id));
        for (guard, rtt) in guards.into_iter().zip([80.0, 40.0, 60.0]) {
            for number in 0..if guard == guards[2] { 3 } else { 30 } {
                let build_ms = (number % 3 > 0).then_some(300.0);
                let rtt_ms = build_ms.map(|_| rtt + f64::from(number));
                circuits.all.push(Seen { path: vec![guard], build_ms, rtt_ms, ..Seen::default() });
            }
        }
        let found = Guards::of(&circuits, 3, 10);
        let ids: Vec<_> = found.guards.iter().map(|guard| guard.id.as_str()).collect();
        assert_eq!((ids, found.with_too_few_circuits), (vec!["BB", "AA"], 1));
        let first = &found.guards[0];
        assert_eq!((first.circuits, first.built.value), (30, 20.0 / 30.0));
        assert!(
            first.rtt_ms.expect("measured").high < found.guards[1].rtt_ms.expect("measured").low
        );
        assert!(found.differ.rtt.expect("both have some").p < 1e-6);
        assert_eq!((found.differ.build, found.differ.ttfb), (None, None));
    }

    #[test]
    fn circuits_of_other_lengths_are_left_out() {
        let mut circuits = Circuits::default();
        let [one, other] = ["AA", "BB"].map(|id| circuits.relay(id));
        let mut add = |path: &[u32], hops: Option<u8>, build_ms: Option<f64>| {
            circuits.all.push(Seen { path: path.to_vec(), hops, build_ms, ..Seen::default() });
        };
        for number in 0..20 {
            let ms = f64::from(number);
            // Guards that are alike, of which one has circuits of two hops besides.
            add(&[one, 8, 9], Some(3), Some(300.0 + ms));
            add(&[one, 9], Some(2), Some(100.0 + ms));
            add(&[other, 8, 9], Some(3), Some(300.0 + ms));
        }
        // What has failed at its second hop may have been to have three; what has none is no guard's.
        add(&[other], None, None);
        add(&[], None, None);
        let found = Guards::of(&circuits, 3, 10);
        let counts: Vec<u64> = found.guards.iter().map(|guard| guard.circuits).collect();
        assert_eq!((counts, found.other_hops), (vec![20, 21], 20));
        assert!(found.differ.build.expect("both have some").p > 0.99, "{found:?}");
        assert_eq!(Guards::of(&circuits, 2, 10).guards.len(), 1);
    }
}
