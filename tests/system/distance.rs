//! Relays that are far away, and a link that is lost on the way.

use std::time::{Duration, UNIX_EPOCH};

use ff_proto::units::BytesPerSec;

use crate::forwarder::Forwarder;
use crate::lying_relay::assert_near;
use crate::plan::{fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// The relay's limit.
const LIMIT: BytesPerSec = BytesPerSec::from_mbit(50);
/// Links to it.
const SOCKETS: u16 = 20;

/// Measures an honest relay at a distance for this many seconds; the estimate must be its limit.
/// Windows double once in a round trip, so the first second is slower at a longer distance, and
/// with it the mean of few seconds.
///
/// Returns the estimate as a part of the median second.
async fn measure_from(round_trip: Duration, seconds: u16) -> f64 {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let setup = Setup { limit: Some(LIMIT), ..Setup::allowing(&[&coordinator]) };
    let relay = TestRelay::start(setup);
    let forwarder = Forwarder::start(relay.target.addr, round_trip);
    let mut plan = plan(&relay, &coordinator, seconds);
    plan.target.addr = forwarder.addr;
    plan.params.sockets = SOCKETS;
    plan.params.check_probability = 1e-3;
    plan.team[0].sockets = SOCKETS;
    let outcome = measure(&plan).await;
    let rows = outcome.second_rows();
    let part = |bytes: u64| bytes as f64 / LIMIT.get() as f64;
    let mut parts: Vec<f64> = rows.iter().map(|row| part(row.measurement_bytes)).collect();
    let of_limit = part(outcome.estimate.map_or(0, BytesPerSec::get));
    eprintln!(
        "figure: estimate / limit over {round_trip:?}, {seconds} s | 0.95..1.05 | {of_limit:.3} | -"
    );
    assert_near(outcome.estimate, LIMIT, 0.05);
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    assert!(mean > 0.7, "the start costs little: {parts:.3?} of the limit");
    parts.sort_by(f64::total_cmp);
    let middle = parts.len() / 2;
    let median = f64::midpoint(parts[middle], parts[(parts.len() - 1) / 2]);
    part(outcome.estimate.map_or(0, BytesPerSec::get)) / median
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_relay_at_27_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(27), 6).await;
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_relay_at_100_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(100), 6).await;
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_relay_at_210_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(210), 15).await;
}

#[tokio::test]
async fn a_measurement_begins_with_its_cells_however_long_the_relay_puts_that_off() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let forwarder = Forwarder::start(relay.target.addr, Duration::from_secs(1));
    let mut plan = plan(&relay, &coordinator, 1);
    plan.target.addr = forwarder.addr;
    let unix_secs = || UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let asked = unix_secs();
    let outcome = measure(&plan).await;
    // The coordinator's link, the grant and the measurer's links take several ways there and back.
    let range = asked + 3..unix_secs();
    assert!(range.contains(&outcome.started_unix_secs), "{outcome:?} in {range:?}");
    assert!(outcome.granted_secs.is_some(), "{outcome:?}");
}

#[tokio::test]
#[ignore = "three minutes"]
async fn the_mean_does_not_bind_an_honest_relay() {
    for millis in [0, 27, 60, 100, 150, 210] {
        let moved = measure_from(Duration::from_millis(millis), 30).await;
        eprintln!(
            "figure: estimate / median second over {millis} ms | 0.99..1.01 | {moved:.4} | -"
        );
        assert!((moved - 1.0).abs() <= 0.01, "{millis} ms: {moved:.4}");
    }
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_link_that_is_dead_without_a_word_is_given_up() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let setup = Setup { limit: Some(LIMIT), ..Setup::allowing(&[&coordinator]) };
    let relay = TestRelay::start(setup);
    // The coordinator's link is one of the first.
    let lost = Some((usize::from(SOCKETS / 2), Duration::from_secs(3)));
    let forwarder = Forwarder::start_losing(relay.target.addr, Duration::from_millis(20), lost);
    let mut plan = plan(&relay, &coordinator, 12);
    plan.target.addr = forwarder.addr;
    plan.params.sockets = SOCKETS;
    plan.params.check_probability = 1e-3;
    plan.team[0].sockets = SOCKETS;
    let outcome = measure(&plan).await;
    assert_near(outcome.estimate, LIMIT, 0.05);
    let given_up = forwarder.given_up().expect("the link is closed");
    assert!(given_up.elapsed() > Duration::from_secs(2), "it was closed at the end only");
}
