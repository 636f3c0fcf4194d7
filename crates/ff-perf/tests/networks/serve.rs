//! `ff-perf circuits serve` on a private network: metrics compared with lines, files, end, and
//! errors.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ff_circuits::record::{CircuitRecord, Stage};
use ff_lab::Network;

use crate::run::error;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(180);
/// Options for many circuits per second in a small network.
const FAST: &str = "--share-builds --share-probes --per-guard 1000 --rtt 2 --ttfb 1";

/// The command; options are separated by spaces.
fn command(program: &str, network: &Path, dir: &Path, options: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["circuits", "serve", "--network"]).arg(network).arg("--dir").arg(dir);
    command.args(options.split_whitespace());
    command
}

/// A running server, whose messages are read line by line.
pub(crate) struct Server {
    child: Child,
    said: Receiver<String>,
    /// Address of its metrics.
    address: String,
}

impl Server {
    /// Starts a server with metrics.
    fn start(network: &Path, dir: &Path, options: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_ff-perf");
        Self::of(command(program, network, dir, &format!("{options} --metrics 127.0.0.1:0")))
    }

    /// Starts a server by this command.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program");
        let lines = BufReader::new(child.stderr.take().expect("what it says")).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let first: String = said.recv_timeout(PATIENCE).expect("a first line");
        let address = first.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{first}")).to_owned();
        Self { child, said, address }
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("its address");
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        )
        .expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text
    }

    /// Sum of the metrics whose names begin with `name`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        sum(&self.metrics(), name)
    }

    /// Waits for a message that contains this.
    fn says(&self, part: &str) -> String {
        let next = || self.said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("never: {part}"));
        std::iter::repeat_with(next).find(|line| line.contains(part)).expect("a line")
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Ends it, and returns its exit status.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.signal("TERM");
        self.has_ended()
    }

    /// Waits for its end.
    fn has_ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("its end", || {
            status = self.child.try_wait().expect("its status");
            status.is_some()
        });
        status.expect("its end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let kill = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(kill.expect("a shell").success());
}

/// Sum of the metrics whose names begin with `name`.
fn sum(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter(|line| line.starts_with(name));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Waits until `is_so`.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Files of a server, oldest first.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    files
}

/// Circuits of all of its files, while none is written.
fn circuits(dir: &Path) -> Vec<CircuitRecord> {
    let texts = files(dir).into_iter().map(|file| fs::read_to_string(file).expect("lines"));
    let is_whole = |text: &String| text.is_empty() || text.ends_with('\n');
    assert!(texts.clone().all(|text| is_whole(&text)), "a half line");
    circuits_by_now(dir)
}

/// Circuits of all of its files, while more are written: the last line may be incomplete.
pub(crate) fn circuits_by_now(dir: &Path) -> Vec<CircuitRecord> {
    let texts = files(dir).into_iter().filter_map(|file| fs::read_to_string(file).ok());
    let texts: Vec<_> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    let whole = lines.filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("a circuit")).collect()
}

/// Checks that metrics agree with lines; the error names one that does not.
fn agree(metrics: &str, circuits: &[CircuitRecord]) -> Result<(), String> {
    let trips = || circuits.iter().flat_map(|circuit| &circuit.rtt);
    let firsts = || circuits.iter().flat_map(|circuit| &circuit.first_bytes);
    let builds = || circuits.iter().filter_map(CircuitRecord::build_us);
    let secs = |us: u64| us as f64 / 1e6;
    for (name, expected) in [
        ("ff_circuit_build_seconds_count", builds().count() as f64),
        ("ff_circuit_build_seconds_sum", secs(builds().sum())),
        ("ff_circuit_rtt_seconds_count", trips().count() as f64),
        ("ff_circuit_rtt_seconds_sum", secs(trips().map(|trip| trip.us).sum())),
        ("ff_circuit_ttfb_seconds_count", firsts().count() as f64),
        ("ff_circuit_ttfb_seconds_sum", secs(firsts().map(|first| first.us).sum())),
        (
            "ff_circuit_failures_total{",
            circuits.iter().filter(|circuit| circuit.failure.is_some()).count() as f64,
        ),
    ] {
        let said = sum(metrics, name);
        if (said - expected).abs() >= 1e-6 {
            return Err(format!("{name}: {said}, by the lines {expected}"));
        }
    }
    Ok(())
}

fn unix_secs(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).expect("a time").as_secs_f64()
}

