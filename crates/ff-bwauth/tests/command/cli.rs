//! Runs the built `ff-bwauth` as a user: arguments, exit status, output, files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use base64ct::{Base64Unpadded, Encoding};
use ff_lab::LoneRelay;
use ff_measurer::key::load_or_make;
use ff_measurer::measurer_id;
use ff_proto::units::BytesPerSec;
use ff_relay_ext::arti::host::RelayHost;
use ff_relay_ext::options::TargetOptions;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::Value;
use tempfile::TempDir;

use crate::names;

/// An identity of no relay, in base64.
const NOBODY: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM";
/// The limit of the relay in these tests: 20 Mbit/s.
const LIMIT: u64 = 2_500_000;
/// The time limit of opening a link in seconds, in tests that must not reach it.
const LONG: u16 = 60;

/// A run that has ended.
struct Run {
    /// Exit status; `None` after a signal.
    status: Option<i32>,
    /// Standard output.
    stdout: String,
    /// Standard error.
    stderr: String,
    /// The duration of the run.
    took: Duration,
}

/// Runs `ff-bwauth` in a directory.
fn run_in<'a>(dir: &Path, args: impl IntoIterator<Item = &'a str>) -> Run {
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"))
        .args(args)
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("ff-bwauth runs");
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Run { status: status.code(), stdout: text(stdout), stderr: text(stderr), took: start.elapsed() }
}

/// Measures the peer at `addr` over links that must open within `timeout_secs`; returns the run,
/// and the code of its failure in the JSON.
fn measure(dir: &Path, addr: SocketAddr, ed_identity: &str, timeout_secs: u16) -> (Run, String) {
    let (target, timeout) = (addr.to_string(), timeout_secs.to_string());
    let args = ["measure", "--target", &target, "--ed-identity", ed_identity, "--json"];
    let quick = ["--timeout", &timeout, "--duration", "2", "--sockets", "4"];
    let run = run_in(dir, args.into_iter().chain(quick));
    let outcome: Value = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", run.stdout, run.stderr));
    assert_eq!(outcome["verdict"], "failed");
    assert_eq!(outcome["estimate_bytes_per_sec"], Value::Null);
    assert!(!dir.join("flashflow-results/latest.v3bw").exists(), "a failure is not published");
    let text = outcome["failure"]["message"].as_str().expect("a message");
    assert!(run.stderr.contains(text), "{text:?} is not in {:?}", run.stderr);
    let code = outcome["failure"]["code"].as_str().expect("a code").to_owned();
    (run, code)
}

