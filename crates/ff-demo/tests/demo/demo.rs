//! Runs the built `ff-demo` as its users do: arguments, exit status, output, files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{dir, run_in};

/// The limit of the relay in these tests: 20 Mbit/s.
pub(crate) const LIMIT: u64 = 2_500_000;
/// The options of a small, slow demo.
pub(crate) const DEMO: [&str; 6] = ["--sockets", "8", "--limit", "20Mbit", "--background", "5Mbit"];

/// Whether a demo measured to its end, with the exit status of its verdict. On a busy machine each
/// of these verdicts can be right.
pub(crate) fn is_measured(status: Option<i32>, verdict: &str) -> bool {
    let all =
        [(0, "conclusive"), (11, "measurer_limited"), (14, "path_limited"), (15, "unsettled")];
    all.iter().any(|&(code, name)| (status, verdict) == (Some(code), name))
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
pub(crate) fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is {}", object[key]))
}

/// The sum of the whole numbers under a key.
pub(crate) fn sum(object: &Value, key: &str) -> u64 {
    let numbers = object[key].as_array().unwrap_or_else(|| panic!("{key} is {}", object[key]));
    numbers.iter().map(|number| number.as_u64().expect("a whole number")).sum()
}

#[test]
fn demo_json_is_one_object_whose_numbers_agree() {
    let dir = dir();
    let more = ["--duration", "3", "--json", "--out", "out"];
    let run = run_in(dir.path(), DEMO.into_iter().chain(more));
    assert_eq!(run.stdout.lines().count(), 1, "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    check_shape(&outcome);
    let verdict = outcome["verdict"].as_str().expect("a verdict");
    assert!(is_measured(run.status, verdict), "{run:?}");
    assert_eq!(outcome["failure"], Value::Null);

    let estimate = number(&outcome, "estimate_bytes_per_sec");
    assert_eq!(number(&outcome, "limit_bytes_per_sec"), LIMIT);
    // Less is the machine's affair, and is held to a bound where there is one to be had.
    assert!(estimate <= LIMIT + LIMIT / 10, "{estimate} B/s of {LIMIT}");
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
            "settle_secs",
            "settling_bytes",
            "counted_unix_millis",
            "seconds",
            "disputes",
            "cells",
            "rtt_ms",
            "cpu_seconds",
            "sockets",
            "paths",
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

/// Fails unless the seconds add up and the estimate is their median, or 1.05 times their mean if
/// that is less: a busy machine can make a second slow.
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
    let most_by_mean = totals.iter().sum::<u64>() * 105 / 300;
    assert_eq!(number(outcome, "estimate_bytes_per_sec"), totals[1].min(most_by_mean));
    let clients: u64 = rows.iter().map(|row| number(row, "background_reported_bytes")).sum();
    assert!(clients > 0, "clients had nothing in three seconds");
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
    let sockets = &outcome["sockets"];
    assert_eq!((number(sockets, "asked"), number(sockets, "opened")), (8, 8));
    let [p50, p90, p99, max] =
        ["p50", "p90", "p99", "max"].map(|key| outcome["rtt_ms"][key].as_f64().expect("a time"));
    assert!(p50 <= p90 && p90 <= p99 && p99 <= max, "{}", outcome["rtt_ms"]);
    let clients = &outcome["clients"];
    assert_keys(clients, &["offered_bytes_per_sec", "before_bytes", "during_bytes", "after_bytes"]);
    assert_eq!(number(clients, "offered_bytes_per_sec"), LIMIT / 4);
    // As many seconds as the measurement has; `figures` compares them with what the relay says.
    let seconds = |key: &str| clients[key].as_array().expect("seconds").len();
    assert_eq!(seconds("during_bytes"), rows.len());
    assert_eq!((seconds("before_bytes"), seconds("after_bytes")), (2, 2));
    let all = ["before_bytes", "during_bytes", "after_bytes"].map(|key| sum(clients, key));
    assert!(all.iter().sum::<u64>() > 0, "{clients}");
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
    let dir = dir();
    let run = run_in(dir.path(), DEMO.into_iter().chain(["--duration", "3"]));
    let verdict = run.stdout.lines().find_map(|line| line.trim_start().strip_prefix("verdict  "));
    let verdict = verdict.and_then(|line| line.split(':').next()).expect("a verdict");
    assert!(is_measured(run.status, &verdict.replace(' ', "_")), "{run:?}");
    let seconds: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("second ")).collect();
    assert_eq!(seconds.len(), 3, "{}", run.stderr);
    assert!(seconds[0].starts_with("second   1/3 ") && seconds[2].starts_with("second   3/3 "));
    assert!(seconds.iter().all(|line| line.contains("Mbit/s")), "{seconds:?}");
    for word in ["estimate", "truth", "sockets  8 of 8 opened", "; during "] {
        assert!(run.stdout.contains(word), "no {word:?} in {}", run.stdout);
    }
    // Without --out the files are in a directory of the current one.
    assert_eq!(names(dir.path()), ["flashflow-demo"]);
}

#[test]
fn a_failure_before_the_measurement_is_json_too() {
    let dir = dir();
    fs::write(dir.path().join("file"), "in the way").expect("a file");
    let run = run_in(dir.path(), ["--json", "--out", "file"]);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(
        (&outcome["verdict"], &outcome["failure"]["code"]),
        (&"failed".into(), &"setup_failed".into())
    );
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    let dir = dir();
    for (args, word) in [
        (&["--duration", "0"][..], "--duration"),
        (&["--duration", "121"], "--duration"),
        (&["--sockets", "0"], "--sockets"),
        (&["--limit", "20 parsecs"], "--limit"),
        (&["--ratio", "1"], "--ratio"),
        (&["--cells-per-record", "32"], "--cells-per-record"),
        (&["--measurers", "9"], "--measurers"),
        (&["--network"], "--network"),
        (&["anything"], "anything"),
    ] {
        let run = run_in(dir.path(), args.iter().copied());
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{args:?}: no {word:?} in {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
    assert_eq!(names(dir.path()), [""; 0], "a wrong command line makes no files");
}
