//! Relays that are far away.

use std::time::Duration;

use ff_proto::units::BytesPerSec;

use crate::alone;
use crate::forwarder::Forwarder;
use crate::lying_relay::assert_near;
use crate::plan::{fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};

/// The relay's limit.
const LIMIT: BytesPerSec = BytesPerSec::from_mbit(50);
/// Links to it.
const SOCKETS: u16 = 20;

/// Measures an honest relay at a distance for so many seconds; the estimate is to be its limit. As
/// windows double once in a round trip, the first second is the slower the longer the way is, and so
/// is the mean of few seconds.
async fn measure_from(round_trip: Duration, seconds: u16) {
    let _alone = alone().await;
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
    let parts: Vec<f64> = rows.iter().map(|row| part(row.measurement_bytes)).collect();
    assert_near(outcome.estimate, LIMIT, 0.05);
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    assert!(mean > 0.7, "the start costs little: {parts:.3?} of the limit");
}

#[tokio::test]
async fn a_relay_at_27_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(27), 6).await;
}

#[tokio::test]
async fn a_relay_at_100_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(100), 6).await;
}

#[tokio::test]
async fn a_relay_at_210_ms_is_measured_at_its_limit() {
    measure_from(Duration::from_millis(210), 15).await;
}
