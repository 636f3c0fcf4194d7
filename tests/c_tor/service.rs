//! The service, as it will run: coordinators and measurers as processes of their own, a network of C tors, and
//! authorities that vote with what is published.
//!
//! All authorities vote with the first coordinator's files; a consensus has a measured weight where three
//! authorities have one. All relays are on one address here, so they are one machine to
//! FlashFlow, and measured at the same time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ff_bwauth::store::{Seconds, Store, StoreError};
use ff_measurer::{key, measurer_id};
use tornet::{Network, RelayConfig, RelayStatus, relay_statuses};

use crate::support::{alone, ff_tor};

/// What the relays are limited to, in Mbit/s; the last one is the exit.
const RELAYS_MBIT: [(&str, u64); 5] = [("m2", 2), ("m4", 4), ("m6", 6), ("m8", 8), ("exit10", 10)];
/// The length of a period in seconds.
const PERIOD_SECS: u64 = 60;
/// What the measurers of each coordinator are said to carry. All relays here are one machine, which needs more
/// than a team has and so gets all of the greatest one: the other must be as great.
const TEAMS: [&[&str]; 2] = [&["200Mbit", "200Mbit"], &["400Mbit"]];
/// From the network's start to a consensus with everybody's weight.
const PATIENCE: Duration = Duration::from_secs(240);

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of this workspace, which was built with the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let dir = test.parent().and_then(Path::parent).expect("the folder of what was built");
    let path = dir.join(name);
    assert!(path.exists(), "{} is not built: cargo build --workspace", path.display());
    path
}

