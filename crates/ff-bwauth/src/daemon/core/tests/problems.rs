//! Problems start and end with their causes.

use super::*;
use crate::watch::status::{Cause, Problem, Status};

/// Changes the first coordinator's store with SQL.
fn meddle(dir: &Path, sql: &str) {
    let db = rusqlite::Connection::open(dir.join("store-1")).expect("a store");
    db.execute_batch(sql).expect("a change");
}

/// Makes every insertion into a table fail, and every test of the store.
fn break_store(dir: &Path, table: &str) {
    meddle(
        dir,
        &format!(
            "CREATE TRIGGER broken BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no room'); END;
             CREATE TRIGGER probed BEFORE UPDATE ON meta BEGIN SELECT RAISE(ABORT, 'no room'); END;"
        ),
    );
}

/// Repairs the store.
fn mend_store(dir: &Path) {
    meddle(dir, "DROP TRIGGER broken; DROP TRIGGER probed;");
}

/// The problem with this cause, if any.
fn problem(status: &Status, cause: Cause) -> Option<&Problem> {
    status.problems.iter().find(|problem| problem.cause == cause)
}

/// A coordinator at the start of a period with this number of relays.
fn begun(dir: &Path, relays: u8) -> Core {
    let mut core = coordinator(1, dir, START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(relays)))), START - 100);
    core
}

#[test]
fn a_store_that_fails_is_a_problem_until_it_works_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 30);
    let mut life = Life::at(START);
    let mut come_of = |job: &Job, now| Some(outcome(job, TRUTH, now));
    life.until(&mut core, START + 100, &mut come_of);
    assert_eq!(problem(&core.status(life.now), Cause::Store), None);
    let before = life.asked.len();
    break_store(dir.path(), "attempts");
    let end = START + u64::from(LENGTH_SECS) - 1;
    let mut status = core.status(life.now);
    while problem(&status, Cause::Store).is_none() && life.now < end {
        let next = life.now + 1;
        life.until(&mut core, next, &mut come_of);
        status = core.status(life.now);
    }
    let first = problem(&status, Cause::Store).expect("a problem").clone();
    assert_eq!((first.since_unix_secs, life.asked.len()), (life.now, before));
    assert!(
        first.text.starts_with("the store fails, so ") && first.text.contains("no room"),
        "{first:?}"
    );
    let later = life.now + 3 * PROBE_SECS;
    life.until(&mut core, later, &mut come_of);
    let status = core.status(life.now);
    let same = problem(&status, Cause::Store).expect("it still fails");
    assert_eq!(same.since_unix_secs, first.since_unix_secs);
    mend_store(dir.path());
    let later = life.now + PROBE_SECS + 1;
    life.until(&mut core, later, &mut come_of);
    assert_eq!(problem(&core.status(life.now), Cause::Store), None);
    life.until(&mut core, end, &mut come_of);
    assert!(life.asked.len() > before, "it measures again");
}

#[test]
fn a_period_that_cannot_begin_is_a_problem_and_has_no_slot_after_its_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 5);
    let mut life = Life::at(START);
    life.until(&mut core, START + 900, |job, now| Some(outcome(job, TRUTH, now)));
    break_store(dir.path(), "periods");
    let late = START + u64::from(LENGTH_SECS + 3 * SLOT_SECS);
    life.until(&mut core, late, |job, now| Some(outcome(job, TRUTH, now)));
    let status = core.status(late);
    assert!(problem(&status, Cause::Store).is_some(), "{:?}", status.problems);
    assert!(problem(&status, Cause::Period).is_some(), "{:?}", status.problems);
    let period = status.period.expect("a period");
    assert_eq!((period.slots, period.now_slot), (100, 99));
    mend_store(dir.path());
    life.until(&mut core, late + 30, |job, now| Some(outcome(job, TRUTH, now)));
    let status = core.status(life.now);
    assert_eq!(problem(&status, Cause::Period), None);
    let before = status.period.expect("a period").before.expect("the one before");
    assert_eq!(before.relays_measured, 5);
}

#[test]
fn a_store_that_cannot_be_read_leaves_the_status_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 5);
    let mut life = Life::at(START);
    life.until(&mut core, START + 500, |job, now| Some(outcome(job, TRUTH, now)));
    let before = core.status(life.now).period.expect("a period");
    meddle(dir.path(), "ALTER TABLE plan RENAME TO away");
    core.coverage = None;
    let status = core.status(life.now);
    assert!(problem(&status, Cause::Store).is_some(), "{:?}", status.problems);
    assert_eq!(status.period.expect("a period").coverage, before.coverage);
    meddle(dir.path(), "ALTER TABLE away RENAME TO plan");
    let later = life.now + PROBE_SECS + 1;
    life.until(&mut core, later, |job, now| Some(outcome(job, TRUTH, now)));
    assert_eq!(problem(&core.status(later), Cause::Store), None);
}

#[test]
fn a_clock_that_has_jumped_is_a_problem_as_long_as_nothing_begins() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 5);
    core.apply(Action::ClockJumped, START);
    let until = core.status(START).quiet_until_unix_secs.expect("for a while");
    assert!(problem(&core.status(until - 1), Cause::Clock).is_some());
    assert_eq!(problem(&core.status(until), Cause::Clock), None);
    // Nor is a file written, which could be of the future.
    core.apply(Action::PublishNow, START);
    let publishes =
        |effects: &[Effect]| effects.iter().any(|one| matches!(one, Effect::Publish(_)));
    assert!(!publishes(&core.apply(Action::Tick, until - 1)));
    assert!(publishes(&core.apply(Action::Tick, until)));
}

#[test]
fn a_young_coordinator_without_a_file_has_no_problem_and_a_refused_one_keeps_the_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 5);
    core.apply(Action::Tick, START);
    let length = u64::from(LENGTH_SECS);
    assert_eq!(core.status(START).young_until_unix_secs, Some(START + 2 * length));
    assert_eq!(core.status(START + 2 * length).young_until_unix_secs, None);
    let none = NotWritten { reason: "no relay".to_owned(), is_too_few: true };
    core.apply(Action::Published(Err(none)), START);
    let status = core.status(START);
    assert_eq!(status.problems, [], "it is young");
    let written = Written {
        path: "x.v3bw".to_owned(),
        unix_secs: START + 1,
        is_voted: true,
        ..Written::default()
    };
    core.apply(Action::Published(Ok(written)), START + 1);
    core.apply(Action::Published(Err("the disk is full".to_owned().into())), START + 2);
    let status = core.status(START + 2);
    let refused = problem(&status, Cause::FileRefused).expect("a problem");
    assert!(refused.text.contains("the disk is full; the file of "), "{refused:?}");
    let file = status.published.expect("the last one");
    assert_eq!((file.path.as_deref(), file.unix_secs), (Some("x.v3bw"), Some(START + 1)));
    let again = Written { unix_secs: START + 3, is_voted: true, ..Written::default() };
    core.apply(Action::Published(Ok(again)), START + 3);
    assert_eq!(core.status(START + 3).problems, []);
}
