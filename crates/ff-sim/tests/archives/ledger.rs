//! Tests of `ledger`: verdicts, files and exit status.

use std::path::Path;
use std::process::{Command, Output};

/// Rows that take seconds without optimisation.
const FAST: &str = "A1,A2,A3,A4,A5,A6,A7,A8,A10,B1,B2,B3,B3-later,B4,B4-2024,B5,B7,B9,C1,C4,D1";

/// Runs `ledger` in this folder.
fn ledger(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    command.current_dir(dir).arg("ledger").args(args).output().expect("the program runs")
}

/// The error messages.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The verdicts on all figures of a row, or that on the row if it has none.
fn verdicts(found: &serde_json::Value, id: &str) -> Vec<String> {
    let rows = found.as_array().expect("rows");
    let row = rows.iter().find(|row| row["id"] == id).expect("a row");
    let name = |of: &serde_json::Value| of["verdict"].as_str().expect("a verdict").to_owned();
    let figures = row["figures"].as_array().expect("figures");
    if figures.is_empty() { vec![name(row)] } else { figures.iter().map(name).collect() }
}

#[test]
fn it_gives_the_same_bytes_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = |out: &str| {
        let output = ledger(dir.path(), &["--quick", "--rows", FAST, "--out", out]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        ["ledger.md", "ledger.csv", "summary.json"]
            .map(|name| std::fs::read(dir.path().join(out).join(name)).expect(name))
    };
    // One run with both cores to itself, and two concurrent runs.
    let first = files("first");
    let [one, other] = std::thread::scope(|scope| {
        let one = scope.spawn(|| files("one"));
        let other = files("other");
        [one.join().expect("it runs"), other]
    });
    assert!(first == one && first == other);
}

#[test]
fn without_data_samples_stand_in_and_the_rest_is_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = ledger(dir.path(), &["--quick", "--rows", FAST, "--json", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (id, expected) in [
        ("A1", "shape"),
        ("A3", "shape"),
        ("A6", "shape"),
        ("A7", "shape"),
        ("A8", "equal"),
        ("B1", "equal"),
        ("B2", "equal"),
        ("B3", "equal"),
        ("B3-later", "not_run"),
        ("B4", "cannot"),
        ("B4-2024", "equal"),
        ("B7", "equal"),
        ("B9", "equal"),
        ("C4", "shape"),
        ("D1", "shape"),
    ] {
        let found = verdicts(&found, id);
        assert!(found.iter().all(|verdict| verdict == expected), "{id}: {found:?}");
    }
    assert_eq!(verdicts(&found, "A5"), ["not_run", "not_run", "shape"]);
    assert_eq!(verdicts(&found, "A10"), ["shape", "shape", "not_run", "not_run"]);
    let table = std::fs::read_to_string(dir.path().join("out/ledger.csv")).expect("a table");
    let mut lines = table.lines();
    let header = "id,figure,unit,paper,ours,low,high,verdict,of_sample,why,command";
    assert_eq!(lines.next(), Some(header));
    let line = lines.find(|line| line.starts_with("B2,608 Gbit/s,slots,599,599,")).expect("B2");
    assert!(line.contains("ff-sim schedule --network DIR/b-series/"), "{line}");
    let text = std::fs::read_to_string(dir.path().join("out/ledger.md")).expect("a document");
    assert!(text.contains(" (sample) |") && text.contains("| A8 | `ff-sim ledger"), "{text}");
    // Reasons for all data are marked, because a sample was run.
    let c4 = text.lines().find(|line| line.starts_with("| C4 |")).expect("a row");
    let said = "sample: the first of the ten-percent networks; with all data: seven ten-percent";
    assert!(c4.contains(said), "{c4}");
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).expect("a page");
    assert!(
        page.contains("<pre tabindex=\"0\">id ") && !page.contains("|---|"),
        "the page has no Markdown"
    );
}

#[test]
fn with_data_what_was_not_run_is_a_status_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    // B1 comes from the same part as B2, which needs a consensus; B9 needs no data.
    let status = |args: &[&str]| {
        let output = ledger(dir.path(), args);
        (output.status.code(), errors(&output))
    };
    let (code, text) = status(&["--data", ".", "--rows", "B2,B9"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("ff-sim: B2, 608 Gbit/s: not run: "), "{text}");
    assert!(!text.contains("B9, at once"), "{text}");
    assert_eq!(status(&["--data", ".", "--rows", "B2,B9", "--quick"]).0, Some(0));
    assert_eq!(status(&["--data", ".", "--rows", "B9"]).0, Some(0));
    let (code, text) = status(&["--rows", "B9,Z9"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the ledger has no row Z9"), "{text}");
}
