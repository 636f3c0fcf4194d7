//! A private network whose relays are measured, shared by the tests of a module.
//!
//! A network takes ten seconds to start, and a test at most a few; so a module's tests share one,
//! and run at the same time. A relay carries out one measurement at a time, so tests of the same
//! relay take turns ([`Lab::relay`]). The network lasts as long as a test runs or waits for its
//! turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_lab::{Control, Network, NetworkBuilder, Node, RelayConfig};
use ff_measurer::link::TargetAddr;
use ff_plan::outcome::Outcome;
use ff_proto::msg::ErrCode;
use ff_proto::params::Params;
use futures::future::join_all;

use super::session::{Coordinator, LONGEST_SECS, MeasurementLink, Member, PATIENCE};
use crate::support::{among_others, coordinator, identity, plan, stood_still};

/// Coordinators that every relay allows: as many as it can. Each of them has two grants.
const KEYS: usize = 64;
/// Links of a measurement by hand, and cells on each.
const LINKS: u16 = 8;
const CELLS: u64 = 64;

/// A network, and who may measure its relays.
pub(crate) struct Lab {
    /// The network.
    network: Network,
    /// The coordinators that each relay allows.
    keys: BTreeMap<String, Keys>,
}

/// The coordinators that a relay allows.
struct Keys {
    /// All of them.
    all: Vec<SigningKey>,
    /// How many have been used.
    used: AtomicUsize,
    /// Held by the test that measures it.
    turn: Mutex<()>,
}

/// The network of a module's tests.
pub(crate) struct SharedLab {
    /// Starts it.
    start: fn() -> Lab,
    /// The network, while a test needs it.
    lab: Mutex<Weak<OnceLock<Lab>>>,
}

impl SharedLab {
    /// A network that is started when the first test needs it.
    pub(crate) const fn new(start: fn() -> Lab) -> Self {
        Self { start, lab: Mutex::new(Weak::new()) }
    }

    /// Runs a test, concurrently with others.
    pub(crate) fn run(&self, test: impl AsyncFnOnce(&Lab)) {
        // Held while waiting, so that the network outlives the test that is running.
        let lab = self.get();
        let _others = among_others();
        let lab = lab.get_or_init(self.start);
        let begin = Instant::now();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test(lab));
        eprintln!("took {:.1?}, without waiting and the network's start", begin.elapsed());
    }

    /// The network, or where it is to be.
    fn get(&self) -> Arc<OnceLock<Lab>> {
        let mut shared = self.lab.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let lab = Arc::default();
            *shared = Arc::downgrade(&lab);
            lab
        })
    }
}

impl Lab {
    /// Starts a network with these relays, whose FFAllowedCoordinators it sets.
    pub(crate) fn start(builder: NetworkBuilder, relays: Vec<RelayConfig>) -> Self {
        let mut keys = BTreeMap::new();
        let add = |builder: NetworkBuilder, relay: RelayConfig| {
            let all: Vec<_> = (0..KEYS).map(|_| coordinator()).collect();
            let identities: Vec<_> = all.iter().map(identity).collect();
            let relay = relay.torrc(format!("FFAllowedCoordinators {}", identities.join(",")));
            keys.insert(
                relay.nickname.clone(),
                Keys { all, used: AtomicUsize::new(0), turn: Mutex::new(()) },
            );
            builder.relay(relay)
        };
        let network = relays.into_iter().fold(builder, add).start().expect("a network");
        eprintln!("the network was ready after {:.1?}", network.start_time());
        Self { network, keys }
    }

    /// One of the relays, as soon as no other test measures it.
    pub(crate) fn relay(&self, name: &str) -> Relay<'_> {
        let Self { network, keys } = self;
        let keys = &keys[name];
        let turn = keys.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Relay { node: network.node(name), network, keys, _turn: turn }
    }

    /// The network.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Where and who a node is.
    pub(crate) fn target(&self, name: &str) -> TargetAddr {
        target(self.network.node(name))
    }
}

/// A relay to be measured, by this test alone.
pub(crate) struct Relay<'a> {
    /// The tor.
    pub(crate) node: &'a Node,
    /// The network that it is in.
    network: &'a Network,
    /// The keys that may measure it.
    keys: &'a Keys,
    /// Keeps other tests from it.
    _turn: MutexGuard<'a, ()>,
}

