//! From measurements to votes: a whole network is measured, and its authorities vote accordingly.
//!
//! The relays of a private network are measured, but for its authorities: their votes on each other
//! say `MeasuredButAuthority`, which no consensus looks at. The bandwidth file grows in the
//! directory that the authorities' `V3BandwidthsFile` names, as a coordinator's does: at first it
//! lists too few relays, then enough. An authority reads it for each vote. The consensus has a
//! measured bandwidth where at least three authorities have one (tor's `dirvote.c`), so there are
//! three.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_lab::{Network, Node, RelayStatus, relay_statuses};
use ff_plan::outcome::Outcome;
use ff_plan::publish::v3bw::{BandwidthFile, DirectoryFacts, Publication};
use ff_plan::publish::{LATEST, Shelf};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use sha2::{Digest, Sha256};

use crate::support::meter::as_f64;
use crate::support::{
    among_others, coordinator, estimate, identity, measurable_network, measure, plan, stood_still,
};

/// The relays' limits in Mbit/s; the last one is the exit.
const RELAYS_MBIT: [(&str, u64); 5] =
    [("m10", 10), ("m20", 20), ("m40", 40), ("m80", 80), ("exit60", 60)];
/// How long each relay is measured: cells come back in most of the seconds even if this machine
/// stands still in two of them.
const DURATION_SECS: u16 = 5;
/// How often it is measured if the machine stands still.
const TRIES: usize = 8;
/// The number of sockets.
const SOCKETS: u16 = 16;
/// How far relays' weights may be apart in proportion to what they were measured at.
const WEIGHT_TOLERANCE: f64 = 0.02;
/// Many voting intervals: a file may come too late for the next vote, and a vote too late for the
/// others.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn authorities_vote_for_what_was_measured() {
    let _others = among_others();
    let dir = tempfile::tempdir().expect("a directory");
    let keys = [(); TRIES].map(|()| coordinator());
    let begin = Instant::now();
    let network = start(&keys, dir.path());
    let mut coordinator = Coordinator::new(&network, &keys, dir.path());
    let relays: Vec<_> = network.relays().collect();
    let (few, rest) = relays.split_at(2);

    coordinator.measure(few);
    let file = coordinator.publish();
    coordinator.measure(rest);
    // Under 60 % of the network: authorities must not follow it.
    assert!(file.content.is_under_minimum(), "{} relays", few.len());
    for vote in file.votes(&network) {
        let measured = relay_statuses(&vote).iter().filter(|relay| is_measured(relay)).count();
        assert_eq!(measured, 0, "{vote}");
    }

    let file = coordinator.publish();
    assert_eq!(file.content.relays().len(), relays.len());
    assert!(!file.content.is_under_minimum());
    file.check_with_stem();
    for vote in file.votes(&network) {
        assert_votes(&vote, &file.content);
    }
    let has_all = |text: &str| relay_statuses(text).iter().all(has_final_weight);
    let consensus = network.wait_for_consensus(has_all, PATIENCE).expect("a consensus");
    assert_weights(&network, &consensus, &file.content, &coordinator.outcomes);
    eprintln!("took {:.1?}", begin.elapsed());
}

/// Starts the network.
fn start(keys: &[SigningKey], dir: &Path) -> Network {
    let allowed: Vec<_> = keys.iter().map(identity).collect();
    let network = measurable_network(&allowed, &RELAYS_MBIT)
        .authority_torrc(format!("V3BandwidthsFile {}", dir.join(LATEST).display()))
        .start()
        .expect("a network");
    eprintln!("the network was ready after {:.1?}", network.start_time());
    network
}

/// Measures the network's relays and publishes what it has.
struct Coordinator<'a> {
    /// The network.
    network: &'a Network,
    /// Its keys: it takes the next one where the machine stood still.
    keys: &'a [SigningKey],
    /// Where the bandwidth files are.
    dir: &'a Path,
    /// When it was started, in seconds since 1970.
    started_unix_secs: u64,
    /// The outcomes so far.
    outcomes: Vec<Outcome>,
}

