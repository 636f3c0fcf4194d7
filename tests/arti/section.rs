//! The section `[flashflow]` of its configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_lab::{ArtiRelay, Error};
use ff_measurer::link::TargetAddr;
use ff_proto::failure::FailureKind;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::ErrCode;
use ff_proto::params::Params;

use crate::rules::session::{Coordinator, MeasurementLink, Member};
use crate::support::{
    Running, block_on, coordinator, measure, namespace, order, relay, restart, section,
    send_through, start, target,
};

/// A short measurement.
fn short() -> Params {
    Params { sockets: 4, duration_secs: 3, ..Params::default() }
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn what_cannot_be_taken_keeps_it_from_starting_and_is_named() {
    let namespace = namespace();
    for (lines, named) in [
        ("measurement_allowed = true", "measurement_allowed"),
        ("allowed_coordinators = [\"AAAA\"]", "allowed_coordinators"),
        ("background_traffic_percent = 100", "background_traffic_percent"),
        ("measurement_period = \"59 minutes\"", "measurement_period"),
        ("max_measurement_sockets = -1", "max_measurement_sockets"),
    ] {
        let started = start(&namespace, &format!("[flashflow]\n{lines}\n"), Running::default());
        let Err(Error::Exited { log, .. }) = started else { panic!("{lines}: {started:?}") };
        assert!(log.contains(named) && log.contains("flashflow"), "{lines}: {log}");
    }
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn without_it_the_relay_knows_nothing_of_flashflow() {
    let namespace = namespace();
    let relay = relay(&namespace, "", Running::default());
    let outcome = measure(&relay, &coordinator(), short());
    let failure = outcome.result.expect_err("no measurement");
    assert_eq!(failure.kind, FailureKind::NotSupported, "{failure:?}");
    assert!(!relay.log().contains("FlashFlow"));
    let seconds = send_through(&order(&relay, 2, 4, 2)).expect("it forwards");
    assert!(seconds.iter().all(|cells| cells.0 > 0), "{seconds:?}");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn who_is_not_listed_is_refused() {
    let namespace = namespace();
    let relay = relay(&namespace, &section(&[&coordinator()], ""), Running::default());
    let outcome = measure(&relay, &coordinator(), short());
    let failure = outcome.result.expect_err("no measurement");
    assert_eq!(failure.relay_code, Some(ErrCode::COORDINATOR_NOT_ALLOWED), "{failure:?}");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn a_restart_forgets_no_measurement() {
    let namespace = namespace();
    let key = coordinator();
    let running = Running::default();
    let mut first = relay(&namespace, &section(&[&key], ""), running);
    assert!(measure(&first, &key, short()).result.is_ok());
    assert!(measure(&first, &key, short()).result.is_ok(), "one more, to repeat the first");
    let memory = fs::read(first.state().join("flashflow-measurements")).expect("its memory");
    assert_eq!(memory.iter().filter(|&&byte| byte == b'\n').count(), 2);
    let outcome = measure(&first, &key, short());
    let failure = outcome.result.expect_err("a third within the day");
    assert_eq!(failure.relay_code, Some(ErrCode::TOO_SOON), "{failure:?}");
    first.kill().expect("it dies");
    restart(&mut first, &namespace);
    let outcome = measure(&first, &key, short());
    let failure = outcome.result.expect_err("a third within the day");
    assert_eq!(failure.relay_code, Some(ErrCode::TOO_SOON), "{failure:?}");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn what_cannot_be_remembered_is_not_measured_and_the_relay_serves() {
    let namespace = namespace();
    let key = coordinator();
    let mut relay = relay(&namespace, &section(&[&key], ""), Running::default());
    relay.kill().expect("it dies");
    // Root can write to any file, but not to a folder.
    let memory = relay.state().join("flashflow-measurements");
    let _ = fs::remove_file(&memory);
    fs::create_dir(&memory).expect("a folder in its place");
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o700)).expect("permissions");
    restart(&mut relay, &namespace);
    assert!(relay.log().contains("this relay will not be measured"), "{}", relay.log());
    let outcome = measure(&relay, &key, short());
    assert_eq!(outcome.result.expect_err("no measurement").kind, FailureKind::NotSupported);
    let seconds = send_through(&order(&relay, 2, 4, 2)).expect("it forwards");
    assert!(seconds.iter().all(|cells| cells.0 > 0), "{seconds:?}");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn killed_at_any_moment_it_forgets_no_grant() {
    let namespace = namespace();
    let moments_ms = [0, 1, 3, 10, 30, 100, 300, 1000];
    let keys: Vec<_> = moments_ms.iter().map(|_| coordinator()).collect();
    let section = section(&keys.iter().collect::<Vec<_>>(), "");
    let mut relay = relay(&namespace, &section, Running::default());
    for (granted, (key, ms)) in (1..).zip(keys.iter().zip(moments_ms)) {
        block_on(measure_and_kill(&relay, key, Duration::from_millis(ms)));
        restart(&mut relay, &namespace);
        let memory = fs::read_to_string(relay.state().join("flashflow-measurements"));
        let memory = memory.expect("its memory");
        assert_eq!(memory.lines().count(), granted, "killed {ms} ms after a grant:\n{memory}");
    }
    assert!(measure(&relay, &keys[0], short()).result.is_ok(), "once more, to repeat the first");
}

/// Has a measurement granted, echoes cells for this long after the grant, and kills the relay while
/// all links are open.
async fn measure_and_kill(relay: &ArtiRelay, key: &SigningKey, after: Duration) {
    let (target, team) = (target(relay), [Member::new(1)]);
    let (coordinator, _) = Coordinator::granted(&target, key, 30, &team).await;
    let mut echo = pin!(echo_for_ever(&target, coordinator.measurement, &team[0]));
    let _ = tokio::time::timeout(after, echo.as_mut()).await;
    relay.kill().expect("it dies");
}

/// Echoes cells over a link of a measurement.
async fn echo_for_ever(target: &TargetAddr, measurement: MeasurementId, member: &Member) {
    let mut link = MeasurementLink::open(target, measurement, &member.key).await;
    loop {
        link.echo(32).await;
    }
}
