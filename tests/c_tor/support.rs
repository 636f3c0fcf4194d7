//! Parts shared by these tests: the tor to test, relays that may be measured, and measuring them.

mod measuring;
pub(crate) mod meter;

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_lab::{Network, NetworkBuilder, Node, RelayConfig};
use ff_measurer::link::TargetAddr;
use ff_plan::outcome::Outcome;
use ff_proto::failure::FailureKind;
use ff_proto::params::Params;
use rustix::thread::{CpuSet, sched_setaffinity};

use self::measuring::plan_for;
pub(crate) use self::measuring::{coordinator, estimate, identity};

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

/// A relay that this coordinator may measure, bound by its limits on loopback, too.
pub(crate) fn measurable(nickname: &str, coordinator: &SigningKey) -> RelayConfig {
    RelayConfig::middle(nickname)
        .tor(ff_tor())
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFAllowedCoordinators {}", identity(coordinator)))
        .torrc("CountPrivateBandwidth 1")
}

/// A network with three authorities and relays of these names and limits in Mbit/s, which these
/// coordinators may measure, on loopback, too. Relays whose names begin with `exit` are exits.
pub(crate) fn measurable_network(
    coordinators: &[String],
    relays_mbit: &[(&str, u64)],
) -> NetworkBuilder {
    let builder = Network::builder()
        .tor(ff_tor())
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFAllowedCoordinators {}", coordinators.join(",")))
        .torrc("CountPrivateBandwidth 1")
        .authorities(3);
    let relay = |&(name, mbit): &(&str, u64)| {
        let exit = name.starts_with("exit");
        RelayConfig { exit, ..RelayConfig::middle(name) }.bandwidth_rate(mbit * 125_000)
    };
    relays_mbit.iter().map(relay).fold(builder, NetworkBuilder::relay)
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
    let target = TargetAddr { addr: node.or_addr(), ed_identity: node.ed_identity().into() };
    plan_for(target, key, params)
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