impl<'a> Coordinator<'a> {
    /// One that has measured nothing.
    fn new(network: &'a Network, keys: &'a [SigningKey], dir: &'a Path) -> Self {
        Self { network, keys, dir, started_unix_secs: unix_secs(), outcomes: Vec::new() }
    }

    /// Measures relays, one after another.
    fn measure(&mut self, relays: &[&Node]) {
        for node in relays {
            let params =
                Params { sockets: SOCKETS, duration_secs: DURATION_SECS, ..Params::default() };
            let mut measured = self.keys.iter().map(|key| measure(&plan(node, key, params)));
            let outcome = measured.find(|outcome| !stood_still(outcome));
            let mut outcome = outcome.expect("the machine goes on in one of so many measurements");
            outcome.target.nickname = Some(node.name().to_owned());
            eprintln!("{:>7} measured at {}", node.name(), estimate(&outcome));
            self.outcomes.push(outcome);
        }
    }

    /// Publishes what has been measured so far.
    fn publish(&self) -> Published {
        let consensus = self.network.consensus().expect("a consensus");
        let relays = relay_statuses(&consensus);
        let publication = Publication {
            now_unix_secs: unix_secs(),
            max_age_secs: MAX_FILE_AGE_SECS,
            generator_started_unix_secs: Some(self.started_unix_secs),
            consensus_relays: relays.len() as u64,
            directory: self
                .outcomes
                .iter()
                .filter_map(|outcome| outcome.target.rsa_fingerprint)
                .map(|fingerprint| (fingerprint, self.directory_facts(&hex(&fingerprint), &relays)))
                .collect(),
            ..Publication::default()
        };
        let content =
            BandwidthFile::from_outcomes(&self.outcomes, &publication).expect("relays to list");
        let path = Shelf::open(self.dir).and_then(|shelf| shelf.place(&content)).expect("a place");
        Published { content, path }
    }

    /// The network documents' data about a relay.
    fn directory_facts(&self, fingerprint: &str, relays: &[RelayStatus]) -> DirectoryFacts {
        let mut control = self.network.node("auth0").control().expect("a control connection");
        let descriptor = control.getinfo(&format!("desc/id/{fingerprint}")).expect("a descriptor");
        let limits = descriptor.lines().find_map(|line| line.strip_prefix("bandwidth "));
        let mut limits = limits
            .expect("a bandwidth line")
            .split(' ')
            .map(|word| BytesPerSec::new(word.parse().expect("bytes per second")));
        let status = relays.iter().find(|relay| relay.fingerprint == fingerprint);
        let weights = &status.expect("a relay of the consensus").weights;
        DirectoryFacts {
            bandwidth_avg: limits.next(),
            bandwidth_burst: limits.next(),
            bandwidth_observed: limits.next(),
            consensus_bandwidth: weights.get("Bandwidth").map(|kb| BytesPerSec::new(kb * 1000)),
            consensus_is_unmeasured: Some(weights.contains_key("Unmeasured")),
            ..DirectoryFacts::default()
        }
    }
}

/// A bandwidth file that authorities find.
struct Published {
    /// The file's content.
    content: BandwidthFile,
    /// Where it is.
    path: PathBuf,
}

