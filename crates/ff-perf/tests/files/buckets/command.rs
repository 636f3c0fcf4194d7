//! `--rtt-pause`, `--refill` and `--truth` as users give them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Output;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use serde_json::Value;

use super::{RELAYS, model};
use crate::program;

/// Runs `ff-perf circuits`.
fn run(args: &[&str]) -> Output {
    program::run(&["circuits"], args)
}

/// Standard error of a run that fails.
fn fails(args: &[&str]) -> String {
    let output = run(args);
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Writes lines of built circuits from a model in which four relays hold cells back.
fn write(dir: &Path) {
    let circuits = model(4, 0.8, &mut ChaCha12Rng::seed_from_u64(1));
    let mut lines = String::new();
    for (number, seen) in circuits.all.iter().enumerate() {
        let mut at_us = 9000.0;
        let mut trips = vec![r#"{"us":1000,"at_us":8000,"probe":"refused"}"#.to_owned()];
        for trip in &seen.trips {
            let (pause, rtt) = (1000.0 * trip.pause_ms, 1000.0 * trip.rtt_ms);
            trips.push(format!(
                r#"{{"us":{rtt:.0},"at_us":{:.0},"probe":"refused"}}"#,
                at_us + pause
            ));
            at_us += pause + rtt.round();
        }
        let path = seen.path.iter().map(|relay| &circuits.relays[*relay as usize]);
        let path: Vec<String> = path.map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
        writeln!(
            lines,
            r#"{{"schema":1,"number":{number},"client":"arti","began_unix_secs":1.0,"began_us":{number},"path":[{}],"hops_us":[1000,2000,3000],"rtt":[{}],"ended_us":{at_us:.0}}}"#,
            path.join(","),
            trips.join(",")
        )
        .expect("a line");
    }
    fs::write(dir.join("circuits-000.jsonl"), lines).expect("written");
}

#[test]
fn a_truth_is_counted_against_and_its_mistakes_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path());
    let file = dir.path().join("truth");
    let (circuits, truth) = (dir.path().to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let analyze = ["analyze", circuits, "--truth", truth];

    // Three of the four, one that does not hold cells back, and one that is on no circuit.
    let ids: Vec<String> = [0, 1, 2, 9, RELAYS].map(|at| format!("{at:040}")).into();
    fs::write(&file, format!("# known\n{}", ids.join("\n"))).expect("written");
    let output = run(&[&analyze[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let compared = &found["token_buckets"]["truth"];
    let list = |key: &str| -> Vec<String> {
        let mut list: Vec<String> =
            serde_json::from_value(compared[key].clone()).expect("a list of fingerprints");
        list.sort_unstable();
        list
    };
    assert_eq!(list("hits"), ids[..3]);
    assert_eq!(
        (list("misses"), list("not_looked_at")),
        (vec![ids[3].clone()], vec![ids[4].clone()])
    );
    assert_eq!(list("false_alarms"), [format!("{:040}", 3)]);
    assert_eq!(compared["innocent"], RELAYS - 4);
    let output = run(&analyze);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let said = "3 hits, 1 misses, 1 false alarms of 11 others, 0 indistinguishable, 1 not examined";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("relays that are not named may be full as well"), "{text}");

    for (content, said) in [
        (format!("{}\n{}", ids[0], &ids[1][..20]), "line 2: "),
        (format!("{}\n\n{}\n", ids[0], ids[0]), "line 3: "),
        ("relay0\n".to_owned(), "line 1: \"relay0\" is not a fingerprint"),
        ("\u{fffd}\u{0}\n".to_owned(), "line 1: "),
    ] {
        fs::write(&file, content).expect("written");
        let error = fails(&analyze);
        assert!(error.contains(&format!("{truth}, {said}")), "{error}");
    }
    fs::remove_file(&file).expect("removed");
    let error = fails(&analyze);
    assert!(error.contains(truth), "{error}");
}

#[test]
fn pauses_and_intervals_that_mean_nothing_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path());
    let circuits = dir.path().to_str().expect("UTF-8");
    let out = dir.path().join("out");
    let out = out.to_str().expect("UTF-8");
    for pause in ["-1", "10001", "0.5", "1s", "", "nan"] {
        let option = format!("--rtt-pause={pause}");
        let error = fails(&["run", "--network", circuits, "--out", out, &option]);
        assert!(error.contains("--rtt-pause <MS>"), "{error}");
        assert!(!Path::new(out).exists(), "{pause:?} left something behind");
    }
    for refill in ["0", "-100", "1001", "99.9", ""] {
        let error = fails(&["analyze", circuits, &format!("--refill={refill}")]);
        assert!(error.contains("--refill <MS>"), "{error}");
    }
}
