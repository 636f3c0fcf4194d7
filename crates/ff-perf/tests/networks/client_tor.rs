//! `ff-perf circuits run` and `check` with `--client tor`: the state of the tor that they take
//! over.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use ff_circuits::record::{CircuitRecord, Failure, Stage, Whose};
use ff_lab::{Network, Node};
use ff_perf::client::tor::own::OwnTor;
use ff_perf::client::tor::{Takeover, Tor};

use crate::run::PATIENT;

/// Options that a run sets, and a list in torrc.
const OPTIONS: [&str; 8] = [
    "__LeaveStreamsUnattached",
    "__DisablePredictedCircuits",
    "LearnCircuitBuildTimeout",
    "CircuitBuildTimeout",
    "ClientRejectInternalAddresses",
    "MaxCircuitDirtiness",
    "NewCircuitPeriod",
    "NodeFamily",
];

/// Longest wait for the next event.
const PATIENCE: Duration = Duration::from_secs(120);
/// Circuits in flight.
const IN_FLIGHT: usize = 3;

/// A run on a network, with the folder of its lines.
struct Run {
    child: Child,
    out: PathBuf,
}

impl Run {
    /// Starts a run that takes over this tor; options are separated by spaces.
    fn start(client: &Node, out: &Path, options: &str) -> Self {
        Self::start_in(client.data_dir(), out, &format!("--client tor {options}"))
    }

    /// Starts a run on the network in a directory.
    fn start_in(network: &Path, out: &Path, options: &str) -> Self {
        // SIGHUP may be ignored where the tests run.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(env!("CARGO_BIN_EXE_ff-perf"));
        command.args(Self::words(network, out, options));
        Self::spawn(command, out)
    }

