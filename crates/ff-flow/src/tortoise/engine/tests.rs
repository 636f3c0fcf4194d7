//! Tests of the simulation, by hand and by invariants.

use super::*;
use crate::fill::NO_RELAY;
use crate::tortoise::PAYLOAD;
use crate::tortoise::bucket::LinkLimit;
use crate::tortoise::experiment::{Cell, Runners, TortoiseSetting};
use crate::tortoise::rules::{FIRST_BYTE_SECS, Rules};
use crate::tortoise::world::TortoiseRelay;

/// A fine grain, for times that are computed by hand.
const FINE_SECS: f64 = 1e-3;

/// Equally likely relays on machines of their own, and clients.
fn world(rates: &[f64], clients: Vec<TortoiseClient>, limit: Option<LinkLimit>) -> World {
    let relay = |at: u32| TortoiseRelay { hops: [at, NO_RELAY], limits: true };
    let (capacities, sums) = (rates.to_vec(), (0_u32..).map(|at| f64::from(at) + 1.0));
    World {
        capacities,
        relays: (0_u32..).take(rates.len()).map(relay).collect(),
        sums: sums.take(rates.len()).collect(),
        clients,
        limit,
        rules: Rules::Paper,
        seed: 5,
    }
}

/// A client with a line of `down` bytes per second.
fn client(kind: UserKind, down: f64, stream: u64) -> TortoiseClient {
    TortoiseClient { kind, down, line: NO_RELAY, relay: None, links: 1, stream }
}

/// Sizes and durations in seconds of the first transfers of the first client.
fn transfers(world: &World, count: usize) -> Vec<(f64, f64)> {
    let mut engine = Engine::new(world, 0.0, 1e5, FINE_SECS);
    let (mut found, mut rates) = (Vec::new(), 0.0);
    while found.len() < count {
        engine.step();
        let seen = engine.outcome.clients[0];
        if seen.rates > rates {
            // A step begins transfers before it ends any, so the size is still that of the one that
            // ended.
            let size = engine.users[0].size;
            found.push((size, size / (seen.rates - rates)));
            rates = seen.rates;
        }
    }
    found
}

/// Asserts that two numbers agree within a part of the second.
fn assert_near(found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() < part, "{found}, not {expected}");
}

#[test]
fn a_transfer_takes_its_bytes_over_its_line() {
    let world = world(&[1e9], vec![client(UserKind::Bulk, 4e5, 1)], None);
    for (size, secs) in transfers(&world, 5) {
        assert_near(secs, FIRST_BYTE_SECS + size / PAYLOAD / 4e5, 1e-3);
    }
}

#[test]
fn a_limited_transfer_takes_what_the_bucket_does_not_hold_at_the_limit() {
    for (rate, burst) in [(1e5, 1e5), (1e5, 3e5), (2e5, 1e6), (3e5, 1e4), (5e5, 1e4)] {
        let limit = Some(LinkLimit { rate, burst });
        let world = world(&[1e9], vec![client(UserKind::Bulk, 4e5, 1)], limit);
        let found = transfers(&world, 4);
        let secs_of = |size: f64, tokens: f64| {
            let bytes = size / PAYLOAD;
            FIRST_BYTE_SECS + (bytes / 4e5).max((bytes - tokens) / rate)
        };
        assert_near(found[0].1, secs_of(found[0].0, burst), 2e-3);
        // The next transfer finds the tokens that arrived before its first byte: all others are
        // used, unless the line is slower.
        for &(size, secs) in found[1..].iter().filter(|_| burst < 1e6) {
            assert_near(secs, secs_of(size, (rate * FIRST_BYTE_SECS).min(burst)), 2e-3);
        }
    }
}

#[test]
fn a_relay_is_shared_evenly_and_used_whole() {
    let clients = vec![client(UserKind::Bulk, 1e6, 1), client(UserKind::Bulk, 1e6, 2)];
    let outcome = simulate(&world(&[1e5], clients, None), 100, 4_000);
    assert!((0.985..=1.0 + 1e-9).contains(&outcome.used), "{}", outcome.used);
    for seen in &outcome.clients {
        assert_near(seen.rate().expect("it has transfers"), 5e4 * PAYLOAD, 0.02);
    }
}

#[test]
fn what_a_client_forwards_takes_from_its_own_line() {
    // Client 0 runs relay 1, which forwards 80 kB/s over a line of 100 kB/s; relay 0 has enough
    // capacity. The runner's own circuits go through relay 0 only, those of the other client
    // through both.
    let limit = LinkLimit { rate: 1e9, burst: 1e9 };
    let runner = TortoiseClient { line: 1, relay: Some(1), ..client(UserKind::Bulk, 1e5, 1) };
    let other = client(UserKind::Bulk, 1e6, 2);
    let mut both = world(&[1e9], vec![runner, other], Some(limit));
    both.capacities.extend([1e5, 8e4]);
    both.relays.push(TortoiseRelay { hops: [2, 1], limits: true });
    both.sums.push(2.0);
    let outcome = simulate(&both, 100, 4_000);
    for seen in &outcome.clients {
        assert_near(seen.rate().expect("it has transfers"), 5e4 * PAYLOAD, 0.02);
    }
    both.clients.pop();
    let alone = simulate(&both, 100, 4_000).clients[0].rate().expect("it has transfers");
    assert_near(alone, 1e5 * PAYLOAD, 0.02);
}

