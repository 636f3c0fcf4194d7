//! `ff-lab up` as users run it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running network.
struct Up {
    child: Child,
    printed: Value,
}

impl Up {
    /// Starts a network whose directories are below `temp`.
    fn start(temp: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-lab"));
        command.arg("up").arg("--json").args(options).env("TMPDIR", temp);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { child, printed: serde_json::from_str(&line).expect("JSON") }
    }

    /// The network's directory.
    fn dir(&self) -> PathBuf {
        self.printed["directory"].as_str().expect("a directory").into()
    }

    /// Sends a signal and waits for the exit status.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number of processes with this path in their command line.
fn processes_of(dir: &Path) -> usize {
    let dir = dir.to_str().expect("a path");
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(dir)).count()
}

/// Waits until `is_so(dir)`.
fn wait_until(what: &str, dir: &Path, is_so: impl Fn(&Path) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(dir) {
        assert!(Instant::now() < deadline, "never: {what} {}", dir.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the tor of this directory has ended, or is ending because it lost its owner.
fn ends(dir: &Path) -> bool {
    let log = std::fs::read_to_string(dir.join("log")).expect("its log");
    log.contains("Owning controller") || processes_of(dir) == 0
}

#[test]
fn networks_run_beside_each_other_and_leave_nothing() {
    let temp = tempfile::tempdir().expect("a directory");
    let options = ["--relays", "1", "--exits", "1", "--limit", "8Mbit"];
    let mut first = Up::start(temp.path(), &options);
    let nodes = first.printed["nodes"].as_array().expect("nodes").clone();
    let roles: Vec<_> = nodes.iter().map(|node| node["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["authority", "relay", "exit", "client"]);
    let socks = nodes[3]["socks"].as_str().expect("an address");
    TcpStream::connect(socks).expect("the client's SocksPort");
    assert!(Path::new(nodes[1]["control"].as_str().expect("a path")).exists());
    assert_eq!(nodes[1]["fingerprint"].as_str().map(str::len), Some(40));

    let mut second = Up::start(temp.path(), &options);
    assert!(first.dir().exists() && first.dir() != second.dir());
    assert_eq!(second.end(Signal::INT), Some(0));
    assert!(!second.dir().exists() && processes_of(&second.dir()) == 0);
    TcpStream::connect(socks).expect("the first network goes on");

    // If killed, it takes its nodes with it and leaves its directory. The next network removes
    // that, and ends a tor that hangs in its exit.
    assert_eq!(first.end(Signal::KILL), None);
    assert!(first.dir().exists());
    for node in &nodes {
        let dir = first.dir().join(node["name"].as_str().expect("a name"));
        wait_until("it ends with its owner:", &dir, ends);
    }
    let mut third = Up::start(temp.path(), &options);
    assert!(!first.dir().exists(), "the next start has removed it");
    wait_until("no process is left of", &first.dir(), |dir| processes_of(dir) == 0);
    assert_eq!(third.end(Signal::TERM), Some(0));
    assert_eq!(std::fs::read_dir(temp.path()).expect("a directory").count(), 0);
}

/// A coordinator that does not exist: its key is the base point of Ed25519.
const COORDINATOR: &str = "WGZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY";

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn relays_of_a_tor_that_can_let_themselves_be_measured() {
    let tor = std::env::var("FF_TEST_TOR").expect("FF_TEST_TOR: a tor that build-tor has built");
    let temp = tempfile::tempdir().expect("a directory");
    let options = ["--relays", "1", "--exits", "1", "--tor", &tor, "--flashflow"];
    let mut up = Up::start(temp.path(), &[&options[..], &["--coordinator", COORDINATOR]].concat());
    for node in up.printed["nodes"].as_array().expect("nodes") {
        let name = node["name"].as_str().expect("a name");
        let torrc = std::fs::read_to_string(up.dir().join(name).join("torrc")).expect("a torrc");
        let is_relay = ["relay", "exit"].contains(&node["role"].as_str().expect("a role"));
        assert_eq!(torrc.contains("FFMeasurementsAllowed 1"), is_relay, "{torrc}");
        assert_eq!(torrc.contains(COORDINATOR), is_relay, "{torrc}");
    }
    // All nodes run: tor would exit at an unknown option.
    assert_eq!(up.end(Signal::INT), Some(0));
}

#[test]
fn what_cannot_be_is_one_sentence() {
    let temp = tempfile::tempdir().expect("a directory");
    for (options, expected) in [
        (&["--limit", "10kbit"][..], "--limit 10kbit"),
        (&["--limit", "x"], "--limit"),
        (&["--tor", "/usr/sbin/tor", "--flashflow"], "build-tor"),
        (&["--tor", "/nothing"], "/nothing"),
        (&["--relays", "0", "--exits", "1"], "clients need 3 relays"),
        (
            &["--arti-relays", "1", "--arti-relay", "/nothing", "--exits", "1", "--relays", "0"],
            "clients",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-lab"));
        let output = command.arg("up").args(options).env("TMPDIR", temp.path()).output();
        let output = output.expect("the program");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected) && !text.contains("panicked"), "{options:?}: {text}");
        assert_eq!(std::fs::read_dir(temp.path()).expect("a directory").count(), 0, "{options:?}");
    }
}
