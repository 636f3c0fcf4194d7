//! A plan is carried out once, even if the coordinator ends at any point.

use ff_plan::outcome::Failure;
use ff_proto::aggregate::Draw;
use ff_proto::failure::FailureKind;
use ff_store::{Begin, Kind, State, Store, StoreError};

use super::{COORDINATOR, Temporary, begin_relay, message, period, to_plan};
use crate::samples::{NOW, outcome};

#[test]
fn a_plan_is_made_once_and_only_added_to() {
    let mut temporary = Temporary::new();
    let store = &mut temporary.store;
    let rows = [to_plan(1, 5, Kind::Old), to_plan(2, 3, Kind::New)];
    store.set_plan(&period(20), &rows).expect("stored");
    assert_eq!(store.period(20).expect("read"), Some(period(20)));
    assert!(message(store.set_plan(&period(20), &[])).contains("already has a plan"));
    let added = store.add_to_plan(20, &[to_plan(1, 9, Kind::Retry)]).expect("added");
    assert!(message(store.add_to_plan(21, &[])).contains("no period 21"));
    let planned = store.planned(20).expect("read");
    let found: Vec<_> = planned.iter().map(|row| (row.what, row.state.clone())).collect();
    let expected = [rows[1], rows[0], to_plan(1, 9, Kind::Retry)].map(|row| (row, State::Pending));
    assert_eq!(found, expected);
    assert_eq!(planned[2].id, added[0]);
    store.finish_period(20, NOW).expect("finished");
    assert_eq!(
        store.last_period().expect("read").and_then(|last| last.finished_unix_secs),
        Some(NOW)
    );
    assert_eq!(store.period(21).expect("read"), None);
}

#[test]
fn a_row_of_a_plan_is_begun_once_by_its_relay_and_not_when_it_is_left_out() {
    let mut temporary = Temporary::new();
    let store = &mut temporary.store;
    let rows = [to_plan(1, 1, Kind::Old), to_plan(2, 2, Kind::Old), to_plan(3, 3, Kind::Old)];
    store.set_plan(&period(20), &rows).expect("stored");
    let ids: Vec<_> = store.planned(20).expect("read").iter().map(|row| row.id).collect();
    let planned = |relay, row: usize| Begin { plan: Some(ids[row]), ..begin_relay(relay) };
    let id = store.begin_attempt(&planned(1, 0)).expect("begun");
    assert!(message(store.begin_attempt(&planned(1, 0))).contains("begun already"));
    assert!(message(store.begin_attempt(&planned(1, 1))).contains("another relay's"));
    store.leave_out(ids[2], "it is not in the consensus").expect("left out");
    assert!(message(store.begin_attempt(&planned(3, 2))).contains("left out"));
    assert!(message(store.leave_out(ids[0], "late")).contains("not pending"));
    let states: Vec<_> =
        store.planned(20).expect("read").into_iter().map(|row| row.state).collect();
    let left_out = State::LeftOut("it is not in the consensus".to_owned());
    assert_eq!(states, [State::Begun, State::Pending, left_out]);
    store.finish_attempt(id, &outcome(1, 100), NOW).expect("finished");
    assert!(message(store.begin_attempt(&planned(1, 0))).contains("begun already"));
    let pending: Vec<_> = store.pending(20).expect("read").iter().map(|row| row.id).collect();
    assert_eq!(pending, [ids[1]]);
    let coverage = store.coverage(20).expect("read");
    assert_eq!((coverage.planned, coverage.left_out, coverage.begun, coverage.done), (2, 1, 0, 1));
    assert_eq!((coverage.relays, coverage.relays_done, coverage.relays_conclusive), (3, 1, 1));
}

#[test]
fn relays_without_flashflow_are_counted_apart_from_failures() {
    let mut temporary = Temporary::new();
    let store = &mut temporary.store;
    let rows = [1, 2, 3].map(|relay| to_plan(relay, 7, Kind::Old));
    store.set_plan(&period(20), &rows).expect("stored");
    for row in store.planned(20).expect("read") {
        let relay = row.what.fingerprint[0];
        let kind = [None, Some(FailureKind::NotSupported), Some(FailureKind::Timeout)];
        let mut came = outcome(relay, 100);
        if let Some(kind) = kind[usize::from(relay) - 1] {
            came.result = Err(Failure { kind, relay_code: None, message: "no".to_owned() });
        }
        let begin = Begin { plan: Some(row.id), ..begin_relay(relay) };
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &came, NOW).expect("finished");
    }
    let coverage = store.coverage(20).expect("read");
    assert_eq!(
        (coverage.relays_measured, coverage.relays_failed(), coverage.relays_unsupported),
        (1, 1, 1)
    );
    let slots = store.slots(20).expect("read");
    let [slot] = slots[..] else { panic!("{slots:?}") };
    assert_eq!((slot.conclusive, slot.failed, slot.unsupported), (1, 1, 1));
    assert_eq!(store.first_period().expect("read"), Some(period(20)));
    store.try_to_write().expect("it can be written to");
}

