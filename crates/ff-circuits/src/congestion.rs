//! Finds congested relays by the circuits that they share (Wang et al., "Congestion-aware path
//! selection for Tor", 2012; NavigaTor, section 7.6, compares with this scheme).
//!
//! The delay of a round trip over the fastest one of its circuit is attributed to the circuit's
//! relays, in proportion to their known delays. [`BASE_US`] is added to each delay first, so that
//! relays of idle circuits have a delay too.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::record::{CircuitRecord, PathRelay, Probe};

/// The delay that is added to each delay before it is divided (gamma), in µs.
pub const BASE_US: u64 = 20_000;
/// The number of a relay's last values that are used.
pub const VALUES: usize = 20;
/// A relay's initial delay, in µs.
pub const START_US: u64 = 5_000;

/// The known congestion of relays.
#[derive(Debug, Default)]
pub struct Congestion {
    /// The last values of each relay, by fingerprint.
    relays: HashMap<String, VecDeque<f64>>,
}

impl Congestion {
    /// Learns from a circuit with at least two round trips. Returns the resulting delay of each of
    /// its relays, in µs.
    pub fn learn(&mut self, circuit: &CircuitRecord) -> Vec<u64> {
        let trips = circuit.rtt.iter().filter(|trip| trip.probe == Probe::Refused);
        let trips: Vec<u64> = trips.map(|trip| trip.us).collect();
        let Some(least) = trips.iter().min().filter(|_| trips.len() > 1) else { return Vec::new() };
        for trip in &trips {
            self.share_out((trip - least + BASE_US) as f64, circuit);
        }
        let micros =
            |relay: &PathRelay| Duration::from_secs_f64(self.delay_us(&relay.id) / 1e6).as_micros();
        circuit.path.iter().map(|relay| u64::try_from(micros(relay)).unwrap_or(u64::MAX)).collect()
    }

    /// A relay's delay: the mean of its last values.
    fn delay_us(&self, id: &str) -> f64 {
        let values = self.relays.get(id).filter(|values| !values.is_empty());
        values.map_or(START_US as f64, |values| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Divides a delay among relays.
    fn share_out(&mut self, delay_us: f64, circuit: &CircuitRecord) {
        let known: Vec<f64> = circuit.path.iter().map(|relay| self.delay_us(&relay.id)).collect();
        let sum: f64 = known.iter().sum();
        for (relay, known) in circuit.path.iter().zip(known) {
            let values = self.relays.entry(relay.id.clone()).or_default();
            if values.len() == VALUES {
                values.pop_front();
            }
            values.push_back(delay_us * known / sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A circuit through these relays with these round trips.
    fn circuit(path: &[&str], trips_us: &[u64]) -> CircuitRecord {
        let path: Vec<_> = path.iter().map(|id| serde_json::json!({ "id": id })).collect();
        let trips = trips_us.iter().map(|us| serde_json::json!({ "us": us, "probe": "refused" }));
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": path, "rtt": trips.collect::<Vec<_>>(), "ended_us": 9 });
        serde_json::from_value(line).expect("a circuit")
    }

    #[test]
    fn a_delay_is_shared_out_and_one_trip_says_nothing() {
        let mut model = Congestion::default();
        assert_eq!(model.learn(&circuit(&["A", "B"], &[70_000])), [0; 0]);
        // 20 ms and 40 ms: half of each for each relay, so 15 ms on average.
        assert_eq!(model.learn(&circuit(&["A", "B"], &[50_000, 70_000])), [15_000, 15_000]);
        // A has 15 of 20 ms so far: three quarters of 20 ms are 15 again.
        assert_eq!(model.learn(&circuit(&["A", "C"], &[9, 9])), [15_000, 5_000]);
    }

    #[test]
    fn the_relay_that_all_slow_circuits_share_stands_out() {
        let mut model = Congestion::default();
        for (turn, other) in (0..60_u64).zip(["B", "C", "D"].into_iter().cycle()) {
            let wait = 30_000 + turn % 7 * 1000;
            model.learn(&circuit(&["A", other], &[50_000, 50_000 + wait, 50_000 + 2 * wait]));
            model.learn(&circuit(&[other, "E"], &[50_000, 50_100, 50_200]));
        }
        let of = |id| model.delay_us(id);
        assert!(of("A") > 40_000.0, "{}", of("A"));
        assert!(["B", "C", "D"].iter().all(|id| of(id) < 20_000.0 && of(id) > 5_000.0));
        assert!(model.relays.values().all(|values| values.len() <= VALUES));
    }

    #[test]
    fn paths_of_nothing_are_no_matter() {
        assert_eq!(Congestion::default().learn(&circuit(&[], &[1, 2])), [0; 0]);
    }
}
