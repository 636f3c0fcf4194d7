//! What a relay's operator allows, as a coordinator meets it.

use ff_bwauth::outcome::Outcome;
use ff_proto::aggregate::Verdict;
use ff_relay_ext::target::Totals;
use tokio::sync::Notify;

use crate::plan::{assert_refused, fresh_key, measure, measure_and_tell, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// Fails unless the relay granted it and was measured.
fn assert_measured(outcome: &Outcome) {
    assert_eq!(outcome.result, Ok(Verdict::Conclusive));
    assert!(outcome.estimate.is_some_and(|estimate| estimate.get() > 0));
}

#[tokio::test]
async fn a_coordinator_that_is_not_listed_is_refused() {
    let _turn = turn().await;
    let (listed, other) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&listed]));
    let outcome = measure(&plan(&relay, &other, 1)).await;
    assert_refused(&outcome, "coordinator_not_allowed");
    assert_eq!(relay.totals(), Totals { refused: 1, ..Totals::default() });
    // The refusal leaves the listed one's measurement alone.
    assert_measured(&measure(&plan(&relay, &listed, 1)).await);
}

#[tokio::test]
async fn a_relay_that_takes_no_part_refuses() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let mut setup = Setup::allowing(&[&coordinator]);
    setup.policy.enabled = false;
    let relay = TestRelay::start(setup);
    assert_refused(&measure(&plan(&relay, &coordinator, 1)).await, "disabled");
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
    assert_measured(&measure(&plan(&relay, &coordinator, 1)).await);
    drop(relay);

    let relay = start();
    assert_measured(&measure(&plan(&relay, &coordinator, 1)).await);
    assert_refused(&measure(&plan(&relay, &coordinator, 1)).await, "too_soon");
    drop(relay);

    let relay = start();
    assert_refused(&measure(&plan(&relay, &coordinator, 1)).await, "too_soon");
    assert_measured(&measure(&plan(&relay, &other, 1)).await);
}

/// A measurement of the slot before may be a little late.
#[tokio::test]
async fn a_relay_that_is_busy_is_asked_again() {
    let _turn = turn().await;
    let (first, second) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&first, &second]));
    let measuring = Notify::new();
    let long = plan(&relay, &first, 3);
    let late = async {
        measuring.notified().await;
        measure(&plan(&relay, &second, 1)).await
    };
    let (one, other) = tokio::join!(measure_and_tell(&long, &measuring), late);
    assert_measured(&one);
    assert_measured(&other);
    assert_eq!((one.seconds.len(), other.seconds.len()), (3, 1));
}

#[tokio::test]
async fn one_measurement_at_a_time() {
    let _turn = turn().await;
    let (first, second) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&first, &second]));
    let measuring = Notify::new();
    let long = plan(&relay, &first, 8);
    let interfering = async {
        measuring.notified().await;
        measure(&plan(&relay, &second, 1)).await
    };
    let (measured, refused) = tokio::join!(measure_and_tell(&long, &measuring), interfering);
    assert_refused(&refused, "busy");
    assert_measured(&measured);
    assert_eq!(measured.seconds.len(), 8);
    // The refusal did not count as one of the second coordinator's measurements.
    for _ in 0..2 {
        assert_measured(&measure(&plan(&relay, &second, 1)).await);
    }
}