    /// Arguments of the program.
    fn words(network: &Path, out: &Path, options: &str) -> Vec<String> {
        let (network, out) = (network.display(), out.display());
        let words = format!(
            "circuits run --network {network} --out {out} --per-guard 50 --in-flight {IN_FLIGHT} {PATIENT} {options}"
        );
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Starts a check of a relay with a capacity of 1 MB/s.
    fn check(client: &Node, relay: &str, out: &Path) -> Self {
        let capacities = out.with_extension("csv");
        let text = format!("fingerprint,estimate_bytes_per_sec\n{relay},1000000\n");
        fs::write(&capacities, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        command.args(["check", "--client", "tor", "--relays", relay, "--network"]);
        command.arg(client.data_dir()).arg("--capacities").arg(capacities).arg("--out").arg(out);
        command.args(["--each", "1000", "--gap", "0.1", "--sizes", "10kB"]);
        Self::spawn(command, out)
    }

    /// Starts a program that writes lines to this folder.
    fn spawn(mut command: Command, out: &Path) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Self { child: child.expect("the program"), out: out.to_owned() }
    }

    /// Complete lines so far.
    fn lines(&self) -> Vec<CircuitRecord> {
        let text = fs::read_to_string(self.out.join("circuits-000.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("a circuit")).collect()
    }

    /// Waits until there are `count` lines.
    fn wait_for(&self, count: usize) {
        self.wait_until(|lines| lines.len() >= count);
    }

    /// Waits until the lines satisfy `is_so`.
    fn wait_until(&self, is_so: impl Fn(&[CircuitRecord]) -> bool) {
        let (mut count, mut until) = (0, Instant::now() + PATIENCE);
        loop {
            let lines = self.lines();
            if is_so(&lines) {
                return;
            }
            // The wait goes on as long as lines are added.
            if lines.len() > count {
                (count, until) = (lines.len(), Instant::now() + PATIENCE);
            }
            assert!(Instant::now() < until, "it stands at {count} lines");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("kill");
        assert!(sent.success());
    }

    /// Waits for the end; returns exit status, standard error and lines.
    fn end(mut self) -> (Option<i32>, String, Vec<CircuitRecord>) {
        let mut said = String::new();
        let mut errors = self.child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut said).expect("what it says");
        (self.child.wait().expect("its end").code(), said, self.lines())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Values of the options in a tor.
fn options(node: &Node) -> Vec<String> {
    let mut control = node.control().expect("a control connection");
    let reply = control.command(&format!("GETCONF {}", OPTIONS.join(" "))).expect("a reply");
    reply.lines.into_iter().map(|line| line.text).collect()
}

#[test]
fn a_tor_is_taken_over_and_has_its_own_options_back() {
    let builder = Network::builder().middles(4).exits(3).clients(2);
    let builder = builder.client_torrc("MaxCircuitDirtiness 20 minutes");
    let builder = builder.client_torrc("LearnCircuitBuildTimeout 0");
    let families = ["NodeFamily 192.0.2.1,192.0.2.2", "NodeFamily 192.0.2.3,192.0.2.4"];
    let builder = families.into_iter().fold(builder, |builder, line| builder.client_torrc(line));
    let network = builder.start().expect("a network");
    // The tests mostly wait.
    thread::scope(|scope| {
        scope.spawn(|| {
            let client = network.node("client0");
            gives_options_back(client);
            a_check_gives_options_back(client, network.node("middle0").rsa_fingerprint());
        });
        let client = network.node("client1");
        goes_on_after_a_reload(client);
        measures_no_stream_on_another_circuit(client);
        an_arms_options_outlast_a_reload(client);
    });
    is_measured_as_chutney_has_it(&network);
}

/// Options are restored however a run ends; a killed run is reported.
fn gives_options_back(client: &Node) {
    let before = options(client);
    assert!(before.contains(&"MaxCircuitDirtiness=1200".to_owned()), "{before:?}");
    assert_eq!(before.len(), OPTIONS.len() + 1, "{before:?}");

    let dir = tempfile::tempdir().expect("a directory");
    let (code, said, lines) = Run::start(client, &dir.path().join("whole"), "--count 3").end();
    assert_eq!((code, lines.len()), (Some(0), 3), "{said}");
    assert_eq!(options(client), before, "at the end");
    assert!(!said.contains("killed"), "{said}");

    for signal in ["-INT", "-TERM", "-HUP"] {
        let run = Run::start(client, &dir.path().join(signal), "--count 10000 --rtt 5");
        run.wait_for(3);
        assert_ne!(options(client), before);
        run.signal(signal);
        let (code, said, _) = run.end();
        assert_eq!(code, Some(1));
        assert!(said.contains("stopped by a signal"), "{said}");
        assert_eq!(options(client), before, "after {signal}");
    }
    a_panic_gives_them_back(client, &before);
    ends_with_its_terminal(client, &before);
    outlives_its_terminal(client);

    let run = Run::start(client, &dir.path().join("killed"), "--count 10000 --rtt 5");
    run.wait_for(3);
    let ours = options(client);
    let (code, said, lines) = Run::start(client, &dir.path().join("second"), "--count 3").end();
    assert_eq!((code, lines.len()), (Some(1), 0), "{said}");
    assert!(said.contains("client0: another ff-perf has changed the options"), "{said}");
    assert_eq!(options(client), ours, "they stay the first one's");
    run.signal("-KILL");
    run.end();
    assert_eq!(options(client), ours, "nobody could set them back");
    let (code, said, _) = Run::start(client, &dir.path().join("next"), "--count 3").end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("client0") && said.contains("SIGHUP"), "{said}");
    client.reload().expect("its torrc again");
    assert_eq!(options(client), before, "as it was said");
}

/// A tor taken over in a thread that panics gets its options back.
fn a_panic_gives_them_back(client: &Node, before: &[String]) {
    let panicked = thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            let Takeover { tor, ending, .. } = Tor::take_over(client.data_dir()).expect("a tor");
            // Dropped last, as in every command.
            let (_ending, _tor) = (ending, tor);
            assert_ne!(options(client), before);
            resume_unwind(Box::new("as if there was a fault"));
        });
        panicking.join()
    });
    assert!(panicked.is_err());
    assert_eq!(options(client), before, "after a panic");
}

/// A run in a terminal ends in order when the terminal is closed.
fn ends_with_its_terminal(client: &Node, before: &[String]) {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let words = Run::words(client.data_dir(), &out, "--client tor --count 10000 --rtt 5");
    let program = env!("CARGO_BIN_EXE_ff-perf");
    let line = format!("exec env --default-signal=HUP {program} {}", words.join(" "));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    let run = Run::spawn(terminal, &out);
    run.wait_for(3);
    assert_ne!(options(client), before);
    run.signal("-KILL");
    let until = Instant::now() + PATIENCE;
    while options(client) != before {
        assert!(Instant::now() < until, "tor keeps our options: {:?}", options(client));
        thread::sleep(Duration::from_millis(50));
    }
    // The folder is unlocked once the last line is written.
    let folder = fs::File::open(&out).expect("the folder");
    while folder.try_lock().is_err() {
        assert!(Instant::now() < until, "it has not ended");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(run.lines().len() >= 3);
}

/// A run under `nohup` outlives its terminal, even if nothing reads its output.
fn outlives_its_terminal(client: &Node) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_ff-perf")).stdin(Stdio::null());
    command.args(Run::words(client.data_dir(), dir.path(), "--client tor --count 30 --rtt 5"));
    let mut run = Run::spawn(command, dir.path());
    run.wait_for(3);
    run.signal("-HUP");
    drop(run.child.stderr.take());
    assert_eq!(run.child.wait().expect("its end").code(), Some(0));
    assert_eq!(run.lines().len(), 30);
}

