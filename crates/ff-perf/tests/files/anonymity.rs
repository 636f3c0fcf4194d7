//! Measures of anonymity for circuits with known probabilities.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ff_archives::network::{Network, Position, Relay};
use ff_archives::weights::{CircuitPlace, Sums, Weights};
use ff_circuits::anonymity::attacker::Attackers;
use ff_circuits::anonymity::{Ends, Whole, corrected, published, thinned};
use ff_report::input::Inputs;
use rand::distr::Distribution as _;
use rand::distr::weighted::WeightedIndex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

/// A generator with a printed seed.
fn random() -> ChaCha12Rng {
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    eprintln!("FF_TEST_SEED={seed}");
    ChaCha12Rng::seed_from_u64(seed)
}

/// Circuits with ends drawn by these weights; pairs of equal ends are drawn again.
fn drawn(weights: &[Vec<f64>; 2], count: usize, rng: &mut ChaCha12Rng) -> Vec<Ends> {
    let [first, last] = weights.each_ref().map(|all| WeightedIndex::new(all).expect("weights"));
    let index = |of: &WeightedIndex<f64>, rng: &mut ChaCha12Rng| {
        u32::try_from(of.sample(rng)).expect("few")
    };
    let pair = |rng: &mut ChaCha12Rng| (index(&first, rng), index(&last, rng));
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let ends = pair(rng);
        if ends.0 != ends.1 {
            all.push(ends);
        }
    }
    all
}

fn fingerprints(count: usize) -> Vec<String> {
    (0..count).map(|relay| format!("{relay:040X}")).collect()
}

#[test]
fn nineteen_in_twenty_intervals_hold_the_chance() {
    let mut rng = random();
    let falling: Vec<f64> = (0..60_u32).map(|relay| 1.0 / f64::from(1 + relay)).collect();
    let weights = [falling.clone(), falling];
    let many = drawn(&weights, 400_000, &mut rng);
    let attackers = Attackers::of(&many, &fingerprints(60), None);
    let truth = attackers.gains(&many);
    let mut held = vec![0_u32; truth.len()];
    for _ in 0..300 {
        let some = drawn(&weights, 500, &mut rng);
        for ((held, truth), gain) in held.iter_mut().zip(&truth).zip(attackers.gains(&some)) {
            *held += u32::from(gain.low <= truth.chance && truth.chance <= gain.high);
        }
    }
    for (held, truth) in held.iter().zip(&truth).filter(|(_, truth)| truth.chance > 0.0) {
        assert!((270..=297).contains(held), "{held} of 300 hold {truth:?}");
    }
    assert!(
        truth[0].chance == 0.0 && truth[1].chance > 0.1,
        "one relay is never at both ends: {truth:?}"
    );
}

#[test]
fn groups_of_a_network_gain_what_counting_says() {
    let mut rng = random();
    let country = |code: &str| code.as_bytes().try_into().expect("two letters");
    let fingerprint = |relay: u8| {
        let mut all = [0; 20];
        all[19] = relay;
        all
    };
    let relay = |place: u8| Relay {
        fingerprint: fingerprint(place),
        addresses: vec![IpAddr::V4(Ipv4Addr::new(10, place / 4, place, 1))],
        country: (place < 30).then(|| country(if place < 10 { "de" } else { "us" })),
        // Neighbours are families of two: every other pair name each other, the others have a
        // family key.
        family: if place % 4 < 2 { vec![fingerprint(place ^ 1)] } else { vec![] },
        family_ids: if place % 4 < 2 { vec![] } else { vec![format!("ed25519:{}", place / 2)] },
        ..Relay::default()
    };
    let network = Network { relays: (0..40).map(relay).collect(), ..Network::default() };
    let even = vec![1.0; 40];
    let falling: Vec<f64> = (0..40_u32).map(|relay| 1.0 / f64::from(1 + relay)).collect();
    let all = drawn(&[falling, even], 20_000, &mut rng);
    let gains = Attackers::of(&all, &fingerprints(40), Some(&network)).gains(&all);
    let find =
        |name: &str| gains.iter().find(|gain| gain.attacker == name).expect("an attacker").chance;
    let part = |is: &dyn Fn(u32) -> bool| {
        all.iter().filter(|ends| is(ends.0) && is(ends.1)).count() as f64 / all.len() as f64
    };
    // Relays with lower numbers are used more often.
    for (name, most) in
        [("top 1 families", 2), ("top 3 families", 6), ("top 1 /16s", 4), ("top 5 /16s", 20)]
    {
        let expected = part(&|relay| relay < most);
        assert!(
            expected > 0.0 && (find(name) - expected).abs() < 1e-12,
            "{name}: {} {expected}",
            find(name)
        );
    }
    let de = part(&|relay| relay < 10);
    let us = part(&|relay| (10..30).contains(&relay));
    let uses = |is: &dyn Fn(u32) -> bool| {
        all.iter().flat_map(|ends| [ends.0, ends.1]).filter(|end| is(*end)).count()
    };
    let is_de_first = uses(&|relay| relay < 10) > uses(&|relay| (10..30).contains(&relay));
    assert!((find("top 1 countries") - if is_de_first { de } else { us }).abs() < 1e-12);
    assert!(!gains.iter().any(|gain| gain.attacker == "top 3 countries"), "there are two");
}

