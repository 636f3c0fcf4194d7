//! Streams that end too early: which side ended them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_circuits::record::{CircuitRecord, Client, Failure, Stage, Whose};
use ff_lab::Network;

use crate::run::forget_if_idle;
use crate::serve::signal;

/// Bytes before the end.
const BEGIN: &[u8] = b"ten bytes.";

/// A target and its address.
fn target() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    (listener, addr)
}

/// Options of a download.
const DOWNLOAD: &str = "--download 1MB --build-time 300 --trip-time 300";

/// Starts a measurement of one circuit whose middle is `middle1`.
fn start(network: &Network, out: &Path, client: &str, target: SocketAddr, what: &str) -> Child {
    let ids = ["middle0", "middle1", "exit0"].map(|name| network.node(name).rsa_fingerprint());
    let paths = out.with_extension("paths");
    fs::write(&paths, ids.join(",")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["circuits", "run", "--count", "1", "--rtt", "0"]).args(what.split(' '));
    command.args(["--client", client, "--target", &format!("bytes://{target}")]);
    command.arg("--network").arg(network.dir()).arg("--path-file").arg(paths);
    command.arg("--out").arg(out).stdout(Stdio::null()).spawn().expect("the program")
}

/// Starts a measurement and waits until its stream has carried bytes. Repeats if a relay closes its
/// circuit as idle.
fn begin(
    network: &Network,
    out: &Path,
    client: &str,
    (listener, what): (&TcpListener, &str),
) -> (Child, TcpStream) {
    let addr = listener.local_addr().expect("an address");
    let mut running = start(network, out, client, addr, what);
    listener.set_nonblocking(true).expect("a socket");
    let until = Instant::now() + Duration::from_secs(300);
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) => assert!(Instant::now() < until, "no stream: {error}"),
        }
        if running.try_wait().expect("a process").is_some() {
            assert!(forget_if_idle(out), "over without a stream: {}", line(out));
            running = start(network, out, client, addr, what);
        }
        thread::sleep(Duration::from_millis(5));
    };
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(BEGIN).expect("who listens");
    (running, stream)
}

/// The line of its circuit.
fn line(out: &Path) -> String {
    fs::read_to_string(out.join("circuits-000.jsonl")).expect("a line")
}

/// Its failure.
fn failure(mut running: Child, out: &Path, stage: Stage) -> (Client, Failure) {
    assert_eq!(running.wait().expect("its end").code(), Some(1));
    let circuit: CircuitRecord = serde_json::from_str(line(out).trim()).expect("a circuit");
    let failure = circuit.failure.expect("a failure");
    assert_eq!(failure.stage, stage, "{failure:?}");
    (circuit.client, failure)
}

/// The failure of a circuit without a stream, or with a silent target, and its duration.
fn failure_in_silence(
    network: &Network,
    out: &Path,
    client: &str,
    (addr, what, stage): (SocketAddr, &str, Stage),
) -> (Failure, Duration) {
    let mut began = Instant::now();
    let mut running = start(network, out, client, addr, what);
    for _ in 0..5 {
        running.wait().expect("its end");
        if !forget_if_idle(out) {
            break;
        }
        began = Instant::now();
        running = start(network, out, client, addr, what);
    }
    (failure(running, out, stage).1, began.elapsed())
}

/// If the target closes the stream, it is at fault, whether it has read the request or not.
pub(crate) fn by_its_target(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, _) = target();
    for number in 0..10 {
        let out = dir.path().join(number.to_string());
        let (running, mut stream) = begin(network, &out, client, (&listener, DOWNLOAD));
        if number % 2 == 0 {
            stream.read_exact(&mut [0; 4]).expect("a request");
        }
        drop(stream);
        let (_, failure) = failure(running, &out, Stage::Download);
        assert_eq!((failure.whose, failure.hop), (Whose::Target, None), "{failure:?}");
    }
}

/// A source that sends surplus bytes with the last ones is invalid: a download from it would
/// measure something else.
pub(crate) fn by_a_target_that_sends_more(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, _) = target();
    for (what, stage, bytes) in
        [("--download 9", Stage::Download, 9), ("--ttfb 1", Stage::FirstByte, 1)]
    {
        let out = dir.path().join(bytes.to_string());
        let what = format!("{what} --build-time 300 --trip-time 300");
        let (running, _stream) = begin(network, &out, client, (&listener, &what));
        let (_, failure) = failure(running, &out, stage);
        assert_eq!((failure.whose, failure.hop), (Whose::Target, None), "{failure:?}");
        let reason = format!("sent more than the {bytes} bytes that it was asked for");
        assert_eq!(failure.reason, reason);
    }
}

/// If a target accepts bytes and sends nothing, it is unknown whether it or a relay is at fault.
/// tor alone would give up after 10 s.
pub(crate) fn in_silence(network: &Network, client: &str) {
    let secs = if client == "tor" { 12 } else { 2 };
    let dir = tempfile::tempdir().expect("a directory");
    let (_silent, addr) = target();
    let out = dir.path().join("out");
    let asked = format!("--ttfb 1 --build-time 300 --trip-time {secs}");
    let (failure, took) =
        failure_in_silence(network, &out, client, (addr, &asked, Stage::FirstByte));
    assert!(took >= Duration::from_secs(secs), "{took:?}");
    assert_eq!((failure.whose, failure.hop), (Whose::Unknown, None), "{failure:?}");
    assert_eq!(failure.reason, "timeout");
}

/// A relay that dies ends the circuit and the stream: neither the target nor the exit is at fault.
/// `middle1` is then dead.
pub(crate) fn with_its_circuit(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, _) = target();
    let begun = ["arti", "tor"].map(|client| {
        let out = dir.path().join(client);
        let (running, mut stream) = begin(network, &out, client, (&listener, DOWNLOAD));
        // The client that sent the request knows that its stream is open.
        stream.read_exact(&mut [0; 4]).expect("a request");
        (client, out, running, stream)
    });
    network.node("middle1").stop();
    for (client, out, running, _stream) in begun {
        let (name, failure) = failure(running, &out, Stage::Download);
        assert_eq!((failure.whose, failure.hop), (Whose::Relay, None), "{client}: {failure:?}");
        let reason = if name == Client::Arti { "destroyed" } else { "destroy" };
        assert!(failure.reason.contains(reason), "{client}: {failure:?}");
    }
}

/// A silent guard: a tor with a link to it waits for a circuit, one without a link for the link.
pub(crate) fn at_a_mute_guard(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let (_listener, addr) = target();
    let pid = network.node("middle0").pid().expect("a process");
    signal(pid, "STOP");
    // A tor short of CPU time takes a while to report the circuit that it has begun.
    for (client, stage, secs) in [("arti", Stage::Link, 2), ("tor", Stage::Build, 12)] {
        let out = dir.path().join(client);
        let what = format!("--build-time {secs}");
        let (failure, _) = failure_in_silence(network, &out, client, (addr, &what, stage));
        assert_eq!(
            (failure.whose, failure.hop),
            (Whose::Unknown, Some(1)),
            "{client}: {failure:?}"
        );
    }
    signal(pid, "CONT");
}
