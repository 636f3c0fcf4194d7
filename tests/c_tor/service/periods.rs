//! Whole periods in a row, with nobody looking after them.
//!
//! Each relay has an address of its own here, so that each is measured by itself. One is made of
//! Arti's crates: it runs in this process, which tells the authorities of it. Two authorities vote
//! with the files of one coordinator and the third with the other's; a consensus has a measured
//! weight where three have one, so it shows both.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding};
use ff_bwauth::watch::client;
use ff_lab::{Network, NetworkBuilder, RelayConfig, relay_statuses};
use ff_measurer::key;
use ff_proto::session::target::Policy;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_relay_ext::arti::descriptor::Facts;
use ff_relay_ext::arti::host::RelayHost;
use ff_store::Seconds;
use sha2::{Digest, Sha256};

use super::AUTHORITY_LIMIT;
use super::processes::{Coordinator, PERIOD_SECS, Running};
use crate::support::{among_others, ff_tor, number};

/// What the relays are limited to, in Mbit/s; the last one is the exit. What they carry as the
/// network's directory, up to 80 kB/s, is little of these.
const TORS_MBIT: [(&str, u64); 8] = [
    ("m8", 8),
    ("m9", 9),
    ("m11", 11),
    ("m12", 12),
    ("m14", 14),
    ("m16", 16),
    ("m18", 18),
    ("exit10", 10),
];
/// The relay made of Arti's crates, and its limit.
const ARTI_MBIT: (&str, u64) = ("arti5", 5);
/// What the measurers of each coordinator are said to carry: before anybody has been measured each
/// relay needs 150 Mbit/s, and with 200 a team would have room for eight of them in a period.
const TEAMS: [&[&str]; 2] = [&["200Mbit", "200Mbit"], &["400Mbit"]];
/// Seconds of a measurement: each relay is measured by itself, so that there is a slot for each in
/// a period.
const MEASURE_SECS: u64 = 3;
/// How often a relay may be measured by each coordinator, and once again.
const GRANT_PERIOD: Duration = Duration::from_secs(10);
/// For a consensus with everybody's weight, once all have been measured: two periods, in case that
/// a measurement of the one that is under way failed.
const PATIENCE: Duration = Duration::from_secs(2 * PERIOD_SECS + 30);
/// How far estimates may be from the relays' limits.
const TOLERANCE: f64 = 0.15;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built; FF_TEST_PERIODS=3 runs three periods"]
fn every_relay_has_a_result_of_both_coordinators_in_every_period() {
    let _traffic = among_others();
    let periods = number("FF_TEST_PERIODS").unwrap_or(1);
    let dir = tempfile::tempdir().expect("a directory");
    let one = Coordinator::new(dir.path().join("one"), None);
    let two = Coordinator::new(dir.path().join("two"), Some(&one.dir.join("schedule.secret")));
    let both = [&one, &two];
    let network = start_network(&both);
    let arti = start_arti(&both, &network);
    let (_first, first) = one.start_measurers(TEAMS[0]);
    let (_second, second) = two.start_measurers(TEAMS[1]);
    one.configure(&network, &first, &two, TEAMS[1], MEASURE_SECS);
    two.configure(&network, &second, &one, TEAMS[0], MEASURE_SECS);
    let running = both.map(Coordinator::run);
    let (whole, digests) = watch(&running, periods);
    let consensus = network.wait_for_consensus(|_| true, PATIENCE).expect("a consensus");
    let relays = limits(&consensus);
    assert_eq!(relays.len(), TORS_MBIT.len() + 1, "{consensus}");
    for period in whole {
        let [one, other] = &digests[&period];
        assert!(one.is_some() && one == other, "the schedules of period {period}: {digests:?}");
        for (number, coordinator) in both.iter().enumerate() {
            assert_results(coordinator, number + 1, period, &relays);
        }
    }
    let known = |text: &str| !measured(text).is_empty();
    let consensus = network.wait_for_consensus(known, PATIENCE).unwrap_or_else(|error| {
        panic!(
            "{error}; relays that authorities have no measured weight of: {:?}; not conclusive: {:#?}",
            lacking(&network),
            both.map(failed),
        )
    });
    for relay in relay_statuses(&consensus).iter().filter(|relay| !relay.has_flag("Authority")) {
        eprintln!("{:>7}: weight {} in the consensus", relay.nickname, relay.weights["Bandwidth"]);
    }
    eprintln!("not conclusive: {:#?}", both.map(failed));
    drop(arti);
    assert_votes(&network, &both);
}

