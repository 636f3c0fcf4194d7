//! Detection of relays that hold cells back until a refill: in a model with known ones, over many
//! seeds, and in a private network of real tors.

mod command;
mod lab;

use std::collections::BTreeSet;

use ff_circuits::buckets::truth::Compared;
use ff_circuits::buckets::{Buckets, LEVEL};
use ff_circuits::read::{Circuits, Seen, Trip};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

/// Relays of the model.
const RELAYS: u32 = 15;
/// Circuits of the model.
const CIRCUITS: u32 = 120;
/// Refill interval in ms.
const INTERVAL: f64 = 100.0;

/// Circuits of three random relays each, with round trips that vary as in a congested network. The
/// first `held` relays hold this share of their cells back, on the way to the last relay and on the
/// way back.
fn model(held: u32, part: f64, rng: &mut ChaCha12Rng) -> Circuits {
    let mut circuits = Circuits::default();
    // Relays' timers have random phases.
    let phases: Vec<f64> = (0..RELAYS).map(|_| rng.random_range(0.0..INTERVAL)).collect();
    circuits.relays = (0..RELAYS).map(|at| format!("{at:040}")).collect();
    for _ in 0..CIRCUITS {
        let mut path: Vec<u32> = Vec::new();
        while path.len() < 3 {
            let relay = rng.random_range(0..RELAYS);
            if !path.contains(&relay) {
                path.push(relay);
            }
        }
        let links: Vec<f64> = (0..3).map(|_| rng.random_range(5.0..60.0)).collect();
        let mut now = rng.random_range(0.0..1e6);
        let mut trip = || {
            let pause_ms = rng.random_range(20.0..20.0 + INTERVAL);
            let began = now + pause_ms;
            now = began;
            for hop in [0, 1, 2, 2, 1, 0] {
                let queue = -8.0 * (1.0 - rng.random::<f64>()).ln();
                now += links[hop] + queue;
                let relay = path[hop];
                if relay < held && rng.random_bool(part) {
                    let late = (now - phases[relay as usize]).rem_euclid(INTERVAL);
                    now += INTERVAL - late;
                }
            }
            // Back over the first link.
            now += links[0];
            Trip { pause_ms, rtt_ms: now - began }
        };
        let trips = (0..39).map(|_| trip()).collect();
        circuits.all.push(Seen { path, trips, ..Seen::default() });
    }
    circuits
}

/// Results of this number of models: hits, misses, and models with a false alarm.
fn found(models: u32, held: u32, part: f64, seed: u64) -> [usize; 3] {
    let truth: BTreeSet<String> = (0..held).map(|at| format!("{at:040}")).collect();
    let mut sums = [0; 3];
    for number in 0..models {
        let mut rng = ChaCha12Rng::seed_from_u64(seed.wrapping_add(u64::from(number)));
        let buckets = Buckets::of(&model(held, part, &mut rng), 100).expect("round trips");
        let compared = buckets.beside(&truth).truth.expect("a truth");
        let Compared { hits, misses, false_alarms, .. } = compared;
        sums[0] += hits.len();
        sums[1] += misses.len();
        sums[2] += usize::from(!false_alarms.is_empty());
    }
    sums
}

#[test]
fn relays_are_found_and_hardly_ever_for_nothing() {
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    eprintln!("FF_TEST_SEED={seed}");
    // If most circuits are held back, relays are harder to tell apart. If few of a relay's circuits
    // are, no hits are required, and only false alarms count.
    let rows = [
        (0, 0.0, None),
        (1, 0.8, Some(0.95)),
        (4, 0.8, Some(0.95)),
        (8, 0.8, Some(0.3)),
        (4, 0.3, None),
    ];
    for (held, part, least_found) in rows {
        let models = 200;
        let [hits, misses, alarms] = found(models, held, part, seed);
        eprintln!(
            "{held} relays hold back {part}: {hits} hits, {misses} misses, {alarms} of {models} models with false alarms"
        );
        // Three standard deviations above the level, which is an upper bound.
        let mean = LEVEL * f64::from(models);
        assert!(alarms as f64 <= mean + 3.0 * mean.sqrt(), "seed {seed}: {alarms} with {held}");
        let all = (hits + misses) as f64;
        assert!(
            least_found.is_none_or(|least| hits as f64 >= least * all),
            "seed {seed}: {hits} of {all}, {held} hold back {part}"
        );
    }
}

#[test]
fn without_pauses_nobody_is_accused() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut circuits = model(4, 0.8, &mut rng);
    for trip in circuits.all.iter_mut().flat_map(|seen| &mut seen.trips) {
        (trip.pause_ms, trip.rtt_ms) = (0.1, 100.0);
    }
    let buckets = Buckets::of(&circuits, 100).expect("round trips");
    assert_eq!((buckets.circuits, buckets.without_pauses), (0, u64::from(CIRCUITS)));
    assert!(buckets.found.is_empty());
}
