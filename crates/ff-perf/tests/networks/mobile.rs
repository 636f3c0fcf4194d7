//! `ff-perf lab mobile`, as people run it. Needs root. Which figures come out is `.ci/measure`'s.

use std::process::Command;

use serde_json::Value;

#[test]
fn clients_on_mobile_links_have_whole_downloads_and_their_parts() {
    for client in ["arti", "tor"] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        command.args(["lab", "mobile", "--profiles", "3g,baseline", "--downloads", "2", "--json"]);
        command.args(["--size", "50kB", "--client", client, "--out"]).arg(dir.path());
        let output = command.output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        // 1 and 75 are verdicts on times, which a busy machine may spoil.
        assert!(matches!(output.status.code(), Some(0 | 1 | 75)), "{client}: {output:?}");
        let found: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        let rows = found["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((&row["whole"], &row["failed"]), (&2.into(), &0.into()), "{row}: {said}");
            let parts = row["parts"].as_object().expect("parts");
            assert!(parts.values().all(|secs| secs.as_f64() >= Some(0.0)), "{row}");
            let least = row["quartiles_secs"][0].as_f64().expect("a time");
            let wire = row["wire_secs"].as_f64().expect("a time");
            assert!(least > wire, "{row}: a link does not carry more than its rate");
        }
        for folder in ["0-3g", "1-baseline"] {
            assert!(dir.path().join(folder).join("circuits-000.jsonl").exists(), "{folder}");
        }
        assert!(dir.path().join("summary.json").exists());
    }
}