/// Starts the network of tors.
fn start_network(coordinators: &[&Coordinator; 2]) -> Network {
    let allowed: Vec<_> = coordinators.iter().map(|one| one.identity.as_str()).collect();
    let mut builder = Network::builder()
        .tor(ff_tor())
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFAllowedCoordinators {}", allowed.join(",")))
        .torrc(format!("FFMeasurementPeriod {} seconds", GRANT_PERIOD.as_secs()))
        .torrc("CountPrivateBandwidth 1")
        .authorities(3)
        .authority_torrc(AUTHORITY_LIMIT);
    for (number, coordinator) in [(0, 0), (1, 0), (2, 1)] {
        let file = coordinators[coordinator].dir.join("v3bw/latest.v3bw");
        builder =
            builder.torrc_of_authority(number, format!("V3BandwidthsFile {}", file.display()));
    }
    let relay = |(number, &(name, mbit)): (u8, &(&str, u64))| {
        let relay = RelayConfig { exit: name.starts_with("exit"), ..RelayConfig::middle(name) };
        relay.bandwidth_rate(mbit * 125_000).address(address(number))
    };
    let relays = (1..).zip(&TORS_MBIT).map(relay);
    let network = relays.fold(builder, NetworkBuilder::relay).start().expect("a network");
    eprintln!("the network was ready after {:.1?}", network.start_time());
    network
}

/// The address of the relay with this number.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, number)
}

/// Starts the relay of Arti's crates, and has it in the consensus.
fn start_arti(coordinators: &[&Coordinator; 2], network: &Network) -> RelayHost {
    let (nickname, mbit) = ARTI_MBIT;
    let identity = |one: &&Coordinator| key::parse_identity(&one.identity).expect("an identity");
    let policy = Policy {
        enabled: true,
        coordinators: coordinators.iter().map(identity).collect(),
        period: GRANT_PERIOD,
        ratio: Ratio::from_percent(25).expect("a ratio"),
        max_duration_secs: NonZero::new(45).expect("not 0"),
        max_sockets: 512,
    };
    let limit = BytesPerSec::from_mbit(mbit);
    let host = RelayHost::start_at(IpAddr::V4(address(100)), policy, Some(limit), None);
    let host = host.expect("a relay");
    let SocketAddr::V4(addr) = host.addr() else { panic!("it has an IPv4 address") };
    let facts = Facts { nickname: nickname.to_owned(), address: addr, bandwidth: limit };
    network.upload(&host.keys().descriptor(&facts).expect("a descriptor")).expect("it is taken");
    let is_listed = |text: &str| {
        let relays = relay_statuses(text);
        relays.iter().any(|relay| relay.nickname == nickname && relay.has_flag("Running"))
    };
    network.wait_for_consensus(is_listed, PATIENCE).expect("a consensus with it");
    host
}

/// The digests of both coordinators' schedules, by period.
type Digests = BTreeMap<u64, [Option<String>; 2]>;

