//! Compares paths with probabilities that are computed separately.

use ff_archives::network::Flags;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::*;
use crate::chance;
use crate::fit::good::chi_square_above;

/// Twelve relays: every second a guard, every third an exit, pairs in a /16, one stopped.
fn network() -> Network {
    let relay = |i: u8| Relay {
        fingerprint: [i; 20],
        addresses: vec![[10, i / 2, 0, i].into()],
        flags: Flags {
            guard: i.is_multiple_of(2),
            exit: i.is_multiple_of(3),
            running: i != 11,
            ..Flags::default()
        },
        weight: f64::from(i + 1) * 200.0,
        ..Relay::default()
    };
    let mut relays: Vec<Relay> = (0..12).map(relay).collect();
    relays[4].family = vec![[9; 20]];
    relays[9].family = vec![[4; 20]];
    Network { relays, ..Network::default() }
}

/// The probability that draws with these probabilities deviate at least as much.
fn p(found: &[f64], chances: &[f64]) -> f64 {
    let draws: f64 = found.iter().sum();
    let pairs = found.iter().zip(chances).filter(|(_, chance)| **chance > 0.0);
    let terms: Vec<f64> =
        pairs.map(|(found, chance)| (found - draws * chance).powi(2) / (draws * chance)).collect();
    assert!(found.iter().zip(chances).all(|(found, chance)| *chance > 0.0 || *found == 0.0));
    chi_square_above(terms.iter().sum(), terms.len() as f64 - 1.0)
}

/// The exact probability of each path of three: the exit from all relays, then the guard from the
/// remaining ones, then the middle.
fn exact(network: &Network, lines: [Vec<f64>; 3], subnets: bool) -> Vec<f64> {
    let meet = |a: usize, b: usize| {
        let family = (a.min(b), a.max(b)) == (4, 9);
        a != b && !family && !(subnets && a / 2 == b / 2)
    };
    let n = network.relays.len();
    let total = |line: &[f64], with: &dyn Fn(usize) -> bool| -> f64 {
        (0..n).filter(|&one| with(one)).map(|one| line[one]).sum()
    };
    let [guards, middles, exits] = lines;
    let mut chances = vec![0.0; n * n * n];
    for e in 0..n {
        for g in (0..n).filter(|&g| meet(g, e)) {
            for m in (0..n).filter(|&m| meet(m, e) && meet(m, g)) {
                chances[(g * n + m) * n + e] = exits[e] / total(&exits, &|_| true) * guards[g]
                    / total(&guards, &|one| meet(one, e))
                    * middles[m]
                    / total(&middles, &|one| meet(one, e) && meet(one, g));
            }
        }
    }
    chances
}

/// Weights of running relays with a property.
fn line(network: &Network, of: impl Fn(usize, &Relay) -> f64) -> Vec<f64> {
    let relays = network.relays.iter().enumerate();
    relays.map(|(i, relay)| if relay.flags.running { of(i, relay) } else { 0.0 }).collect()
}

#[test]
fn paths_come_as_often_as_the_rules_say() {
    let (network, mut rng, draws) = (network(), chance::generator(), 300_000);
    let factors = Factors::of(&network, &line(&network, |_, relay| relay.weight));
    let class = |relay: &Relay| match (relay.flags.guard, relay.flags.exit) {
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2,
        (true, true) => 3,
    };
    let by = |factors: [f64; 4]| line(&network, |_, relay| relay.weight * factors[class(relay)]);
    let only = |line: Vec<f64>, is_for: fn(&Relay) -> bool| -> Vec<f64> {
        let pairs = line.into_iter().zip(&network.relays);
        pairs.map(|(one, relay)| if is_for(relay) { one } else { 0.0 }).collect()
    };
    let even = || line(&network, |_, _| 1.0);
    let heavy = || line(&network, |_, relay| relay.weight);
    let clipped = || line(&network, |_, relay| relay.weight.min(OLD_CLIP));
    let exit = |relay: &Relay| relay.flags.exit;
    let guard = |relay: &Relay| relay.flags.guard;
    for (rules, lines, subnets) in [
        (
            Rules::Tor,
            [only(by(factors.guard), guard), by(factors.middle), only(by(factors.exit), exit)],
            true,
        ),
        (Rules::Weighted, [only(heavy(), guard), heavy(), only(heavy(), exit)], true),
        (Rules::Uniform, [even(), even(), only(even(), exit)], true),
        (Rules::Old, [only(even(), guard), clipped(), only(clipped(), exit)], false),
    ] {
        let pool = Pool::from(network.clone());
        let mut generator = Generator::new(&pool, &choice(rules), &mut rng).expect("paths");
        let mut found = vec![0.0; 12 * 12 * 12];
        for _ in 0..draws {
            let path = generator.draw(&mut rng).expect("a path");
            let [g, m, e] = path[..] else { panic!("three: {path:?}") };
            found[((g * 12 + m) * 12 + e) as usize] += 1.0;
        }
        let p = p(&found, &exact(&network, lines, subnets));
        assert!(p > 1e-4, "{rules:?}: p {p}");
    }
}