/// A check that is stopped also restores tor's options.
fn a_check_gives_options_back(client: &Node, relay: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let before = options(client);
    let run = Run::check(client, relay, &dir.path().join("check"));
    run.wait_for(3);
    assert_ne!(options(client), before);
    run.signal("-TERM");
    let (code, said, _) = run.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
    assert_eq!(options(client), before, "after SIGTERM");
}

/// A tor that reads its torrc again attaches streams itself until it has our options again.
fn goes_on_after_a_reload(client: &Node) {
    let dir = tempfile::tempdir().expect("a directory");
    let before = options(client);
    let run = Run::start(client, dir.path(), "--count 10000 --rtt 15");
    run.wait_for(10);
    let ours = options(client);
    assert_ne!(ours, before);
    client.reload().expect("its torrc again");
    let until = Instant::now() + PATIENCE;
    while options(client) != ours {
        assert!(Instant::now() < until, "tor keeps its torrc's: {:?}", options(client));
        thread::sleep(Duration::from_millis(20));
    }
    let since = UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    let is_whole = |circuit: &CircuitRecord| {
        circuit.began_unix_secs > since && !circuit.failure.as_ref().is_some_and(met_idle_link)
    };
    run.wait_until(|lines| lines.iter().filter(|circuit| is_whole(circuit)).count() >= 10);
    run.signal("-TERM");
    let (code, said, circuits) = run.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
    for circuit in circuits.iter().filter(|circuit| is_whole(circuit)) {
        assert_eq!((circuit.failure.as_ref(), circuit.rtt.len()), (None, 15), "{circuit:?}");
    }
    all_faults_are_ours(&circuits);
    assert_eq!(options(client), before, "its torrc's");
}

/// A tor that chooses its own paths keeps the options of an arm when it reads its torrc again; in
/// the end it has those of the new torrc.
fn an_arms_options_outlast_a_reload(client: &Node) {
    let lines = [("NumEntryGuards".to_owned(), "1".to_owned())];
    let (tor, ending) = OwnTor::connect(client.data_dir(), &lines).expect("a tor");
    let mut control = client.control().expect("a control connection");
    let mut guards = || control.getconf("NumEntryGuards").expect("its value").unwrap_or_default();
    assert_eq!(guards(), "1");
    client.append_torrc("NumEntryGuards 3").expect("a line");
    client.reload().expect("its torrc again");
    let until = Instant::now() + PATIENCE;
    while guards() != "1" {
        assert!(Instant::now() < until, "tor keeps its torrc's");
        thread::sleep(Duration::from_millis(20));
    }
    drop(tor);
    ending.expect("options are lent").wait().expect("set back");
    assert_eq!(guards(), "3", "the new torrc's");
}

/// Whether a guard ended a circuit because nothing had moved on its client's link for a minute:
/// several times a minute a tor closes all circuits of such links that end at it, new ones as well
/// (`circuit_expire_old_circuits_serverside`).
fn met_idle_link(fault: &Failure) -> bool {
    (fault.stage, fault.hop, fault.reason.as_str()) == (Stage::Build, Some(1), "finished")
}

/// Only this client is blamed.
fn all_faults_are_ours(circuits: &[CircuitRecord]) -> usize {
    let faults = circuits.iter().filter_map(|circuit| circuit.failure.as_ref());
    let faults: Vec<_> = faults.filter(|fault| !met_idle_link(fault)).collect();
    for fault in &faults {
        assert!(fault.whose == Whose::Client && fault.reason.contains("SIGHUP"), "{fault:?}");
    }
    faults.len()
}

/// Number of round trips.
fn trips(circuits: &[CircuitRecord]) -> usize {
    circuits.iter().map(|circuit| circuit.rtt.len()).sum()
}

/// A tor's own reports on streams and circuits.
#[derive(Default)]
struct Truth {
    /// Paths by circuit.
    paths: HashMap<String, Vec<String>>,
    /// Circuits by requested address.
    asked: HashMap<String, Vec<String>>,
}

