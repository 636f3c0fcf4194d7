//! An operator's rules, as a coordinator meets them.

use std::time::Duration;

use ff_coordinator::measure::{self, Progress};
use ff_relay_ext::target::Totals;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::links::granted;
use crate::plan::{assert_measured, assert_refused, fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// How long a measurement takes here: in most of its seconds something is echoed, also where a
/// thread stands still.
const SECONDS: u16 = 3;
/// Longer than any of these measurements takes.
const HANG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_coordinator_that_is_not_listed_is_refused() {
    let _turn = turn().await;
    let (listed, other) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&listed]));
    let outcome = measure(&plan(&relay, &other, SECONDS)).await;
    assert_refused(&outcome, "coordinator_not_allowed");
    assert_eq!(relay.totals(), Totals { refused: 1, ..Totals::default() });
    // The refusal leaves the listed one's measurement alone.
    assert_measured(&measure(&plan(&relay, &listed, SECONDS)).await);
}

#[tokio::test]
async fn a_relay_that_takes_no_part_refuses() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let mut setup = Setup::allowing(&[&coordinator]);
    setup.policy.enabled = false;
    let relay = TestRelay::start(setup);
    assert_refused(&measure(&plan(&relay, &coordinator, SECONDS)).await, "disabled");
}

#[tokio::test]
async fn a_third_measurement_in_a_period_is_refused_also_after_restarts() {
    let _turn = turn().await;
    let (coordinator, other) = (fresh_key(), fresh_key());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let start = || {
        let mut setup = Setup::allowing(&[&coordinator, &other]);
        setup.memory = Some(dir.path().join("memory"));
        TestRelay::start(setup)
    };
    let relay = start();
    assert_measured(&measure(&plan(&relay, &coordinator, SECONDS)).await);
    drop(relay);

    let relay = start();
    assert_measured(&measure(&plan(&relay, &coordinator, SECONDS)).await);
    assert_refused(&measure(&plan(&relay, &coordinator, SECONDS)).await, "too_soon");
    drop(relay);

    let relay = start();
    assert_refused(&measure(&plan(&relay, &coordinator, SECONDS)).await, "too_soon");
    assert_measured(&measure(&plan(&relay, &other, SECONDS)).await);
}

/// A measurement of the slot before may be a little late.
#[tokio::test]
async fn a_relay_that_is_busy_is_asked_again() {
    let _turn = turn().await;
    let (first, second) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&first, &second]));
    let mut late = Some(granted(&relay, &first).await);
    let plan = plan(&relay, &second, SECONDS);
    let asking = measure::measure(&plan, |progress| {
        if matches!(progress, Progress::Step(step) if step.contains("busy")) {
            // The first one is over.
            drop(late.take());
        }
    });
    let outcome = timeout(HANG, asking).await.expect("measurements do not hang");
    assert!(late.is_none(), "it was not busy: {outcome:?}");
    assert_measured(&outcome);
    assert_eq!(outcome.seconds.len(), usize::from(SECONDS));
    let totals = relay.totals();
    assert_eq!((totals.granted, totals.failed), (2, 1), "{totals:?}");
    assert!(totals.refused >= 1, "{totals:?}");
}

#[tokio::test]
async fn one_measurement_at_a_time() {
    let _turn = turn().await;
    let (first, second) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&first, &second]));
    // It is ended when the second one has its refusal.
    let long = plan(&relay, &first, 45);
    let (full, mut seen) = watch::channel(0);
    let measuring = measure::measure(&long, |progress| {
        if let Progress::Second { measurement_bytes: 1.., .. } = progress {
            full.send_modify(|seconds| *seconds += 1);
        }
    });
    let interfering = async {
        seen.wait_for(|seconds| *seconds > 0).await.expect("it goes on");
        let refused = measure(&plan(&relay, &second, SECONDS)).await;
        // The refusal leaves the first one's measurement alone.
        let before = *seen.borrow_and_update();
        seen.wait_for(|seconds| *seconds > before).await.expect("it goes on");
        refused
    };
    let refused = tokio::select! {
        outcome = measuring => panic!("it ended early: {outcome:?}"),
        refused = timeout(HANG, interfering) => refused.expect("measurements do not hang"),
    };
    assert_refused(&refused, "busy");
    relay.wait_until("end of the first", |now| now.failed == 1).await;
    // The refusal did not count as one of the second coordinator's measurements.
    for _ in 0..2 {
        assert_measured(&measure(&plan(&relay, &second, SECONDS)).await);
    }
}
