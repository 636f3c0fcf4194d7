//! The store's owner, and stores that are damaged, foreign, locked or full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ff_store::{Store, StoreError};
use rusqlite::Connection;

use super::{COORDINATOR, Temporary, begin_relay, message};
use crate::names;
use crate::samples::{NOW, outcome};

/// Changes a store without its library.
fn meddle(path: &Path, sql: &str) {
    Connection::open(path).expect("a database").execute_batch(sql).expect("a change");
}

#[test]
fn a_store_is_one_coordinators_and_one_processs() {
    let temporary = Temporary::new();
    let path = temporary.path();
    let error = message(Store::open(&path, COORDINATOR));
    let pid = std::process::id().to_string();
    assert!(error.contains("in use by process") && error.contains(&pid), "{error}");
    assert!(message(Store::move_aside(&path, NOW)).contains("in use by process"));
    let Temporary { dir, store } = temporary;
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    drop(store);
    let error = message(Store::open(&path, [8; 32]));
    assert!(error.contains(&"07".repeat(32)) && error.contains(&"08".repeat(32)), "{error}");
    drop(Store::open(&path, COORDINATOR).expect("it is still its own"));
    assert_eq!(names(dir.path()), ["store.sqlite", "store.sqlite.grants", "store.sqlite.lock"]);
}

#[test]
fn versions_and_files_that_are_not_known_are_refused_and_left_alone() {
    let temporary = Temporary::new();
    let path = temporary.path();
    let Temporary { dir, store } = temporary;
    drop(store);
    meddle(&path, "PRAGMA user_version = 1000");
    assert!(
        message(Store::open(&path, COORDINATOR))
            .contains("has version 1000, and this program reads up to ")
    );
    assert!(message(Store::open_read_only(&path)).contains("has version 1000"));

    let other = dir.path().join("places.sqlite");
    meddle(&other, "CREATE TABLE t (a)");
    assert!(message(Store::open(&other, COORDINATOR)).contains("not a store of FlashFlow"));
    // The store's lock is a file beside it.
    let inner = dir.path().join("directory");
    fs::create_dir(&inner).expect("made");
    assert!(message(Store::open(&inner, COORDINATOR)).contains("not a store of FlashFlow"));
    let missing = dir.path().join("missing.sqlite");
    assert!(message(Store::open_read_only(&missing)).contains("there is no store"));
    assert!(!missing.exists(), "a reader makes nothing");
    // Without the permission to write there is an error.
    let error = message(Store::open(Path::new("/proc/store.sqlite"), COORDINATOR));
    assert!(error.contains("/proc/store.sqlite"), "{error}");
    assert!(message(Store::open(&dir.path().join("no/store"), COORDINATOR)).contains("no/store"));
}

/// A closed store with a hundred attempts.
fn filled() -> (tempfile::TempDir, std::path::PathBuf) {
    let mut temporary = Temporary::new();
    for relay in 0..100 {
        temporary.put(&outcome(relay, 100));
    }
    let path = temporary.path();
    let Temporary { dir, store } = temporary;
    drop(store);
    (dir, path)
}