#[test]
fn circuits_are_measured_until_a_signal_whatever_happens() {
    let began = unix_secs(SystemTime::now());
    let network = Network::builder().middles(4).exits(3).clients(1).start().expect("a network");
    figures_are_what_lines_say_and_refusals_leave_nothing(&network, began);
    files_are_bounded_and_a_start_goes_on(&network);
    a_full_disk_holds_it_up(&network);
    // Last, because relays do not try for a minute to reach one that was down.
    a_dead_relay_is_no_end(&network);
    a_tor_that_dies_is_no_end(&network);
}

/// Slow, so that there are times at which no circuit ends. The network began at `began`, in seconds
/// since 1970.
fn figures_are_what_lines_say_and_refusals_leave_nothing(network: &Network, began: f64) {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, other) = (dir.path().join("out"), dir.path().join("other"));
    let server = Server::start(network.dir(), &out, &format!("{FAST} --rate 2/s"));
    let at = server.address.clone();
    for (options, dir, expected) in [
        (format!("--metrics {at}"), &other, at.as_str()),
        ("--metrics 192.0.2.1:80".to_owned(), &other, "--metrics-host"),
        (FAST.to_owned(), &out, "in use"),
    ] {
        let program = env!("CARGO_BIN_EXE_ff-perf");
        let refused = command(program, network.dir(), dir, &options).output().expect("it runs");
        let text = error(&refused);
        assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
    }
    assert!(!other.exists(), "nothing is left");
    // A circuit may end between the two reads; then they agree later.
    let (mut metrics, mut lines, mut found) = (String::new(), Vec::new(), Ok(()));
    let end = Instant::now() + PATIENCE;
    while lines.len() < 5 || found.is_err() {
        assert!(Instant::now() < end, "{} lines, {found:?}", lines.len());
        std::thread::sleep(Duration::from_millis(20));
        metrics = server.metrics();
        lines = circuits_by_now(&out);
        found = agree(&metrics, &lines);
    }
    let valid_after = sum(&metrics, "ff_circuit_documents_valid_after_timestamp_seconds");
    let now = unix_secs(SystemTime::now());
    assert!((began.floor()..=now).contains(&valid_after), "{began} to {now}: {valid_after}");
    // The last success is recorded after the circuit's end and before its line is written, by
    // clocks of a few ms resolution.
    let whole = lines.iter().filter(|circuit| circuit.failure.is_none());
    let ends = whole.map(|circuit| circuit.began_unix_secs + circuit.ended_us as f64 / 1e6);
    let last = ends.fold(0.0, f64::max);
    let said = sum(&metrics, "ff_circuit_last_success_timestamp_seconds");
    let file = fs::metadata(files(&out).pop().expect("a file")).expect("a file");
    let written = unix_secs(file.modified().expect("a time"));
    assert!((last - 0.1..=written + 0.1).contains(&said), "{said}, by the lines {last}, {written}");
    assert!(!metrics.contains(&lines[0].path[0].id), "no relay is named");
    let status = server.end();
    assert!(status.success(), "{status}");
}

/// Files end at their size, the oldest are removed, and a new start cuts off an incomplete line and
/// continues the numbers.
fn files_are_bounded_and_a_start_goes_on(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let options = format!("{FAST} --rate 40/s --rotate 6KiB --keep 3 --refresh 1");
    let mut highest = None;
    for _ in 0..2 {
        let server = Server::start(network.dir(), dir.path(), &options);
        until("the fourth file of this start", || {
            let sizes = files(dir.path()).into_iter().filter_map(|file| fs::metadata(file).ok());
            let (count, bytes) = sizes.fold((0, 0), |(n, sum), file| (n + 1, sum + file.len()));
            assert!(count <= 3 && bytes <= 3 * 6144, "{count} files of {bytes} bytes");
            server.metric("ff_circuit_build_seconds_count") > 40.0
        });
        let status = server.end();
        assert!(status.success(), "{status}");
        let numbers: Vec<_> = circuits(dir.path()).iter().map(|circuit| circuit.number).collect();
        let (least, most) = (numbers.iter().min(), numbers.iter().max());
        assert!(
            least.is_some_and(|least| Some(*least) > highest),
            "{numbers:?} behind {highest:?}"
        );
        highest = most.copied();
        let last = files(dir.path()).pop().expect("a file");
        let mut file = File::options().append(true).open(last).expect("the last file");
        file.write_all(b"{\"schema\":1,\"num").expect("half a line");
    }
}

