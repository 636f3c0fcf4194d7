//! The service, as it will run: coordinators and measurers as processes of their own, a network of C tors, and
//! authorities that vote with what is published.
//!
//! All authorities vote with the first coordinator's files; a consensus has a measured weight where three
//! authorities have one. All relays are on one address here, so they are one machine to
//! FlashFlow, and measured at the same time.

mod periods;
mod processes;

use std::path::Path;
use std::time::{Duration, Instant};

use ff_bwauth::store::Seconds;
use ff_lab::{Network, RelayConfig, RelayStatus, relay_statuses};

use self::processes::{Coordinator, PERIOD_SECS};
use crate::support::{among_others, ff_tor};

/// What the relays are limited to, in Mbit/s; the last one is the exit. They also are the directory of a network that has
/// a consensus every few seconds, which takes up to 80 kB/s of one of them and is no traffic of clients: that is little of
/// these. And each has an eighth of a team of 400 Mbit/s, which is enough for 17.
const RELAYS_MBIT: [(&str, u64); 5] =
    [("m8", 8), ("m10", 10), ("m12", 12), ("m14", 14), ("exit16", 16)];
/// What the measurers of each coordinator are said to carry. All relays here are one machine, which needs more
/// than a team has and so gets all of the greatest one: the other must be as great.
const TEAMS: [&[&str]; 2] = [&["200Mbit", "200Mbit"], &["400Mbit"]];
/// What the authorities are limited to: they are measured, too, and without a limit would take all CPU meanwhile.
const AUTHORITY_LIMIT: &str = "BandwidthRate 1250000 bytes\nBandwidthBurst 1250000 bytes";
/// Seconds of a measurement. All relays are measured at the same time, and an estimate is the median of seconds: a machine
/// that stands still in one or two of them does not change it.
const MEASURE_SECS: u64 = 5;
/// From the network's start to a consensus with everybody's weight.
const PATIENCE: Duration = Duration::from_secs(240);

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn authorities_vote_with_what_a_service_of_many_processes_publishes() {
    let _traffic = among_others();
    let dir = tempfile::tempdir().expect("a directory");
    let one = Coordinator::new(dir.path().join("one"), None);
    let two = Coordinator::new(dir.path().join("two"), Some(&one.dir.join("schedule.secret")));
    let network = start_network(&[&one, &two], dir.path());
    let (_first, first) = one.start_measurers(TEAMS[0]);
    let (_second, second) = two.start_measurers(TEAMS[1]);
    one.configure(&network, &first, &two, TEAMS[1], MEASURE_SECS);
    two.configure(&network, &second, &one, TEAMS[0], MEASURE_SECS);
    let begin = Instant::now();
    let mut running = vec![one.run().0, two.run().0];
    // One is killed in the middle and started again: nobody is asked twice for it.
    std::thread::sleep(Duration::from_secs(PERIOD_SECS / 2));
    drop(running.remove(0));
    running.push(one.run().0);
    let consensus = network.wait_for_consensus(|text| has_all(text, &network), PATIENCE);
    let consensus = consensus.expect("a consensus with everybody's weight");
    eprintln!("all have weights after {:.0?}", begin.elapsed());
    for attempt in one.attempts(Seconds::With) {
        let one = attempt.outcome;
        eprintln!("{:?}: {:?}, {:?}", one.target.nickname, one.result, one.seconds);
    }
    assert_weights(&consensus);
    for coordinator in [&one, &two] {
        // One may have its slot later than the other, and what is published comes from the first.
        let late = Instant::now() + PATIENCE;
        let asked = || -> Vec<_> {
            let attempts = coordinator.attempts(Seconds::Without).into_iter();
            attempts.map(|one| (one.slot.map(|(period, _)| period), one.fingerprint)).collect()
        };
        while asked().is_empty() && Instant::now() < late {
            std::thread::sleep(Duration::from_secs(1));
        }
        let asked = asked();
        let times = |one: &_| asked.iter().filter(|other| *other == one).count();
        // Once, and again if that was not conclusive.
        assert!(asked.iter().map(times).max().is_some_and(|most| most <= 2), "{asked:?}");
    }
}

/// Starts the network: each authority reads one coordinator's file.
fn start_network(coordinators: &[&Coordinator; 2], dir: &Path) -> Network {
    let allowed: Vec<_> = coordinators.iter().map(|one| one.identity.as_str()).collect();
    // All authorities have one setting, and the first coordinator's files: those of the second are checked
    // by the tests of demo --network.
    let file = coordinators[0].dir.join("v3bw/latest.v3bw");
    let builder = Network::builder()
        .tor(ff_tor())
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFAllowedCoordinators {}", allowed.join(",")))
        .torrc("CountPrivateBandwidth 1")
        .authorities(3)
        .authority_torrc(AUTHORITY_LIMIT)
        .authority_torrc(format!("V3BandwidthsFile {}", file.display()));
    let relay = |&(name, mbit): &(&str, u64)| {
        let exit = name.starts_with("exit");
        RelayConfig { exit, ..RelayConfig::middle(name) }.bandwidth_rate(mbit * 125_000)
    };
    let network = RELAYS_MBIT.iter().map(relay).fold(builder, ff_lab::NetworkBuilder::relay);
    let network = network.start().expect("a network");
    eprintln!("the network in {} was ready after {:.1?}", dir.display(), network.start_time());
    network
}

/// Whether all relays but the authorities have a measured weight.
fn has_all(consensus: &str, network: &Network) -> bool {
    let relays = relay_statuses(consensus);
    let is_measured = |relay: &RelayStatus| !relay.weights.contains_key("Unmeasured");
    let others = relays.iter().filter(|relay| !relay.has_flag("Authority"));
    others.clone().count() == network.relays().count() && others.clone().all(is_measured)
}

/// Fails unless weights are in proportion to the limits.
fn assert_weights(consensus: &str) {
    let mut ratios = Vec::new();
    for relay in relay_statuses(consensus).iter().filter(|relay| !relay.has_flag("Authority")) {
        let limit = RELAYS_MBIT.iter().find(|(name, _)| *name == relay.nickname);
        let limit = limit.expect("a relay of the network").1;
        let weight = u32::try_from(relay.weights["Bandwidth"]).expect("a small weight");
        eprintln!("{:>7} {limit:>3} Mbit/s, weight {weight}", relay.nickname);
        ratios.push(f64::from(weight) / f64::from(u32::try_from(limit).expect("a small limit")));
    }
    let (least, most) = (
        ratios.iter().copied().fold(f64::MAX, f64::min),
        ratios.iter().copied().fold(f64::MIN, f64::max),
    );
    assert!(most / least < 1.15, "{ratios:?}");
}