#[test]
fn links_to_several_relays_have_a_bucket_each() {
    let limit = LinkLimit { rate: 2e4, burst: 2e4 };
    for (links, down, expected) in [(1, 1e6, 2e4), (2, 1e6, 4e4), (5, 1e6, 1e5), (5, 7e4, 7e4)] {
        let clients = vec![TortoiseClient { line: 6, links, ..client(UserKind::Bulk, down, 1) }];
        let mut world = world(&[1e9; 6], clients, Some(limit));
        world.capacities.push(down);
        let rate = simulate(&world, 100, 4_000).clients[0].rate().expect("it has transfers");
        assert_near(rate, expected * PAYLOAD, 0.03);
    }
}

/// A small network with client relays, and limits at some relays.
fn small(seed: u64, capacity: f64) -> World {
    let setting = TortoiseSetting { scale: 0.1, burst_secs: 1.0, warm_up_secs: 0, secs: 0 };
    let cell =
        Cell { limit_kb: Some(50), runners: Runners::High, is_half: seed == 2, ..Cell::BASE };
    World::draw(&Cell { links: 2, ..cell }, &setting, capacity, seed)
}

#[test]
fn no_link_carries_more_than_it_can_and_no_bucket_gives_what_it_has_not() {
    for (seed, grain) in [(1, GRAIN_SECS), (2, 1.0), (3, 0.01)] {
        let world = small(seed, 2e6);
        let mut engine = Engine::new(&world, 0.0, 300.0, grain);
        while !engine.is_over() {
            let before = engine.now;
            engine.step();
            let mut loads = vec![0.0; world.capacities.len()];
            for (flow, &rate) in engine.rates.iter().enumerate() {
                for hop in engine.flows.path(flow).expect("a flow") {
                    if let Some(load) = loads.get_mut(hop as usize) {
                        *load += rate;
                    }
                }
            }
            for (load, capacity) in loads.iter().zip(&world.capacities) {
                assert!(*load <= capacity * (1.0 + 1e-9), "{load} over {capacity}");
            }
            for (carried, capacity) in engine.carried.iter().zip(&world.capacities) {
                assert!(*carried <= capacity * engine.now * (1.0 + 1e-9));
            }
            assert!(engine.now > before && engine.now <= 300.0);
        }
        assert!(engine.outcome.clients.iter().any(|seen| seen.transfers > 0));
    }
    // In any interval a link passes at most its burst and the tokens that arrived.
    let limit = LinkLimit { rate: 3e4, burst: 9e4 };
    let world = world(&[1e9], vec![client(UserKind::Web, 1e6, 4)], Some(limit));
    let mut engine = Engine::new(&world, 0.0, 3_000.0, GRAIN_SECS);
    while !engine.is_over() {
        engine.step();
        assert!(engine.carried[0] <= 9e4 + 3e4 * engine.now + 1e-3, "at {}", engine.now);
        let buckets = engine.users.iter().flat_map(|user| &user.links);
        for bucket in buckets.filter_map(|link| link.bucket) {
            assert!((0.0..=9e4).contains(&bucket.tokens()), "{bucket:?}");
        }
    }
    assert!(engine.outcome.clients[0].transfers > 10);
}

#[test]
fn users_wait_for_their_page_before_they_ask_again() {
    let world = small(1, 2e6);
    let mut engine = Engine::new(&world, 0.0, 300.0, GRAIN_SECS);
    while !engine.is_over() {
        engine.step();
        let waiting = engine.users.iter().filter(|user| user.waiting > 0).count();
        assert_eq!(engine.timers.len() + waiting, world.clients.len(), "each does one thing");
        assert!(engine.users.iter().all(|user| user.waiting <= usize::from(user.client.links)));
        assert_eq!(
            engine.users.iter().map(|user| user.waiting).sum::<usize>(),
            engine.active.len()
        );
    }
    // So in a slow network they request less, and get as much as it carries.
    let pages = |capacity| simulate(&small(1, capacity), 60, 1_200).asked.sizes[0].count;
    let (fast, slow) = (pages(4e6), pages(5e5));
    assert!(slow < 0.8 * fast && slow > 0.0, "{slow}, {fast}");
}

#[test]
fn the_same_seed_gives_the_same_and_another_does_not() {
    let outcome = |seed| simulate(&small(seed, 2e6), 60, 600);
    assert!(outcome(1) == outcome(1));
    assert!(outcome(1) != outcome(3));
}
