//! Outcomes are read as they were stored.

use std::fmt::Debug;

use ff_plan::outcome::{
    CellCounts, CpuSeconds, Dispute, Failure, Method, Outcome, RoundTrip, SocketCounts,
};
use ff_proto::aggregate::Draw;
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::units::BytesPerSec;
use ff_store::{DisputeRow, Seconds, Store, StoreError};
use proptest::prelude::*;

use super::{Temporary, begin};
use crate::arbitrary::any_outcome;
use crate::samples::{NOW, outcome};

/// Random outcomes, including inconsistent ones.
fn any_odd_outcome() -> impl Strategy<Value = Outcome> {
    let draw = prop_oneof![
        Just(Draw::Void),
        Just(Draw::Blank),
        any::<u64>().prop_map(|rate| Draw::Value(BytesPerSec::new(rate)))
    ];
    let numbers = any::<[u64; 6]>();
    let times = any::<[Option<f64>; 4]>();
    let secs = (any::<u16>(), any::<Option<u16>>(), any::<Option<u8>>(), any::<[u8; 32]>());
    let method = prop::sample::select(Method::ALL);
    let parts =
        (any_outcome(), draw, numbers, times, (any::<f64>(), any::<Option<f64>>()), secs, method);
    parts.prop_map(|(outcome, draw, numbers, times, cpu, secs, method)| {
        let [sent, echoed, checked, bad, asked, opened] = numbers;
        let [p50, p90, p99, max] = times;
        let mut target = outcome.target.clone();
        target.ed_identity = secs.3;
        Outcome {
            target,
            draw,
            method,
            cells: CellCounts { sent, echoed, checked, bad },
            round_trip: RoundTrip { p50, p90, p99, max },
            cpu: CpuSeconds { measurers: cpu.0, target: cpu.1 },
            accuser: (asked % 2 == 0).then_some(Ed25519Id(secs.3)),
            sockets: SocketCounts { asked, opened },
            settle_secs: 0,
            counted_unix_millis: None,
            settling_bytes: Vec::new(),
            paths: Vec::new(),
            asked_secs: secs.0,
            granted_secs: secs.1,
            crypto: secs.2.map(CryptoKind),
            ..outcome
        }
    })
}

/// The whole value as text. Zeros have no sign in SQLite.
fn all(value: &impl Debug) -> String {
    format!("{value:?}").replace("-0.0", "0.0")
}

#[test]
fn outcomes_come_back_as_they_were() {
    let mut temporary = Temporary::new();
    // Each case is two transactions on a disk.
    let config = ProptestConfig { cases: 200, ..ProptestConfig::default() };
    let temporary = std::cell::RefCell::new(&mut temporary);
    proptest!(config, |(outcome in any_odd_outcome())| {
        let mut temporary = temporary.borrow_mut();
        let mut started = begin(&outcome);
        started.fingerprint = [3; 20];
        let id = temporary.store.begin_attempt(&started).expect("begun");
        temporary.store.finish_attempt(id, &outcome, NOW).expect("finished");
        let found = temporary.store.attempt(id).expect("read").expect("there");
        prop_assert_eq!(all(&found.outcome), all(&outcome));
        prop_assert_eq!(found.measured_secs, outcome.seconds.len() as u64);
        prop_assert_eq!((found.fingerprint, found.finished_unix_secs), ([3; 20], NOW));
        prop_assert_eq!(temporary.store.shares(id).expect("read"), started.shares);
    });
}

#[test]
fn disputes_come_back_with_their_attempt_and_are_counted_for_their_measurers() {
    let mut temporary = Temporary::new();
    let dispute = |measurer: u8, place| Dispute {
        measurer: place,
        measurer_id: Ed25519Id([measurer; 32]),
        claimed_cells: 9000,
        reported_cells: u64::MAX,
    };
    let failed = |relay, disputes| {
        let (kind, message) = (FailureKind::CountsDisagree, "they disagree".to_owned());
        Outcome {
            result: Err(Failure { kind, relay_code: None, message }),
            estimate: None,
            disputes,
            ..outcome(relay, 100)
        }
    };
    let ids: Vec<_> = [
        failed(1, vec![dispute(2, 0), dispute(1, 1)]),
        failed(2, vec![dispute(1, 0)]),
        failed(3, vec![]),
    ]
    .iter()
    .map(|outcome| {
        let id = temporary.put(outcome);
        let found = temporary.store.attempt(id).expect("read").expect("there");
        assert_eq!(found.outcome.disputes, outcome.disputes);
        id
    })
    .collect();
    let counts: Vec<_> = temporary.store.measurers().expect("read");
    let counts: Vec<_> = counts.iter().map(|row| (row.identity[0], row.disputes)).collect();
    assert_eq!(counts, [(1, 2), (2, 1)]);
    let mut rows = Vec::new();
    let visit = |row: DisputeRow| {
        rows.push((row.attempt, row.fingerprint[0], row.measurer[0]));
        assert_eq!((row.claimed_cells, row.reported_cells), (9000, u64::MAX));
        Ok::<_, StoreError>(())
    };
    let started = outcome(1, 100).started_unix_secs;
    temporary.store.disputes(started..started + 1, visit).expect("read");
    assert_eq!(rows, [(ids[0], 1, 2), (ids[0], 1, 1), (ids[1], 2, 1)]);
    temporary.store.disputes(0..started, |_| Err(StoreError::NotBegun(ids[0]))).expect("none");
}

