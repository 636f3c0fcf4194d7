//! Tests of `tortoise` with a network of a few dozen clients.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A small network, for a short time.
const SMALL: [&str; 8] = ["--scale", "0.06", "--seeds", "2", "--minutes", "10", "--warm-up", "2"];

/// Runs `tortoise` in this folder.
fn tortoise(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    command.current_dir(dir).arg("tortoise").args(args).output().expect("the program runs")
}

/// The text on standard error.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_same_seeds_give_the_same_files_on_one_thread_and_on_two() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = |out: &str, jobs: &str| {
        let args = [&SMALL[..], &["--out", out, "--jobs", jobs]].concat();
        let output = tortoise(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        for part in ["no limit, 40 client relays", "fitted capacity", "seeds 0 1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let figures = [3, 5, 6, 7, 8, 9, 10].map(|number| format!("fig{number}.svg")).to_vec();
        let tables = ["summary.json", "ledger.md", "ledger.csv", "runs.csv", "report.html"];
        let names = figures.into_iter().chain(tables.map(str::to_owned));
        let read = |name: String| fs::read_to_string(dir.path().join(out).join(name));
        names.map(|name| read(name).expect("a result")).collect::<Vec<_>>()
    };
    let one = files("one", "1");
    assert!(one == files("two", "2"));
    assert!(one.iter().all(|file| !file.contains("no values")), "every figure has curves");
    let runs = fs::read_to_string(dir.path().join("one/runs.csv")).expect("a table");
    assert_eq!(runs.lines().count(), 1 + 17 * 2, "seventeen experiments, two seeds: {runs}");
}

#[test]
fn each_claim_has_a_verdict_also_one_that_was_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = tortoise(dir.path(), &[&SMALL[..], &["--figures", "6", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = found["rows"].as_array().expect("rows");
    let of = |id: &str| rows.iter().find(|row| row["id"] == id).expect("a claim");
    for number in 1..=30 {
        of(&format!("T{number}"));
    }
    assert_eq!((&of("T1")["verdict"], &of("T1")["ours"]), (&"cannot".into(), &().into()));
    assert_eq!(of("T3")["verdict"], "holds");
    assert_eq!(of("T7")["verdict"], "not run");
    let reason = of("T7")["reason"].as_str().expect("a reason");
    assert!(reason.contains("needs the experiment \"100 KB/s\""), "{reason}");
    assert!(of("T12")["ours"].is_number(), "{found}");
    assert_eq!(found["experiments"].as_array().map(Vec::len), Some(3));
    // The fit: the mean client without a limit.
    let base = of("T6")["ours"].as_f64().expect("a number");
    assert!((40.0..=42.0).contains(&base), "{base}");
    assert!(found["fitted_capacity_bytes_per_sec"].as_f64().is_some_and(|rate| rate > 1e5));
}

#[test]
fn todays_network_has_times_with_each_limit_and_without_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = |out: &str, jobs: &str| {
        let network = ["--today", "--scale", "0.5", "--seeds", "2", "--minutes", "5"];
        let limits = ["--warm-up", "2", "--limits", "0.5,2", "--bursts", "least,3"];
        let args = [&network[..], &limits, &["--out", out, "--jobs", jobs]].concat();
        let output = tortoise(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        for part in ["72 relays of May 2024", "seeds 0 1", "Bytes between relays above a rate"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let names = ["summary.json", "limits.csv", "above.csv", "today-pages.svg"];
        let figures = ["today-files.svg", "today-above.svg", "today-above.csv", "report.html"];
        let read = |name: &str| fs::read_to_string(dir.path().join(out).join(name));
        let names = names.into_iter().chain(figures);
        names.map(|name| read(name).expect("a result")).collect::<Vec<_>>()
    };
    let one = files("one", "1");
    assert!(one == files("two", "2"));
    assert!(one.iter().all(|file| !file.contains("no values")), "every figure has curves");
    assert_eq!(one[1].lines().count(), 1 + 5 * 2, "no limit and four, two seeds: {}", one[1]);
    assert_eq!(one[2].lines().count(), 1 + 2 * 2, "two rates, two seeds: {}", one[2]);
    let summary: serde_json::Value = serde_json::from_str(&one[0]).expect("JSON");
    let limits = summary["results"]["limits"].as_array().expect("limits");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let bursts = limits.iter().map(|one| one["burst_bytes"].as_f64()).collect::<Vec<_>>();
    assert_eq!(bursts, [None, Some(1e5), Some(3e6), Some(4e5), Some(3e6)]);
    let used = number(&limits[0]["used_part"]);
    assert!((0.36..0.47).contains(&used), "fitted to 0.416: {used}");
    // Two legs of 500 KB/s: a file takes longer than without a limit, and a burst helps pages.
    let median = |at: usize, of: &str| number(&limits[at][of]["median_secs"]);
    assert!(median(1, "files") > 1.2 * median(0, "files"), "{limits:?}");
    assert!(median(1, "pages") > median(2, "pages"), "{limits:?}");
    for parts in summary["results"]["without_limit"].as_array().expect("rates") {
        let [all, fast, stable_fast] = [0, 1, 2].map(|at| number(&parts["above_parts"][at]));
        assert!(all > stable_fast && stable_fast > fast && fast > 0.0, "{parts}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    for (args, named) in [
        (vec!["--figures", "4"], "--figures"),
        (vec!["--scale", "0"], "--scale"),
        (vec!["--burst", "NaN"], "--burst"),
        (vec!["--seeds", "0"], "--seeds"),
        (vec!["--minutes", "0"], "--minutes"),
        (vec!["--jobs", "0"], "--jobs"),
        (vec!["--today", "--limits", "0.0099"], "PerConnBWRate"),
        (vec!["--today", "--bursts", "0"], "--bursts"),
        (vec!["--limits", "1"], "--today"),
        (vec!["--today", "--figures", "3"], "--figures"),
    ] {
        let output = tortoise(dir.path(), &args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(errors(&output).contains(named), "{}", errors(&output));
    }
    let last = u64::MAX.to_string();
    let output = tortoise(dir.path(), &["--seed", &last, "--seeds", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("--seeds 2 exceeds the largest seed"), "{}", errors(&output));
    let output = tortoise(dir.path(), &["--today", "--limits", "8", "--bursts", "1.5"]);
    assert_eq!(output.status.code(), Some(1));
    let said =
        "--bursts 1.5 is too small with --limits 8: it must be at least 0.2 s of the limit, 1.6 MB";
    assert!(errors(&output).contains(said), "{}", errors(&output));
    let help = tortoise(dir.path(), &["--help"]);
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    assert!(help.contains("Examples:") && help.contains("--figures 3,7"), "{help}");
}
