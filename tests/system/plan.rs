//! The coordinator's and the measurers' side of a test.

use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_bwauth::measure::{self, Plan, Progress, TeamMember};
use ff_bwauth::outcome::{Failure, Outcome};
use ff_measurer::link::LinkOptions;
use ff_proto::aggregate::Draw;
use ff_proto::msg::ErrCode;
use ff_proto::params::Params;
use tokio::sync::Notify;

use crate::relay::TestRelay;

/// Longer than any of these measurements may take, whatever the relay does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fresh key for a coordinator or a measurer.
pub(crate) fn fresh_key() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

/// A measurement of `seconds` by one measurer with 8 sockets, which checks every cell.
pub(crate) fn plan(relay: &TestRelay, coordinator: &SigningKey, seconds: u16) -> Plan {
    let params =
        Params { sockets: 8, duration_secs: seconds, check_probability: 1.0, ..Params::default() };
    let member =
        TeamMember { key: fresh_key(), sockets: params.sockets, rate: None, cores: Vec::new() };
    Plan {
        target: relay.target,
        address_text: relay.target.addr.to_string(),
        fingerprint: None,
        key: coordinator.clone(),
        params,
        team: vec![member],
        limit: None,
        is_local: true,
        link: LinkOptions::default(),
    }
}

/// Carries the plan out.
pub(crate) async fn measure(plan: &Plan) -> Outcome {
    measure_and_tell(plan, &Notify::new()).await
}

/// Carries the plan out and tells when the first cells are about to be sent.
pub(crate) async fn measure_and_tell(plan: &Plan, measuring: &Notify) -> Outcome {
    let measurement = measure::measure(plan, |progress| {
        if matches!(progress, Progress::Started { .. }) {
            measuring.notify_one();
        }
    });
    tokio::time::timeout(PATIENCE, measurement).await.expect("measurements do not hang")
}

/// The outcome's failure.
pub(crate) fn failure(outcome: &Outcome) -> &Failure {
    match &outcome.result {
        Err(failure) => failure,
        Ok(_) => panic!("it did not fail: {outcome:#?}"),
    }
}

/// The failure of a measurement that the relay refuses with this code.
pub(crate) fn assert_refused(outcome: &Outcome, code: &str) {
    let failure = failure(outcome);
    assert_eq!(failure.code(), "refused", "{failure:?}");
    assert_eq!(failure.relay_code.map(ErrCode::name), Some(code), "{failure:?}");
    assert!(failure.message.contains(&format!("({code})")), "{failure:?}");
    assert_eq!((outcome.estimate, outcome.cells.sent), (None, 0));
    // It is no free retry.
    assert_eq!(outcome.draw, Draw::Blank);
}
