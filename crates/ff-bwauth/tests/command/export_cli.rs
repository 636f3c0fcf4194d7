//! `ff-bwauth export` as a command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use ff_plan::outcome::Method;
use ff_proto::units::Ratio;
use ff_store::{Begin, Store};

/// 2026-11-20 09:30:00 UTC.
const NOW: u64 = 1_795_167_000;

/// A store in this directory with two interrupted attempts, a day apart.
fn store(dir: &Path) -> Store {
    let mut store = Store::open(&dir.join("ff.sqlite"), [1; 32]).expect("a store");
    for started_unix_secs in [NOW, NOW + 86_400] {
        let target = ff_plan::outcome::TargetInfo {
            address: "192.0.2.1:9001".to_owned(),
            ed_identity: [2; 32],
            rsa_fingerprint: None,
            nickname: Some("alpha".to_owned()),
        };
        let begin = Begin {
            fingerprint: [0xAB; 20],
            target,
            plan: None,
            started_unix_secs,
            method: Method::Echo,
            asked_secs: 30,
            ratio: Ratio::ZERO,
            allocated: None,
            shares: Vec::new(),
        };
        store.begin_attempt(&begin).expect("begun");
    }
    store.close_interrupted(NOW + 90_000).expect("closed");
    store
}

/// Runs `ff-bwauth export` in a directory.
fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
    command.arg("export").args(args).current_dir(dir).output().expect("it runs")
}

/// Its standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_span_of_a_store_in_use_is_written_for_its_owner_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let store = store(dir);
    let args = ["--store", "ff.sqlite", "--what", "failures", "--out", "out.csv"];
    let output = run(dir, &args);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "out.csv: 2 rows of failures\n");
    let output = run(dir, &[&args[..], &["--from", "2026-11-20", "--to", "2026-11-21"]].concat());
    assert_eq!(said(&output), "out.csv: 1 rows of failures\n");
    let text = fs::read_to_string(dir.join("out.csv")).expect("a file");
    let (_, row) = text.trim_end().split_once('\n').expect("two lines");
    assert!(row.starts_with("1,,,2026-11-20T09:30:00Z,2026-11-21T10:30:00Z,ABABAB"), "{row}");
    assert!(row.contains(",interrupted,,the coordinator ended while it was measuring,"), "{row}");
    let mode = fs::metadata(dir.join("out.csv")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let parquet = ["--store", "ff.sqlite", "--format", "parquet", "--out", "out.parquet"];
    assert!(run(dir, &parquet).status.success());
    let bytes = fs::read(dir.join("out.parquet")).expect("a file");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    drop(store);
}

/// Needs root, for a mount namespace.
#[test]
fn a_copy_on_a_read_only_disk_is_exported() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    drop(store(dir));
    fs::create_dir(dir.join("disk")).expect("made");
    let script =
        "mount -t tmpfs none disk && cp ff.sqlite disk && mount -o remount,ro disk || exit 77
        exec \"$0\" export --store disk/ff.sqlite --what failures --out out.csv";
    let unshared = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_ff-bwauth")])
        .current_dir(dir)
        .output();
    let Ok(output) = unshared else {
        eprintln!("nothing checked: `unshare` is not installed");
        return;
    };
    if said(&output).contains("unshare failed") || output.status.code() == Some(77) {
        eprintln!("nothing checked: no mount namespace here: {}", said(&output));
        return;
    }
    assert_eq!(said(&output), "out.csv: 2 rows of failures\n");
    assert!(output.status.success());
}

#[test]
fn what_cannot_be_exported_is_said_and_leaves_what_was_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    drop(store(dir));
    fs::write(dir.join("kept.csv"), "kept").expect("a file");
    let garbage = b"garbage".repeat(1000);
    fs::write(dir.join("garbage.sqlite"), &garbage).expect("a file");
    for (args, status, what) in [
        (&["--store", "none.sqlite", "--out", "kept.csv"][..], 1, "there is no store none.sqlite"),
        (&["--store", "garbage.sqlite", "--out", "kept.csv"], 1, "garbage.sqlite is damaged"),
        (&["--store", "ff.sqlite", "--out", "no/where.csv"], 1, "failed to write no/where.csv"),
        (&["--store", "ff.sqlite", "--out", "kept.csv", "--what", "all"], 2, "'all'"),
        (
            &["--store", "ff.sqlite", "--out", "kept.csv", "--from", "yesterday"],
            2,
            "not a time of UTC",
        ),
        (
            &["--store", "ff.sqlite", "--out", "k", "--from", "2026-11-02", "--to", "2026-11-02"],
            2,
            "--to must be later than --from",
        ),
    ] {
        let output = run(dir, args);
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(said(&output).contains(what), "{args:?}: {}", said(&output));
    }
    assert_eq!(fs::read(dir.join("kept.csv")).expect("a file"), b"kept");
    assert_eq!(fs::read(dir.join("garbage.sqlite")).expect("a file"), garbage);
}
