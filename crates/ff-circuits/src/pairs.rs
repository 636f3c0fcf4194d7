//! Round trips between two relays, from circuits that share the rest.
//!
//! Two circuits are equal except for one more relay at the end of the longer one: `… x` and `… x
//! y`. The difference of their least round trips is the time from x to y and back, and the
//! difference of the processing times in y and x. The least of several round trips met the fewest
//! queues. The result is the median over several such pairs of circuits. Both circuits of a pair
//! are of the same host and the same probe, because the path from another host to the first relay
//! differs.

use std::collections::{BTreeMap, HashMap};

use ff_report::stats;
use serde::Serialize;

use crate::read::Circuits;
use crate::record::Probe;

/// A host's circuits along a path, by the kind of probe.
type Key<'a> = (u32, Option<Probe>, &'a [u32]);

/// Two relays that are next to each other on some circuits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The fingerprint of one relay, which is less than the other's.
    pub one: String,
    /// The fingerprint of the other relay.
    pub other: String,
    /// The round trip between them.
    pub rtt_ms: f64,
    /// The least of several.
    pub least_ms: f64,
    /// The greatest of several.
    pub greatest_ms: f64,
    /// The number of pairs of paths, counted separately for each host.
    pub ways: u64,
}

/// All pairs of relays on circuits, by fingerprints. Paths with fewer round trips than `least` are
/// ignored.
#[must_use]
pub fn pairs(circuits: &Circuits, least: u64) -> Vec<Pair> {
    let paths = least_by_path(circuits, least);
    let mut found: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for ((host, probe, path), rtt) in &paths {
        let [before @ .., y] = path else { continue };
        let Some(x) = before.last() else { continue };
        let Some(shorter) = paths.get(&(*host, *probe, before)) else { continue };
        let name = |relay: u32| circuits.relays.get(relay as usize).map_or("", String::as_str);
        let (x, y) = (name(*x), name(*y));
        found.entry((x.min(y), x.max(y))).or_default().push(rtt - shorter);
    }
    let pair = |((one, other), rtts): ((&str, &str), Vec<f64>)| {
        let ways = rtts.len() as u64;
        let sorted = stats::sorted(rtts);
        Some(Pair {
            one: one.to_owned(),
            other: other.to_owned(),
            rtt_ms: stats::percentile(&sorted, 50.0)?,
            least_ms: *sorted.first()?,
            greatest_ms: *sorted.last()?,
            ways,
        })
    };
    found.into_iter().filter_map(pair).collect()
}

/// The least round trip of each host's paths with enough round trips.
fn least_by_path(circuits: &Circuits, least: u64) -> HashMap<Key<'_>, f64> {
    let mut paths: HashMap<Key<'_>, (f64, u64)> = HashMap::new();
    for seen in &circuits.all {
        if let Some(rtt) = seen.rtt_least_ms {
            let key = (seen.host, seen.rtt_by, seen.path.as_slice());
            let entry = paths.entry(key).or_insert((f64::INFINITY, 0));
            *entry = (entry.0.min(rtt), entry.1 + u64::from(seen.rtt_probes));
        }
    }
    let enough = |(path, (rtt, probes))| (probes >= least).then_some((path, rtt));
    paths.into_iter().filter_map(enough).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Seen;

    #[test]
    fn what_the_longer_circuit_takes_more_is_the_pair() {
        let mut circuits = Circuits::default();
        let [g, x, y, z] = ["GG", "YY", "XX", "ZZ"].map(|id| circuits.relay(id));
        let mut add = |path: &[u32], rtt: f64, probes: u32| {
            let rtt_least_ms = Some(rtt);
            let path = path.to_vec();
            circuits.all.push(Seen { path, rtt_least_ms, rtt_probes: probes, ..Seen::default() });
        };
        add(&[g, x], 30.0, 5);
        add(&[g, x], 28.0, 5);
        add(&[g, x, y], 48.0, 10);
        add(&[z, y], 11.0, 10);
        add(&[z, y, x], 33.0, 10);
        add(&[g, z], 5.0, 2);
        add(&[g, z, y], 9.0, 10);
        add(&[g], 1.0, 10);
        let found = pairs(&circuits, 10);
        let names: Vec<_> =
            found.iter().map(|pair| (pair.one.as_str(), pair.other.as_str())).collect();
        assert_eq!(names, [("GG", "YY"), ("XX", "YY")]);
        let pair = &found[1];
        assert_eq!(
            (pair.rtt_ms, pair.least_ms, pair.greatest_ms, pair.ways),
            (21.0, 20.0, 22.0, 2)
        );
    }

    #[test]
    fn hosts_and_probes_are_not_joined() {
        let mut circuits = Circuits::default();
        let [g, x, y] = ["GG", "XX", "YY"].map(|id| circuits.relay(id));
        let mut add = |host: u32, rtt_by: Probe, path: &[u32], rtt: f64| {
            let (path, rtt_least_ms) = (path.to_vec(), Some(rtt));
            let seen = Seen { host, path, rtt_least_ms, rtt_probes: 10, ..Seen::default() };
            circuits.all.push(Seen { rtt_by: Some(rtt_by), ..seen });
        };
        // One host is far away and one near; resolving a name takes less time than a refused
        // stream.
        add(0, Probe::Refused, &[g, x], 220.0);
        add(0, Probe::Refused, &[g, x, y], 240.0);
        add(0, Probe::Resolve, &[g, x], 215.0);
        add(1, Probe::Refused, &[g, x], 30.0);
        let found = pairs(&circuits, 10);
        let [pair] = &found[..] else { panic!("one: {found:?}") };
        assert_eq!((pair.rtt_ms, pair.ways), (20.0, 1));
    }
}
