//! Onion services of `ff-perf source`, and `ff-perf downloads run --as-client`, on a private
//! network, as users run them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use ff_circuits::record::{CircuitRecord, Failure, Stage, Whose};
use ff_lab::{Control, Network};
use serde_json::Value;

use crate::downloads::Source;
use crate::run::lines;

/// Size of a download, in bytes.
const SIZE: u64 = 100_000;
/// Longest wait until clients reach a service.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time limit of a download in seconds: longer than tor's own wait for an onion service, 120 s, so
/// that tor reports why it fails.
const TIMEOUT: &str = "300";
/// An address without a service in the private network: the Tor Project's web site.
const NOBODY: &str = "http://2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion/token";

/// A source with an onion service.
struct Service {
    source: Source,
    /// URL without Tor.
    direct: String,
    /// URL of the onion service.
    onion: String,
}

impl Service {
    fn start(options: &str) -> Self {
        let source = Source::start(&format!("--onion --json {options}"));
        let told: Value = serde_json::from_str(&source.url).expect("a line of JSON");
        let url = |key: &str| told[key].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
        let (direct, onion) = (url("url"), url("onion"));
        Self { source, direct, onion }
    }
}

/// Downloads once over a client's own paths.
fn download(network: &Path, out: &Path, url: &str, options: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "run", "--as-client", "--count", "1", "--timeout", TIMEOUT]);
    command.arg("--network").arg(network).arg("--out").arg(out).args(["--to", url]);
    command.args(["--size", &SIZE.to_string()]).args(options.split_whitespace());
    command.output().expect("the program")
}

/// Downloads until a download is complete; returns its line.
fn whole(network: &Path, dir: &Path, url: &str, client: &str) -> CircuitRecord {
    let until = Instant::now() + PATIENCE;
    for attempt in 0.. {
        let out = dir.join(format!("{client}-{attempt}"));
        let options = match client {
            "arti" => format!("--client arti --state {}", dir.join("state").display()),
            _ => format!("--client {client}"),
        };
        let output = download(network, &out, url, &options);
        if output.status.success() {
            return lines(&out).remove(0);
        }
        assert!(Instant::now() < until, "{client} does not reach {url}: {output:?}");
        thread::sleep(Duration::from_secs(2));
    }
    unreachable!("attempts have no end");
}

/// Checks the path in the line.
fn is_told(circuit: &CircuitRecord, client: &str) {
    assert!(circuit.as_client && circuit.failure.is_none(), "{circuit:?}");
    let download = circuit.download.as_ref().expect("a download");
    assert!(download.is_checked && download.bytes == SIZE, "{circuit:?}");
    assert!(download.connected_us > Some(0) && circuit.hops_us.is_empty(), "{circuit:?}");
    match &circuit.path_unknown {
        // tor's conflux sets have several paths.
        Some(why) => assert!(client == "tor" && why.contains("conflux"), "{circuit:?}"),
        None => assert!((3..=4).contains(&circuit.path.len()), "{circuit:?}"),
    }
    assert!(circuit.path.iter().all(|relay| relay.id.len() == 40 && !relay.nick.is_empty()));
}