/// Options for paths of three by these rules.
fn choice(rules: Rules) -> Choice {
    let lengths = Lengths::new(&[(3, 1.0)]).expect("lengths");
    Choice { rules, lengths, guards: 0, any_subnet: false, port: 443 }
}

#[test]
fn lengths_and_guards_are_those_that_were_asked_for() {
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    let lengths = Lengths::new(&[(2, 1.0), (4, 3.0)]).expect("lengths");
    let choice = Choice { lengths, guards: 2, any_subnet: true, ..choice(Rules::Tor) };
    let mut generator = Generator::new(&network().into(), &choice, &mut rng).expect("paths");
    let (mut short, mut guards) = (0, std::collections::BTreeMap::<u32, u32>::new());
    for _ in 0..4000 {
        let path = generator.draw(&mut rng).expect("a path");
        short += i32::from(path.len() == 2);
        assert!(path.len() == 2 || path.len() == 4);
        *guards.entry(path[0]).or_default() += 1;
    }
    // A third guard replaces the two if neither can be with the exit.
    let mut often: Vec<u32> = guards.into_values().collect();
    often.sort_unstable_by(|a, b| b.cmp(a));
    assert!(
        often.len() <= 4 && often[1] > 1000 && often[2..].iter().sum::<u32>() < 1000,
        "{often:?}"
    );
    assert!((700..1300).contains(&short), "{short}");
    for odd in [&[][..], &[(0, 1.0)], &[(9, 1.0)], &[(3, 0.0)], &[(3, f64::NAN)], &[(3, -1.0)]] {
        assert_eq!(Lengths::new(odd).err(), Some(NoLengths), "{odd:?}");
    }
}

#[test]
fn the_footers_weights_count_and_not_computed_ones() {
    let (mut rng, mut pool) = (ChaCha12Rng::seed_from_u64(4), Pool::from(network()));
    // Exits have no weight in the middle, and guards that are exits none at the end.
    pool.factors = Some(Factors {
        guard: [1.0, 1.0, 0.0, 1.0],
        middle: [1.0, 1.0, 0.0, 0.0],
        exit: [0.0, 0.0, 1.0, 0.0],
    });
    let mut generator = Generator::new(&pool, &choice(Rules::Tor), &mut rng).expect("paths");
    for _ in 0..2000 {
        let path = generator.draw(&mut rng).expect("a path");
        assert!([3, 9].contains(&path[2]) && !path[1].is_multiple_of(3), "{path:?}");
    }
}