impl Relay<'_> {
    /// A coordinator that the relay allows and that has not measured it yet.
    ///
    /// # Panics
    /// If there is none left.
    pub(crate) fn key(&self) -> &SigningKey {
        let number = self.keys.used.fetch_add(1, Ordering::Relaxed);
        self.keys.all.get(number).expect("tests of one relay use few coordinators")
    }

    /// Where and who it is.
    pub(crate) fn target(&self) -> TargetAddr {
        target(self.node)
    }

    /// A measurement over 8 sockets that checks every cell.
    pub(crate) fn plan(&self, key: &SigningKey, duration_secs: u16) -> MeasurePlan {
        let params =
            Params { sockets: 8, duration_secs, check_probability: 1.0, ..Params::default() };
        plan(self.node, key, params)
    }

    /// Measures it by a fresh coordinator, and by another one if the machine stood still meanwhile.
    /// With what `before` has given just before it, and the coordinator.
    pub(crate) async fn measured<T>(
        &self,
        plan: impl Fn(&SigningKey) -> MeasurePlan,
        before: impl Fn() -> T,
    ) -> (T, &SigningKey, Outcome) {
        loop {
            self.wait_until_no_link_is_open().await;
            let (before, key) = (before(), self.key());
            let outcome = measure(&plan(key)).await;
            if !stood_still(&outcome) {
                return (before, key, outcome);
            }
        }
    }

    /// Measures it for a second.
    pub(crate) async fn measure(&self, key: &SigningKey) -> Outcome {
        measure(&self.plan(key, 1)).await
    }

    /// Has it grant a measurement and echo cells, each of which is checked. However busy the
    /// machine is, they come back; a measurement by the clock may have seconds in which none did.
    ///
    /// # Panics
    /// If they do not come back, or there is no grant.
    pub(crate) async fn measure_by_hand(&self, key: &SigningKey) {
        let (target, team) = (self.target(), [Member::new(LINKS)]);
        let coordinator = Coordinator::granted_when_free(&target, key, LONGEST_SECS, &team).await;
        let open = |_| MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
        let mut links = join_all((0..LINKS).map(open)).await;
        join_all(links.iter_mut().map(|link| link.echo(CELLS))).await;
        coordinator.end().await;
    }

    /// Fails unless a fresh coordinator can measure it and the relay has no complaints.
    pub(crate) async fn assert_in_order(&self) {
        self.measure_by_hand(self.key()).await;
        let log = self.node.log();
        // Not shorter: identities in base64 may contain any three letters.
        for complaint in ["Bug: ", "ssertion ", "nternal error"] {
            let name = self.node.name();
            assert!(!log.contains(complaint), "{complaint} in the log of {name}:\n{log}");
        }
    }

    /// Waits until its log says that a measurement has ended early with this code.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn wait_for_early_end(&self, code: ErrCode) {
        let text = format!("has ended early ({})", code.name());
        self.node.wait_for_log(&text, PATIENCE).expect("its log says so");
    }

    /// Lets measurements take ten seconds at most.
    ///
    /// # Panics
    /// If the relay does not accept that.
    pub(crate) fn limit_measurements_to_ten_seconds(&self) {
        let set = |mut tor: Control| tor.setconf("FFMaxMeasurementDuration", "10");
        self.node.control().and_then(set).expect("a good value");
    }

    /// Waits until the relay holds none of our links.
    ///
    /// # Panics
    /// If it still holds one after a long time.
    pub(crate) async fn wait_until_no_link_is_open(&self) {
        self.wait_for_links(0).await;
    }

    /// Waits until the relay holds this many of our links.
    ///
    /// # Panics
    /// If it does not reach that number.
    pub(crate) async fn wait_for_links(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let open = self.network.outside_connections(self.node).expect("the relay runs");
            if open == count {
                return;
            }
            assert!(Instant::now() < deadline, "{open} links are open, not {count}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Where and who a node is.
fn target(node: &Node) -> TargetAddr {
    TargetAddr { addr: node.or_addr(), ed_identity: node.ed_identity().into() }
}

/// Measures.
pub(crate) async fn measure(plan: &MeasurePlan) -> Outcome {
    measure_watched(plan, |_| {}).await
}

/// Measures; `watch` sees the progress.
pub(crate) async fn measure_watched(
    plan: &MeasurePlan,
    watch: impl FnMut(Progress<'_>),
) -> Outcome {
    let patience = 3 * PATIENCE + Duration::from_secs(plan.params.duration_secs.into());
    let measured = tokio::time::timeout(patience, measure::measure(plan, watch)).await;
    measured.expect("measurements do not hang")
}

/// Fails unless the relay was measured.
pub(crate) fn assert_measured(outcome: &Outcome) {
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(outcome.estimate.is_some_and(|estimate| estimate.get() > 0));
}

/// Fails unless the measurement failed with this code.
pub(crate) fn assert_failed(outcome: &Outcome, code: &str) {
    let failure = outcome.result.as_ref().expect_err("a failure");
    assert_eq!(failure.code(), code, "{failure:?}");
}

/// Fails unless the relay refused the measurement with this code.
pub(crate) fn assert_refused(outcome: &Outcome, code: &str) {
    assert_failed(outcome, "refused");
    let failure = outcome.result.as_ref().expect_err("a failure");
    assert!(failure.message.contains(&format!("({code})")), "{failure:?}");
}
