//! `ff-perf lab mobile` as users run it. Needs root. `.ci/measure` checks its figures.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

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
        assert!(out.join("summary.json").exists());
    }
}
