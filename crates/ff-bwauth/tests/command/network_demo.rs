//! A whole network in one command: two coordinators with three measurers over gRPC, run by the built program.

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

#[test]
fn every_relay_has_its_capacity_from_both_coordinators_whose_schedules_are_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("a path");
    let args = ["demo", "--network", "--once", "--json", "--relays", "3", "--period-secs", "40"];
    let (code, json, log) = ff_bwauth(&[&args[..], &["--duration", "2", "--out", out]].concat());
    assert_eq!(code, Some(0), "{json}\n{log}");
    let json: Value = serde_json::from_str(&json).expect("one JSON object");
    let relays = json["relays"].as_array().expect("relays");
    assert_eq!(relays.len(), 6, "{json}");
    for relay in relays {
        let name = relay["nickname"].as_str().expect("a nickname");
        let number: f64 = name.trim_start_matches("demo").parse().expect("a number");
        let (truth, verdict) = (number * 500_000.0, relay["verdict"].as_str());
        assert_eq!(verdict, Some("conclusive"), "{relay}\n{log}");
        let estimate = relay["estimate_bytes_per_sec"].as_f64().expect("an estimate");
        assert!((0.85..1.06).contains(&(estimate / truth)), "{name}: {estimate} of {truth}\n{log}");
    }
    let status = json["status"].as_array().expect("two coordinators");
    assert_eq!(status.len(), 2);
    assert!(digest(&status[0]).is_some() && digest(&status[0]) == digest(&status[1]), "{json}");
    for number in [1, 2] {
        let file = dir.path().join(format!("bwauth-{number}/v3bw/latest.v3bw"));
        assert_authorities_would_take(&file);
    }
}

/// The schedule's digest in a status.
fn digest(status: &Value) -> Option<String> {
    status["period"]["schedule_digest"].as_str().map(str::to_owned)
}

/// `v3bw check` finds nothing wrong, and all relays have a line.
fn assert_authorities_would_take(file: &Path) {
    let (code, text, log) = ff_bwauth(&["v3bw", "check", file.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{text}{log}");
    let text = std::fs::read_to_string(file).expect("a file");
    let lines =
        text.lines().filter(|line| line.starts_with("node_id=$") && !line.contains("vote=0"));
    assert_eq!(lines.count(), 3, "{text}");
}
