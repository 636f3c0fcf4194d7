//! The coordinator's and the measurers' side of a test.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_coordinator::team::{LocalMeasurer, TeamMeasurer, TeamMember};
use ff_measurer::service::admission::AdmissionLimits;
use ff_measurer::service::server::{Coordinator, Service, Settings};
use ff_measurer::{Host, measurer_id};
use ff_plan::outcome::{Failure, Outcome};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::msg::ErrCode;
use ff_proto::params::Params;
use ff_team::RemoteMeasurer;
use tokio::sync::Notify;

use crate::relay::TestRelay;

/// Longer than any of these measurements may take, whatever the relay does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fresh key for a coordinator or a measurer.
pub(crate) fn fresh_key() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

/// A measurer in this process, or through the service on loopback if `FF_TEST_TEAM` is `remote`:
/// whatever these tests say of one must hold for the other.
pub(crate) fn measurer(name: &str) -> Arc<dyn TeamMeasurer> {
    match std::env::var_os("FF_TEST_TEAM").is_some_and(|team| team == "remote") {
        true => remote(name),
        false => local(name),
    }
}

/// A measurer in this process.
pub(crate) fn local(name: &str) -> Arc<dyn TeamMeasurer> {
    Arc::new(LocalMeasurer::new(name, fresh_key(), Vec::new()))
}

/// A measurer behind the service on loopback.
pub(crate) fn remote(name: &str) -> Arc<dyn TeamMeasurer> {
    let (key, coordinator) = (fresh_key(), fresh_key());
    let (id, peer) = (measurer_id(&key), measurer_id(&coordinator));
    let settings = Settings {
        coordinators: vec![Coordinator { name: "test".to_owned(), id: peer }],
        limits: AdmissionLimits { private_targets: true, ..AdmissionLimits::default() },
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket of tokio's");
    let addr = listener.local_addr().expect("its address");
    let service = Service::new(Host::new(key, Vec::new()), settings);
    crate::in_thread(async move || {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
        service.serve(listener).await.expect("it serves");
    });
    let remote = RemoteMeasurer::new(name, &addr.to_string(), id, &coordinator);
    Arc::new(remote.expect("a measurer"))
}

/// A measurement of `seconds` by one measurer with 8 sockets, which checks every cell.
pub(crate) fn plan(relay: &TestRelay, coordinator: &SigningKey, seconds: u16) -> MeasurePlan {
    let params =
        Params { sockets: 8, duration_secs: seconds, check_probability: 1.0, ..Params::default() };
    let measurer = measurer("0");
    let member = TeamMember { measurer, sockets: params.sockets, rate: None };
    let plan = MeasurePlan::new(relay.target, coordinator.clone(), params, vec![member]);
    MeasurePlan { is_local: true, ..plan }
}

/// Carries the plan out.
pub(crate) async fn measure(plan: &MeasurePlan) -> Outcome {
    measure_and_tell(plan, &Notify::new()).await
}

/// Carries the plan out and tells when the first cells are about to be sent.
pub(crate) async fn measure_and_tell(plan: &MeasurePlan, measuring: &Notify) -> Outcome {
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

/// Fails unless the relay was measured. It need not be a conclusion: on a busy machine a measurer may
/// look for the relay's rate in most of its seconds.
pub(crate) fn assert_measured(outcome: &Outcome) {
    let verdicts = [Ok(Verdict::Conclusive), Ok(Verdict::Unsettled)];
    assert!(verdicts.contains(&outcome.result), "{outcome:?}");
    assert!(outcome.estimate.is_some_and(|estimate| estimate.get() > 0), "{outcome:?}");
}

/// The failure of a measurement that the relay refuses with this code.
pub(crate) fn assert_refused(outcome: &Outcome, code: &str) {
    let failure = failure(outcome);
    assert_eq!(failure.code(), "refused", "{failure:?}");
    assert_eq!(failure.relay_code.map(ErrCode::name), Some(code), "{failure:?}");
    assert!(failure.message.contains(&format!("({code})")), "{failure:?}");
    assert_eq!((outcome.estimate, outcome.cells.sent), (None, 0));
    // The attempt does not count as a free retry.
    assert_eq!(outcome.draw, Draw::Blank);
}
