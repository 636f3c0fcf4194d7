//! `ff-perf lab tortoise` as users run it. Needs root, and a tor with the limit. `.ci/measure`
//! checks its figures.

use std::process::Command;

use serde_json::Value;

/// Scale of the smallest network: 12 web users and one bulk user.
const SCALE: &str = "0.014";

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_small_network_runs_the_experiments_with_each_tor() {
    let tor = std::env::var_os("FF_TEST_TOR").expect("FF_TEST_TOR names a tor with the limit");
    let out = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["lab", "tortoise", "--short", "--figure", "3", "--scale", SCALE, "--json"]);
    command.arg("--tor").arg(tor).arg("--out").arg(out.path());
    let output = command.output().expect("the program");
    // 75 says that the machine was too busy for the figures, which do not matter here.
    assert!(matches!(output.status.code(), Some(0 | 75)), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cells = found["cells"].as_array().expect("experiments");
    let name = |cell: &Value| format!("{} {}", cell["tor"], cell["experiment"]).replace('"', "");
    let names: Vec<_> = cells.iter().map(name).collect();
    let expected = ["stock no limit", "stock 100 KB/s", "ours no limit", "ours 100 KB/s"];
    assert_eq!(names, expected);
    let no_limit = &cells[0]["lab_kilobytes_per_sec"];
    assert!(cells.iter().all(|cell| cell["stock_no_limit_kilobytes_per_sec"] == *no_limit));
    assert_eq!(found["errors"], Value::Array(Vec::new()));
    // A stream may end early on a busy machine; that it is counted and named is what is tested.
    let failures = found["failures"].as_object().expect("failures by tor and reason");
    for (reason, count) in failures {
        assert!(reason.starts_with("stock: ") || reason.starts_with("ours: "), "{reason}");
        assert!(count.as_u64().is_some_and(|count| count < 10), "{reason}: {count}");
    }
    for file in ["experiments.csv", "ledger.md", "fig3-ours.svg", "summary.json"] {
        assert!(out.path().join(file).exists(), "{file}");
    }
}
