//! Predicts downloads by a model of relays as queues that serve all streams at once.
//!
//! Clients' demand is a part of the total capacity, a third of it in each position. In a position
//! each relay that may have it gets a load in proportion to its weight. At utilisation u, a relay
//! with capacity C gives one more stream C (1 - u) (the mean of a processor-sharing queue,
//! M/G/1-PS); an overloaded relay gives 2 % of C. A circuit is as fast as the slowest of three
//! relays that are chosen independently, and never faster than 500 cells per round trip. A download
//! takes two round trips and then its bytes at the median circuit's speed.
//!
//! Limits: clients do not leave slow relays, each download is that of one additional client, guards
//! and families are ignored, position weights (Wgg and the like) are 1, round trips are the same
//! everywhere. The model is for comparing two sets of weights, not for forecasts of seconds: those
//! are simulated by `ff-sim flow`.

use ff_archives::network::{Network, Relay};
use serde::Serialize;

/// Seconds of a circuit's round trip: three hops, each of the median 118 ms.
const ROUND_TRIP_SECS: f64 = 0.354;
/// The greatest speed of a stream, in bytes per second: 500 cells of 498 bytes per round trip.
const MOST_STREAM: f64 = 500.0 * 498.0 / ROUND_TRIP_SECS;
/// The rate that an overloaded relay gives a new stream, as a part of its capacity.
const LEFT: f64 = 0.02;
/// The sizes of downloads in bytes: 50 KiB, 1 MiB, 5 MiB.
const SIZES: [f64; 3] = [51_200.0, 1_048_576.0, 5_242_880.0];

/// Predicted downloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Clients' demand as a part of the total capacity.
    pub load: f64,
    /// The median circuit's speed, in bytes per second.
    pub median_bytes_per_sec: f64,
    /// Seconds of the median download of 50 KiB, 1 MiB and 5 MiB.
    pub seconds: [f64; 3],
    /// The same for the 10th percentile of circuits' speeds.
    pub slow_seconds: [f64; 3],
    /// The share of circuits with an overloaded relay.
    pub overloaded: f64,
}

/// A relay in a position: its share of the position, and its rate for a stream.
type Choice = (f64, f64);

/// Predicts downloads for a network with its weights; `None` if a position has no relay with a
/// weight and a capacity.
#[must_use]
pub fn predict(network: &Network, load: f64) -> Option<Prediction> {
    let load = if load.is_finite() { load.clamp(0.0, 10.0) } else { return None };
    let may: [fn(&Relay) -> bool; 3] =
        [|relay| relay.flags.guard, |_| true, |relay| relay.flags.exit && !relay.flags.bad_exit];
    let capacity = |relay: &Relay| relay.usable().map_or(0.0, |rate| rate.mbit() * 125_000.0);
    let wanted = network.relays.iter().map(capacity).sum::<f64>() * load / 3.0;
    let shares = may.map(|may| shares(network, may));
    let [guard, middle, exit] = &shares;
    let mut positions: [Vec<Choice>; 3] = [const { Vec::new() }; 3];
    let mut overloaded = [0.0; 3];
    for (index, relay) in network.relays.iter().enumerate() {
        let capacity = capacity(relay);
        let asked = wanted * (guard[index] + middle[index] + exit[index]);
        let given = (capacity - asked).max(capacity * LEFT).min(MOST_STREAM);
        for (position, shares) in shares.iter().enumerate() {
            if shares[index] > 0.0 {
                positions[position].push((shares[index], given));
                overloaded[position] += if asked > capacity { shares[index] } else { 0.0 };
            }
        }
    }
    let median = speed(&positions, 0.5)?;
    let slow = speed(&positions, 0.1)?;
    let seconds = |speed: f64| SIZES.map(|bytes| 2.0 * ROUND_TRIP_SECS + bytes / speed.max(1.0));
    Some(Prediction {
        load,
        median_bytes_per_sec: median,
        seconds: seconds(median),
        slow_seconds: seconds(slow),
        overloaded: 1.0 - overloaded.iter().map(|part| 1.0 - part).product::<f64>(),
    })
}

/// The relays' shares of a position's weight. Relays without a known capacity are not chosen.
fn shares(network: &Network, may: fn(&Relay) -> bool) -> Vec<f64> {
    let weight = |relay: &Relay| {
        let is_good = may(relay) && relay.usable().is_some_and(|rate| rate.get() > 0);
        if is_good && relay.weight > 0.0 { relay.weight } else { 0.0 }
    };
    let weights: Vec<f64> = network.relays.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| if total > 0.0 { weight / total } else { 0.0 }).collect()
}

/// The speed below which a part `part` of circuits is; a circuit is as fast as the slowest of its
/// three relays.
fn speed(positions: &[Vec<Choice>; 3], part: f64) -> Option<f64> {
    if positions.iter().any(Vec::is_empty) {
        return None;
    }
    let mut all: Vec<(f64, usize, f64)> = Vec::new();
    for (position, choices) in positions.iter().enumerate() {
        all.extend(choices.iter().map(|&(share, given)| (given, position, share)));
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut faster = [1.0; 3];
    for &(given, position, share) in &all {
        faster[position] -= share;
        if faster.iter().product::<f64>() <= 1.0 - part {
            return Some(given);
        }
    }
    all.last().map(|(given, ..)| *given)
}

#[cfg(test)]
mod tests {
    use ff_archives::network::Flags;
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// A guard, a middle relay and an exit with these capacities and weights.
    fn network(mbit: [u64; 3], weights: [f64; 3]) -> Network {
        let relay = |number: usize| Relay {
            flags: Flags { guard: number == 0, exit: number == 2, ..Flags::default() },
            capacity: Some(BytesPerSec::from_mbit(mbit[number])),
            weight: weights[number],
            running: 1.0,
            ..Relay::default()
        };
        Network { relays: (0..3).map(relay).collect(), ..Network::default() }
    }

    #[test]
    fn a_circuit_is_as_fast_as_its_slowest_relay() {
        // 3 Mbit/s in total and a demand of 0.3: 0.1 in each position, a third of it at each relay
        // in the middle position.
        let found = predict(&network([1, 1, 1], [1.0; 3]), 0.1).expect("a prediction");
        let third = 0.1 * 125_000.0 / 3.0;
        // Guard and exit carry all of their positions and a third of the middle.
        let slowest = 125_000.0 - 0.1 * 125_000.0 - third;
        assert!((found.median_bytes_per_sec - slowest).abs() < 1e-6, "{found:?}");
        assert!((found.seconds[0] - 0.708 - 51_200.0 / slowest).abs() < 1e-9);
        assert!(found.overloaded.abs() < 1e-12);
        // The window limits fast relays.
        let fast = predict(&network([9000; 3], [1.0; 3]), 0.1).expect("a prediction");
        assert!((fast.median_bytes_per_sec - MOST_STREAM).abs() < 1e-6);
        let full = predict(&network([1, 1, 1], [1.0; 3]), 1.0).expect("a prediction");
        assert!((full.overloaded - 1.0).abs() < 1e-12, "{full:?}");
        assert!((full.median_bytes_per_sec - 2500.0).abs() < 1e-6, "{full:?}");
    }

    #[test]
    fn without_a_position_there_is_no_prediction() {
        assert_eq!(predict(&network([1; 3], [0.0, 1.0, 1.0]), 0.5), None);
        assert_eq!(predict(&network([1, 1, 0], [1.0; 3]), 0.5), None);
        assert_eq!(predict(&network([1; 3], [1.0; 3]), f64::NAN), None);
        assert_eq!(predict(&Network::default(), 0.5), None);
    }
}
