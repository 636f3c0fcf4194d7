//! Tests of small simulations.

use ff_archives::network::{Flags, Relay};
use ff_proto::units::BytesPerSec;

use super::*;
use crate::{
    fill::{MaxMin, QuietFirst},
    path::Factors,
    tmodel::Model,
};

/// A network of `of_each` relays of each class g, m and e, each with this capacity.
fn network(of_each: u8, bytes_per_sec: u64) -> Network {
    let relay = |index: u8| Relay {
        fingerprint: [index; 20],
        addresses: vec![[index, 1, 0, 1].into()],
        flags: Flags { guard: index.is_multiple_of(3), exit: index % 3 == 2, ..Flags::default() },
        capacity: Some(BytesPerSec::new(bytes_per_sec)),
        weight: 1.0,
        ..Relay::default()
    };
    Network { relays: (0..3 * of_each).map(relay).collect(), ..Network::default() }
}

/// A sample of users' circuits.
fn library(circuits: usize) -> Library {
    library_by_tick(circuits, 0.1)
}

/// The same with ticks of `tick_secs` seconds.
fn library_by_tick(circuits: usize, tick_secs: f64) -> Library {
    let streams = include_bytes!("../../../ff-archives/tests/data/flow-tmodel-stream.json");
    let packets = include_bytes!("../../../ff-archives/tests/data/flow-tmodel-packet.json");
    let read = |text: &[u8]| Model::read(text).expect("a model");
    Library::sample(&read(streams), &read(packets), circuits, tick_secs, &mut sequence(1, 9))
}

/// Ten minutes with this number of circuits.
fn config(circuits_per_10_min: f64) -> FlowConfig {
    FlowConfig {
        circuits_per_10_min,
        user_clients: 40,
        perf_clients: 40,
        warm_up_secs: 120,
        secs: 480,
        ..FlowConfig::default()
    }
}

/// Simulates with equal weights.
fn simulate(
    network: &Network,
    library: &Library,
    share: &mut dyn Share,
    c: &FlowConfig,
) -> FlowOutcome {
    let weights = vec![1.0; network.relays.len()];
    let factors =
        Factors { guard: [1.0, 0.0, 0.0, 0.0], middle: [0.0, 1.0, 0.0, 0.0], exit: [1.0; 4] };
    run(network, &Paths::new(network, &weights, &factors), library, share, c).expect("it runs")
}

#[test]
fn in_an_empty_network_no_tick_is_so_long_that_downloads_time_out() {
    for tick_secs in [0.1, 10.0] {
        let library = library_by_tick(1, tick_secs);
        let found =
            simulate(&network(4, 100_000_000), &library, &mut MaxMin::default(), &config(0.0));
        assert_eq!(found.summary().timeouts[0], Some(0.0), "ticks of {tick_secs} s");
    }
}

