//! Parts shared by these tests: the tor to test, relays that may be measured, and measuring them.

pub(crate) mod meter;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_coordinator::team::{LocalMeasurer, TeamMember};
use ff_lab::{NetworkBuilder, Node, RelayConfig};
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_measurer::measurer_id;
use ff_plan::outcome::Outcome;
use ff_proto::failure::FailureKind;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Why the tests are ignored by default.
///
/// # Panics
/// Without the variable, saying how to get what it must name.
pub(crate) fn ff_tor() -> PathBuf {
    let path = std::env::var_os("FF_TEST_TOR").expect(
        "FF_TEST_TOR must name a tor with the FlashFlow target in it: \
         build one with crates/ff-relay-ext/tor/build-tor",
    );
    std::fs::canonicalize(&path).unwrap_or_else(|error| panic!("FF_TEST_TOR, {path:?}: {error}"))
}

/// The numbers that a variable of the environment lists.
///
/// # Panics
/// If something in the list is not a number.
pub(crate) fn numbers(variable: &str) -> Option<Vec<u64>> {
    let list = std::env::var(variable).ok()?;
    let number = |part: &str| part.parse().unwrap_or_else(|_| panic!("{variable}: {part:?}"));
    Some(list.split(',').map(number).collect())
}

/// The number that a variable of the environment holds.
///
/// # Panics
/// If it is none.
pub(crate) fn number(variable: &str) -> Option<u64> {
    numbers(variable).map(|numbers| numbers[0])
}

/// Keeps figures apart from everything else in time.
static TRAFFIC: RwLock<()> = RwLock::new(());

/// Waits until no other test moves traffic.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    TRAFFIC.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no figure is measured; beside others that hold none against the machine.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    TRAFFIC.read().unwrap_or_else(PoisonError::into_inner)
}

/// A fresh coordinator.
pub(crate) fn coordinator() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

/// A coordinator's identity as torrc has it.
pub(crate) fn identity(key: &SigningKey) -> String {
    Base64Unpadded::encode_string(&measurer_id(key).0)
}

/// A relay that this coordinator may measure, bound by its limits on loopback, too.
pub(crate) fn measurable(nickname: &str, coordinator: &SigningKey) -> RelayConfig {
    RelayConfig::middle(nickname)
        .tor(ff_tor())
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFAllowedCoordinators {}", identity(coordinator)))
        .torrc("CountPrivateBandwidth 1")
}

/// Gives a node core 0 and everything else core 1, the calling thread and what it starts included;
/// does nothing on a machine with one core.
pub(crate) fn on_two_cores(builder: NetworkBuilder, node: &str) -> NetworkBuilder {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return builder;
    }
    let mut cores = CpuSet::new();
    cores.set(1);
    sched_setaffinity(None, &cores).expect("a second core");
    builder.core(1).core_of(node, 0)
}

/// What to measure a relay with: one measurer in this process.
pub(crate) fn plan(node: &Node, key: &SigningKey, params: Params) -> MeasurePlan {
    let addr = node.or_addr();
    let sockets = params.sockets;
    MeasurePlan {
        target: TargetAddr { addr, ed_identity: node.ed_identity().into() },
        address_text: addr.to_string(),
        fingerprint: None,
        key: key.clone(),
        params,
        team: vec![TeamMember {
            measurer: Arc::new(LocalMeasurer::new("0", coordinator(), Vec::new())),
            sockets,
            rate: None,
        }],
        limit: None,
        is_local: true,
        round_trip: None,
        expected: None,
        place: None,
        link: LinkOptions::default(),
    }
}

/// Measures; `watch` sees the progress.
pub(crate) fn measure_watched(plan: &MeasurePlan, watch: impl FnMut(Progress<'_>)) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure::measure(plan, watch))
}

/// Measures.
pub(crate) fn measure(plan: &MeasurePlan) -> Outcome {
    measure_watched(plan, |_| {})
}

/// Whether it failed because the machine stood still for long: cells or reports came too late, or
/// not at all.
pub(crate) fn stood_still(outcome: &Outcome) -> bool {
    let failure = outcome.result.as_ref().err();
    let is_it = failure.is_some_and(|failure| {
        [FailureKind::Timeout, FailureKind::NoEcho, FailureKind::MeasurerFailed]
            .contains(&failure.kind)
    });
    if is_it {
        eprintln!("the machine stood still: {failure:?}");
    }
    is_it
}

/// The estimate of a measurement that went well.
///
/// # Panics
/// If it did not.
pub(crate) fn estimate(outcome: &Outcome) -> BytesPerSec {
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    outcome.estimate.expect("an estimate")
}
