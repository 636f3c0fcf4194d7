//! Tests of the rules by which flows share relays.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::*;

/// A small random network: flows, and the capacities of relays.
fn random_network(seed: u64) -> (Flows, Vec<f64>) {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let relays: u32 = rng.random_range(1..9);
    let capacities = (0..relays)
        .map(|_| match rng.random_range(0..12) {
            0 => 0.0,
            1 => f64::from(rng.random_range(1..4_u32)),
            _ => rng.random_range(0.0..100.0),
        })
        .collect();
    let mut flows = Flows::default();
    for _ in 0..rng.random_range(0..24) {
        let hop = |rng: &mut ChaCha12Rng| match rng.random_range(0..8) {
            0 => NO_RELAY,
            _ => rng.random_range(0..relays),
        };
        let path = [hop(&mut rng), hop(&mut rng), hop(&mut rng)];
        let cap = match rng.random_range(0..4) {
            0 => 0.0,
            1 => 1e9,
            _ => rng.random_range(0.0..30.0),
        };
        flows.push(path, cap, f64::from(rng.random_range(0..4_u32)));
    }
    (flows, capacities)
}

/// The load of each relay.
fn loads(flows: &Flows, rates: &[f64], relays: usize) -> Vec<f64> {
    let mut loads = vec![0.0; relays];
    for (path, rate) in flows.paths.iter().zip(rates) {
        for &hop in path.iter().filter(|hop| **hop != NO_RELAY) {
            loads[hop as usize] += rate;
        }
    }
    loads
}

/// Asserts that rates are max-min for these weights: caps and capacities hold, and every flow is at
/// its cap or has a full relay where no flow has a higher rate over weight.
fn assert_max_min(flows: &Flows, capacities: &[f64], rates: &[f64], weights: &[f64], seed: u64) {
    let loads = loads(flows, rates, capacities.len());
    for (relay, load) in loads.iter().enumerate() {
        assert!(*load <= capacities[relay] + 1e-6, "seed {seed}: relay {relay} carries {load}");
    }
    for flow in 0..flows.len() {
        let level = rates[flow] / weights[flow];
        assert!(rates[flow] <= flows.caps[flow] + 1e-9, "seed {seed}: flow {flow} over its cap");
        let is_best = |relay: u32| {
            let others = flows.paths.iter().zip(rates.iter().zip(weights));
            others
                .filter(|(path, _)| path.contains(&relay))
                .all(|(_, (rate, weight))| rate / weight <= level + 1e-6)
        };
        let is_held = flows.paths[flow].iter().any(|&hop| {
            hop != NO_RELAY
                && loads[hop as usize] >= capacities[hop as usize] - 1e-6
                && is_best(hop)
        });
        let is_capped = rates[flow] >= flows.caps[flow] - 1e-9;
        assert!(is_capped || is_held, "seed {seed}: flow {flow} could have more: {rates:?}");
    }
}

/// Checks all rules on `count` random networks.
fn check_random_networks(count: u64) {
    let (mut max_min, mut weighted) = (MaxMin::default(), Weighted::new(1.0));
    let (mut quiet, mut rates) = (QuietFirst::default(), Vec::new());
    for seed in 0..count {
        let (flows, capacities) = random_network(seed);
        max_min.fill(&flows, &capacities, &mut rates);
        assert_max_min(&flows, &capacities, &rates, &vec![1.0; flows.len()], seed);
        weighted.fill(&flows, &capacities, &mut rates);
        let weights: Vec<f64> = flows.spent.iter().map(|spent| 1.0 / (1.0 + spent)).collect();
        assert_max_min(&flows, &capacities, &rates, &weights, seed);
        quiet.fill(&flows, &capacities, &mut rates);
        assert_served_in_order(&flows, &capacities, &rates, seed);
    }
}

/// Asserts that each flow is at its cap, or has a relay filled by it and flows with fewer recent
/// bytes.
fn assert_served_in_order(flows: &Flows, capacities: &[f64], rates: &[f64], seed: u64) {
    let loads = loads(flows, rates, capacities.len());
    for flow in 0..flows.len() {
        let is_held = flows.paths[flow].iter().filter(|hop| **hop != NO_RELAY).any(|&hop| {
            let louder = (0..flows.len()).filter(|&other| flows.spent[other] > flows.spent[flow]);
            let louder: f64 =
                louder.filter(|&o| flows.paths[o].contains(&hop)).map(|o| rates[o]).sum();
            loads[hop as usize] >= capacities[hop as usize] - 1e-6 && louder < 1e-6
        });
        // A flow that names a relay twice uses it twice, and can be served once capacity is left.
        let path = flows.paths[flow];
        let is_odd = (0..3).any(|i| (0..i).any(|j| path[i] == path[j] && path[i] != NO_RELAY));
        let is_capped = rates[flow] >= flows.caps[flow] - 1e-9;
        assert!(is_capped || is_held || is_odd, "seed {seed}: flow {flow} waits: {rates:?}");
    }
    for (load, capacity) in loads.iter().zip(capacities) {
        let twice = flows.paths.iter().any(|p| p[0] == p[1] || p[1] == p[2] || p[0] == p[2]);
        assert!(twice || *load <= capacity + 1e-6, "seed {seed}: {load} over {capacity}");
    }
}