/// A full disk delays it, and nothing is lost. The disk is in memory, in the server's mount
/// namespace.
fn a_full_disk_holds_it_up(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let script = r#"mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@""#;
    let mut unshared = Command::new("unshare");
    unshared
        .args(["--mount", "sh", "-c", script])
        .arg(dir.path())
        .arg(env!("CARGO_BIN_EXE_ff-perf"));
    let options = format!("{FAST} --rate 20/s --in-flight 1 --metrics 127.0.0.1:0");
    let rest = command("", network.dir(), dir.path(), &options);
    unshared.args(rest.get_args());
    let server = Server::of(unshared);
    let inside = Path::new("/proc").join(server.child.id().to_string()).join("root");
    let inside = inside.join(dir.path().strip_prefix("/").expect("an absolute path"));
    let fill = |name: &str| {
        let mut file = File::create(inside.join(name)).expect("a file");
        while file.write_all(&[0; 64]).is_ok() {}
    };
    until("a circuit", || !circuits_by_now(&inside).is_empty());
    fill("fill");
    let said = server.says("No space left");
    assert!(said.contains("circuits-000001-"), "{said}");
    until("a circuit that waits", || server.metric("ff_circuits_unwritten") > 0.5);
    let held = server.metrics();
    let before = circuits(&inside).len();
    std::thread::sleep(Duration::from_millis(500));
    let built = "ff_circuit_build_seconds_count";
    assert!((server.metric(built) - sum(&held, built)).abs() < 0.5, "none begin meanwhile");
    assert_eq!(circuits(&inside).len(), before, "and no half line is left");
    fs::remove_file(inside.join("fill")).expect("room");
    server.says("none is lost");
    until("more circuits", || circuits_by_now(&inside).len() > before + 3);
    let numbers: Vec<_> = circuits_by_now(&inside).iter().map(|circuit| circuit.number).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    // Lines that it cannot write even at the end are lost, and reported.
    fill("fill");
    until("circuits that wait", || server.metric("ff_circuits_unwritten") > 0.5);
    let mut server = server;
    server.signal("TERM");
    assert_eq!(server.has_ended().code(), Some(1));
    let said = server.says("could not be written");
    assert!(said.contains("No space left"), "{said}");
}

/// Circuits through a dead relay fail and are tried again; those that hang end soon after a signal.
fn a_dead_relay_is_no_end(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = ["middle0", "middle1", "exit0"].map(|name| network.node(name).rsa_fingerprint());
    let paths = dir.path().join("paths");
    fs::write(&paths, ids.join(" ")).expect("a file");
    let options = format!("{FAST} --rate 10/s --path-file {}", paths.display());
    let pid = network.node("middle1").pid().expect("a process");
    signal(pid, "STOP");
    let out = dir.path().join("hung");
    let mut server = Server::start(network.dir(), &out, &options);
    until("circuits that hang", || server.metric("ff_circuits_in_flight") > 2.5);
    // The second signal ends it at once.
    server.signal("TERM");
    server.signal("INT");
    assert!(server.has_ended().success());
    let said = server.says("given up");
    // A circuit that has hung for long may have ended by itself.
    assert!(said.contains("by a second signal"), "{said}");
    signal(pid, "CONT");

    network.node("middle1").stop();
    let out = dir.path().join("dead");
    let server = Server::start(network.dir(), &out, &options);
    server.says("the last 10 circuits failed");
    let failures = "ff_circuit_failures_total{stage=\"build\"";
    let before = server.metric(failures);
    assert!(before >= 10.0, "{before}");
    until("more failures", || server.metric(failures) > before + 3.0);
    assert!(!server.metrics().contains("\nff_circuit_last_success"), "there was none");
    assert!(server.end().success());
    let failed = circuits(&out);
    let stages = failed.iter().map(|circuit| circuit.failure.as_ref().map(|failure| failure.stage));
    assert!(stages.clone().all(|stage| stage == Some(Stage::Build)), "{failed:?}");
}

/// Without its tor there are no circuits; once it is back there are.
fn a_tor_that_dies_is_no_end(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    // Two exits that do not know the dead relay.
    let ids = ["middle0", "middle2", "exit0"].map(|name| network.node(name).rsa_fingerprint());
    let paths = dir.path().join("paths");
    fs::write(&paths, ids.join(" ")).expect("a file");
    let options = format!("{FAST} --client tor --rate 10/s --path-file {}", paths.display());
    let server = Server::start(network.dir(), &dir.path().join("out"), &options);
    let built = "ff_circuit_build_seconds_count";
    until("a circuit", || server.metric(built) > 0.5);
    network.node("client0").stop();
    let lost = "ff_circuit_failures_total{stage=\"client\"";
    until("no client", || server.metric(lost) > 0.5);
    let before = server.metric(built);
    network.node("client0").restart().expect("it starts");
    until("circuits again", || server.metric(built) > before + 0.5);
    assert!(server.end().success());
}