#[test]
fn what_was_interrupted_is_a_failure_and_counts_as_a_grant() {
    let mut temporary = Temporary::new();
    temporary.store.set_plan(&period(20), &[to_plan(1, 1, Kind::Old)]).expect("stored");
    let plan = temporary.store.planned(20).expect("read")[0].id;
    let begin = Begin { plan: Some(plan), ..begin_relay(1) };
    let id = temporary.store.begin_attempt(&begin).expect("begun");
    let path = temporary.path();
    let Temporary { dir, store } = temporary;
    assert_eq!(store.running().expect("read").len(), 1);
    drop(store);
    let mut store = Store::open(&path, COORDINATOR).expect("a store");
    let closed = store.close_interrupted(NOW).expect("closed");
    assert_eq!(
        closed.iter().map(|one| (one.id, one.begin.plan)).collect::<Vec<_>>(),
        [(id, Some(plan))]
    );
    assert!(store.running().expect("read").is_empty());
    assert!(store.close_interrupted(NOW).expect("nothing is left").is_empty());
    let found = store.attempt(id).expect("read").expect("there");
    let failure = found.outcome.result.expect_err("it failed");
    assert_eq!((failure.kind, found.outcome.draw), (FailureKind::Interrupted, Draw::Void));
    assert_eq!(found.slot, Some((20, 1)));
    assert_eq!(store.grants_used(&[1; 20], 0, u64::MAX).expect("read").len(), 1);
    assert!(store.pending(20).expect("read").is_empty(), "the relay is not asked again by itself");
    let coverage = store.coverage(20).expect("read");
    assert_eq!(coverage.failures.get("interrupted"), Some(&1));
    drop(dir);
}

#[test]
fn changes_that_belong_together_are_kept_or_none_is() {
    let mut temporary = Temporary::new();
    for (is_kept, kept) in [(false, 0), (true, 2)] {
        let store = &mut temporary.store;
        store.begin_together().expect("begun");
        for index in 0..2 {
            store.begin_attempt(&begin_relay(index)).expect("begun");
        }
        let result = if is_kept { Ok(7) } else { Err(StoreError::NoSuchPeriod(1)) };
        let ended = store.end_together(result);
        assert_eq!(ended.ok(), is_kept.then_some(7));
        assert_eq!(store.running().expect("read").len(), kept);
        // What follows is a change of its own.
        store.close_interrupted(NOW).expect("closed");
        assert!(store.running().expect("read").is_empty());
    }
}

#[test]
fn grants_count_unless_the_relay_cannot_have_given_one() {
    let mut temporary = Temporary::new();
    for (kind, granted, expected) in [
        (FailureKind::ConnectionRefused, None, 0),
        (FailureKind::Refused, None, 0),
        (FailureKind::NotSupported, None, 0),
        (FailureKind::SetupFailed, None, 0),
        (FailureKind::Timeout, None, 1),
        (FailureKind::CoordinatorLinkLost, None, 2),
        (FailureKind::Refused, Some(30), 3),
        (FailureKind::RelayAborted, Some(30), 4),
    ] {
        let mut failed = outcome(1, 100);
        let message = "it failed".to_owned();
        failed.result = Err(Failure { kind, relay_code: None, message });
        failed.granted_secs = granted;
        temporary.put(&failed);
        assert_eq!(
            temporary.store.grants_used(&[1; 20], NOW - 90, u64::MAX).expect("read").len(),
            expected,
            "{kind:?}"
        );
    }
    assert!(temporary.store.grants_used(&[1; 20], NOW - 89, u64::MAX).expect("read").is_empty());
    assert!(temporary.store.grants_used(&[2; 20], 0, u64::MAX).expect("read").is_empty());
    assert!(temporary.store.grants_used(&[1; 20], 0, NOW - 91).expect("read").is_empty());
    temporary.store.begin_attempt(&begin_relay(1)).expect("begun");
    assert_eq!(
        temporary.store.grants_used(&[1; 20], 0, u64::MAX).expect("read").len(),
        5,
        "also before it is known"
    );
    let failures = temporary.store.failures(0..NOW).expect("read");
    assert_eq!((failures[0].code.as_str(), failures[0].attempts), ("refused", 2));
    assert_eq!(failures.len(), 7);
}

#[test]
fn each_relay_is_known_by_its_newest_finished_attempt() {
    let mut temporary = Temporary::new();
    let at = |relay: u8, secs: u64, nickname: &str| {
        let mut one = outcome(relay, 100);
        one.target.nickname = Some(nickname.to_owned());
        one.started_unix_secs = NOW - secs;
        one
    };
    // The first relay was renamed, and its newest attempt failed.
    let mut newest = at(1, 100, "alpha");
    let (kind, message) = (FailureKind::Timeout, String::new());
    newest.result = Err(Failure { kind, relay_code: None, message });
    (newest.estimate, newest.draw, newest.seconds) = (None, Draw::Void, Vec::new());
    for one in [&newest, &at(1, 300, "before"), &at(2, 200, "beta")] {
        temporary.put(one);
    }
    // A running attempt has no result yet.
    temporary.store.begin_attempt(&super::begin(&at(2, 50, "beta"))).expect("begun");
    temporary.store.begin_attempt(&super::begin(&at(3, 50, "gamma"))).expect("begun");
    let known = temporary.store.known().expect("read");
    let shown: Vec<_> = known
        .iter()
        .map(|one| {
            let secs = NOW - one.started_unix_secs;
            let (name, failure) = (one.nickname.as_deref(), one.failure.as_deref());
            (one.fingerprint[0], name, secs, one.verdict.as_str(), failure)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, Some("alpha"), 100, "failed", Some("timeout")),
            (2, Some("beta"), 200, "conclusive", None),
        ]
    );
}
