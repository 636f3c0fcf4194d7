//! The service, as it will run: coordinators and measurers as processes of their own, a network of
//! C tors, and authorities that vote with what is published.
//!
//! All authorities vote with the first coordinator's files; a consensus has a measured weight where
//! three authorities have one. All relays are on one address here, so they are one machine to
//! FlashFlow, and measured at the same time.

mod periods;
mod processes;

use std::path::Path;
use std::time::{Duration, Instant};

use ff_lab::{Network, RelayStatus, relay_statuses};
use ff_store::{Attempt, Seconds};

use self::processes::{Coordinator, PERIOD_SECS};
use crate::support::meter::as_f64;
use crate::support::{among_others, measurable_network};

/// What the relays are limited to, in Mbit/s; the last one is the exit. They also are the directory
/// of a network that has a consensus every few seconds, which takes up to 80 kB/s of one of them
/// and is no traffic of clients: that is little of these. And each has an eighth of a team of 400
/// Mbit/s, which is enough for 17.
const RELAYS_MBIT: [(&str, u64); 5] =
    [("m8", 8), ("m10", 10), ("m12", 12), ("m14", 14), ("exit16", 16)];
/// What the measurers of each coordinator are said to carry. All relays here are one machine, which
/// needs more than a team has and so gets all of the greatest one: the other must be as great.
const TEAMS: [&[&str]; 2] = [&["200Mbit", "200Mbit"], &["400Mbit"]];
/// What the authorities are limited to: they are measured, too, and without a limit would take all
/// CPU meanwhile.
const AUTHORITY_LIMIT: &str = "BandwidthRate 1250000 bytes\nBandwidthBurst 1250000 bytes";
/// Seconds of a measurement. All relays are measured at the same time, and an estimate is the
/// median of seconds: a machine that stands still in one or two of them does not change it.
const MEASURE_SECS: u64 = 5;
/// From the network's start to a consensus with everybody's weight: what fails on a busy machine is
/// done again in the next period.
const PATIENCE: Duration = Duration::from_secs(900);
/// How far a weight may be from what its estimate leads to, for its kilobytes: by this part of it,
/// and by one.
const WEIGHT_TOLERANCE: f64 = 0.01;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn authorities_vote_with_what_a_service_of_many_processes_publishes() {
    let _others = among_others();
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
    consensus.expect("a consensus with everybody's weight");
    eprintln!("all have weights after {:.0?}", begin.elapsed());
    for attempt in one.attempts(Seconds::With) {
        let one = attempt.outcome;
        eprintln!("{:?}: {:?}, {:?}", one.target.nickname, one.result, one.seconds);
    }
    // Authorities may have voted with two files in a row, before and after a relay was measured
    // again.
    let follow = |text: &str| weights_follow(text, &one.attempts(Seconds::Without));
    let consensus = network.wait_for_consensus(follow, PATIENCE);
    assert_limits(&consensus.expect("weights that follow the estimates in the store"));
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
    let allowed: Vec<_> = coordinators.iter().map(|one| one.identity.clone()).collect();
    // All authorities have one setting, and the first coordinator's files: those of the second are
    // checked by the tests of demo --network.
    let file = coordinators[0].dir.join("v3bw/latest.v3bw");
    let network = measurable_network(&allowed, &RELAYS_MBIT)
        .authority_torrc(AUTHORITY_LIMIT)
        .authority_torrc(format!("V3BandwidthsFile {}", file.display()))
        .start()
        .expect("a network");
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

/// A relay's limit, in kilobytes per second.
fn limit_kilobytes(relay: &RelayStatus) -> u64 {
    let found = RELAYS_MBIT.iter().find(|(name, _)| *name == relay.nickname);
    found.expect("a relay of the network").1 * 125
}

/// All relays but the authorities.
fn others(consensus: &str) -> Vec<RelayStatus> {
    let mut relays = relay_statuses(consensus);
    relays.retain(|relay| !relay.has_flag("Authority"));
    relays
}

/// A relay's weight in the consensus, its limit, and its estimates, in kilobytes per second.
struct Weighed {
    /// The weight that clients use.
    weight: f64,
    /// The most that its operator allows.
    limit: f64,
    /// Of all attempts that had one.
    estimates: Vec<f64>,
}

impl Weighed {
    /// Puts them together.
    fn new(relay: &RelayStatus, attempts: &[Attempt]) -> Self {
        let of = |one: &&Attempt| hex::encode_upper(one.fingerprint) == relay.fingerprint;
        let estimates = attempts.iter().filter(of).filter_map(|one| one.outcome.estimate);
        Self {
            weight: as_f64(relay.weights["Bandwidth"]),
            limit: as_f64(limit_kilobytes(relay)),
            estimates: estimates.map(|estimate| as_f64(estimate.get()) / 1000.0).collect(),
        }
    }

    /// Whether the weight is this part of an estimate, but no more than the limit.
    fn is(&self, part: f64) -> bool {
        let tolerance = 1.0 + WEIGHT_TOLERANCE * self.weight;
        let is_due =
            |estimate: f64| ((part * estimate).min(self.limit) - self.weight).abs() <= tolerance;
        self.estimates.iter().any(|estimate| is_due(*estimate))
    }
}

/// Whether each relay's weight is one of its estimates or, since they are one machine and may not
/// have been measured together, the same part of one for all of them.
fn weights_follow(consensus: &str, attempts: &[Attempt]) -> bool {
    let weighed: Vec<_> =
        others(consensus).iter().map(|relay| Weighed::new(relay, attempts)).collect();
    let parts_of = |one: &Weighed| {
        let parts: Vec<_> = one.estimates.iter().map(|estimate| one.weight / estimate).collect();
        parts
    };
    let mut parts: Vec<_> = weighed.iter().flat_map(parts_of).filter(|part| *part < 1.0).collect();
    parts.push(1.0);
    parts.iter().any(|part| weighed.iter().all(|one| one.is(*part)))
}

/// Fails unless each weight is no more than the relay's limit.
fn assert_limits(consensus: &str) {
    for relay in others(consensus) {
        let (weight, limit) = (relay.weights["Bandwidth"], limit_kilobytes(&relay));
        eprintln!("{:>7} {limit} kB/s, weight {weight}", relay.nickname);
        assert!((1..=limit).contains(&weight), "{relay:?}");
    }
}
