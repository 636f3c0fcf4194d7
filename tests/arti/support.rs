//! Parts shared by these tests: a relay in a namespace, and measuring it or sending cells through
//! it.

#[path = "../c_tor/support/measuring.rs"]
mod measuring;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan};
use ff_lab::net::Namespace;
use ff_lab::{ArtiRelay, ArtiRelayPlan, NETWORK};
use ff_measurer::START_LEAD;
use ff_measurer::link::TargetAddr;
use ff_measurer::transit::{Transit, TransitError, TransitOrder, TransitSecond};
use ff_plan::outcome::Outcome;
use ff_proto::params::Params;
use ff_proto::units::Cells;
use rustix::thread::{CpuSet, sched_setaffinity};

use self::measuring::plan_for;
pub(crate) use self::measuring::{coordinator, estimate, identity};

/// Where relays listen.
pub(crate) const RELAY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 9001);
/// Where sinks listen.
const SINK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
/// As long as packets of the Internet are.
const MTU: u16 = 1500;

/// The program to test.
///
/// # Panics
/// Without the variable, saying how to get what it must name.
pub(crate) fn program() -> PathBuf {
    let path = std::env::var_os("FF_TEST_ARTI_RELAY").expect(
        "FF_TEST_ARTI_RELAY must name an arti-relay with the FlashFlow target in it: \
         build one with crates/ff-relay-ext/arti/build-arti-relay",
    );
    std::fs::canonicalize(&path)
        .unwrap_or_else(|error| panic!("FF_TEST_ARTI_RELAY, {path:?}: {error}"))
}

/// Takes the calling thread, and all that it starts, into a namespace of its own.
pub(crate) fn namespace() -> Namespace {
    let namespace = Namespace::new("arti-relay", "cubic").expect("a namespace, as root");
    namespace.own_network(NETWORK).expect("addresses");
    namespace.set_loopback_mtu(MTU).expect("short packets");
    namespace.enter().expect("the namespace");
    namespace
}

/// The number that a variable of the environment holds.
///
/// # Panics
/// If it is none.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is not a number")))
}

/// The section by which these coordinators may measure, with more lines.
pub(crate) fn section(keys: &[&SigningKey], more: &str) -> String {
    let ids = keys.iter().map(|key| format!("{:?}", identity(key)));
    let ids = ids.collect::<Vec<_>>().join(", ");
    format!("[flashflow]\nmeasurements_allowed = true\nallowed_coordinators = [{ids}]\n{more}\n")
}

/// How a relay runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    /// Threads of its runtime; 0 for as many as the machine has.
    pub(crate) threads: usize,
    /// Its core, if it has one to itself.
    pub(crate) core: Option<usize>,
}

/// Starts a relay with these sections.
pub(crate) fn relay(namespace: &Namespace, sections: &str, running: Running) -> ArtiRelay {
    start(namespace, sections, running).unwrap_or_else(|error| panic!("{error}"))
}

/// Tries to start a relay with these sections.
pub(crate) fn start(
    namespace: &Namespace,
    sections: &str,
    Running { threads, core }: Running,
) -> ff_lab::Result<ArtiRelay> {
    let program = program();
    ArtiRelay::start(&ArtiRelayPlan {
        program: &program,
        namespace,
        addr: RELAY,
        sections,
        threads,
        core,
    })
}

/// Starts it again with what it has.
pub(crate) fn restart(relay: &mut ArtiRelay, namespace: &Namespace) {
    let program = program();
    let plan = ArtiRelayPlan {
        program: &program,
        namespace,
        addr: RELAY,
        sections: "",
        threads: 0,
        core: None,
    };
    relay.restart(&plan).unwrap_or_else(|error| panic!("{error}"));
}

/// The relay as those who measure it name it.
pub(crate) fn target(relay: &ArtiRelay) -> TargetAddr {
    TargetAddr { addr: relay.addr().into(), ed_identity: relay.ed_identity().into() }
}

/// What to measure a relay with: one measurer in this process.
pub(crate) fn plan(relay: &ArtiRelay, key: &SigningKey, params: Params) -> MeasurePlan {
    plan_for(target(relay), key, params)
}

/// Runs what waits in this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Measures.
pub(crate) fn measure(relay: &ArtiRelay, key: &SigningKey, params: Params) -> Outcome {
    block_on(measure::measure(&plan(relay, key, params), |_| {}))
}

/// What to send through a relay for so long, by so many links and circuits.
pub(crate) fn order(relay: &ArtiRelay, links: u16, circuits: u32, secs: u64) -> TransitOrder {
    let sinks = vec![SocketAddr::new(SINK.into(), 0); 3];
    TransitOrder {
        links,
        circuits,
        busy_circuits: circuits,
        duration: Duration::from_secs(secs),
        ..TransitOrder::new(target(relay), relay.ntor_onion_key(), sinks)
    }
}

/// Cells that arrived in each second, both ways together.
pub(crate) fn send_through(order: &TransitOrder) -> Result<Vec<Cells>, TransitError> {
    send_through_watched(order, || {})
}

/// As that; `begun` is called after each second.
pub(crate) fn send_through_watched(
    order: &TransitOrder,
    begun: impl Fn(),
) -> Result<Vec<Cells>, TransitError> {
    block_on(async {
        let mut transit = Transit::prepare(order).await?;
        transit.start(Instant::now() + START_LEAD);
        let mut seconds = Vec::new();
        let note = |second: TransitSecond| {
            seconds.push(Cells(second.forward_cells + second.backward_cells));
            begun();
        };
        transit.finish(note).await?;
        Ok(seconds)
    })
}

/// Keeps the calling thread, and what it starts, on the second core.
pub(crate) fn on_second_core() {
    let mut second = CpuSet::new();
    second.set(1);
    sched_setaffinity(None, &second).expect("a second core");
}

/// The median of numbers.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As a floating point number.
#[expect(clippy::cast_precision_loss, reason = "byte counts of seconds lie far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}