#[test]
fn a_selection_that_prefers_relays_costs_more_than_one_at_random() {
    let mut rng = random();
    let all = drawn(&[vec![1.0; 200], vec![1.0; 200]], 40_000, &mut rng);
    let whole = Whole::of(&all);
    // The nearer half of first relays is accepted nine times out of ten, the other once.
    let accepted: Vec<Ends> = all
        .iter()
        .copied()
        .filter(|ends| rng.random_bool(if ends.0 < 100 { 0.9 } else { 0.1 }))
        .collect();
    let random = thinned(&all, accepted.len(), &whole, &mut rng);
    let mut of = |some: &[Ends]| corrected(some, 10_000, &whole, &mut rng);
    let (before, after) = (of(&all), of(&accepted));
    // A choice of nine to one instead of one to one costs 1 - H(0.9) bits.
    let lost = before.first_entropy_bits - after.first_entropy_bits;
    let expected = 1.0 + 0.9 * 0.9_f64.log2() + 0.1 * 0.1_f64.log2();
    assert!((lost - expected).abs() < 0.02, "{lost} {expected}");
    assert!((before.last_entropy_bits - after.last_entropy_bits).abs() < 0.02);
    assert!(after.gini > before.gini + 0.1, "{before:?} {after:?}");
    // The published entropy hardly tells them apart.
    let shown = published(&accepted, &whole);
    assert!((shown.entropy / random.entropy - 1.0).abs() < 0.03, "{shown:?} {random:?}");
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn the_published_measures_fall_by_themselves_on_a_real_consensus() {
    let data = PathBuf::from(std::env::var_os("FF_SIM_DATA").expect("FF_SIM_DATA"));
    let path = data.join("b-series/2019-07-14-00-00-00-consensus.xz");
    let (network, _) =
        ff_archives::source::network(&path, &mut Inputs::default()).expect("a consensus");
    let factors = Weights::of(&Sums::of(&network, 28), 10_000).expect("weights");
    let weight = |place: CircuitPlace, fits: fn(Position) -> bool| -> Vec<f64> {
        let of = |relay: &Relay| {
            let position = relay.position();
            if fits(position) { relay.weight * factors.factor(place, position) } else { 0.0 }
        };
        network.relays.iter().map(of).collect()
    };
    let first = weight(CircuitPlace::Guard, |position| {
        matches!(position, Position::Guard | Position::GuardExit)
    });
    let last = weight(CircuitPlace::Exit, |position| {
        matches!(position, Position::Exit | Position::GuardExit)
    });
    let mut rng = random();
    let all = drawn(&[first, last], 1_000_000, &mut rng);
    let whole = Whole::of(&all);
    let full = published(&all, &whole);
    eprintln!("all {full:?}, {whole:?}");
    for (keep, times, gini) in
        [(1_000_000, 1.0, 0.307), (800_000, 0.808, 0.331), (500_000, 0.514, 0.388)]
    {
        let part = keep as f64 / 1e6;
        let found = thinned(&all, keep, &whole, &mut rng);
        let fair = corrected(&all[..keep], 500_000, &whole, &mut rng);
        eprintln!(
            "{part}: entropy x{:.3}, Gini {:.3}; {fair:?}",
            found.entropy / full.entropy,
            found.gini
        );
        assert!((found.entropy / full.entropy - times).abs() < 0.003, "{found:?}");
        assert!((found.gini - gini).abs() < 0.012, "{found:?}");
        assert!((fair.gini - 0.597).abs() < 0.01, "{fair:?}");
    }
    let few = &all[..100_000];
    let (whole, third) = (Whole::of(few), 33_333);
    let times = thinned(few, third, &whole, &mut rng).entropy / published(few, &whole).entropy;
    eprintln!("a third of 100,000: x{times:.3}");
    assert!((times - 0.337).abs() < 0.004, "{times}");
}
