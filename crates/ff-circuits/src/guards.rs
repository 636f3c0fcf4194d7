//! Compares guards by the circuits that start with each of them.
//!
//! A client keeps a guard for months, so a slow guard makes all its circuits slow. Medians and
//! shares have 95 % intervals; the Kruskal-Wallis test decides whether guards differ at all. Only
//! circuits of one number of hops are used, because build times and round trips grow with the hops
//! for any guard.

use std::collections::BTreeMap;

use ff_report::stats;
use serde::Serialize;

use crate::interval::{Interval, median, wilson};
use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::read::{Circuits, Seen};

/// The circuits that start with a guard. A value is none if nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guard {
    /// Its fingerprint.
    pub id: String,
    /// The number of circuits that were begun.
    pub circuits: u64,
    /// The number of these that failed while their intended number of relays was unknown, as in
    /// OnionPerf's files. Some may have been intended to have another number, so the share that was
    /// built may be greater than reported.
    pub unknown_hops: u64,
    /// The share of these circuits that were built, from 0 to 1.
    pub built: Interval,
    /// Median time to build.
    pub build_ms: Option<Interval>,
    /// The same without the opening of links, if that was measured separately.
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

/// Whether guards differ in each measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differ {
    /// Time to build.
    pub build: Option<KruskalWallis>,
    /// Time to build without the opening of links.
    pub build_without_link: Option<KruskalWallis>,
    /// Round trips.
    pub rtt: Option<KruskalWallis>,
    /// Congestion delay.
    pub congestion: Option<KruskalWallis>,
    /// Time to first byte.
    pub ttfb: Option<KruskalWallis>,
    /// Throughput.
    pub throughput: Option<KruskalWallis>,
}

/// All guards.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guards {
    /// Guards with enough circuits, in ascending order of the median round trip.
    pub guards: Vec<Guard>,
    /// The number of guards with too few circuits.
    pub with_too_few_circuits: u64,
    /// The number of relays of the analysed circuits.
    pub hops: u8,
    /// The number of circuits of known guards with another number of relays.
    pub other_hops: u64,
    /// Whether the guards differ.
    pub differ: Differ,
}

impl Guards {
    /// For circuits of `hops` relays, and guards with at least `least` of them.
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

/// The results of a guard's circuits.
fn guard(id: &str, seen: &[&Seen]) -> Guard {
    let values = |of: fn(&Seen) -> Option<f64>| {
        median(&stats::sorted(seen.iter().filter_map(|seen| of(seen)).collect()))
    };
    let built = seen.iter().filter(|seen| seen.build_ms.is_some()).count();
    Guard {
        id: id.to_owned(),
        circuits: seen.len() as u64,
        unknown_hops: seen.iter().filter(|seen| seen.hops.is_none()).count() as u64,
        built: wilson(built as f64, seen.len() as f64),
        build_ms: values(|seen| seen.build_ms),
        build_without_link_ms: values(|seen| seen.build_without_link_ms),
        rtt_ms: values(|seen| seen.rtt_ms),
        congestion_ms: values(|seen| seen.congestion_ms),
        ttfb_ms: values(|seen| seen.ttfb_ms),
        throughput_mbit_per_sec: values(|seen| seen.mbit_per_sec),
    }
}

/// Whether guards differ in a measure.
fn differ(
    by_guard: &BTreeMap<&str, Vec<&Seen>>,
    of: fn(&Seen) -> Option<f64>,
) -> Option<KruskalWallis> {
    let values = |seen: &Vec<&Seen>| seen.iter().filter_map(|seen| of(seen)).collect::<Vec<_>>();
    let groups: Vec<Vec<f64>> = by_guard.values().map(values).collect();
    kruskal_wallis(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            // Guards that are alike, one of which also has circuits of two hops.
            add(&[one, 8, 9], Some(3), Some(300.0 + ms));
            add(&[one, 9], Some(2), Some(100.0 + ms));
            add(&[other, 8, 9], Some(3), Some(300.0 + ms));
        }
        // A circuit that failed at its second hop may have been planned with three; one without any
        // hop has no guard.
        add(&[other], None, None);
        add(&[], None, None);
        let found = Guards::of(&circuits, 3, 10);
        let counts: Vec<u64> = found.guards.iter().map(|guard| guard.circuits).collect();
        assert_eq!((counts, found.other_hops), (vec![20, 21], 20));
        let unknown: Vec<u64> = found.guards.iter().map(|guard| guard.unknown_hops).collect();
        assert_eq!(unknown, [0, 1]);
        assert!(found.differ.build.expect("both have some").p > 0.99, "{found:?}");
        assert_eq!(Guards::of(&circuits, 2, 10).guards.len(), 1);
    }
}