impl Truth {
    /// Listens and disturbs: repeatedly has tor attach streams itself, then waits ten times as
    /// long, so that most circuits succeed however slow the machine is. At the end it has received
    /// all events.
    fn listen(client: &Node, is_over: &AtomicBool) -> Self {
        const SHORTEST: Duration = Duration::from_millis(50);
        const LONGEST: Duration = Duration::from_millis(500);
        let mut control = client.control().expect("a control connection");
        let mut disturber = client.control().expect("a control connection");
        control.subscribe(&["CIRC", "STREAM"]).expect("events");
        let (mut truth, mut next, mut disturbed) = (Self::default(), Instant::now(), None);
        loop {
            let was_over = is_over.load(Ordering::Relaxed);
            match disturbed {
                Some(since) => {
                    let set = disturber.getconf("__LeaveStreamsUnattached").expect("its value");
                    if set.as_deref() == Some("1") {
                        let pause = Instant::elapsed(&since) * 10;
                        next = Instant::now() + pause.clamp(SHORTEST, LONGEST);
                        disturbed = None;
                    }
                }
                None if !was_over && Instant::now() >= next => {
                    disturber.setconf("__LeaveStreamsUnattached", "0").expect("set");
                    disturbed = Some(Instant::now());
                }
                None => {}
            }
            let event = control.next_event(Duration::from_millis(10)).expect("an event");
            let Some(event) = event else {
                if was_over {
                    break;
                }
                continue;
            };
            let words: Vec<&str> = event.words().collect();
            match (event.kind.as_str(), &words[..]) {
                ("CIRC", [id, "BUILT", path, ..]) => {
                    let ids = path.split(',').map(|relay| relay[1..41].to_owned());
                    truth.paths.insert((*id).to_owned(), ids.collect());
                }
                ("STREAM", [_, "SENTCONNECT", id, target, ..]) => {
                    let asked = truth.asked.entry((*target).to_owned()).or_default();
                    asked.push((*id).to_owned());
                }
                _ => {}
            }
        }
        truth
    }

    /// Checks that a round trip went over its circuit. How tor handled the stream after the refusal
    /// does not matter.
    fn confirms(&self, circuit: &CircuitRecord, nth: u64) {
        // Address of this probe.
        let at = circuit.number * 37 + nth;
        let target =
            format!("127.{}.{}.{}:1", at / 64_516 % 254 + 1, at / 254 % 254 + 1, at % 254 + 1);
        let path: Vec<_> = circuit.path.iter().map(|relay| relay.id.clone()).collect();
        let first = self.asked[&target].first().and_then(|id| self.paths.get(id));
        assert_eq!(first, Some(&path), "{target} of circuit {}", circuit.number);
    }
}

/// A stream that tor attaches itself is a failure of ours and never measured.
fn measures_no_stream_on_another_circuit(client: &Node) {
    let dir = tempfile::tempdir().expect("a directory");
    let before = options(client);
    let is_over = AtomicBool::new(false);
    let (truth, circuits) = thread::scope(|scope| {
        let truth = scope.spawn(|| Truth::listen(client, &is_over));
        let run = Run::start(client, dir.path(), "--count 10000 --rtt 15 --failures 1");
        run.wait_until(|lines| all_faults_are_ours(lines) > 0 && trips(lines) > 100);
        run.signal("-TERM");
        let (code, said, circuits) = run.end();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("stopped by a signal"), "{said}");
        (truth.join().expect("the truth"), circuits)
    });
    assert!(all_faults_are_ours(&circuits) > 0 && trips(&circuits) > 100, "{circuits:?}");
    for circuit in &circuits {
        (0..circuit.rtt.len() as u64).for_each(|nth| truth.confirms(circuit, nth));
    }
    assert_eq!(options(client), before, "also then");
}

/// The same network in chutney's layout: `nodes` links to the network made last, with a directory
/// per node, named by number and role.
fn is_measured_as_chutney_has_it(network: &Network) {
    let net = tempfile::tempdir().expect("a directory");
    let nodes = net.path().join("nodes.1637264049");
    fs::create_dir(&nodes).expect("a directory");
    let tagged = network.authorities().map(|node| (node, 'a'));
    let tagged = tagged.chain(network.relays().map(|node| (node, 'r')));
    let tagged = tagged.chain(network.clients().map(|node| (node, 'c')));
    for (number, (node, tag)) in tagged.enumerate() {
        symlink(node.data_dir(), nodes.join(format!("{number:03}{tag}"))).expect("a link");
    }
    symlink(&nodes, net.path().join("nodes")).expect("a link");
    for client in ["arti", "tor"] {
        let out = net.path().join(client);
        let options = format!("--client {client} --count 3 --rtt 1");
        let (code, said, circuits) = Run::start_in(net.path(), &out, &options).end();
        assert_eq!((code, circuits.len()), (Some(0), 3), "{client}: {said}");
        assert!(circuits.iter().all(|circuit| circuit.failure.is_none()), "{circuits:?}");
    }
}
