//! Runs `ff-demo --tor` as its users do, with tors that have FlashFlow's target and without.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::demo::is_measured;
use crate::{Run, dir, run_in};

/// The limit of the relay that is measured: 50 Mbit/s.
const LIMIT: u64 = 6_250_000;
/// Options of a measurement of it that takes little time.
const QUICK: [&str; 5] = ["--limit", "50Mbit", "--sockets", "20", "--json"];

/// Runs a demo in a directory, with its files in `out`.
fn demo(dir: &Path, args: &[&str]) -> Run {
    run_in(dir, ["--out", "out"].iter().chain(args).copied())
}

/// Debian's tor, which knows nothing of FlashFlow.
fn stock_tor() -> String {
    // Debian has it in /usr/sbin, which is not on every user's PATH.
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let tor = dirs.map(|dir| dir.join("tor")).find(|tor| tor.is_file());
    let tor = tor.expect("this test needs tor: install the Debian package `tor` (apt install tor)");
    tor.into_os_string().into_string().expect("a path in UTF-8")
}

/// Fails if a process still uses the directory, or holds the lock of the data directory in it.
fn assert_no_tor_is_left(dir: &Path) {
    let name = dir.to_str().expect("a path in UTF-8");
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        // Most entries are not processes, and some end meanwhile.
        let cmdline = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
        assert!(!cmdline.contains(name), "{:?} still runs: {cmdline}", process.file_name());
    }
    if let Ok(lock) = File::open(dir.join("out/tor/lock")) {
        lock.try_lock().expect("nobody has locked the data directory");
    }
}

/// The keys of an object and of the objects in it.
fn keys(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (key, value) in value.as_object().expect("an object") {
        all.push(key.clone());
        if let Some(inner) = value.as_object() {
            all.extend(inner.keys().map(|inner| format!("{key}.{inner}")));
        }
    }
    all
}

#[test]
fn a_tor_without_the_target_is_told_apart_and_leaves_nothing_running() {
    let dir = dir();
    let tor = stock_tor();
    // A second time, because what the first has left must not be in the way.
    for _ in 0..2 {
        let run = demo(dir.path(), &["--tor", &tor, "--json"]);
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        for words in
            ["has no FlashFlow target", "crates/ff-relay-ext/tor/build-tor", &tor, "Unknown option"]
        {
            assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
        }
        let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
        assert_eq!(outcome["failure"]["code"], "setup_failed");
        assert_no_tor_is_left(dir.path());
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error_before_anything_is_made() {
    let dir = dir();
    for program in ["no/such/tor", "."] {
        let run = demo(dir.path(), &["--tor", program, "--background", "none"]);
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        let text = format!("there is no program {program}: build a tor");
        assert!(run.stderr.contains(&text), "no {text:?} in {}", run.stderr);
        assert!(!dir.path().join("out/tor").exists());
    }
}

#[test]
fn a_program_that_is_no_tor_is_told_by_what_it_says() {
    let dir = dir();
    let program = dir.path().join("not-tor");
    fs::write(&program, "#!/bin/sh\necho I am no tor >&2\nexit 7\n").expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its mode");
    let run = demo(dir.path(), &["--tor", "./not-tor"]);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    for words in ["ended (exit status: 7)", "I am no tor", "out/tor/output"] {
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    }
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let dir = dir();
    let precious = dir.path().join("out/tor/keys");
    fs::create_dir_all(&precious).expect("a directory");
    let run = demo(dir.path(), &["--tor", &stock_tor()]);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("not an earlier demo's"), "{}", run.stderr);
    assert!(precious.is_dir());
}

#[test]
fn options_that_do_not_go_with_tor_are_exit_2() {
    let dir = dir();
    let cases: [(&[&str], &str); 3] = [
        (&["--background", "5Mbit"], "clients of a tor need a network"),
        (&["--limit", "614kbit"], "--limit must be from 615kbit to 17Gbit"),
        (&["--limit", "18Gbit"], "--limit must be from 615kbit to 17Gbit"),
    ];
    for (args, words) in cases {
        let run = demo(dir.path(), &[args, &["--tor", "no/such/tor"]].concat());
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{args:?}: no {words:?} in {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
    assert!(!dir.path().join("out").exists(), "a wrong command line makes no files");
}

/// What a demo came to that measured to its end.
fn outcome(run: &Run) -> Value {
    let outcome: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert!(is_measured(run.status, outcome["verdict"].as_str().expect("a verdict")), "{run:?}");
    outcome
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor built by build-tor"]
fn a_flashflow_tor_is_measured_as_the_plain_demos_relay_is() {
    let tor = env::var("FF_TEST_TOR").expect("FF_TEST_TOR names a tor built by build-tor");
    let tor = fs::canonicalize(tor).expect("FF_TEST_TOR names a file");
    let tor = tor.to_str().expect("a path in UTF-8");
    // A path with what has a meaning in torrc.
    let parent = dir();
    let dir = parent.path().join("a \"b\" #c \\é");
    fs::create_dir(&dir).expect("a directory");

    let run = demo(&dir, &[&QUICK[..], &["--tor", tor, "--duration", "5"]].concat());
    let measured = outcome(&run);
    let estimate = measured["estimate_bytes_per_sec"].as_u64().expect("an estimate");
    // Less is the machine's affair, and is held to a bound where a tor is measured by itself.
    assert!(estimate > 0 && estimate <= LIMIT + LIMIT / 5, "{estimate} B/s of {LIMIT}");
    assert_eq!(measured["limit_bytes_per_sec"], LIMIT);
    assert_eq!(measured["clients"], Value::Null);
    let cpu = measured["cpu_seconds"]["target"].as_f64().expect("tor's CPU time");
    assert!(cpu > 0.0 && cpu < 30.0, "{cpu} s");

    let data_dir = dir.join("out/tor");
    assert_eq!(fs::metadata(&data_dir).expect("it").permissions().mode() & 0o777, 0o700);
    for name in ["torrc", "log", "fingerprint-ed25519"] {
        assert!(data_dir.join(name).is_file(), "no {name}");
    }
    assert_no_tor_is_left(&dir);

    let plain = demo(&dir, &[&QUICK[..], &["--background", "none", "--duration", "3"]].concat());
    let plain = outcome(&plain);
    assert_eq!(keys(&measured), keys(&plain));
    assert_eq!(plain["clients"], Value::Null);
}