/// Runs a command that ends by itself; what it prints.
fn finish(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Starts a program and waits until it says this on standard error; returns what stands behind it.
fn start(command: &mut Command, says: &str) -> (Running, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program runs");
    let stderr = BufReader::new(child.stderr.take().expect("its standard error"));
    let running = Running(child);
    let mut lines = stderr.lines().map_while(Result::ok);
    let mut said = String::new();
    let found = lines.by_ref().find_map(|line| {
        said.push_str(&line);
        line.split_once(says).map(|(_, rest)| rest.trim().to_owned())
    });
    let found = found.unwrap_or_else(|| panic!("it never said {says:?}: {said}"));
    // Somebody must go on reading, or it would wait for ever.
    std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
    (running, found)
}

/// A coordinator's folder.
struct Coordinator {
    /// Where its config is.
    dir: PathBuf,
    /// Its identity in base64.
    identity: String,
}

impl Coordinator {
    /// One with a key and a secret.
    fn new(dir: PathBuf, secret: Option<&Path>) -> Self {
        let init = finish(
            Command::new(program("ff-bwauth"))
                .arg("init")
                .arg("--dir")
                .arg(&dir)
                .arg("--state-dir")
                .arg(&dir),
        );
        assert!(init.contains("FFAllowedCoordinators"), "{init}");
        if let Some(secret) = secret {
            fs::copy(secret, dir.join("schedule.secret")).expect("the common secret");
        }
        let key = key::load(&dir.join("coordinator.key")).expect("its key");
        Self { dir, identity: key::identity_text(&measurer_id(&key)) }
    }

    /// Starts its measurers; the lines that its config needs.
    fn start_measurers(&self, team: &[&str]) -> (Vec<Running>, String) {
        let mut all = (Vec::new(), String::new());
        for (number, capacity) in team.iter().enumerate() {
            let dir = self.dir.join(format!("m{number}"));
            let lines = finish(
                Command::new(program("ff-measurer"))
                    .args(["init", "--listen", "127.0.0.1:0", "--dir"])
                    .arg(&dir),
            );
            let path = dir.join("measurer.toml");
            let text = fs::read_to_string(&path).expect("its config");
            let text = text.replace("private_targets = false", "private_targets = true");
            let identity = &self.identity;
            let text =
                format!("{text}\n[[coordinator]]\nname = \"test\"\nidentity = \"{identity}\"\n");
            fs::write(&path, text).expect("written");
            let mut run = Command::new(program("ff-measurer"));
            let (running, addr) = start(run.arg("run").arg("--config").arg(&path), "listening at ");
            all.0.push(running);
            let lines = lines.replace("NAME", &format!("m{number}")).replace("127.0.0.1:0", &addr);
            all.1.push_str(&lines.replace("1Gbit", capacity));
        }
        all
    }

    /// Writes its config.
    fn configure(&self, network: &Network, measurers: &str, other: &Self, team: &[&str]) {
        let text = format!(
            "key = \"coordinator.key\"\nstate_dir = \"state\"\npublish_dir = \"v3bw\"\n\
             [watch]\nlisten = \"127.0.0.1:0\"\n\
             [network]\ncache_dir = \"cache\"\nprivate_network = {:?}\n\
             [period]\nsecret = \"schedule.secret\"\nlength_secs = {PERIOD_SECS}\nmeasure_secs = 3\n\
             slot_secs = 8\nconsensus_lead_secs = 15\nrefresh_secs = 3\n\
             [publish]\nevery_secs = 5\nmax_total_factor = 1000.0\nmax_relay_factor = 1000.0\n\
             {measurers}\n[[coordinator]]\nname = \"other\"\nidentity = \"{}\"\nteam = {team:?}\n",
            network.dir(),
            other.identity,
        );
        fs::write(self.dir.join("bwauth.toml"), text).expect("written");
    }

    /// Starts it.
    fn run(&self) -> Running {
        let mut run = Command::new(program("ff-bwauth"));
        start(run.arg("run").arg("--config").arg(self.dir.join("bwauth.toml")), "page is ").0
    }

    /// Which relays it has asked, each with its period.
    fn asked(&self) -> Vec<String> {
        let store = Store::open_read_only(&self.dir.join("state/store.sqlite")).expect("its store");
        let mut asked = Vec::new();
        let all = store.attempts::<StoreError>(0..u64::MAX, Seconds::Without, |attempt| {
            let period = attempt.slot.map_or(0, |(period, _)| period);
            asked.push(format!("{period} {}", hex::encode_upper(attempt.fingerprint)));
            Ok(())
        });
        all.expect("it can be read");
        asked
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn authorities_vote_with_what_a_service_of_many_processes_publishes() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let one = Coordinator::new(dir.path().join("one"), None);
    let two = Coordinator::new(dir.path().join("two"), Some(&one.dir.join("schedule.secret")));
    let network = start_network(&[&one, &two], dir.path());
    let (_first, first) = one.start_measurers(TEAMS[0]);
    let (_second, second) = two.start_measurers(TEAMS[1]);
    one.configure(&network, &first, &two, TEAMS[1]);
    two.configure(&network, &second, &one, TEAMS[0]);
    let begin = Instant::now();
    let mut running = vec![one.run(), two.run()];
    // One is killed in the middle and started again: nobody is asked twice for it.
    std::thread::sleep(Duration::from_secs(PERIOD_SECS / 2));
    drop(running.remove(0));
    running.push(one.run());
    let consensus = network.wait_for_consensus(|text| has_all(text, &network), PATIENCE);
    let consensus = consensus.expect("a consensus with everybody's weight");
    eprintln!("all have weights after {:.0?}", begin.elapsed());
    assert_weights(&consensus);
    for coordinator in [&one, &two] {
        // One may have its slot later than the other, and what is published comes from the first.
        let late = Instant::now() + PATIENCE;
        let mut asked = coordinator.asked();
        while asked.is_empty() && Instant::now() < late {
            std::thread::sleep(Duration::from_secs(1));
            asked = coordinator.asked();
        }
        let times = |one: &String| asked.iter().filter(|other| *other == one).count();
        // Once, and again if that was not conclusive, as it is with authorities, which have no limit here.
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
        .authority_torrc(format!("V3BandwidthsFile {}", file.display()));
    let relay = |&(name, mbit): &(&str, u64)| {
        let exit = name.starts_with("exit");
        RelayConfig { exit, ..RelayConfig::middle(name) }.bandwidth_rate(mbit * 125_000)
    };
    let network = RELAYS_MBIT.iter().map(relay).fold(builder, tornet::NetworkBuilder::relay);
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
