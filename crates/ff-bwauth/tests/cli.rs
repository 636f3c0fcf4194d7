//! Runs the built `ff-bwauth` as its users do: arguments, exit status, output, files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use base64ct::{Base64Unpadded, Encoding};
use ff_bwauth::host::RelayHost;
use ff_lab::LoneRelay;
use ff_measurer::key::load_or_make;
use ff_measurer::measurer_id;
use ff_proto::units::BytesPerSec;
use ff_relay_ext::options::Options;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::Value;
use tempfile::TempDir;

/// Base64 of an identity that no relay has.
const NOBODY: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM";
/// The limit of the demo's relay in these tests: 20 Mbit/s.
const LIMIT: u64 = 2_500_000;
/// A demo of so many Mbit/s and little else.
const DEMO: [&str; 7] = ["demo", "--sockets", "8", "--limit", "20Mbit", "--background", "5Mbit"];

/// Keeps tests that move traffic, or that look at the time, apart.
static TRAFFIC: Mutex<()> = Mutex::new(());

/// Waits until no other test moves traffic.
fn alone() -> MutexGuard<'static, ()> {
    TRAFFIC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that has ended.
struct Run {
    /// Exit status; `None` after a signal.
    status: Option<i32>,
    /// Standard output.
    stdout: String,
    /// Standard error.
    stderr: String,
    /// How long it took.
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

/// Measures what listens at `addr`; returns the run, and its failure's code in the JSON.
fn measure(dir: &Path, addr: SocketAddr, ed_identity: &str) -> (Run, String) {
    let target = addr.to_string();
    let args = ["measure", "--target", &target, "--ed-identity", ed_identity, "--json"];
    let quick = ["--timeout", "2", "--duration", "2", "--sockets", "4"];
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

/// A fresh directory to run in.
fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

/// Fails unless `object` has exactly these keys.
fn assert_keys(object: &Value, expected: &[&str]) {
    let keys: Vec<_> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

/// The whole number under a key.
fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is {}", object[key]))
}

#[test]
fn demo_json_is_one_object_whose_numbers_agree() {
    let _alone = alone();
    let dir = dir();
    let more = ["--duration", "3", "--json", "--out", "out"];
    let run = run_in(dir.path(), DEMO.into_iter().chain(more));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 1);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    check_shape(&outcome);

    let estimate = number(&outcome, "estimate_bytes_per_sec");
    assert_eq!(number(&outcome, "limit_bytes_per_sec"), LIMIT);
    assert!(estimate.abs_diff(LIMIT) <= LIMIT / 10, "{estimate} B/s of {LIMIT}");
    assert_eq!((&outcome["verdict"], &outcome["failure"]), (&"conclusive".into(), &Value::Null));
    check_seconds(&outcome);
    check_counts(&outcome);

    assert_eq!(names(dir.path()), ["out"]);
    check_files(&dir.path().join("out"), &outcome);
}

/// Fails unless the object has the documented keys, and values of the documented types.
fn check_shape(outcome: &Value) {
    assert_keys(
        outcome,
        &[
            "estimate_bytes_per_sec",
            "lower_bound_bytes_per_sec",
            "method",
            "limit_bytes_per_sec",
            "crypto",
            "verdict",
            "failure",
            "draw",
            "asked_secs",
            "granted_secs",
            "seconds",
            "disputes",
            "cells",
            "rtt_ms",
            "cpu_seconds",
            "sockets",
            "files",
            "clients",
        ],
    );
    assert_keys(&outcome["cells"], &["sent", "echoed", "checked", "bad"]);
    assert_keys(&outcome["rtt_ms"], &["p50", "p90", "p99", "max"]);
    assert_keys(&outcome["cpu_seconds"], &["measurers", "target"]);
    assert_keys(&outcome["sockets"], &["asked", "opened"]);
    for (object, key) in [
        ("rtt_ms", "p50"),
        ("rtt_ms", "p90"),
        ("rtt_ms", "p99"),
        ("rtt_ms", "max"),
        ("cpu_seconds", "measurers"),
        ("cpu_seconds", "target"),
    ] {
        let value = outcome[object][key].as_f64().unwrap_or_else(|| panic!("{object}.{key}"));
        assert!(value > 0.0, "{object}.{key} is {value}");
    }
    assert!(outcome["verdict"].is_string());
}

/// Fails unless the seconds add up and their median is the estimate.
fn check_seconds(outcome: &Value) {
    let rows = outcome["seconds"].as_array().expect("seconds");
    assert_eq!(rows.len(), 3);
    let mut totals = Vec::new();
    for (index, row) in (0..).zip(rows) {
        assert_keys(
            row,
            &[
                "second",
                "measurement_bytes",
                "background_reported_bytes",
                "background_counted_bytes",
                "total_bytes",
            ],
        );
        assert_eq!(number(row, "second"), index);
        let measured = number(row, "measurement_bytes");
        let reported = number(row, "background_reported_bytes");
        let counted = number(row, "background_counted_bytes");
        assert_eq!(counted, reported.min(measured / 3), "the default ratio is a quarter");
        assert_eq!(number(row, "total_bytes"), measured + counted);
        assert_eq!(measured % 514, 0, "whole cells");
        totals.push(measured + counted);
    }
    totals.sort_unstable();
    assert_eq!(number(outcome, "estimate_bytes_per_sec"), totals[1]);
    let clients: u64 = rows.iter().map(|row| number(row, "background_reported_bytes")).sum();
    assert!(clients > LIMIT / 4, "clients had {clients} bytes in three seconds");
}

/// Fails unless cells, links and round trips fit the seconds.
fn check_counts(outcome: &Value) {
    let cells = &outcome["cells"];
    let [sent, echoed, checked, bad] =
        ["sent", "echoed", "checked", "bad"].map(|key| number(cells, key));
    assert!(sent >= echoed && echoed >= checked && checked > 0 && bad == 0, "{cells}");
    let rows = outcome["seconds"].as_array().expect("seconds");
    let bytes: u64 = rows.iter().map(|row| number(row, "measurement_bytes")).sum();
    assert!(bytes <= echoed * 514, "{bytes} bytes in the seconds of {echoed} cells");
    assert!(bytes * 20 >= echoed * 514 * 19, "{bytes} bytes in the seconds of {echoed} cells");
    let sockets = &outcome["sockets"];
    assert_eq!((number(sockets, "asked"), number(sockets, "opened")), (8, 8));
    let [p50, p90, p99, max] =
        ["p50", "p90", "p99", "max"].map(|key| outcome["rtt_ms"][key].as_f64().expect("a time"));
    assert!(p50 <= p90 && p90 <= p99 && p99 <= max, "{}", outcome["rtt_ms"]);
    let clients = &outcome["clients"];
    assert_keys(clients, &["offered_bytes_per_sec", "before_bytes", "during_bytes", "after_bytes"]);
    assert_eq!(number(clients, "offered_bytes_per_sec"), LIMIT / 4);
    // As many seconds as the measurement has, and about what the relay says it had for them.
    let during = clients["during_bytes"].as_array().expect("seconds");
    assert_eq!(during.len(), rows.len());
    let during: u64 = during.iter().map(|bytes| bytes.as_u64().expect("bytes")).sum();
    let reported: u64 = rows.iter().map(|row| number(row, "background_reported_bytes")).sum();
    assert!(during.abs_diff(reported) < reported / 4, "{during} bytes, reported {reported}");
    assert_eq!(outcome["draw"]["bytes_per_sec"], outcome["estimate_bytes_per_sec"]);
    assert_eq!((number(outcome, "asked_secs"), number(outcome, "granted_secs")), (3, 3));
    assert_eq!(outcome["crypto"], "cgo-aes128");
}

/// Fails unless the files that are listed are those in the directory, and say the same.
fn check_files(out: &Path, outcome: &Value) {
    let listed: Vec<PathBuf> = outcome["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|path| out.parent().expect("a parent").join(path.as_str().expect("a path")))
        .collect();
    for path in &listed {
        assert!(fs::metadata(path).expect("the file is there").len() > 0, "{}", path.display());
    }
    for ending in ["report.html", "latest.v3bw", ".jsonl"] {
        let is_it = |path: &&PathBuf| path.to_string_lossy().ends_with(ending);
        assert_eq!(listed.iter().filter(is_it).count(), 1, "{ending} in {listed:?}");
    }
    let private = ["html", "jsonl"];
    for path in &listed {
        let is_private =
            path.extension().is_some_and(|ending| private.iter().any(|e| ending == *e));
        let mode = fs::metadata(path).expect("the file is there").permissions().mode() & 0o777;
        assert!(!is_private || mode == 0o600, "{mode:o} {}", path.display());
    }
    let bandwidth = fs::read_to_string(out.join("latest.v3bw")).expect("a bandwidth file");
    assert!(bandwidth.contains(" ff_crypto=cgo-aes128"), "{bandwidth}");
    let is_results = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
    let results = listed.iter().find(is_results).expect("a results file");
    let lines: Vec<Value> = fs::read_to_string(results)
        .expect("readable")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is one object"))
        .collect();
    let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().expect("a type")).collect();
    assert_eq!(types, ["measurement", "second", "second", "second", "result"]);
    assert_eq!(lines[0]["limit_bytes_per_sec"], outcome["limit_bytes_per_sec"]);
    assert_eq!(lines[2]["total_bytes"], outcome["seconds"][1]["total_bytes"]);
    assert_eq!(lines[4]["verdict"], outcome["verdict"]);
    // Only the snapshot that the link latest.v3bw leads to is there and not listed.
    for name in names(out) {
        let is_listed = listed.iter().any(|path| path.ends_with(&name));
        assert!(is_listed || name.ends_with(".v3bw"), "{name} is left behind");
    }
}

#[test]
fn demo_prints_a_line_a_second_and_a_summary() {
    let _alone = alone();
    let dir = dir();
    let run = run_in(dir.path(), DEMO.into_iter().chain(["--duration", "2"]));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let seconds: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("second ")).collect();
    assert_eq!(seconds.len(), 2, "{}", run.stderr);
    assert!(seconds[0].starts_with("second   1/2 ") && seconds[1].starts_with("second   2/2 "));
    assert!(seconds.iter().all(|line| line.contains("Mbit/s")), "{seconds:?}");
    for word in ["estimate", "truth", "verdict  conclusive", "sockets  8 of 8 opened", "; during "]
    {
        assert!(run.stdout.contains(word), "no {word:?} in {}", run.stdout);
    }
    // Without --out the files are in a directory of the current one.
    assert_eq!(names(dir.path()), ["flashflow-demo"]);
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    let dir = dir();
    let measure = ["measure", "--target", "127.0.0.1:1", "--ed-identity", NOBODY];
    let cases: [(&[&str], &str); 11] = [
        (&[], "Usage"),
        (&["measur"], "measur"),
        (&["demo", "--duration", "0"], "--duration"),
        (&["demo", "--duration", "121"], "--duration"),
        (&["demo", "--sockets", "0"], "--sockets"),
        (&["demo", "--limit", "20 parsecs"], "--limit"),
        (&["demo", "--ratio", "1"], "--ratio"),
        (&["demo", "--cells-per-record", "32"], "--cells-per-record"),
        (&["demo", "--measurers", "9"], "--measurers"),
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
    let _alone = alone();
    let dir = dir();
    let key = load_or_make(&dir.path().join("ff-coordinator.key")).expect("a key");
    let policy = Options::allowing(vec![measurer_id(&key)]).resolve(&BTreeMap::new());
    let relay = RelayHost::start(policy, Some(BytesPerSec::new(LIMIT)), None).expect("a relay");
    let target = relay.addr().to_string();
    let identity = relay.keys().ed_identity().to_string();
    let identity = identity.trim_start_matches("ed25519:");
    let measure = |more: &[&str]| {
        let args = ["measure", "--target", &target, "--ed-identity", identity, "--json"];
        let quick = ["--duration", "3", "--sockets", "8"];
        let run = run_in(dir.path(), args.into_iter().chain(quick).chain(more.iter().copied()));
        let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
        (run.status, outcome)
    };

    let (status, outcome) = measure(&["--rate", "100Mbit"]);
    assert_eq!(status, Some(0), "{outcome}");
    let estimate = number(&outcome, "estimate_bytes_per_sec");
    assert!(estimate.abs_diff(LIMIT) < LIMIT / 8, "{estimate} B/s of {LIMIT}");
    let file = fs::read_to_string(dir.path().join("flashflow-results/latest.v3bw"));
    let file = file.expect("a bandwidth file");
    assert!(file.contains(" vote=0"), "one relay of an unknown network: {file}");

    // A little more than the relay has: the estimate may be what was allocated.
    let (status, outcome) = measure(&["--rate", "24Mbit"]);
    assert_eq!((status, &outcome["verdict"]), (Some(10), &"needs_more_capacity".into()));

    let (status, outcome) = measure(&[]);
    assert_eq!((status, &outcome["failure"]["code"]), (Some(8), &"refused".into()), "{outcome}");
    assert_eq!(outcome["failure"]["relay_code"], "too_soon");
    assert_eq!(outcome["draw"], serde_json::json!({ "counts": true, "bytes_per_sec": null }));
}

#[test]
fn a_relay_with_another_fingerprint_is_exit_4_and_not_asked() {
    let _alone = alone();
    let dir = dir();
    let key = load_or_make(&dir.path().join("ff-coordinator.key")).expect("a key");
    let policy = Options::allowing(vec![measurer_id(&key)]).resolve(&BTreeMap::new());
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
fn a_failure_before_the_measurement_is_json_too() {
    let dir = dir();
    fs::write(dir.path().join("file"), "in the way").expect("a file");
    let run = run_in(dir.path(), ["demo", "--json", "--out", "file"]);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(
        (&outcome["verdict"], &outcome["failure"]["code"]),
        (&"failed".into(), &"setup_failed".into())
    );
}

#[test]
fn a_tor_without_the_extension_is_exit_3_at_once_and_another_identity_4() {
    let _alone = alone();
    let tor = LoneRelay::start().expect("a tor");
    let dir = dir();
    let identity = tor.ed_identity_base64();
    let (run, code) = measure(dir.path(), tor.or_addr(), &identity);
    assert_eq!((run.status, code.as_str()), (Some(3), "not_supported"), "{}", run.stderr);
    assert!(run.stderr.contains("does not support FlashFlow"), "{}", run.stderr);
    assert!(run.took < Duration::from_secs(2), "{:?}", run.took);

    let (run, code) = measure(dir.path(), tor.or_addr(), NOBODY);
    assert_eq!((run.status, code.as_str()), (Some(4), "wrong_identity"), "{}", run.stderr);
    assert!(run.stderr.contains(&identity), "who it is instead: {}", run.stderr);
}

#[test]
fn a_tor_without_the_extension_has_a_lower_bound_by_cells_in_transit() {
    let _alone = alone();
    let tor = LoneRelay::start().expect("a tor");
    let (dir, target) = (dir(), tor.or_addr().to_string());
    let onion_key = Base64Unpadded::encode_string(&tor.ntor_onion_key().expect("a key"));
    let identity = tor.ed_identity_base64();
    let args = ["measure", "--target", &target, "--ed-identity", &identity, "--json", "--transit"];
    let more = ["--onion-key", &onion_key, "--sinks", "127.0.0.1:0,127.0.0.1:0", "--links", "3"];
    let quick = ["--duration", "2", "--rate", "10Mbit"];
    let run = run_in(dir.path(), args.into_iter().chain(more).chain(quick));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(outcome["verdict"], "lower_bound");
    assert_eq!(outcome["draw"]["counts"], false);
    // 10 Mbit/s each way.
    let bound = number(&outcome, "lower_bound_bytes_per_sec");
    assert!((2_000_000..=2_700_000).contains(&bound), "{bound}");
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
fn a_closed_port_is_exit_5_and_the_key_is_kept_private() {
    let dir = dir();
    let closed = {
        let (_listener, addr) = listener();
        addr
    };
    let key = dir.path().join("ff-coordinator.key");
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (run, code) = measure(dir.path(), closed, NOBODY);
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
        // The client has the answer before the connection is reset.
        thread::sleep(Duration::from_millis(200));
    });
    let (run, code) = measure(dir.path(), text, NOBODY);
    assert_eq!((run.status, code.as_str()), (Some(6), "not_tls"), "{}", run.stderr);
    assert!(run.stderr.contains(&text.to_string()), "{}", run.stderr);

    let config = Arc::new(web_server_config());
    let web = serve(move |mut tcp| {
        let mut tls = ServerConnection::new(config).expect("TLS");
        let mut stream = Stream::new(&mut tls, &mut tcp);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        stream.conn.send_close_notify();
        let _ = stream.conn.complete_io(stream.sock);
    });
    let (run, code) = measure(dir.path(), web, NOBODY);
    assert_eq!((run.status, code.as_str()), (Some(6), "not_tor"), "{}", run.stderr);
}

#[test]
fn a_listener_that_never_answers_is_exit_7_when_its_time_is_up() {
    let dir = dir();
    // The kernel accepts the connection; nobody ever reads.
    let (_listener, silent) = listener();
    let (run, code) = measure(dir.path(), silent, NOBODY);
    assert_eq!((run.status, code.as_str()), (Some(7), "timeout"), "{}", run.stderr);
    let took = run.took;
    assert!((Duration::from_secs(2)..Duration::from_secs(6)).contains(&took), "{took:?}");
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
