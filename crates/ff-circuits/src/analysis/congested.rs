//! The most congested relays, by the congestion in the lines ([`crate::congestion`]).

use ff_report::stats;
use serde::Serialize;

use crate::read::Circuits;

/// Relays with fewer circuits are left out. With four circuits of five round trips a relay has all
/// values that count.
const LEAST: u64 = 4;
/// The number of relays that are named.
const MOST: usize = 10;

/// Congestion by relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Congested {
    /// The number of relays with enough circuits; a relay counts once for each host.
    pub relays: u64,
    /// The median of their delays.
    pub median_ms: f64,
    /// The most congested relays, the most congested first.
    pub most: Vec<CongestedRelay>,
}

/// A relay's congestion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CongestedRelay {
    /// Its fingerprint.
    pub id: String,
    /// The host that measured it.
    pub host: String,
    /// Its mean delay over its circuits, in ms, after each circuit: its part of the delay of round
    /// trips over the fastest one and of 20 ms ([`crate::congestion`]).
    pub delay_ms: f64,
    /// The number of these circuits.
    pub circuits: u64,
}

impl Congested {
    /// From circuits; none if their lines have no congestion.
    #[must_use]
    pub fn of(circuits: &Circuits) -> Option<Self> {
        let name = |all: &[String], place: u32| all.get(place as usize).cloned();
        let known = circuits.congestion.iter().filter(|(_, seen)| seen.circuits >= LEAST);
        let relay = |(&(host, relay), seen): (&(u32, u32), &crate::read::Delay)| {
            let id = name(&circuits.relays, relay)?;
            let host = name(&circuits.hosts, host)?;
            Some(CongestedRelay { id, host, delay_ms: seen.mean_ms(), circuits: seen.circuits })
        };
        let mut most: Vec<CongestedRelay> = known.filter_map(relay).collect();
        most.sort_by(|one, other| {
            other.delay_ms.total_cmp(&one.delay_ms).then_with(|| one.id.cmp(&other.id))
        });
        let relays = most.len() as u64;
        let median_ms = stats::median(most.iter().map(|one| one.delay_ms).collect())?;
        most.truncate(MOST);
        Some(Self { relays, median_ms, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Congestion;
    use crate::read::lines;
    use crate::record::CircuitRecord;

    #[test]
    fn the_relay_that_slow_circuits_share_is_named_first() {
        let (mut model, mut text) = (Congestion::default(), String::new());
        for (number, other) in (0..24_u64).zip(["B", "C", "D"].into_iter().cycle()) {
            let (path, slow) =
                if number % 2 == 0 { (["A", other], 60_000) } else { ([other, "E"], 100) };
            let trip = |us: u64| serde_json::json!({ "us": us, "probe": "refused" });
            let trips: Vec<_> = (0..5).map(|nth| trip(50_000 + nth * slow)).collect();
            let path = path.map(|id| serde_json::json!({ "id": id }));
            let line = serde_json::json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": 0.0,
                "began_us": 0, "path": path, "rtt": trips, "ended_us": 9 });
            let mut circuit: CircuitRecord = serde_json::from_value(line).expect("a circuit");
            circuit.relay_congestion_us = model.learn(&circuit);
            text += &format!("{}\n", serde_json::to_string(&circuit).expect("a line"));
        }
        let mut circuits = Circuits::default();
        let host = circuits.host("here");
        lines::read("f.jsonl", text.as_bytes(), host, &mut circuits).expect("lines");

        let found = Congested::of(&circuits).expect("relays");
        assert_eq!((found.relays, found.most.len()), (5, 5));
        let first = &found.most[0];
        assert_eq!((first.id.as_str(), first.host.as_str(), first.circuits), ("A", "here", 12));
        assert!(first.delay_ms > 2.0 * found.most[1].delay_ms, "{found:?}");
        assert!(found.most.is_sorted_by(|one, other| one.delay_ms >= other.delay_ms));
        assert_eq!(Congested::of(&Circuits::default()), None);
        // Of an even number it is the mean of the two in the middle.
        circuits.congestion.retain(|(_, relay), _| circuits.relays[*relay as usize] != "E");
        let found = Congested::of(&circuits).expect("relays");
        let middle = found.most[1].delay_ms.midpoint(found.most[2].delay_ms);
        assert!(found.relays == 4 && found.most[1].delay_ms > found.most[2].delay_ms, "{found:?}");
        assert!((found.median_ms - middle).abs() < 1e-9, "{found:?}");
    }
}