#[test]
fn an_empty_network_is_as_fast_as_round_trips_allow() {
    let (network, mut c) = (network(4, 100_000_000), config(0.0));
    c.constants.hop_p5_secs = c.constants.hop_median_secs;
    c.constants.queue_secs = 0.0;
    let trip = 4.0 * c.constants.hop_median_secs * c.constants.hop_scale;
    let found = simulate(&network, &library(1), &mut MaxMin::default(), &c).summary();
    let first = found.first_secs.expect("downloads");
    let first_byte = trip + c.constants.server_secs;
    assert!((first / first_byte - 1.0).abs() < 0.2, "{found:?}, {first_byte}");
    // 5 MiB at no more than 500 cells per round trip, and at that rate after slow start.
    let least = 5_242_880.0 / (500.0 * 498.0) * trip + first_byte;
    let slow_start = 6.0 * c.constants.ramp * trip;
    let last = found.last_secs[2].expect("downloads of 5 MiB");
    assert!(last > least && last < least + slow_start, "{found:?}, {least}");
    assert_eq!(found.timeouts, [Some(0.0); 4], "{found:?}");
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn relays_carry_what_users_ask_for() {
    let (library, c) = (library(500), config(1_000.0));
    let mut users = FlowConfig { perf_clients: 0, warm_up_secs: 360, ..c };
    users.secs = 1_440;
    let outcome = simulate(&network(4, 50_000_000), &library, &mut MaxMin::default(), &users);
    let asked = library.mean_bytes() * 1_000.0 / 600.0 * 3.0 * CELL.0 / CELL.1;
    let carried = outcome.throughput.iter().sum::<f64>() / outcome.throughput.len() as f64;
    assert_eq!(outcome.throughput.len(), 1_440);
    assert!((carried / asked - 1.0).abs() < 0.12, "{carried} of {asked}");
    let used: f64 = outcome.utilisation.iter().sum::<f64>() * 50_000_000.0 * c.constants.for_cells;
    assert!((used / carried - 1.0).abs() < 1e-9, "{used}, {carried}");
}

#[test]
fn more_load_takes_more_time_and_the_same_seed_the_same() {
    let (network, library) = (network(3, 1_500_000), library(300));
    let at = |load: f64| {
        let mut share = MaxMin::default();
        simulate(&network, &library, &mut share, &config(load))
    };
    let (low, high) = (at(100.0), at(500.0));
    let (a, b) = (low.summary(), high.summary());
    assert!(b.first_secs > a.first_secs && b.last_secs[1] > a.last_secs[1], "{a:?}, {b:?}");
    assert!(b.gbit > a.gbit && high.utilisation.iter().all(|part| (0.0..=1.0).contains(part)));
    assert_eq!(low, at(100.0));
    // If no bytes wait at relays, only the rule matters.
    let mut c = config(900.0);
    c.constants.held_scale = 0.0;
    let [equal, quiet]: [&mut dyn Share; 2] = [&mut MaxMin::default(), &mut QuietFirst::default()];
    let [equal, quiet] =
        [equal, quiet].map(|share| simulate(&network, &library, share, &c).summary());
    assert!(quiet.last_secs[0] < equal.last_secs[0], "small downloads gain: {quiet:?}, {equal:?}");
}

#[test]
fn odd_configurations_are_errors_and_odd_networks_are_empty() {
    let (network, library) = (network(3, 0), library(20));
    let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
    let paths = Paths::new(&network, &[1.0; 9], &factors);
    let fails = |change: fn(&mut FlowConfig)| {
        let mut c = config(10.0);
        change(&mut c);
        run(&network, &paths, &library, &mut MaxMin::default(), &c).is_err()
    };
    assert!(fails(|c| c.constants.ramp = f64::NAN) && fails(|c| c.constants.for_cells = 0.0));
    assert!(fails(|c| c.circuits_per_10_min = -1.0) && fails(|c| c.secs = 0));
    assert!(fails(|c| c.warm_up_secs = u32::MAX) && fails(|c| c.perf_clients = u32::MAX));
    assert!(fails(|c| c.constants.queue_secs = f64::INFINITY));
    // Relays without capacity: all downloads time out, and users give up.
    let outcome = simulate(&network, &library, &mut MaxMin::default(), &config(50.0));
    let found = outcome.summary();
    assert!(found.timeouts[0] == Some(1.0) && outcome.given_up_bytes > 0.0);
    assert_eq!(
        (found.first_secs, found.last_secs),
        (None, [None; 3]),
        "no time is none, and not 0"
    );
    let nobody = simulate(&Network::default(), &library, &mut MaxMin::default(), &config(50.0));
    assert!(nobody.downloads.is_empty() && nobody.without_path > 0);
}

#[test]
fn a_step_costs_what_changes_and_not_what_exists() {
    let (library, c) = (library(300), config(300.0));
    let small = network(4, 20_000_000);
    let weights = vec![1.0; small.relays.len()];
    // The same relays, and two thousand that are never chosen.
    let mut large = small.clone();
    large.relays.extend((0..2_000_u32).map(|index| {
        let [.., a, b] = index.to_be_bytes();
        Relay { fingerprint: [9, a, b].repeat(7)[..20].try_into().expect("20"), ..Relay::default() }
    }));
    let run = |network: &Network, circuits: f64, perf_clients: u32| {
        let config = FlowConfig { circuits_per_10_min: circuits, perf_clients, ..c.clone() };
        let paths = Paths::new(network, &weights, &Factors::of(network, &weights));
        let mut share = MaxMin::default();
        super::run(network, &paths, &library, &mut share, &config).expect("it runs")
    };
    let (few, many) = (run(&small, 300.0, 40), run(&large, 300.0, 40));
    assert!(few.work > 100_000, "{}", few.work);
    assert_eq!(few.work, many.work, "relays at rest cost nothing");
    assert_eq!(few.downloads, many.downloads);
    assert_eq!(run(&large, 0.0, 0).work, 0, "a network that nobody uses costs nothing");
}

#[test]
fn who_looks_on_sees_seconds_and_measures_relays() {
    /// Sums up bytes, and measures the same two relays repeatedly.
    #[derive(Default)]
    struct Eyes(u32, f64, Vec<f64>);
    impl Watch for Eyes {
        fn second(&mut self, second: u32, carried: &[f64]) -> Option<Paths> {
            assert_eq!(second, self.0);
            self.0 += 1;
            self.1 += carried.iter().sum::<f64>();
            None
        }

        fn next_probe(&mut self) -> Option<Pair> {
            Some(Pair { relays: [0, 2], measured: 2 })
        }

        fn probed(&mut self, pair: Pair, bytes_per_sec: f64) {
            assert_eq!(pair.relays, [0, 2]);
            self.2.push(bytes_per_sec);
        }
    }
    let network = network(4, 1_000_000);
    let weights = vec![1.0; network.relays.len()];
    let paths = Paths::new(&network, &weights, &Factors::of(&network, &weights));
    let c = FlowConfig { probes: 2, perf_clients: 0, warm_up_secs: 0, secs: 60, ..config(0.0) };
    let (mut eyes, library, mut share) = (Eyes::default(), library(1), MaxMin::default());
    run_watched(&network, &paths, &library, &mut share, &c, &mut eyes).expect("it runs");
    assert_eq!(eyes.0, 60);
    assert!(eyes.2.len() > 12, "{}", eyes.2.len());
    // Two probes at a time share a relay of 1 MB/s.
    let mean = eyes.2.iter().sum::<f64>() / f64::from(u32::try_from(eyes.2.len()).expect("few"));
    assert!((300_000.0..600_000.0).contains(&mean), "{mean}: {:?}", eyes.2);
    // Both relays are always busy, except during the round trips before first bytes.
    assert!(eyes.1 > 60.0 * 1_000_000.0 && eyes.1 < 60.0 * 2_000_000.0, "{}", eyes.1);
}

#[test]
fn a_measurement_that_gets_no_byte_is_given_up() {
    /// Measures the same two relays repeatedly.
    #[derive(Default)]
    struct Asks {
        /// The number of probes started.
        asked: u32,
        /// The number of probes with a result.
        found: u32,
    }
    impl Watch for Asks {
        fn second(&mut self, _: u32, _: &[f64]) -> Option<Paths> {
            None
        }

        fn next_probe(&mut self) -> Option<Pair> {
            self.asked += 1;
            Some(Pair { relays: [0, 2], measured: 2 })
        }

        fn probed(&mut self, _: Pair, _: f64) {
            self.found += 1;
        }
    }
    let library = library(300);
    let asks = |bytes_per_sec: u64| {
        let network = network(1, bytes_per_sec);
        let weights = vec![1.0; network.relays.len()];
        let paths = Paths::new(&network, &weights, &Factors::of(&network, &weights));
        let c =
            FlowConfig { probes: 1, perf_clients: 0, warm_up_secs: 0, secs: 600, ..config(900.0) };
        let mut asks = Asks::default();
        run_watched(&network, &paths, &library, &mut MaxMin::default(), &c, &mut asks)
            .expect("it runs");
        asks
    };
    let (free, full) = (asks(1_000_000_000), asks(300_000));
    // Each takes five seconds and the time to the first byte.
    assert!(free.asked > 90 && free.found + 1 >= free.asked, "{} of {}", free.found, free.asked);
    // Each takes ten seconds at a relay that is mostly full; then its place is free again.
    assert!(full.asked > 50 && full.found < full.asked / 2, "{} of {}", full.found, full.asked);
}