/// Watches until this many whole periods are over; returns their numbers, and the last schedule
/// digests of both coordinators.
fn watch(running: &[(Running, String); 2], periods: u64) -> (std::ops::Range<u64>, Digests) {
    let mut digests = Digests::new();
    let begin = Instant::now();
    let patience = Duration::from_secs((periods + 3) * PERIOD_SECS);
    loop {
        for (number, (_, page)) in running.iter().enumerate() {
            // One that is starting has no status.
            let status = client::status(page).ok();
            if let Some(period) = status.and_then(|status| status.period) {
                digests.entry(period.number).or_default()[number] = Some(period.schedule_digest);
            }
        }
        let numbers = digests.keys().next().zip(digests.keys().next_back());
        // The first one had begun before.
        if let Some((first, last)) = numbers
            && *last > first + periods
        {
            return (first + 1..first + 1 + periods, digests);
        }
        assert!(begin.elapsed() < patience, "the periods do not end: {digests:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The names of a consensus' relays that have a measured weight, if all have one that may.
fn measured(consensus: &str) -> BTreeSet<String> {
    let mut relays = relay_statuses(consensus);
    relays.retain(|relay| !relay.has_flag("Authority"));
    let all = relays.iter().all(|relay| !relay.weights.contains_key("Unmeasured"));
    relays.into_iter().filter(|_| all).map(|relay| relay.fingerprint).collect()
}

/// A coordinator's attempts that were not conclusive: the period and slot, the relay's address, and
/// why.
fn failed(coordinator: &Coordinator) -> Vec<String> {
    let mut attempts = coordinator.attempts(Seconds::Without);
    attempts.retain(|one| one.outcome.publishable().is_none());
    let line = |one: &ff_store::Attempt| {
        let why = one.outcome.result.as_ref().err().map_or("", |failure| &failure.message);
        let (name, addr) = (one.outcome.verdict_name(), &one.outcome.target.address);
        format!("{:?} {addr}: {name} {why}", one.slot)
    };
    attempts.iter().map(line).collect()
}

/// Relays that an authority votes for without a measured weight, by authority.
fn lacking(network: &Network) -> Vec<(String, Vec<String>)> {
    let votes = network.votes().expect("votes").into_iter();
    let lacks = |(authority, text): (String, String)| {
        let mut relays = relay_statuses(&text);
        relays.retain(|one| !one.has_flag("Authority") && !one.weights.contains_key("Measured"));
        (authority, relays.into_iter().map(|relay| relay.nickname).collect())
    };
    votes.map(lacks).collect()
}

/// The relays of a consensus: their names, and limits in Mbit/s.
fn limits(consensus: &str) -> BTreeMap<String, (String, u64)> {
    let mut relays = relay_statuses(consensus);
    relays.retain(|relay| !relay.has_flag("Authority"));
    let limit = |name: &str| {
        let all = || TORS_MBIT.iter().chain([&ARTI_MBIT]);
        all().find(|(other, _)| *other == name).expect("a relay of this network").1
    };
    let relay = |relay: ff_lab::RelayStatus| {
        let mbit = limit(&relay.nickname);
        (relay.fingerprint, (relay.nickname, mbit))
    };
    relays.into_iter().map(relay).collect()
}

/// Fails unless a coordinator has a conclusive estimate near each relay's limit in this period.
fn assert_results(
    coordinator: &Coordinator,
    number: usize,
    period: u64,
    relays: &BTreeMap<String, (String, u64)>,
) {
    let attempts = coordinator.attempts(Seconds::Without);
    for (fingerprint, (nickname, mbit)) in relays {
        let is_it = |attempt: &&ff_store::Attempt| {
            attempt.slot.is_some_and(|(of, _)| of == period)
                && hex::encode_upper(attempt.fingerprint) == *fingerprint
        };
        let of_it: Vec<_> = attempts.iter().filter(is_it).collect();
        let outcomes: Vec<_> = of_it.iter().map(|attempt| &attempt.outcome).collect();
        let estimate = outcomes.iter().rev().find_map(|one| one.estimate);
        let verdicts: Vec<_> = outcomes.iter().map(|one| one.verdict_name()).collect();
        let what = format!("period {period}, coordinator {number}, {nickname}: {verdicts:?}");
        let estimate = estimate.unwrap_or_else(|| {
            let mut plan = coordinator.planned(period);
            plan.retain(|row| hex::encode_upper(row.what.fingerprint) == *fingerprint);
            panic!("{what}: no result; its plan: {plan:?}")
        });
        let ratio = estimate.mbit() / BytesPerSec::from_mbit(*mbit).mbit();
        eprintln!("{what} {estimate}, {ratio:.3} of its limit");
        assert!((ratio - 1.0).abs() < TOLERANCE, "{what}: {ratio:.3} of its limit");
    }
}

/// Fails unless each authority has voted with a file of its coordinator's, and measured all relays
/// by it.
fn assert_votes(network: &Network, coordinators: &[&Coordinator; 2]) {
    let votes = network.votes().expect("votes");
    for (vote, coordinator) in votes.iter().zip([0, 0, 1]) {
        let (name, text) = vote;
        let dir = std::fs::read_dir(coordinators[coordinator].dir.join("v3bw")).expect("files");
        let files = dir.map(|file| std::fs::read(file.expect("a file").path()).expect("a file"));
        let digests = files.map(|file| Base64Unpadded::encode_string(&Sha256::digest(file)));
        let line = text.lines().find_map(|line| line.strip_prefix("bandwidth-file-digest sha256="));
        let line = line.unwrap_or_else(|| panic!("{name} votes without a file"));
        assert!(digests.into_iter().any(|digest| digest == line), "{name} votes with another file");
        let relays = relay_statuses(text);
        let mut others = relays.iter().filter(|relay| !relay.has_flag("Authority"));
        assert!(others.all(|relay| relay.weights.contains_key("Measured")), "{name}: {text}");
        eprintln!("{name} votes with a file of coordinator {}", coordinator + 1);
    }
}
