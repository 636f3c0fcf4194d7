//! Compares guards by the circuits that begin with each of them.
//!
//! A client keeps a guard for months, so a slow one is slow for all that it does. Medians and
//! shares have 95 % intervals; the test of Kruskal and Wallis says whether guards differ at all.
//! Circuits of one number of hops count: build times and round trips grow with the hops, with any
//! guard.

use std::collections::BTreeMap;

use ff_report::stats;
use serde::Serialize;

use crate::interval::{Interval, median, wilson};
use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::read::{Circuits, Seen};

/// What circuits get that begin with a guard. Each is none where nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guard {
    /// Its fingerprint.
    pub id: String,
    /// Circuits that were begun.
    pub circuits: u64,
    /// How many of them failed before it was known how many relays they were meant to have, as in
    /// OnionPerf's files. Some of them may have been meant to have another number, so the share
    /// that was built may be greater than it seems.
    pub unknown_hops: u64,
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

/// What a guard's circuits get.
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

/// Whether guards differ in something.
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
            // Guards that are alike, of which one has also circuits of two hops.
            add(&[one, 8, 9], Some(3), Some(300.0 + ms));
            add(&[one, 9], Some(2), Some(100.0 + ms));
            add(&[other, 8, 9], Some(3), Some(300.0 + ms));
        }
        // A circuit that failed at its second hop may have been planned with three; one without any
        // hop belongs to no guard.
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
