//! A relay to be measured, in a thread of its own, as honest as wanted.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link::TargetAddr;
use ff_measurer::measurer_id;
use ff_proto::session::target::Policy;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_relay_ext::arti::background::Background;
use ff_relay_ext::arti::extension::Extension;
use ff_relay_ext::arti::keys::RelayKeys;
use ff_relay_ext::arti::relay::{Relay, RelayConfig};
use ff_relay_ext::target::Totals;
use tokio::sync::oneshot;

use crate::holding::Holding;
use crate::liar::{Lie, LyingTls};

/// Longer than anything takes that comes by itself.
const HANG: Duration = Duration::from_secs(60);

/// The properties of a [`TestRelay`].
pub(crate) struct Setup {
    /// Its operator's rules.
    pub(crate) policy: Policy,
    /// Where it remembers who measured it.
    pub(crate) memory: Option<PathBuf>,
    /// Its rate limit.
    pub(crate) limit: Option<BytesPerSec>,
    /// What it does to the cells it sends.
    pub(crate) lie: Lie,
}

impl Setup {
    /// An honest relay of 20 Mbit/s that these coordinators may measure.
    pub(crate) fn allowing(coordinators: &[&SigningKey]) -> Self {
        let policy = Policy {
            enabled: true,
            coordinators: coordinators.iter().map(|key| measurer_id(key)).collect(),
            period: Duration::from_secs(86_400),
            ratio: Ratio::from_percent(25).expect("a ratio"),
            max_duration_secs: NonZero::new(45).expect("not 0"),
            max_sockets: 512,
        };
        Self { policy, memory: None, limit: Some(BytesPerSec::from_mbit(20)), lie: Lie::Nothing }
    }
}

/// A running relay; it and its thread end when this is dropped.
pub(crate) struct TestRelay {
    /// Where and who it is.
    pub(crate) target: TargetAddr,
    /// Its extension.
    extension: Arc<Extension>,
    /// What it holds back.
    holding: Arc<Holding>,
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    /// Its thread.
    thread: Option<JoinHandle<()>>,
}

impl TestRelay {
    /// Starts it and waits until it listens.
    pub(crate) fn start(setup: Setup) -> Self {
        let keys = RelayKeys::generate().expect("the relay's keys");
        let ed_identity = keys.ed_identity();
        let extension =
            Extension::new(setup.policy, setup.memory, setup.limit).expect("the extension");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = RelayConfig { listen, keys, extension: extension.clone() };
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, is_started) = mpsc::channel();
        let holding = Arc::new(Holding::default());
        let shared = Arc::clone(&holding);
        let thread = crate::in_thread(async move || {
            let relay = Relay::launch_over(config, |tls| LyingTls::new(tls, setup.lie, shared));
            let relay = relay.expect("the relay starts");
            started.send(relay.addr()).expect("the test waits");
            let _ = stopped.await;
        });
        let addr = is_started.recv().expect("the relay starts");
        let target = TargetAddr { addr, ed_identity };
        Self { target, extension, holding, stop: Some(stop), thread: Some(thread) }
    }

    /// What its extension has been through.
    pub(crate) fn totals(&self) -> Totals {
        self.extension.totals().expect("the extension has not failed")
    }

    /// The most cells that it has held back at once.
    pub(crate) fn most_held(&self) -> u64 {
        self.holding.most_held()
    }

    /// Waits for its totals to be so.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn(&Totals) -> bool) {
        let deadline = Instant::now() + HANG;
        while !is_so(&self.totals()) {
            assert!(Instant::now() < deadline, "no {what}: {:?}", self.totals());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has clients load it at this rate.
    pub(crate) fn clients(&self, rate: BytesPerSec) -> Background {
        let TargetAddr { addr, ed_identity } = self.target;
        Background::start(addr, ed_identity, rate.get()).expect("clients")
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "the relay panicked");
    }
}
