//! `ff-bwauth measurers` as a command, with measurers that are services on loopback.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_measurer::service::admission::AdmissionLimits;
use ff_measurer::service::server::{Coordinator, Service, Settings};
use ff_measurer::{Host, measurer_id};
use ff_proto::units::BytesPerSec;
use ff_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;

/// The configured capacity of each measurer, in Mbit/s.
const STATED: u64 = 24;
/// Seconds of an exchange: six count, and a process that is stopped for two misses less than half
/// of them.
const SECS: u16 = 8;

/// The coordinator's key.
fn coordinator() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

/// The key of a measurer.
fn measurer(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[100 + number; 32])
}

/// Starts a measurer with this limit for the coordinator.
async fn serve(number: u8, limit: Option<BytesPerSec>) -> SocketAddr {
    let id = measurer_id(&coordinator());
    let limits =
        AdmissionLimits { private_targets: true, rate: limit, ..AdmissionLimits::default() };
    let coordinators = vec![Coordinator { name: "test".to_owned(), id }];
    let service =
        Service::new(Host::new(measurer(number), Vec::new()), Settings { coordinators, limits });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    tokio::spawn(service.serve(listener));
    addr
}

/// A coordinator's files with these measurers.
fn files(measurers: &[SocketAddr]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("key"), Base64Unpadded::encode_string(&[5; 32])).expect("written");
    fs::set_permissions(at("key"), fs::Permissions::from_mode(0o600)).expect("set");
    fs::create_dir(at("state")).expect("made");
    let mut config = format!(
        "key = 'key'\nstate_dir = 'state'\npublish_dir = 'v3bw'\n\
         [network]\nconsensus = 'consensus'\ndescriptors = []\n\
         [period]\nsecret = 'secret'\n[exchange]\nduration_secs = {SECS}\n"
    );
    for (number, addr) in (0_u8..).zip(measurers) {
        let identity = Base64Unpadded::encode_string(&measurer_id(&measurer(number)).0);
        config.push_str(&format!(
            "[[measurer]]\nname = 'm{number}'\naddress = '{addr}'\nidentity = '{identity}'\n\
             capacity = '{STATED}Mbit'\n"
        ));
    }
    fs::write(at("bwauth.toml"), config).expect("written");
    dir
}

/// Runs the command with these options, without blocking the services in this process.
async fn run(dir: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
    command.arg("measurers").arg("--config").arg(dir.join("bwauth.toml")).args(options);
    let running = tokio::task::spawn_blocking(move || command.output());
    running.await.expect("no panic").expect("it runs")
}

/// The JSON that it prints.
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn measurers_are_measured_without_those_that_are_not_there() {
    let limit = BytesPerSec::from_mbit(STATED / 2);
    let mut team = vec![serve(0, None).await, serve(1, None).await, serve(2, Some(limit)).await];
    // One peer is silent, and one does not exist.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    // Nothing listens on tcpmux's port.
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    team.extend([silent.local_addr().expect("its address"), closed]);
    let dir = files(&team);
    let before = json(&run(dir.path(), &["--json"]).await);
    assert_eq!(before["exchange"], Value::Null);
    assert_eq!(before["measurers"][0]["bounded_by"], "stated_alone");
    let output = run(dir.path(), &["--measure", "--json"]).await;
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let found = json(&output);
    assert_eq!(found["exchange"], "measured");
    for (number, one) in found["measurers"].as_array().expect("a list").iter().enumerate() {
        let (stated, measured) = (BytesPerSec::from_mbit(STATED), &one["measured"]);
        assert_eq!(one["stated_bytes_per_sec"], stated.get());
        if number >= 3 {
            assert_eq!(*measured, Value::Null);
            let why = one["not_measured"].as_str().expect("a reason");
            assert!(why.contains("no connection") || why.contains("too long"), "{why}");
            continue;
        }
        // The last one's operator allows half, which each of the others can try half with.
        let tested = if number == 2 { STATED / 2 } else { STATED };
        assert_eq!(measured["tested_bytes_per_sec"], BytesPerSec::from_mbit(tested).get());
        let of = |key: &str| measured[key].as_u64().expect("a number");
        let (rate, tested) = (of("bytes_per_sec"), of("tested_bytes_per_sec"));
        println!("m{number}: {rate} of {tested} bytes/s, {measured}");
        // The bounds are exact, but a busy machine carries only part of the rate: .ci/measure
        // records how much.
        assert!(rate > 0 && rate <= tested + tested / 100, "{one}");
        let both = of("sent_bytes_per_sec").min(of("received_bytes_per_sec"));
        assert!(rate <= both, "{one}");
        let capacity = if rate * 100 < tested * 95 { rate } else { stated.get() };
        assert_eq!(one["capacity_bytes_per_sec"], capacity);
    }
    // The result is stored, and shown without contacting a measurer.
    let again = json(&run(dir.path(), &["--json"]).await);
    assert_eq!(again["measurers"], found["measurers"]);
    let text = run(dir.path(), &[]).await;
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("tested with 24.00 Mbit/s") && text.contains("% lost"), "{text}");
    assert!(
        text.contains("used       24.00 Mbit/s: the configured capacity; it has not been"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_coordinator_runs_it_is_asked_and_one_measurer_cannot_be_measured() {
    let addr = SocketAddr::from(([127, 0, 0, 1], 9));
    let dir = files(&[addr, SocketAddr::from(([127, 0, 0, 1], 11))]);
    let store = dir.path().join("state/store.sqlite");
    let held = Store::open(&store, measurer_id(&coordinator()).0).expect("a store");
    let output = run(dir.path(), &["--measure", "--json"]).await;
    assert_eq!((output.status.code(), &json(&output)["exchange"]), (Some(0), &"asked".into()));
    assert!(dir.path().join("state/exchange.request").exists());
    drop(held);
    let alone = files(&[addr]);
    let output = run(alone.path(), &["--measure"]).await;
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("It is the only measurer"), "{text}");
    assert!(text.contains("used       24.00 Mbit/s: the configured capacity"), "{text}");
}
