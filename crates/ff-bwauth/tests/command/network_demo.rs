//! A whole network in one command: two coordinators with three measurers over gRPC, run by the
//! built program.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the program.
fn ff_bwauth(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ff-bwauth")).args(args).output();
    let output = output.expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The number of relays in the network.
const RELAYS: usize = 3;

/// Runs the network for a period with its files in this directory; returns its output and its log.
fn run(out: &Path) -> (Value, String) {
    let relays = RELAYS.to_string();
    // A process that is stopped for two seconds misses less than half of five.
    let args = ["demo", "--network", "--once", "--json", "--relays", &relays, "--duration", "5"];
    let files = ["--period-secs", "60", "--out", out.to_str().expect("a path")];
    let (code, json, log) = ff_bwauth(&[&args[..], &files].concat());
    assert_eq!(code, Some(0), "{json}\n{log}");
    (serde_json::from_str(&json).expect("one JSON object"), log)
}

/// Each relay's estimates by both coordinators, as fractions of its limit.
fn shares(json: &Value, log: &str) -> Vec<f64> {
    let relays = json["relays"].as_array().expect("relays");
    assert_eq!(relays.len(), 2 * RELAYS, "{json}");
    let share = |relay: &Value| {
        let name = relay["nickname"].as_str().expect("a nickname");
        let number: f64 = name.trim_start_matches("demo").parse().expect("a number");
        // On a busy machine the verdict may differ.
        let is_measured = MEASURED.iter().any(|verdict| relay["verdict"] == *verdict);
        assert!(is_measured, "{relay}\n{log}");
        relay["estimate_bytes_per_sec"].as_f64().expect("an estimate") / (number * 500_000.0)
    };
    relays.iter().map(share).collect()
}

#[test]
fn every_relay_has_its_capacity_from_both_coordinators_whose_schedules_are_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let (json, log) = run(dir.path());
    for share in shares(&json, &log) {
        // How much less than its limit it is depends on the machine.
        assert!(share > 0.0 && share < 1.06, "{share}: {json}\n{log}");
    }
    let status = json["status"].as_array().expect("two coordinators");
    assert_eq!(status.len(), 2);
    assert!(digest(&status[0]).is_some() && digest(&status[0]) == digest(&status[1]), "{json}");
    let relays = json["relays"].as_array().expect("relays");
    let known = relays.iter().filter(|relay| relay["verdict"] == MEASURED[0]).count();
    let files = [1, 2].map(|number| format!("bwauth-{number}/v3bw/latest.v3bw"));
    let voted: usize = files.iter().map(|file| votes(&dir.path().join(file))).sum();
    assert_eq!(voted, known, "{json}");
    for relay in relays {
        let number: u64 =
            relay["nickname"].as_str().expect("a name")[4..].parse().expect("a number");
        assert_eq!(relay["limit_bytes_per_sec"], 500_000 * number);
    }
    let config =
        std::fs::read_to_string(dir.path().join("bwauth-1/bwauth.toml")).expect("a config");
    assert!(config.contains("listen = \"127.0.0.1:") && !config.contains(":0\""), "{config}");
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn every_relay_of_a_network_is_measured_at_its_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let (json, log) = run(dir.path());
    let shares = shares(&json, &log);
    let (least, most) = shares
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), share| (least.min(*share), most.max(*share)));
    println!("figure: a network's relays, least estimate / limit | 0.85.. | {least:.3} | -");
    println!("figure: a network's relays, greatest estimate / limit | ..1.06 | {most:.3} | -");
    assert!(least >= 0.85 && most < 1.06, "{json}\n{log}");
}

/// Verdicts of complete measurements; the first one is published. A relay that is too fast for its
/// first guess keeps one of the others if its slot is so late in the period that none is left for
/// the repetition.
const MEASURED: [&str; 5] =
    ["conclusive", "measurer_limited", "path_limited", "unsettled", "needs_more_capacity"];

/// The schedule's digest in a status.
fn digest(status: &Value) -> Option<String> {
    status["period"]["schedule_digest"].as_str().map(str::to_owned)
}

/// The number of relays with votes in a file, in which `v3bw check` must find nothing wrong.
fn votes(file: &Path) -> usize {
    let (code, text, log) = ff_bwauth(&["v3bw", "check", file.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{text}{log}");
    let text = std::fs::read_to_string(file).expect("a file");
    let lines = text.lines().filter(|line| line.starts_with("node_id=$"));
    lines.filter(|line| !line.contains("vote=0")).count()
}
