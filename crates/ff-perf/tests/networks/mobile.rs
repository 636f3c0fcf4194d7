//! `ff-perf lab mobile` as users run it. Needs root. `.ci/measure` checks its figures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run::lines;

/// Downloads of each profile.
const DOWNLOADS: u64 = 2;

/// Runs it into a new folder and returns its results.
fn run(client: &str, out: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["lab", "mobile", "--profiles", "3g,baseline", "--json", "--size", "50kB"]);
    command.args(["--downloads", &DOWNLOADS.to_string(), "--client", client, "--out"]).arg(out);
    let output = command.output().expect("the program");
    // 1 and 75 are verdicts on times, which a busy machine may spoil.
    assert!(matches!(output.status.code(), Some(0 | 1 | 75)), "{client}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Runs it until all downloads are complete: now and then a relay closes a circuit as idle, which
/// its line says.
fn run_whole(client: &str, dir: &Path) -> (Value, std::path::PathBuf) {
    for attempt in 0..5 {
        let out = dir.join(attempt.to_string());
        let found = run(client, &out);
        let rows = found["rows"].as_array().expect("rows");
        for row in rows {
            let [whole, failed] = ["whole", "failed"].map(|key| row[key].as_u64());
            assert_eq!(whole.zip(failed).map(|(one, other)| one + other), Some(DOWNLOADS), "{row}");
            assert_eq!(row["reasons"].as_array().map(|all| all.len() as u64), failed, "{row}");
        }
        if rows.iter().all(|row| row["whole"] == DOWNLOADS) {
            return (found, out);
        }
        eprintln!("not all are whole; again: {found}");
    }
    panic!("{client}: downloads failed in all five runs");
}

/// Both downloads of a pair are made at once, through one guard or two.
fn pairs_are_pairs(found: &Value, out: &Path) {
    let rows = found["links"].as_array().expect("links");
    let losses: Vec<Option<f64>> = rows.iter().map(|row| row["loss"].as_f64()).collect();
    assert_eq!(losses, [0.0, 0.01, 0.03].map(Some));
    for (number, folder) in
        ["loss-0-one-link", "loss-0-two-links", "loss-0.03-one-link", "loss-0.03-two-links"]
            .into_iter()
            .enumerate()
    {
        let pair = lines(&out.join(folder).join("0"));
        let guards: BTreeSet<&str> = pair.iter().map(|one| one.path[0].id.as_str()).collect();
        assert_eq!((pair.len(), guards.len()), (2, 1 + number % 2), "{folder}: {pair:?}");
        let [one, other] = &pair[..] else { panic!("{folder}: {pair:?}") };
        let at_once = one.began_us < other.began_us + other.ended_us
            && other.began_us < one.began_us + one.ended_us;
        assert!(at_once, "{folder}: {pair:?}");
    }
}

#[test]
fn clients_on_mobile_links_have_whole_downloads_and_their_parts() {
    for client in ["arti", "tor"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (found, out) = run_whole(client, dir.path());
        let rows = found["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            let parts = row["parts"].as_object().expect("parts");
            assert!(parts.values().all(|secs| secs.as_f64() >= Some(0.0)), "{row}");
            let least = row["quartiles_secs"][0].as_f64().expect("a time");
            let wire = row["wire_secs"].as_f64().expect("a time");
            assert!(least > wire, "{row}: a link does not carry more than its rate");
        }
        for folder in ["0-3g", "1-baseline"] {
            assert!(out.join(folder).join("circuits-000.jsonl").exists(), "{folder}");
        }
        for start in found["starts"].as_array().expect("starts") {
            for key in ["client_secs", "client_bytes"] {
                assert!(start[key].as_f64() > Some(0.0), "{client}: {key} of {start}");
            }
            let is_reached = start["service_secs"].as_f64() > Some(0.0);
            assert_eq!(is_reached, start["failure"].is_null(), "{client}: {start}");
        }
        pairs_are_pairs(&found, &out);
        assert!(out.join("summary.json").exists());
    }
}