#[test]
fn exits_let_the_port_out_and_relays_have_the_flags() {
    let (mut rng, mut pool) = (ChaCha12Rng::seed_from_u64(5), Pool::from(network()));
    let policy = |relay| if relay == 5 { "accept 443" } else { "reject 443" };
    pool.policies = Some((0..12).map(|one| policy(one).parse().expect("a policy")).collect());
    pool.network.relays[6].flags.bad_exit = true;
    for relay in [0, 2, 3, 5, 6, 8, 9] {
        pool.network.relays[relay].flags.fast = true;
        pool.network.relays[relay].flags.stable = relay < 3;
    }
    let draw = |pool: &Pool, choice: &Choice, rng: &mut ChaCha12Rng| {
        let mut generator = Generator::new(pool, choice, rng)?;
        Ok((0..500).map(|_| generator.draw(rng).expect("a path")).collect::<Vec<_>>())
    };
    for path in draw(&pool, &choice(Rules::Tor), &mut rng).expect("paths") {
        assert!(path[2] == 5 && path[0] < 3, "one lets 443 out, without the flag: {path:?}");
        assert!([0, 2, 3, 6, 8, 9].contains(&path[1]), "{path:?}");
    }
    let other = Choice { port: 80, ..choice(Rules::Tor) };
    let paths = draw(&pool, &other, &mut rng).expect("paths");
    assert!(paths.iter().all(|path| path[2] != 5 && path[2] != 6));
    pool.policies = Some((0..12).map(|_| "reject 1-65535".parse().expect("one")).collect());
    let error = draw(&pool, &other, &mut rng).expect_err("no exit");
    assert_eq!(error, NoPaths::Exit(80));
    // A mix is refused for any impossible length, however rare.
    pool.policies = None;
    let lengths = Lengths::new(&[(3, 1.0), (8, 1e-9)]).expect("lengths");
    pool.network.relays.truncate(7);
    let mixed = Choice { lengths, ..other.clone() };
    assert_eq!(draw(&pool, &mixed, &mut rng), Err(NoPaths::None(8)));
    // A path of one exit needs no guard.
    let lengths = Lengths::new(&[(1, 1.0)]).expect("lengths");
    let mut unguarded = pool.clone();
    unguarded.network.relays.iter_mut().for_each(|relay| relay.flags.guard = false);
    assert!(draw(&unguarded, &Choice { lengths, ..other.clone() }, &mut rng).is_ok());
    assert_eq!(draw(&unguarded, &other, &mut rng), Err(NoPaths::NoGuard));
    pool.network.relays.truncate(2);
    assert_eq!(draw(&pool, &other, &mut rng), Err(NoPaths::None(3)));
    pool.network.relays[0].flags.exit = false;
    assert_eq!(draw(&pool, &other, &mut rng), Err(NoPaths::NoExit));
}

#[test]
fn weights_are_asked_for_by_who_draws_by_them() {
    let mut rng = ChaCha12Rng::seed_from_u64(8);
    let mut pool = Pool::from(network());
    pool.network.relays.iter_mut().for_each(|relay| relay.weight = 0.0);
    let all = [Rules::Tor, Rules::Weighted, Rules::Old, Rules::Uniform];
    let mut refused =
        |pool: &Pool| all.map(|rules| Generator::new(pool, &choice(rules), &mut rng).err());
    // The relays of a private network without measurements: their weights are known, and 0.
    assert_eq!(refused(&pool), [None; 4]);
    pool.is_unweighted = true;
    let none = Some(NoPaths::NoWeights);
    assert_eq!(refused(&pool), [none, none, none, None]);
    // The tor of that time used the bandwidths that relays advertise.
    pool.network.relays[3].capacity = Some(ff_proto::units::BytesPerSec::new(1000));
    assert_eq!(refused(&pool), [none, none, None, None]);
}

#[test]
fn streams_that_last_want_relays_that_last_in_all_places() {
    let (mut rng, mut pool) = (ChaCha12Rng::seed_from_u64(6), Pool::from(network()));
    let any_subnet = true;
    let mut places = |pool: &Pool, rules, port| {
        let choice = Choice { port, any_subnet, ..choice(rules) };
        let mut generator = Generator::new(pool, &choice, &mut rng).expect("paths");
        let paths = (0..2000).flat_map(|_| generator.draw(&mut rng).expect("a path"));
        paths.collect::<std::collections::BTreeSet<u32>>()
    };
    let lasts = [0, 1, 2, 3, 7, 8, 9];
    // No relay has the flag, so it is not required.
    let all = places(&pool, Rules::Tor, 22);
    assert!(all.iter().any(|relay| !lasts.contains(relay)), "{all:?}");
    lasts.iter().for_each(|&relay| pool.network.relays[relay as usize].flags.stable = true);
    for port in LONG_LIVED {
        let drawn = places(&pool, Rules::Tor, port);
        assert!(drawn.iter().all(|relay| lasts.contains(relay)), "{port}: {drawn:?}");
    }
    for (rules, port) in [(Rules::Tor, 443), (Rules::Weighted, 22), (Rules::Old, 22)] {
        let drawn = places(&pool, rules, port);
        assert!(drawn.iter().any(|relay| !lasts.contains(relay)), "{rules:?}: {drawn:?}");
    }
    pool.network.relays.iter_mut().for_each(|relay| relay.flags.stable &= !relay.flags.exit);
    let choice = Choice { port: 22, ..choice(Rules::Tor) };
    assert_eq!(Generator::new(&pool, &choice, &mut rng).err(), Some(NoPaths::NoExit));
}
