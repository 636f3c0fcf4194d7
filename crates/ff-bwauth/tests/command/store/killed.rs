//! A coordinator that is killed at any moment loses nothing that the store has confirmed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ff_proto::failure::FailureKind;
use ff_store::{AttemptId, Begin, Kind, Period, Store};
use rusqlite::Connection;

use super::{COORDINATOR, begin_relay, period, to_plan};
use crate::samples::{NOW, outcome};

/// The environment variable with the child's store.
const STORE: &str = "FF_TEST_KILLED_STORE";
/// The number of times that the child is killed.
const KILLS: u64 = 30;

/// The child: carries out one plan after the other, and prints what the store has confirmed.
#[test]
#[ignore = "it is started by the test below"]
fn child() {
    let path = std::env::var_os(STORE).expect("the store's path");
    let mut store = Store::open(Path::new(&path), COORDINATOR).expect("a store");
    let say = |what: &str, id: AttemptId| {
        let mut out = std::io::stdout();
        writeln!(out, "\n{what} {}", id.0).and_then(|()| out.flush()).expect("the parent reads");
    };
    for running in store.close_interrupted(NOW).expect("closed") {
        say("closed", running.id);
    }
    loop {
        let last = store.last_period().expect("read").map_or(0, |last| last.number);
        for row in store.pending(last).expect("read") {
            let relay = row.what.fingerprint[0];
            let begin = Begin { plan: Some(row.id), ..begin_relay(relay) };
            let id = store.begin_attempt(&begin).expect("begun");
            say("begun", id);
            store.finish_attempt(id, &outcome(relay, 100), NOW).expect("finished");
            say("finished", id);
        }
        let rows: Vec<_> = (0..20).map(|relay| to_plan(relay, 1, Kind::Old)).collect();
        let next = Period { start_unix_secs: NOW + last, ..period(last + 1) };
        store.set_plan(&next, &rows).expect("planned");
    }
}

/// A child that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child, kills it a moment after this number of lines, and adds its lines to the sets.
fn run_and_kill(
    path: &Path,
    (said, moment): (usize, Duration),
    begun: &mut BTreeSet<i64>,
    done: &mut BTreeSet<i64>,
) {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args([
            "--exact",
            "store::killed::child",
            "--ignored",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env(STORE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = Killed(child.expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let mut note = |line: &str| match line.split_once(' ') {
        Some(("begun", id)) => begun.insert(id.parse().expect("a number")),
        Some(("finished", id)) => done.insert(id.parse().expect("a number")),
        _ => false,
    };
    let words = lines.by_ref().map(|line| line.expect("text")).filter(|line| note(line));
    assert_eq!(words.take(said).count(), said, "the child ended by itself");
    std::thread::sleep(moment);
    drop(child);
    // A line may be incomplete.
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    for line in rest {
        note(&line);
    }
}

#[test]
fn kill_9_at_any_moment_loses_nothing_and_begins_nothing_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.sqlite");
    let (mut begun, mut done) = (BTreeSet::new(), BTreeSet::new());
    let mut interrupted = 0;
    for round in 0..KILLS {
        // 0 to 4 ms after one of its first ten lines, in an irregular order: begun, finished,
        // begun, ...
        let moment = Duration::from_micros(round * 7919 % KILLS * 4000 / KILLS);
        let said = usize::try_from(1 + round % 10).expect("small");
        run_and_kill(&path, (said, moment), &mut begun, &mut done);
        let mut store = Store::open(&path, COORDINATOR).expect("quick_check is ok");
        let running: BTreeSet<_> =
            store.running().expect("read").iter().map(|one| one.id.0).collect();
        assert!(running.len() <= 1, "{running:?}");
        for &id in &done {
            let found =
                store.attempt(AttemptId(id)).expect("read").expect("a finished one is there");
            assert!(found.outcome.result.is_ok() && found.outcome.seconds.len() == 30, "{id}");
        }
        // In every other round the next child closes the attempt.
        if round % 2 == 0 {
            interrupted += store.close_interrupted(NOW).expect("closed").len();
        }
    }
    let mut store = Store::open(&path, COORDINATOR).expect("a store");
    store.close_interrupted(NOW).expect("closed");
    for &id in &begun {
        let found = store.attempt(AttemptId(id)).expect("read").expect("a begun one is there");
        let failed = found.outcome.result.as_ref().err().map(|failure| failure.kind);
        assert!(failed.is_none_or(|kind| kind == FailureKind::Interrupted), "{failed:?}");
        assert!(!done.contains(&id) || failed.is_none());
    }
    println!("{} begun, {} finished, {interrupted} interrupted", begun.len(), done.len());
    assert!(done.len() >= 60, "{} finished", done.len());
    // The database itself ensures that no row of a plan is begun twice; none may be left behind.
    let db = Connection::open(&path).expect("a database");
    let twice =
        "SELECT count(*) FROM (SELECT plan FROM attempts GROUP BY plan HAVING count(*) > 1)";
    let count = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number");
    assert_eq!(count(twice), 0);
    assert_eq!(count("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    let check: String =
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(check, "ok");
}