#[test]
fn damage_is_said_and_the_damaged_store_is_kept() {
    let (dir, path) = filled();
    let good = fs::read(&path).expect("a file");
    let mut garbage = good.clone();
    for byte in &mut garbage[8192..12_288] {
        *byte = !*byte;
    }
    let cases: [(&str, Vec<u8>); 5] = [
        ("empty", Vec::new()),
        ("cut in a page", good[..good.len() / 2 + 100].to_vec()),
        ("cut at a page", good[..4096 * 4].to_vec()),
        ("garbage", garbage),
        ("no database", b"not a database at all, but long enough to look like one".repeat(200)),
    ];
    for (name, bytes) in cases {
        fs::write(&path, &bytes).expect("a file");
        let error = Store::open(&path, COORDINATOR).expect_err(name);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{name}: {error}");
        let text = error.to_string();
        for what in ["store.sqlite-wal", "store.sqlite-shm", "--new-store", "copy"] {
            assert!(text.contains(what), "{name}: {text}");
        }
        assert_eq!(fs::read(&path).expect("a file"), bytes, "{name}: nothing has touched it");
    }
    // A damaged store is kept, and no kept one is overwritten.
    let bytes = fs::read(&path).expect("a file");
    fs::write(dir.path().join("store.sqlite-wal"), b"a log").expect("a file");
    let aside = Store::move_aside(&path, NOW).expect("moved");
    assert_eq!(aside, dir.path().join("store.sqlite.corrupt-2026-11-20-09-30-00"));
    assert_eq!(fs::read(&aside).expect("a file"), bytes);
    fs::write(&path, b"another").expect("a file");
    let second = Store::move_aside(&path, NOW).expect("moved");
    assert_eq!(second, dir.path().join("store.sqlite.corrupt-2026-11-20-09-30-00-2"));
    assert!(message(Store::move_aside(&path, NOW)).contains("there is no store"));
    drop(Store::open(&path, COORDINATOR).expect("a new one"));
    let expected = [
        "store.sqlite",
        "store.sqlite.corrupt-2026-11-20-09-30-00",
        "store.sqlite.corrupt-2026-11-20-09-30-00-2",
        "store.sqlite.corrupt-2026-11-20-09-30-00-wal",
        "store.sqlite.grants",
        "store.sqlite.lock",
    ];
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn a_log_without_its_store_is_not_thrown_away() {
    let mut temporary = Temporary::new();
    temporary.put(&outcome(1, 100));
    let log = temporary.dir.path().join("store.sqlite-wal");
    let bytes = fs::read(&log).expect("a log");
    let path = temporary.path();
    let Temporary { dir, store } = temporary;
    drop(store);
    fs::remove_file(&path).expect("removed");
    fs::write(&log, &bytes).expect("a log");
    assert!(message(Store::open(&path, COORDINATOR)).contains("only its log is there"));
    assert_eq!(fs::read(&log).expect("a log"), bytes);
    Store::move_aside(&path, NOW).expect("moved");
    drop(Store::open(&path, COORDINATOR).expect("a new one"));
    drop(dir);
}

#[test]
fn a_locked_store_is_reported_and_waited_for_only_once() {
    let mut temporary = Temporary::new();
    let other = Connection::open(temporary.path()).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let mut times = Vec::new();
    for relay in 1..=30 {
        let begun = Instant::now();
        let error = message(temporary.store.begin_attempt(&begin_relay(relay)));
        times.push(begun.elapsed());
        assert!(error.contains("another program keeps it locked"), "{error}");
    }
    // A wait takes a second. A busy machine may delay some attempts that do not wait, but not all.
    let fastest = times[1..].iter().min().expect("29 attempts");
    assert!(*fastest < Duration::from_millis(500), "{times:?}");
    other.execute_batch("COMMIT").expect("released");
    temporary.store.begin_attempt(&begin_relay(1)).expect("begun");
}

#[test]
fn names_that_are_not_known_are_an_error_that_names_the_row() {
    for (sql, what) in [
        ("UPDATE attempts SET draw = 'sideways'", "\"sideways\""),
        ("UPDATE attempts SET verdict = 'splendid'", "\"splendid\" in it as its verdict"),
        (
            "UPDATE attempts SET verdict = 'failed', failure = 'boredom'",
            "\"boredom\" in it as its failure",
        ),
        ("UPDATE attempts SET ratio_percent = 100", "100 in it as its ratio_percent"),
        ("UPDATE attempts SET asked_secs = -1", "-1 in it as its asked_secs"),
        ("UPDATE samples SET seconds = x'02'", "not known here (Some(2)) as its seconds"),
        ("UPDATE samples SET seconds = x'0105'", "cannot be read as its seconds"),
        ("UPDATE attempts SET cells_sent = NULL", "a Null as its cells_sent"),
    ] {
        let mut temporary = Temporary::new();
        temporary.put(&outcome(1, 100));
        let id = temporary.put(&outcome(2, 100));
        meddle(
            &temporary.path(),
            &format!(
                "{sql} WHERE {} = {}",
                if sql.contains("samples") { "attempt" } else { "id" },
                id.0
            ),
        );
        let error = message(temporary.store.attempt(id));
        assert!(error.contains("row 2 of attempts has") && error.contains(what), "{error}");
        assert!(error.contains("store.sqlite"), "{error}");
    }
}

#[test]
fn readers_see_what_is_finished_beside_the_writer() {
    let mut temporary = Temporary::new();
    let before = Store::open_read_only(&temporary.path()).expect("a reader");
    let id = temporary.put(&outcome(1, 100));
    temporary.store.begin_attempt(&begin_relay(2)).expect("begun");
    let after = Store::open_read_only(&temporary.path()).expect("a reader");
    for reader in [before, after] {
        assert!(reader.attempt(id).expect("read").is_some());
        assert_eq!(reader.running().expect("read").len(), 1);
    }
    let path = temporary.path();
    let Temporary { dir, store } = temporary;
    drop(store);
    let reader = Store::open_read_only(&path).expect("also without a coordinator");
    assert!(reader.attempt(id).expect("read").is_some());
    drop(dir);
}

#[test]
fn a_sound_store_is_not_moved_aside_for_a_new_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.sqlite");
    drop(Store::open(&path, COORDINATOR).expect("a store"));
    assert!(matches!(Store::damage(&path), Ok(None)));
    fs::write(&path, b"not a database at all, but long enough to look like one".repeat(200))
        .expect("a file");
    assert!(matches!(Store::damage(&path), Ok(Some(StoreError::Corrupt { .. }))));
    let missing = dir.path().join("none.sqlite");
    assert!(matches!(Store::damage(&missing), Err(StoreError::Missing(_))));
}