impl Published {
    /// Waits until each authority has voted with exactly this file; the votes.
    fn votes(&self, network: &Network) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).expect("the file that was published");
        let digest = Base64Unpadded::encode_string(&Sha256::digest(&text));
        let digest = format!("\nbandwidth-file-digest sha256={digest}\n");
        let votes = network.wait_for_votes(|vote| vote.contains(&digest), PATIENCE);
        let votes = votes.expect("votes with this file");
        assert_eq!(votes.len(), 3);
        let headers = format!("\nbandwidth-file-headers {}\n", headers(&text));
        for (name, vote) in &votes {
            let line = vote.lines().find(|line| line.starts_with("bandwidth-file-headers"));
            assert!(vote.contains(&headers), "{name}: {line:?} instead of {headers}");
        }
        votes.into_iter().map(|(_, vote)| vote).collect()
    }

    /// Has stem read it, if that is asked for.
    fn check_with_stem(&self) {
        if std::env::var_os("FF_TEST_STEM").is_none_or(|value| value != "1") {
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = root.join("crates/ff-bwauth/tests/check_v3bw.py");
        let output = Command::new("/usr/bin/python3").arg(script).arg(&self.path).output();
        let output = output.expect("python3 with stem");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The headers of a bandwidth file as dir-spec §3.4.1 has them in a vote: all of them in one line,
/// with a name for the first, which has none in the file.
fn headers(file: &str) -> String {
    let lines: Vec<_> = file.lines().take_while(|line| *line != "=====").collect();
    format!("timestamp={}", lines.join(" "))
}

/// Fails unless a vote has the bandwidths that the file has.
fn assert_votes(vote: &str, file: &BandwidthFile) {
    let relays = relay_statuses(vote);
    for line in file.relays() {
        let fingerprint = hex(&line.rsa_fingerprint);
        let relay = relays.iter().find(|relay| relay.fingerprint == fingerprint);
        let relay = relay.unwrap_or_else(|| panic!("no vote on {fingerprint}"));
        let voted = relay.weights.get("Measured").copied();
        assert_eq!(voted, Some(line.bw_kilobytes().get().into()), "{relay:?}");
    }
}

/// Whether a vote has a measured bandwidth for a relay.
fn is_measured(relay: &RelayStatus) -> bool {
    relay.weights.contains_key("Measured")
}

/// Whether a consensus has the weight for a relay that the authorities' file leads to.
fn has_final_weight(relay: &RelayStatus) -> bool {
    relay.weights.contains_key("Unmeasured") == relay.has_flag("Authority")
}

/// Fails unless the relays' weights are what the file has for them, in proportion to what they were
/// measured at, and no more than they are limited to. How near a relay's estimate comes to its
/// limit is a figure.
fn assert_weights(network: &Network, consensus: &str, file: &BandwidthFile, outcomes: &[Outcome]) {
    let mut relays = relay_statuses(consensus);
    relays.retain(|relay| !relay.has_flag("Authority"));
    assert_eq!(relays.len(), outcomes.len());
    let mut by_estimate = Vec::new();
    for relay in &relays {
        let node = network.node(&relay.nickname);
        assert_eq!(relay.fingerprint, node.rsa_fingerprint());
        let is_it = |outcome: &&Outcome| outcome.target.ed_identity == node.ed_identity();
        let estimate = estimate(outcomes.iter().find(is_it).expect("a measured relay"));
        let (weight, limit) = (relay.weights["Bandwidth"], limit_mbit(node));
        let line =
            file.relays().iter().find(|line| hex(&line.rsa_fingerprint) == relay.fingerprint);
        assert_eq!(line.map(|line| line.bw_kilobytes().get().into()), Some(weight), "{relay:?}");
        assert!(weight * 1000 <= limit * 125_000, "{relay:?}");
        // No more than the operator allows, as the descriptor has it.
        let estimate = estimate.min(BytesPerSec::from_mbit(limit));
        eprintln!("{:>7} {limit:>3} Mbit/s, measured {estimate}, weight {weight}", node.name());
        by_estimate.push(as_f64(weight * 1000) / as_f64(estimate.get()));
    }
    assert!(spread(&by_estimate) <= WEIGHT_TOLERANCE, "weight by estimate: {by_estimate:?}");
}

/// A relay's limit in Mbit/s.
fn limit_mbit(node: &Node) -> u64 {
    let found = RELAYS_MBIT.iter().find(|(name, _)| *name == node.name());
    found.expect("a relay of the network").1
}

/// How far the greatest is above the smallest, in proportion.
fn spread(values: &[f64]) -> f64 {
    let greatest = values.iter().copied().fold(f64::MIN, f64::max);
    greatest / values.iter().copied().fold(f64::MAX, f64::min) - 1.0
}

/// Bytes in hexadecimal, as directory documents have fingerprints.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Now, in seconds since 1970.
fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}