#[test]
fn every_flow_is_at_its_cap_or_first_at_a_full_relay() {
    check_random_networks(1_000);
}

#[test]
#[ignore = "long: 100,000 random networks"]
fn every_flow_is_at_its_cap_or_first_at_a_full_relay_in_many_networks() {
    check_random_networks(100_000);
}

#[test]
fn a_relay_carries_no_more_than_it_can_however_many_weights_were_summed() {
    // Summing the weights of 100,000 flows leaves an error as great as the weight of a loud flow.
    let (mut flows, mut capacity) = (Flows::default(), 0.0);
    for index in 0..100_000 {
        let (spent, cap) = if index % 2 == 0 { (6e4, 333.0) } else { (213_902.4, 246.0) };
        flows.push([0, NO_RELAY, NO_RELAY], cap, spent);
        capacity += 2.0 * cap;
    }
    flows.push([0, NO_RELAY, NO_RELAY], 1e12, 1e15);
    let mut rates = Vec::new();
    Weighted::default().fill(&flows, &[capacity], &mut rates);
    let load: f64 = rates.iter().sum();
    assert!((load / capacity - 1.0).abs() < 1e-9, "{load} of {capacity}");
}

#[test]
fn a_network_by_hand() {
    // Relay 0 (10) has three flows; relay 1 limits one of them to 2, so the others get 4 each, and
    // the rest of relay 2 goes to the flow with the cap.
    let mut flows = Flows::default();
    flows.push([0, 1, NO_RELAY], 100.0, 0.0);
    flows.push([0, 2, NO_RELAY], 100.0, 9.0);
    flows.push([0, NO_RELAY, NO_RELAY], 100.0, 5.0);
    flows.push([2, NO_RELAY, NO_RELAY], 3.0, 0.0);
    let (mut rates, capacities) = (Vec::new(), [10.0, 2.0, 7.5]);
    MaxMin::default().fill(&flows, &capacities, &mut rates);
    assert_eq!(rates, [2.0, 4.0, 4.0, 3.0]);
    QuietFirst::default().fill(&flows, &capacities, &mut rates);
    assert_eq!(rates, [2.0, 0.0, 8.0, 3.0]);
}

#[test]
fn odd_numbers_give_nothing_or_the_cap() {
    let mut flows = Flows::default();
    flows.push([0, 1, 2], 5.0, f64::NAN);
    flows.push([3, 9, NO_RELAY], f64::INFINITY, f64::INFINITY);
    flows.push([1, 1, 1], f64::NAN, -1.0);
    flows.push([4, 4, 4], 9.0, 0.0);
    let capacities = [f64::NAN, 10.0, -3.0, 6.0, f64::INFINITY];
    let mut rates = vec![1.0; 99];
    for rule in [
        &mut MaxMin::default() as &mut dyn Share,
        &mut Weighted::new(f64::NAN),
        &mut QuietFirst::default(),
    ] {
        rule.fill(&flows, &capacities, &mut rates);
        assert_eq!(rates, [0.0, 6.0, 0.0, 9.0]);
        rule.fill(&Flows::default(), &[], &mut rates);
        assert!(rates.is_empty());
    }
}

/// A test vector by scipy's linear programs (ff-archives/tests/data/flow.md): capacities, paths,
/// caps, rates.
#[derive(serde::Deserialize)]
struct Vector {
    /// Relays' capacities.
    capacities: Vec<f64>,
    /// The relays of each flow, at most three.
    paths: Vec<Vec<u32>>,
    /// The cap of each flow.
    caps: Vec<f64>,
    /// The rate of each flow.
    rates: Vec<f64>,
}

#[test]
fn small_networks_equal_linear_programs() {
    let text = include_str!("../../../ff-archives/tests/data/flow-max-min.json");
    let vectors: Vec<Vector> = serde_json::from_str(text).expect("JSON");
    assert_eq!(vectors.len(), 60);
    for (number, vector) in vectors.iter().enumerate() {
        let (mut flows, mut rates) = (Flows::default(), Vec::new());
        for (path, cap) in vector.paths.iter().zip(&vector.caps) {
            let hop = |at: usize| path.get(at).copied().unwrap_or(NO_RELAY);
            flows.push([hop(0), hop(1), hop(2)], *cap, 0.0);
        }
        MaxMin::default().fill(&flows, &vector.capacities, &mut rates);
        assert_eq!(rates.len(), vector.rates.len());
        for (found, expected) in rates.iter().zip(&vector.rates) {
            assert!((found - expected).abs() < 1e-6, "{number}: {rates:?}, {:?}", vector.rates);
        }
    }
}
