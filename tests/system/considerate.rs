//! A relay's clients before, during and after a measurement.

use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_proto::aggregate::Verdict;
use ff_proto::msg::ErrCode;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_relay_ext::arti::background::Background;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::links::come_and_go;
use crate::lying_relay::{assert_near, assert_no_faster};
use crate::plan::{assert_measured, failure, fresh_key, measure, measure_and_tell, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// The clients' demand. The relay has 20 Mbit/s, and their share of it in a measurement is a
/// quarter.
const OFFERED: BytesPerSec = BytesPerSec::from_mbit(10);
/// The clients' share.
const SHARE: BytesPerSec = BytesPerSec::from_mbit(5);

/// The clients' rate over some time, in proportion to `of`.
async fn share_over(clients: &Background, time: Duration, of: BytesPerSec) -> f64 {
    let (before, start) = (clients.echoed_bytes(), Instant::now());
    sleep(time).await;
    let bytes = clients.echoed_bytes() - before;
    bytes as f64 / start.elapsed().as_secs_f64() / of.get() as f64
}

/// Fails unless the clients have all they ask for over the next second. They have more when they
/// make up for what they could not send before.
async fn assert_unhindered(clients: &Background, when: &str) {
    let share = share_over(clients, Duration::from_secs(1), OFFERED).await;
    assert!(share >= 0.85, "{when}: {share:.2} of what they ask for");
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn clients_keep_their_share_and_are_back_within_a_second() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let clients = relay.clients(OFFERED);
    sleep(Duration::from_millis(500)).await;
    assert_unhindered(&clients, "before").await;

    let (plan, measuring) = (plan(&relay, &coordinator, 4), Notify::new());
    let watching = async {
        measuring.notified().await;
        sleep(Duration::from_secs(1)).await;
        share_over(&clients, Duration::from_secs(2), SHARE).await
    };
    let (outcome, share) = tokio::join!(measure_and_tell(&plan, &measuring), watching);
    assert_unhindered(&clients, "after").await;
    assert!(clients.is_running());

    assert_eq!(outcome.result, Ok(Verdict::Conclusive));
    assert_near(outcome.estimate, BytesPerSec::from_mbit(20), 0.15);
    eprintln!("figure: what clients have of their share | 0.6..1.15 | {share:.3} | -");
    assert!((0.6..1.15).contains(&share), "{share:.2} of a quarter of the relay");
    // What the relay reports is what they had, with the cells that acknowledge theirs.
    let reported: u64 =
        outcome.seconds[1..3].iter().map(|second| second.background_reported_bytes()).sum();
    let reported = reported as f64 / 2.0 / SHARE.get() as f64;
    assert!((0.85..1.25).contains(&(reported / share)), "reported {reported:.2}, got {share:.2}");
    assert!(relay.totals().background_waits > 0);
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn clients_are_back_at_once_when_the_coordinator_dies() {
    let _turn = turn().await;
    let (dying, other) = (fresh_key(), fresh_key());
    let relay = TestRelay::start(Setup::allowing(&[&dying, &other]));
    let clients = relay.clients(OFFERED);
    let (doomed, measuring) = (plan(&relay, &dying, 20), Notify::new());
    let death = async {
        measuring.notified().await;
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(relay.totals().failed, 0, "the measurement went on until then");
    };
    tokio::select! {
        outcome = measure_and_tell(&doomed, &measuring) => panic!("ended early: {outcome:?}"),
        () = death => {}
    }
    let died = Instant::now();
    relay.wait_until("end", |now| now.failed == 1).await;
    assert!(died.elapsed() < Duration::from_secs(1), "{:?}", died.elapsed());
    assert_unhindered(&clients, "after the coordinator's death").await;
    drop(clients);

    let outcome = measure(&plan(&relay, &other, 2)).await;
    assert_measured(&outcome);
    assert_no_faster(outcome.estimate, BytesPerSec::from_mbit(20), 0.15);
    let totals = relay.totals();
    assert_eq!((totals.granted, totals.completed, totals.failed), (2, 1, 1));
}

/// A relay of this limit whose clients want all of it, and its coordinator's key.
fn full_relay(limit: BytesPerSec, ratio: u8) -> (TestRelay, Background, SigningKey) {
    let coordinator = fresh_key();
    let mut setup = Setup { limit: Some(limit), ..Setup::allowing(&[&coordinator]) };
    setup.policy.ratio = Ratio::from_percent(ratio).expect("a ratio");
    let relay = TestRelay::start(setup);
    let clients = relay.clients(limit);
    (relay, clients, coordinator)
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_coordinator_that_sends_little_takes_little_and_not_for_long() {
    // As with 1 Mbit/s next to 50, but with less for the processors to do.
    send_little(BytesPerSec::new(25_000), BytesPerSec::from_mbit(10)).await;
}

#[tokio::test]
#[ignore = "needs two cores that do nothing else"]
async fn nor_does_it_take_more_from_a_faster_relay() {
    send_little(BytesPerSec::from_mbit(1), BytesPerSec::from_mbit(50)).await;
}

/// Measures a full relay of this limit with so little.
async fn send_little(little: BytesPerSec, limit: BytesPerSec) {
    let _turn = turn().await;
    let (relay, clients, coordinator) = full_relay(limit, 25);
    sleep(Duration::from_secs(1)).await;
    let before = share_over(&clients, Duration::from_secs(2), limit).await;

    let started = Instant::now();
    measure_with_little(little, (&relay, &clients, &coordinator), before, limit).await;
    assert!(started.elapsed() < Duration::from_secs(8), "after {:?} only", started.elapsed());
    assert_eq!(relay.totals().failed, 1);
}

/// Measures a relay with so little, and fails unless its clients keep what they had before, as a
/// part of `limit`, and the relay ends it.
async fn measure_with_little(
    little: BytesPerSec,
    (relay, clients, coordinator): (&TestRelay, &Background, &SigningKey),
    before: f64,
    limit: BytesPerSec,
) {
    let (mut plan, measuring) = (plan(relay, coordinator, 20), Notify::new());
    plan.team[0].rate = Some(little);
    let watching = async {
        measuring.notified().await;
        sleep(Duration::from_millis(200)).await;
        share_over(clients, Duration::from_millis(2500), limit).await
    };
    let (outcome, during) = tokio::join!(measure_and_tell(&plan, &measuring), watching);
    let part = during / before;
    eprintln!("figure: what clients keep of {limit} beside {little} | 0.9.. | {part:.3} | -");
    assert!(during >= 0.9 * before, "clients had {before:.3} of the limit, then {during:.3}");
    let failure = failure(&outcome);
    assert!(failure.message.contains("too_little_traffic"), "{failure:?}");
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn links_that_come_and_go_take_as_little() {
    let _turn = turn().await;
    let limit = BytesPerSec::from_mbit(10);
    let (relay, clients, coordinator) = full_relay(limit, 25);
    sleep(Duration::from_secs(1)).await;
    let before = share_over(&clients, Duration::from_secs(2), limit).await;
    let during = share_over(&clients, Duration::from_millis(2500), limit);
    let ((code, links), during) = tokio::join!(come_and_go(&relay, &coordinator), during);
    let part = during / before;
    eprintln!("figure: what clients keep of {limit} beside {links} links | 0.9.. | {part:.3} | -");
    assert!(during >= 0.9 * before, "clients had {before:.3} of the limit, then {during:.3}");
    assert_eq!(code, ErrCode::TOO_LITTLE_TRAFFIC);
    assert!(links >= 10, "{links} links");
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_second_measurement_takes_no_more_because_of_the_first() {
    let _turn = turn().await;
    let limit = BytesPerSec::from_mbit(10);
    let (relay, clients, coordinator) = full_relay(limit, 25);
    sleep(Duration::from_secs(1)).await;
    let before = share_over(&clients, Duration::from_secs(2), limit).await;
    // Ten seconds in which clients have a quarter: what they had in these is not what is theirs.
    let outcome = measure(&plan(&relay, &coordinator, 10)).await;
    assert_eq!(outcome.result, Ok(Verdict::Conclusive));
    let little = BytesPerSec::new(25_000);
    measure_with_little(little, (&relay, &clients, &coordinator), before, limit).await;
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_floor_holds_for_clients_where_their_ratio_is_zero() {
    let _turn = turn().await;
    let (relay, clients, coordinator) = full_relay(BytesPerSec::from_mbit(20), 0);
    let (plan, measuring) = (plan(&relay, &coordinator, 5), Notify::new());
    let floor = BytesPerSec::from_mbit(1);
    let watching = async {
        measuring.notified().await;
        sleep(Duration::from_millis(1500)).await;
        share_over(&clients, Duration::from_secs(3), floor).await
    };
    let (outcome, share) = tokio::join!(measure_and_tell(&plan, &measuring), watching);
    assert_eq!(outcome.result, Ok(Verdict::Conclusive));
    assert!((0.8..1.2).contains(&share), "{share:.2} of 1 Mbit/s");
    // Nothing of it counts, so the estimate is lower by it.
    assert_near(outcome.estimate, BytesPerSec::from_mbit(19), 0.05);
}