/// A new empty directory.
fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The whole number under a key.
fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is {}", object[key]))
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    let dir = dir();
    let measure = ["measure", "--target", "127.0.0.1:1", "--ed-identity", NOBODY];
    let cases: [(&[&str], &str); 13] = [
        (&[], "Usage"),
        (&["measur"], "measur"),
        (&["demo"], "--network"),
        (&["demo", "--network", "--relays", "33"], "--relays"),
        (&["measure", "--duration", "0"], "--duration"),
        (&["measure", "--duration", "121"], "--duration"),
        (&["measure", "--sockets", "0"], "--sockets"),
        (&["measure", "--rate", "20 parsecs"], "--rate"),
        (&["measure", "--ratio", "1"], "--ratio"),
        (&["measure", "--cells-per-record", "32"], "--cells-per-record"),
        (&["measure", "--measurers", "9"], "--measurers"),
        (&["measure", "--target", "127.0.0.1:1"], "--ed-identity"),
        (&["measure", "--timeout", "0"], "--timeout"),
    ];
    let bad_identity = ["measure", "--target", "127.0.0.1:1", "--ed-identity", "AAAA"];
    let longer = measure.into_iter().chain(["--rate", "fast"]).collect::<Vec<_>>();
    let more: [(&[&str], &str); 2] = [(&bad_identity, "--ed-identity"), (&longer, "--rate")];
    for (args, word) in cases.into_iter().chain(more) {
        let run = run_in(dir.path(), args.iter().copied());
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{args:?}: no {word:?} in {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
    assert_eq!(names(dir.path()), [""; 0], "a wrong command line makes no files");
}

#[test]
fn a_relay_elsewhere_is_measured_then_needs_more_capacity_then_refuses() {
    let dir = dir();
    let key = load_or_make(&dir.path().join("ff-coordinator.key")).expect("a key");
    let policy = TargetOptions::allowing(vec![measurer_id(&key)]).resolve(&BTreeMap::new());
    let relay = RelayHost::start(policy, Some(BytesPerSec::new(LIMIT)), None).expect("a relay");
    let target = relay.addr().to_string();
    let identity = relay.keys().ed_identity().to_string();
    let identity = identity.trim_start_matches("ed25519:");
    let measure = |more: &[&str]| {
        let args = ["measure", "--target", &target, "--ed-identity", identity, "--json"];
        // A process that is stopped for two seconds misses less than half of six.
        let quick = ["--duration", "6", "--sockets", "8"];
        let run = run_in(dir.path(), args.into_iter().chain(quick).chain(more.iter().copied()));
        let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
        (run.status, outcome)
    };

    let (status, outcome) = measure(&["--rate", "100Mbit"]);
    assert_eq!(status, Some(0), "{outcome}");
    let estimate = number(&outcome, "estimate_bytes_per_sec");
    // How much less it is depends on the machine: .ci/measure records it.
    assert!(estimate < LIMIT + LIMIT / 8, "{estimate} B/s of {LIMIT}");
    let file = fs::read_to_string(dir.path().join("flashflow-results/latest.v3bw"));
    let file = file.expect("a bandwidth file");
    assert!(file.contains(" vote=0"), "one relay of an unknown network: {file}");

    // Less than the relay's limit: the estimate may be the allocated rate, part of which any
    // machine carries.
    let (status, outcome) = measure(&["--rate", "2Mbit"]);
    assert_eq!((status, &outcome["verdict"]), (Some(10), &"needs_more_capacity".into()));

    let (status, outcome) = measure(&[]);
    assert_eq!((status, &outcome["failure"]["code"]), (Some(8), &"refused".into()), "{outcome}");
    assert_eq!(outcome["failure"]["relay_code"], "too_soon");
    assert_eq!(outcome["draw"], serde_json::json!({ "counts": true, "bytes_per_sec": null }));
}

#[test]
fn a_relay_with_another_fingerprint_is_exit_4_and_not_asked() {
    let dir = dir();
    let key = load_or_make(&dir.path().join("ff-coordinator.key")).expect("a key");
    let policy = TargetOptions::allowing(vec![measurer_id(&key)]).resolve(&BTreeMap::new());
    let relay = RelayHost::start(policy, None, None).expect("a relay");
    let target = relay.addr().to_string();
    let identity = relay.keys().ed_identity().to_string();
    let identity = identity.trim_start_matches("ed25519:");
    let other = "AB".repeat(20);
    let args = ["measure", "--target", &target, "--ed-identity", identity, "--json"];
    let run = run_in(dir.path(), args.into_iter().chain(["--fingerprint", &other]));
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!((run.status, &outcome["failure"]["code"]), (Some(4), &"wrong_identity".into()));
    assert!(run.stderr.contains(&other), "{}", run.stderr);
    assert_eq!((&outcome["granted_secs"], &outcome["crypto"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_tor_without_the_extension_is_exit_3_at_once_and_another_identity_4() {
    let tor = LoneRelay::start().expect("a tor");
    let dir = dir();
    let identity = tor.ed_identity_base64();
    let (run, code) = measure(dir.path(), tor.or_addr(), &identity, LONG);
    assert_eq!((run.status, code.as_str()), (Some(3), "not_supported"), "{}", run.stderr);
    assert!(run.stderr.contains("does not support FlashFlow"), "{}", run.stderr);
    // It must not have waited for the whole time limit.
    assert!(run.took < Duration::from_secs(LONG.into()), "{:?}", run.took);

    let (run, code) = measure(dir.path(), tor.or_addr(), NOBODY, LONG);
    assert_eq!((run.status, code.as_str()), (Some(4), "wrong_identity"), "{}", run.stderr);
    assert!(run.stderr.contains(&identity), "who it is instead: {}", run.stderr);
}

#[test]
fn a_tor_without_the_extension_has_a_lower_bound_by_cells_in_transit() {
    let tor = LoneRelay::start().expect("a tor");
    let (dir, target) = (dir(), tor.or_addr().to_string());
    let onion_key = Base64Unpadded::encode_string(&tor.ntor_onion_key().expect("a key"));
    let identity = tor.ed_identity_base64();
    let args = ["measure", "--target", &target, "--ed-identity", &identity, "--json", "--transit"];
    let more = ["--onion-key", &onion_key, "--sinks", "127.0.0.1:0,127.0.0.1:0", "--links", "3"];
    // A process that is stopped for two seconds misses less than half of six.
    let quick = ["--duration", "6", "--rate", "10Mbit"];
    let run = run_in(dir.path(), args.into_iter().chain(more).chain(quick));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(outcome["verdict"], "lower_bound");
    assert_eq!(outcome["draw"]["counts"], false);
    // 10 Mbit/s each way; how much less it is depends on the machine: .ci/measure records it.
    let bound = number(&outcome, "lower_bound_bytes_per_sec");
    assert!((1..=2_700_000).contains(&bound), "{bound}");
    assert_eq!(
        (&outcome["estimate_bytes_per_sec"], &outcome["method"]),
        (&Value::Null, &"transit".into())
    );
    let out = names(&dir.path().join("flashflow-results"));
    assert!(out.iter().all(|name| !name.ends_with(".v3bw")), "it is not published: {out:?}");
    assert!(!dir.path().join("ff-coordinator.key").exists(), "no key is needed");
}

#[test]
fn cells_in_transit_need_a_public_relays_operator() {
    let dir = dir();
    let args = ["measure", "--target", "192.0.2.7:9001", "--ed-identity", NOBODY, "--transit"];
    let more = ["--onion-key", NOBODY, "--sinks", "127.0.0.1:0"];
    let run = run_in(dir.path(), args.into_iter().chain(more));
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("--i-have-the-operators-consent"), "{}", run.stderr);
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let dir = dir();
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let started = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"))
        .args(["init", "--dir", "config", "--state-dir", "state"])
        .current_dir(dir.path())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = started.and_then(Child::wait_with_output).expect("ff-bwauth runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("standard output"), "{said}");
}

/// Runs in a terminal made by `script` of bsdutils.
#[test]
fn a_terminal_that_cannot_move_its_cursor_has_plain_lines() {
    let dir = dir();
    let measure = format!(
        "{} measure --target 127.0.0.1:1 --ed-identity {NOBODY} --duration 2",
        env!("CARGO_BIN_EXE_ff-bwauth")
    );
    let run = Command::new("script")
        .args(["--quiet", "--return", "--command", &measure, "/dev/null"])
        .current_dir(dir.path())
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = run else {
        eprintln!("nothing checked: `script` of bsdutils is not installed");
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("connecting to the relay"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_closed_port_is_exit_5_and_the_key_is_kept_private() {
    let dir = dir();
    // Nothing listens on tcpmux's port, and no program is given it by chance.
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let key = dir.path().join("ff-coordinator.key");
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (run, code) = measure(dir.path(), closed, NOBODY, LONG);
        assert_eq!((run.status, code.as_str()), (Some(5), "connection_refused"), "{}", run.stderr);
        let mode = fs::metadata(&key).expect("the key's file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        keys.push(fs::read_to_string(&key).expect("the key's file"));
    }
    assert_eq!(keys[0], keys[1], "the second run has the first one's key");
    assert_eq!(names(dir.path()), ["ff-coordinator.key", "flashflow-results"]);
}

#[test]
fn services_that_are_no_relays_are_exit_6() {
    let dir = dir();
    let text = serve(|mut tcp| {
        let _ = tcp.write_all(b"220 mail.example.com ESMTP ready\r\n");
        read_to_end(&tcp);
    });
    let (run, code) = measure(dir.path(), text, NOBODY, LONG);
    assert_eq!((run.status, code.as_str()), (Some(6), "not_tls"), "{}", run.stderr);
    assert!(run.stderr.contains(&text.to_string()), "{}", run.stderr);

    let config = Arc::new(web_server_config());
    let web = serve(move |mut tcp| {
        let mut tls = ServerConnection::new(config).expect("TLS");
        let mut stream = Stream::new(&mut tls, &mut tcp);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        stream.conn.send_close_notify();
        let _ = stream.conn.complete_io(stream.sock);
        read_to_end(&tcp);
    });
    let (run, code) = measure(dir.path(), web, NOBODY, LONG);
    assert_eq!((run.status, code.as_str()), (Some(6), "not_tor"), "{}", run.stderr);
}

#[test]
fn a_listener_that_never_answers_is_exit_7_when_its_time_is_up() {
    let dir = dir();
    // The kernel accepts the connection; nobody ever reads.
    let (_listener, silent) = listener();
    let (run, code) = measure(dir.path(), silent, NOBODY, 2);
    assert_eq!((run.status, code.as_str()), (Some(7), "timeout"), "{}", run.stderr);
    assert!(run.took >= Duration::from_secs(2), "{:?}", run.took);
}

/// A listening socket on loopback.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let addr = listener.local_addr().expect("its address");
    (listener, addr)
}

/// Serves one connection in a thread, which ends with it or with the test.
fn serve(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let (listener, addr) = listener();
    thread::spawn(move || serve(listener.accept().expect("a connection").0));
    addr
}

/// Reads until the client goes away: a socket that is closed with bytes unread resets the
/// connection, and the client may lose the answer.
fn read_to_end(mut tcp: &TcpStream) {
    let _ = io::copy(&mut tcp, &mut io::sink());
}

/// A web server's TLS with a fresh self-signed certificate.
fn web_server_config() -> ServerConfig {
    let made = tor_cert::x509::TlsKeyAndCert::create(
        &mut rand::rng(),
        SystemTime::now(),
        "www.example.com",
        "www.example.net",
    )
    .expect("a certificate");
    let cert = CertificateDer::from(made.certificates_der()[0]).into_owned();
    let key = made.private_key_pkcs8_der().expect("its key").to_vec();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .expect("a server")
}
