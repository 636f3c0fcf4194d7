//! `ff-bwauth v3bw`, on real files, and beside stem's reader.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ff_bwauth::publish::v3bw::read::{Reading, Severity};
use serde_json::Value;

/// The real files: each with its time, its version, and how many relays it has and may be voted for.
const FILES: [(&str, u64, Option<&str>, usize, usize); 4] = [
    ("torflow-1.0.v3bw", 1_547_487_689, None, 94, 94),
    ("sbws-1.1.0.v3bw", 1_555_882_497, Some("1.4.0"), 6, 6),
    ("sbws-1.2.0.v3bw", 1_547_444_099, Some("1.2.0"), 81, 81),
    ("sbws-under-minimum.v3bw", 1_553_519_123, Some("1.2.0"), 15, 0),
];

/// Where a test's file is.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Runs `ff-bwauth v3bw`.
fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
    command.arg("v3bw").args(args).output().expect("it runs")
}

#[test]
fn real_files_are_read_as_stem_reads_them() {
    for (name, time, version, relays, votes) in FILES {
        let reading = Reading::of(&fs::read(path(name)).expect("a file"), time + 3600);
        println!("{name}: {:?}", reading.findings);
        assert_eq!((reading.unix_secs, reading.header("version")), (time, version), "{name}");
        let voted = reading.lines.iter().filter(|relay| relay.votes).count();
        assert_eq!((reading.lines.len(), voted), (relays, votes), "{name}");
        assert!(reading.worst().is_none_or(|worst| worst == Severity::Against), "{name}");
        let old = Reading::of(&fs::read(path(name)).expect("a file"), time + 259_201);
        assert_eq!(old.worst(), Some(Severity::Refused), "{name} is too old then");
        if std::env::var_os("FF_TEST_STEM").is_some_and(|value| value == "1") {
            compare_with_stem(name, &reading);
        }
    }
}

/// Fails unless stem finds the same relays with the same weights.
fn compare_with_stem(name: &str, reading: &Reading) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_v3bw.py");
    let output =
        Command::new("/usr/bin/python3").arg(script).arg(path(name)).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut stems: Vec<_> = text.lines().map(str::to_owned).collect();
    let ours = reading.lines.iter();
    let mut ours: Vec<_> = ours
        .map(|relay| format!("{} {}", hex::encode_upper(relay.fingerprint), relay.bw))
        .collect();
    stems.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, stems, "{name}");
}

#[test]
fn check_names_file_and_line_and_its_status_says_whether_all_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = path("sbws-1.2.0.v3bw");
    let good = good.to_str().expect("a path");
    let text = fs::read_to_string(good).expect("a file");
    let now = "1547450000";
    let output = run(&["check", good, "--now", now]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("version 1.2.0 by sbws, 81 relays, 81 to vote with"), "{shown}");

    let bad = dir.path().join("bad.v3bw");
    fs::write(&bad, text.replacen("bw=1 ", "bw=1.5 ", 1)).expect("a file");
    let bad = bad.to_str().expect("a path");
    let output = run(&["check", good, bad, "--now", now]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("bad.v3bw:15: the line is skipped: \"bw=1.5\" is no number"), "{shown}");

    let output = run(&["check", good, "--json"]);
    assert_eq!(output.status.code(), Some(1), "it is years old");
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&object["is_refused"], &object["relays"]), (&true.into(), &81.into()));
    assert_eq!(object["findings"][0]["severity"], "refused");
    let output = run(&["check", "/nonexistent", good, "--now", now]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.is_empty(), "the other one is read");
    assert_eq!(run(&["check"]).status.code(), Some(2));
}

#[test]
fn diff_says_what_authorities_would_vote_for_otherwise() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = path("sbws-1.2.0.v3bw");
    let text = fs::read_to_string(&old).expect("a file");
    let new = dir.path().join("new.v3bw");
    let changed = text.replacen("bw=1 ", "bw=3 ", 1).replacen("bw=1 ", "bw=1 vote=0 ", 1);
    fs::write(&new, changed).expect("a file");
    let paths = [old.to_str().expect("a path"), new.to_str().expect("a path")];
    let output = run(&["diff", paths[0], paths[1], "--json"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut bws: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|change| (change["old_bw"].as_u64(), change["new_bw"].as_u64()))
        .collect();
    bws.sort_unstable();
    assert_eq!(bws, [(Some(1), None), (Some(1), Some(3))]);
    let output = run(&["diff", paths[0], paths[1]]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("+200.0 %") && text.contains("gone"), "{text}");
    assert!(text.ends_with("2 relays changed, from 2 to 3 kB/s in all\n"), "{text}");
    let output = run(&["diff", paths[0], "/dev/null"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is it a bandwidth file?"));
    assert_eq!(output.status.code(), Some(1));
}