#[test]
fn what_is_no_number_is_none() {
    let mut temporary = Temporary::new();
    let mut odd = outcome(1, 100);
    odd.round_trip.p50 = Some(f64::NAN);
    odd.cpu = CpuSeconds { measurers: f64::NAN, target: Some(f64::INFINITY) };
    let id = temporary.put(&odd);
    let found = temporary.store.attempt(id).expect("read").expect("there").outcome;
    assert_eq!((found.round_trip.p50, found.cpu.target), (None, Some(f64::INFINITY)));
    assert!(found.cpu.measurers.is_nan());
}

#[test]
fn an_attempt_is_finished_once_and_stays_as_it_is() {
    let mut temporary = Temporary::new();
    let id = temporary.put(&outcome(1, 100));
    let again = temporary.store.finish_attempt(id, &outcome(1, 900), NOW);
    assert!(again.expect_err("refused").to_string().contains("already finished"));
    let found = temporary.store.attempt(id).expect("read").expect("there");
    assert_eq!(found.outcome.estimate, outcome(1, 100).estimate);
    let never = ff_store::AttemptId(99);
    assert!(temporary.store.finish_attempt(never, &outcome(1, 1), NOW).is_err());
    assert!(temporary.store.attempt(never).expect("read").is_none());
}

#[test]
fn attempts_are_visited_by_their_beginning_and_the_latest_of_each_relay_once() {
    let mut temporary = Temporary::new();
    for (relay, mbit, age) in [(1, 10, 900), (2, 20, 800), (1, 11, 100), (2, 21, 3000), (3, 30, 50)]
    {
        let mut one = outcome(relay, mbit);
        one.started_unix_secs = NOW - age;
        // A relay with a new address is still the same.
        one.target.address = format!("192.0.2.{relay}:{age}");
        temporary.put(&one);
    }
    let reader = Store::open_read_only(&temporary.path()).expect("a reader");
    let mut ages = Vec::new();
    let visit = |attempt: ff_store::Attempt| {
        ages.push(NOW - attempt.outcome.started_unix_secs);
        assert_eq!(attempt.outcome.seconds.len(), 30);
        Ok::<_, ff_store::StoreError>(())
    };
    reader.attempts(NOW - 900..NOW - 50, Seconds::With, visit).expect("read");
    assert_eq!(ages, [900, 800, 100]);
    let mut latest = Vec::new();
    let visit = |attempt: ff_store::Attempt| {
        latest.push((attempt.fingerprint[0], NOW - attempt.outcome.started_unix_secs));
        assert!(attempt.outcome.seconds.is_empty() && attempt.measured_secs == 30);
        Ok::<_, ff_store::StoreError>(())
    };
    reader.latest(NOW - 1000, Seconds::Without, visit).expect("read");
    assert_eq!(latest, [(1, 100), (2, 800), (3, 50)]);
    let estimates = reader.estimates(NOW - 850).expect("read");
    let estimates: Vec<_> = estimates.iter().map(|e| (e.fingerprint[0], e.estimate)).collect();
    let of = |mbit| outcome(1, mbit).estimate.expect("an estimate");
    assert_eq!(estimates, [(1, of(11)), (2, of(20)), (3, of(30))]);
    let history = reader.history(&[1; 20], 10, Seconds::With).expect("read");
    let ages: Vec<_> = history.iter().map(|one| NOW - one.outcome.started_unix_secs).collect();
    assert_eq!(ages, [100, 900]);
}
