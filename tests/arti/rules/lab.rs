//! The relays of the tests that tests/c_tor has as well: one process for each, in the test's own
//! namespace.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::ArtiRelay;
use ff_lab::net::Namespace;
use ff_measurer::link::TargetAddr;
use ff_proto::msg::ErrCode;
use futures::future::join_all;

use super::session::{Coordinator, LONGEST_SECS, MeasurementLink, Member, PATIENCE};
use crate::support::{Running, block_on, coordinator, namespace, relay, section, target};

/// Coordinators that each relay allows, the most possible. Each of them has two grants.
const KEYS: usize = 64;
/// Links of a measurement by hand.
const LINKS: u16 = 8;
/// Cells on each of these links.
const CELLS: u64 = 64;
/// The relay whose measurements take [`SHORT_SECS`] at most: its configuration is read once.
const SHORT: &str = "cap";
/// The least that a relay can limit measurements to, in seconds.
const SHORT_SECS: u16 = 10;

/// What runs the tests.
pub(crate) struct SharedLab;

/// A test's namespace.
pub(crate) struct Lab {
    /// The namespace, which the test's thread is in.
    namespace: Namespace,
}

impl SharedLab {
    /// Runs a test.
    pub(crate) fn run(&self, test: impl AsyncFnOnce(&Lab)) {
        let lab = Lab { namespace: namespace() };
        block_on(test(&lab));
    }
}

impl Lab {
    /// Starts the relay of this name.
    pub(crate) fn relay(&self, name: &str) -> Relay<'_> {
        let keys: Vec<_> = (0..KEYS).map(|_| coordinator()).collect();
        let longest_secs = if name == SHORT { SHORT_SECS } else { LONGEST_SECS };
        let more = format!("max_measurement_duration = {longest_secs}");
        let section = section(&keys.iter().collect::<Vec<_>>(), &more);
        let process = relay(&self.namespace, &section, Running::default());
        Relay { process, keys, used: AtomicUsize::new(0), longest_secs, _lab: self }
    }
}

/// A relay to be measured.
pub(crate) struct Relay<'a> {
    /// The process.
    process: ArtiRelay,
    /// The coordinators that may measure it.
    keys: Vec<SigningKey>,
    /// How many of them have been used.
    used: AtomicUsize,
    /// The longest measurement, in seconds.
    longest_secs: u16,
    /// The lab, which outlives it.
    _lab: &'a Lab,
}

impl Relay<'_> {
    /// A coordinator that has not measured it yet.
    ///
    /// # Panics
    /// If there is none left.
    pub(crate) fn key(&self) -> &SigningKey {
        let number = self.used.fetch_add(1, Ordering::Relaxed);
        self.keys.get(number).expect("a test uses few coordinators")
    }

    /// Its address and identity.
    pub(crate) fn target(&self) -> TargetAddr {
        target(&self.process)
    }

    /// Waits until its log says that a measurement has ended early with this code.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn wait_for_early_end(&self, code: ErrCode) {
        let text = format!("measurement ended early: {code}");
        let deadline = Instant::now() + PATIENCE;
        while !self.process.log().contains(&text) {
            assert!(Instant::now() < deadline, "no {text:?} in:\n{}", self.process.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that measurements take ten seconds at most.
    pub(crate) fn limit_measurements_to_ten_seconds(&self) {
        assert_eq!(self.longest_secs, SHORT_SECS);
    }

    /// Fails unless a fresh coordinator can measure it and nothing in it has panicked.
    pub(crate) async fn assert_in_order(&self) {
        let (target, team) = (self.target(), [Member::new(LINKS)]);
        let granted = Coordinator::granted_when_free(&target, self.key(), LONGEST_SECS, &team);
        let coordinator = granted.await;
        let open = |_| MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
        let mut links = join_all((0..LINKS).map(open)).await;
        join_all(links.iter_mut().map(|link| link.echo(CELLS))).await;
        coordinator.end().await;
        let log = self.process.log();
        assert!(self.process.is_running() && !log.contains("panicked at"), "{log}");
    }

    /// Waits until it holds none of our links.
    ///
    /// # Panics
    /// If it does not come to that.
    pub(crate) async fn wait_until_no_link_is_open(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let open = self.process.accepted_links().expect("the relay runs");
            if open == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{open} links are open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