/// The failure of an onion service that does not exist.
fn nobody(network: &Path, dir: &Path, client: &str) -> Failure {
    let out = dir.join(format!("{client}-nobody"));
    let output = download(network, &out, NOBODY, &format!("--client {client}"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let circuit = lines(&out).remove(0);
    assert!(circuit.as_client && circuit.path_unknown.is_some(), "{circuit:?}");
    let failure = circuit.failure.expect("a failure");
    assert_eq!(failure.stage, Stage::Download, "{failure:?}");
    failure
}

/// Options on paths are refused with a sentence, and so is an onion service without the client's
/// own paths.
fn are_refused(network: &Path, dir: &Path) {
    let out = dir.join("refused");
    for (option, says) in [
        ("--path-file x", "the client chooses its paths itself; leave out --path-file"),
        (
            "--guards 1",
            "the client chooses its paths itself; leave out --select, --lengths, --guards",
        ),
        ("--client tor --state x", "--state is for --client arti"),
    ] {
        let output = download(network, &out, NOBODY, option);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(says), "{said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "run", "--to", NOBODY, "--network"]).arg(network);
    let output = command.arg("--out").arg(&out).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("--as-client"), "{said}");
    let bad = NOBODY.replacen('g', "h", 1);
    let output = download(network, &out, &bad, "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("56 characters"), "{said}");
    assert!(!out.exists(), "nothing is written before");
}

/// Arms whose clients choose their own paths take turns, and tor has its own options again at the
/// end.
fn arms_choose_their_paths(network: &Path, dir: &Path) {
    let source = Source::start("");
    let (arms, out) = (dir.join("arms.toml"), dir.join("arms"));
    let text = "[[arm]]\nname = 'a'\nas-client = true\n[[arm]]\nname = 'b'\nclient = 'tor'\nas-client = true\n\
                torrc = ['NumEntryGuards 1', 'ConfluxEnabled 0']\n";
    fs::write(&arms, text).expect("written");
    let mut control = Control::open(network).expect("a control connection");
    let mut guards = || control.getconf("NumEntryGuards").expect("an answer");
    let before = guards();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "run", "--count", "4", "--timeout", TIMEOUT, "--size", "1000"]);
    command.arg("--network").arg(network).arg("--out").arg(&out).args(["--to", &source.url]);
    command.arg("--state").arg(dir.join("states"));
    let output = command.arg("--arms").arg(&arms).output().expect("the program");
    assert!(output.status.success(), "{output:?}");
    assert!(dir.join("states/a/state").is_dir() && !dir.join("states/b").exists());
    let all = lines(&out);
    for name in ["a", "b"] {
        let is_its = |one: &&CircuitRecord| one.arm.as_deref() == Some(name) && one.as_client;
        assert_eq!(all.iter().filter(is_its).count(), 2, "{all:?}");
    }
    assert_eq!(guards(), before);
    let _ = source.end();
}

/// Number of files in a folder of keys, none of which others can read.
fn secrets(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    let files = entries.map(|entry| {
        let about = entry.metadata().expect("its metadata");
        if about.is_dir() {
            return secrets(&entry.path());
        }
        assert_eq!(about.permissions().mode() & 0o077, 0, "{}", entry.path().display());
        1
    });
    files.sum()
}

#[test]
fn clients_choose_their_paths_to_a_source_and_to_its_onion_services() {
    let network = Network::builder()
        .middles(4)
        .exits(3)
        .clients(2)
        .voting_interval(Duration::from_secs(20))
        .consensus_param("hsdir_interval", 8)
        .start()
        .expect("a network");
    let (client, host) = (network.node("client0").data_dir(), network.node("client1").data_dir());
    let dir = tempfile::tempdir().expect("a directory");
    are_refused(client, dir.path());
    arms_choose_their_paths(client, dir.path());
    let keys = |name: &str| dir.path().join(name);
    let by_arti = format!("--network {} --keys {}", host.display(), keys("arti").display());
    let by_tor = format!("--by tor:{} --keys {}", host.display(), keys("tor").display());
    thread::scope(|scope| {
        for (name, options, secret) in
            [("arti", by_arti, keys("arti").join("state/keystore")), ("tor", by_tor, keys("tor"))]
        {
            let dir = keys(&format!("from-{name}"));
            scope.spawn(move || {
                let service = Service::start(&options);
                for kind in ["arti", "tor"] {
                    let of = |target: &str| dir.join(target);
                    is_told(&whole(client, &of("exit"), &service.direct, kind), kind);
                    is_told(&whole(client, &of("onion"), &service.onion, kind), kind);
                }
                let said = service.source.end();
                // More, if a client gave up a download that the source had sent.
                let whole = said
                    .split_once(" complete downloads")
                    .and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u64>().ok());
                assert!(whole >= Some(4), "{said}");
                let again = Service::start(&options);
                let place = |url: &str| url.rsplit_once('/').map(|(place, _)| place.to_owned());
                assert_eq!(place(&again.onion), place(&service.onion), "it has the same key");
                let _ = again.source.end();
                assert!(secrets(&secret) > 0, "{} has a key", secret.display());
            });
        }
    });
    let failure = nobody(client, dir.path(), "arti");
    assert!(failure.reason.contains("OnionServiceNotFound"), "{failure:?}");
    assert_eq!(failure.whose, Whose::Target);
    let failure = nobody(client, dir.path(), "tor");
    assert!(failure.reason.contains("ExtendedErrors"), "{failure:?}");
    let mut control = Control::open(client).expect("a control connection");
    // A port that stays open keeps its flags; a closed one may belong to another program by now.
    control.setconf("SocksPort", "0").expect("no port");
    control.setconf("SocksPort", "auto ExtendedErrors").expect("another flag");
    let failure = nobody(client, &dir.path().join("extended"), "tor");
    assert!(failure.reason.contains("(SOCKS reply F0)"), "{failure:?}");
    assert_eq!(failure.whose, Whose::Target);
}

#[test]
fn a_single_onion_service_needs_a_tor_that_is_configured_for_it() {
    let network = Network::builder().middles(2).exits(1).clients(1).start().expect("a network");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["source", "--onion", "--single", "--by"]);
    command.arg(format!("tor:{}", network.node("client0").data_dir().display()));
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("HiddenServiceNonAnonymousMode 1") && said.contains("--single"),
        "{said}"
    );
}
