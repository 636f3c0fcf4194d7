//! Circuits that a C tor chose in a private network whose relays have unequal weights.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ff_circuits::network::CircuitNetwork;
use ff_lab::{Control, NetworkBuilder, RelayConfig};

use super::{Places, compare, count, ours};

/// Number of circuits.
const CIRCUITS: usize = 2_000;
/// Circuits being built at a time.
const AT_ONCE: usize = 16;
/// Circuits that may fail: two relays that open a link to each other at once close one of them,
/// with its circuits.
const MOST_FAILED: usize = CIRCUITS / 50;
/// Failures because a relay or this machine is busy; such paths are as random as others.
const BUSY: [&str; 2] = ["REASON=RESOURCELIMIT", "REASON=TIMEOUT"];
/// Longest wait for the next circuit.
const PATIENCE: Duration = Duration::from_secs(180);
/// Our own draws, which stand for exact probabilities.
const DRAWS: usize = 300_000;
/// Relays: name, second part of its address 127.x.0.y, y, weight. Those in 127.1 to 127.3 are
/// guards.
const RELAYS: [(&str, u8, u8, u32); 12] = [
    ("guard0", 1, 1, 900),
    ("guard1", 1, 2, 300),
    ("guard2", 2, 1, 500),
    ("guard3", 3, 1, 200),
    ("exit0", 2, 2, 400),
    ("exit1", 3, 2, 700),
    ("exit2", 4, 1, 900),
    ("exit3", 4, 2, 150),
    ("exit4", 5, 1, 500),
    ("middle0", 5, 2, 800),
    ("middle1", 6, 1, 250),
    ("middle2", 4, 3, 600),
];

/// The network; its authorities vote once, by a bandwidth file.
fn builder(dir: &Path, file: &Path) -> NetworkBuilder {
    let relay = |(name, net, host, _): (&str, u8, u8, u32)| {
        let config = RelayConfig { exit: name.starts_with("exit"), ..RelayConfig::middle(name) };
        config.address(Ipv4Addr::new(127, net, 0, host))
    };
    // A bandwidth needs three authorities to count as measured. Without entry guards, tor draws a
    // new guard for each circuit. Conflux pairs would be drawn by other rules.
    let builder = ff_lab::Network::builder()
        .temp_dir(dir)
        .voting_interval(Duration::from_secs(1800))
        .authorities(3)
        .clients(1)
        .authority_torrc(format!("V3BandwidthsFile {}", file.display()))
        .authority_torrc("TestingDirAuthVoteGuard 127.1.0.0/16,127.2.0.0/16,127.3.0.0/16")
        .client_torrc("EnforceDistinctSubnets 1")
        .client_torrc("UseEntryGuards 0")
        .client_torrc("ConfluxEnabled 0")
        .client_torrc("LearnCircuitBuildTimeout 0")
        .client_torrc("CircuitBuildTimeout 600")
        // A relay short of CPU time accepts circuits nevertheless, so that no path lacks it.
        .torrc("MaxOnionQueueDelay 10 minutes");
    RELAYS.into_iter().map(relay).fold(builder, NetworkBuilder::relay)
}

/// Writes the bandwidth file as soon as all relays have keys, before authorities vote.
fn write_weights(dir: &Path, file: &Path, has_ended: &AtomicBool) {
    while !has_ended.load(Ordering::Relaxed) {
        let known: Option<Vec<_>> = RELAYS
            .iter()
            .map(|(name, _, _, weight)| Some((fingerprint(dir, name)?, *weight)))
            .collect();
        let Some(known) = known else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = format!("{}\n", now.as_secs());
        for (id, weight) in known {
            let _ = writeln!(text, "node_id=${id} bw={weight}");
        }
        let half = file.with_extension("half");
        fs::write(&half, text).expect("a file");
        return fs::rename(half, file).expect("a file");
    }
}

/// Fingerprint of a relay, from its file below this directory.
fn fingerprint(dir: &Path, name: &str) -> Option<String> {
    let networks = fs::read_dir(dir).ok()?.flatten();
    let file = |network: fs::DirEntry| network.path().join(name).join("fingerprint");
    let text = networks.map(file).find_map(|file| fs::read_to_string(file).ok())?;
    let id = text.trim().split_once(' ')?.1;
    (id.len() == 40).then(|| id.to_owned())
}

/// Paths of `wanted` circuits that tor chooses.
fn circuits(control: &mut Control, wanted: usize) -> Vec<Vec<String>> {
    let (mut open, mut paths, mut failed) = (HashSet::new(), Vec::new(), 0);
    let mut until = Instant::now() + PATIENCE;
    control.subscribe(&["CIRC"]).expect("events");
    while paths.len() < wanted {
        while open.len() < AT_ONCE && open.len() + paths.len() < wanted {
            let reply = control.command("EXTENDCIRCUIT 0 purpose=general").expect("a circuit");
            open.insert(reply.text().strip_prefix("EXTENDED ").expect("its id").to_owned());
        }
        let left = until.saturating_duration_since(Instant::now());
        let event = control.next_event(left).expect("events").expect("a circuit in time");
        let words: Vec<&str> = event.words().collect();
        let [id, state, path, ..] = words[..] else { continue };
        if state == "FAILED" && open.remove(id) {
            let is_busy = |word: &&str| BUSY.iter().any(|busy| word.ends_with(busy));
            failed += usize::from(!words.iter().any(is_busy));
            assert!(failed <= MOST_FAILED, "{failed} failed: {}", event.text);
        }
        if state == "BUILT" && open.remove(id) {
            let ids = path.split(',').map(|hop| hop[1..41].to_owned());
            paths.push(ids.collect());
            until = Instant::now() + PATIENCE;
            control.command(&format!("CLOSECIRCUIT {id}")).expect("closed");
        }
    }
    eprintln!("{} circuits, {failed} more failed", paths.len());
    paths
}

#[test]
fn paths_are_drawn_as_a_c_tor_draws_them() {
    let (seed, began) = (rand::random::<u64>(), Instant::now());
    let dir = tempfile::tempdir().expect("a folder");
    let file: PathBuf = dir.path().join("bandwidths");
    let has_ended = AtomicBool::new(false);
    let started = thread::scope(|scope| {
        scope.spawn(|| write_weights(dir.path(), &file, &has_ended));
        let started = builder(dir.path(), &file).start();
        has_ended.store(true, Ordering::Relaxed);
        started
    });
    let lab = started.expect("a network");
    let client = lab.node("client0");
    let mut network = CircuitNetwork::read(client.data_dir(), 0).expect("its consensus");
    let pool = &mut network.pool;
    assert!(pool.factors.is_some() && pool.policies.is_some(), "{pool:?}");
    let weights: HashMap<&str, f64> =
        pool.network.relays.iter().map(|relay| (&*relay.nickname, relay.weight)).collect();
    for (name, _, _, weight) in RELAYS {
        assert_eq!(weights[name], f64::from(weight), "{weights:?}");
    }
    // Without entry guards, tor does not require this flag.
    pool.network.relays.iter_mut().for_each(|relay| relay.flags.stable = true);

    let ours = ours(pool, false, DRAWS, seed);
    let mut control = client.control().expect("a control connection");
    let theirs = || -> Places {
        let paths = circuits(&mut control, CIRCUITS);
        let place = |id: &String| network.find(id).expect("a relay");
        count(paths.iter().map(|path| path.iter().map(place).collect()))
    };
    compare("tor", theirs, &ours, seed);
    eprintln!("took {:.1?}", began.elapsed());
}
