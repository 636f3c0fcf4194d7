//! Random orders of cells against a relay that is being measured all the time: nothing that peers
//! send in any order ends tor, and it serves its clients afterwards.
//!
//! A fresh coordinator after the other has measurements granted, and new coordinators are listed
//! when all have had their two; [`orders`](crate::orders) says what is sent.
//!
//! The relay is the tor-asan next to the tor that FF_TEST_TOR names, as `build-tor --asan` makes
//! it: it ends itself at the first access to memory that is not its own. FF_FUZZ_SECONDS says how
//! long it takes, by default a minute.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ff_lab::{Network, Node, RelayConfig};
use ff_measurer::link::TargetAddr;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::orders::{Fuzz, PATIENCE, measure_once, run_workers};
use crate::support::{among_others, coordinator, ff_tor, identity, number};

/// Coordinators that the relay allows at the same time; there cannot be more.
const COORDINATORS: usize = 64;

/// The tor to test: with AddressSanitizer, without which much would go unseen.
fn asan_tor() -> PathBuf {
    let tor = ff_tor().with_file_name("tor-asan");
    assert!(tor.exists(), "there is no {}: build-tor --asan makes it", tor.display());
    tor
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn no_order_of_cells_ends_the_relay() {
    let _others = among_others();
    let seconds = number("FF_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    let tor = asan_tor();
    println!("FF_TEST_SEED={seed}, {seconds} s against {}", tor.display());
    let relay = RelayConfig::middle("fuzzed").tor(tor).torrc("FFMeasurementsAllowed 1");
    let network = Network::builder()
        .relay(relay.torrc("FFMaxMeasurementSockets 32768"))
        .exits(1)
        .clients(1)
        .voting_interval(Duration::from_secs(1800))
        .start()
        .expect("a network");
    let node = network.node("fuzzed");
    let pid = node.pid().expect("the relay runs");

    let fuzz =
        Fuzz::new(TargetAddr { addr: node.or_addr(), ed_identity: node.ed_identity().into() });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let until = Instant::now() + Duration::from_secs(seconds);
        tokio::join!(run_workers(&fuzz, seed), grant(&fuzz, node, seed), watch(&fuzz, node, until));
    });

    println!("{}", fuzz.summary());
    // What AddressSanitizer says is not in tor's own log.
    let said = fs::read_to_string(node.data_dir().join("out")).unwrap_or_default();
    let log = node.log() + &said;
    for complaint in ["AddressSanitizer", "Bug: ", "ssertion ", "nternal error"] {
        let found = log.lines().find(|line| line.contains(complaint));
        assert_eq!(found, None, "FF_TEST_SEED={seed}; the log is in:\n{}", last_lines(&log));
    }
    assert_eq!(node.pid().ok(), Some(pid), "FF_TEST_SEED={seed}:\n{}", last_lines(&log));
    let path = [node, network.node("exit0")];
    let downloads = network.download_through(network.node("client0"), &path, 1).expect("a circuit");
    let deadline = Instant::now() + PATIENCE;
    while downloads.bytes() < 100_000 {
        assert!(
            Instant::now() < deadline,
            "{} bytes through an ordinary circuit",
            downloads.bytes()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The end of a log.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Watches the relay until it is gone or the time is over. On a busy machine the time is longer,
/// until everything has been tested.
#[expect(clippy::print_stdout, reason = "who fuzzes for hours wants to know how far it is")]
async fn watch(fuzz: &Fuzz, node: &Node, until: Instant) {
    let mut told = Instant::now();
    let goes_on = |now| now < until || (!fuzz.has_tested_all() && now < until + PATIENCE);
    while goes_on(Instant::now()) && node.is_running() {
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            println!("{} orders", fuzz.orders.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fuzz.is_over.store(true, Ordering::Relaxed);
}

/// Has measurements granted, one after the other.
async fn grant(fuzz: &Fuzz, node: &Node, seed: u64) {
    let mut rng = StdRng::seed_from_u64(!seed);
    let mut control = node.control().expect("a control connection");
    while !fuzz.is_over() {
        let keys: Vec<_> = (0..COORDINATORS).map(|_| coordinator()).collect();
        let listed: Vec<_> = keys.iter().map(identity).collect();
        if control.setconf("FFAllowedCoordinators", &listed.join(",")).is_err() {
            return;
        }
        // Each may measure twice.
        for key in keys.iter().chain(&keys) {
            if fuzz.is_over() {
                return;
            }
            measure_once(fuzz, key, &mut rng).await;
        }
    }
}
