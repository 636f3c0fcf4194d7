//! Tests of `compare` with two bandwidth files on a real network.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ff_archives::network::Network;
use ff_archives::read::relayinfo;

fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ff-archives/tests/data"))
}

/// The network of the samples: relays of May 2024.
fn network() -> Network {
    let (network, skips) =
        relayinfo::read(&samples().join("relayinfo-2024-05-sample.json.xz")).expect("a sample");
    assert!(skips.all.is_empty() && network.relays.len() > 100, "{}", network.relays.len());
    network
}

/// Writes a bandwidth file; `bw` gets each relay's index and capacity in bytes per second.
fn write_file(path: &Path, network: &Network, bw: impl Fn(usize, u64) -> Option<u64>) {
    let mut text = "1714521600\nversion=1.4.0\nsoftware=test\n=====\n".to_owned();
    for (index, relay) in network.relays.iter().enumerate() {
        let capacity = relay.usable().map_or(0, |rate| rate.get());
        if let Some(bw) = bw(index, capacity) {
            let node = hex::encode_upper(relay.fingerprint);
            text.push_str(&format!("bw={} node_id=${node}\n", bw.max(1)));
        }
    }
    fs::write(path, text).expect("written");
}

/// A folder with the network, two bandwidth files and the models of users' traffic.
fn folder() -> (tempfile::TempDir, Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let network = network();
    let copy = |from: &str, to: &str| fs::copy(samples().join(from), dir.path().join(to));
    copy("relayinfo-2024-05-sample.json.xz", "may.json.xz").expect("copied");
    for name in ["tmodel-stream.json", "tmodel-packet.json"] {
        copy(&format!("flow-{name}"), name).expect("copied");
    }
    // The old file has equal weights; the new one has the relays' capacities, without ten relays.
    write_file(&dir.path().join("old.v3bw"), &network, |_, _| Some(1000));
    let is_in = |index: usize| index >= 10;
    write_file(&dir.path().join("new.v3bw"), &network, |index, capacity| {
        is_in(index).then_some(capacity / 1000)
    });
    (dir, network)
}

/// Runs `compare` in this folder.
fn run(dir: &Path, more: &[&str]) -> Output {
    let args = ["compare", "old.v3bw", "new.v3bw", "--network", "may.json.xz", "--json"];
    let command = &mut Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    command.current_dir(dir).args(args).args(more).output().expect("the program runs")
}

/// The output of a successful run as JSON.
fn found(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "counts and rates far below 2^53")]
fn files_are_compared_on_a_network() {
    let (dir, network) = folder();
    let found = found(&run(dir.path(), &["--out", "out"]));
    let (all, error) = (network.relays.len(), |side: &str| found[side]["weight_error"].as_f64());
    assert_eq!((&found["relays"], &found["went"]), (&all.into(), &10.into()));
    assert_eq!((&found["in_both"], &found["came"]), (&(all - 10).into(), &0.into()));
    // Eq. 6 once more: half the sum of differences between weight shares and capacity shares.
    let capacity =
        |index: usize| network.relays[index].usable().map_or(0, |rate| rate.get()) as f64;
    let total: f64 = (0..all).map(capacity).sum();
    let with: Vec<usize> = (0..all).filter(|&index| capacity(index) > 0.0).collect();
    let even: f64 =
        with.iter().map(|&index| (capacity(index) / total - 1.0 / with.len() as f64).abs()).sum();
    let old = error("old").expect("an error");
    assert!((old - even / 2.0).abs() < 1e-9, "{old} {}", even / 2.0);
    let lost: f64 = (0..10).map(|index| capacity(index) / total).sum();
    let new = error("new").expect("an error");
    assert!((new - lost).abs() < 1e-3 && new < old, "{new} {lost}: weights are whole kilobytes");
    assert!(found["flow"].is_null());
    let relays = fs::read_to_string(dir.path().join("out/relays.csv")).expect("a table");
    assert_eq!(relays.lines().count(), all + 1);
    let countries = fs::read_to_string(dir.path().join("out/countries.csv")).expect("a table");
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for relay in &network.relays {
        let code = relay.country.map(|code| String::from_utf8_lossy(&code).into_owned());
        *counted.entry(code.unwrap_or_default()).or_default() += 1;
    }
    let german = format!("DE,{},", counted["DE"]);
    assert!(countries.lines().any(|line| line.starts_with(&german)), "{german} {countries}");
    for name in ["changes.svg", "fig8b.svg", "report.html", "summary.json"] {
        assert!(dir.path().join("out").join(name).exists(), "{name}");
    }
}

#[test]
fn downloads_are_simulated_by_both_files() {
    let (dir, _) = folder();
    let flow = ["--flow", "--model", ".", "--minutes", "2", "--warm-up", "2", "--out", "out"];
    let found = found(&run(dir.path(), &flow));
    let secs = |side: usize, size: usize| found["flow"][side]["last_byte_secs"][size].as_f64();
    let carried = |side: usize| found["flow"][side]["throughput_gbit_per_sec"].as_f64();
    // With capacities as weights a download is faster than with equal weights, which send most
    // traffic to slow relays.
    let [old, new] = [0, 1].map(|side| secs(side, 0).expect("downloads of 50 KiB"));
    assert!(new < old, "{found}");
    assert!(carried(1) > carried(0), "{found}");
    let table = fs::read_to_string(dir.path().join("out/flow.csv")).expect("a table");
    assert!(table.starts_with("weights,first_byte_secs,") && table.lines().count() == 3, "{table}");
    // The program's own models are the same ones.
    let without = ["--flow", "--minutes", "2", "--warm-up", "2"];
    assert_eq!(self::found(&run(dir.path(), &without))["flow"], found["flow"]);
}

#[test]
fn what_authorities_would_refuse_is_named() {
    let (dir, network) = folder();
    let new = dir.path().join("new.v3bw");
    for (text, what) in [
        ("", "new.v3bw, line 1: the file is empty"),
        ("soon\n", "new.v3bw, line 1: "),
        ("1714521600\nversion=1.4.0\n=====\n", "no relay that authorities would vote with"),
    ] {
        fs::write(&new, text).expect("written");
        let output = run(dir.path(), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(what), "{text:?}: {said}");
    }
    // Two bad lines are more than one in a thousand of these.
    write_file(&new, &network, |_, capacity| Some(capacity / 1000));
    let text = fs::read_to_string(&new).expect("a file");
    let bad = "bw=many node_id=$0011BD2485AD45D984EC4159C88FC066E5E3300E\n".repeat(2);
    fs::write(&new, text + &bad).expect("written");
    let output = run(dir.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(5) && said.contains("new.v3bw, line"), "{said}");
    assert_eq!(run(dir.path(), &["--strict"]).status.code(), Some(1));
}
