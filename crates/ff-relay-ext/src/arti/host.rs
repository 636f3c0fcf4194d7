//! A [`Relay`] in its own thread, for measurements by the rest of the process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use ff_proto::session::target::Policy;
use ff_proto::units::BytesPerSec;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use super::extension::Extension;
use super::keys::{KeyError, RelayKeys};
use super::relay::{Relay, RelayConfig, RelayError};
use crate::memory::MemoryError;

/// How often the thread records its CPU time.
const CPU_PERIOD: Duration = Duration::from_millis(50);

/// Why a [`RelayHost`] could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Its identity could not be made.
    #[error("Failed to make the relay's keys")]
    Keys(#[from] KeyError),
    /// Its extension could not be set up.
    #[error("Failed to set the extension up")]
    Extension(#[from] MemoryError),
    /// Its thread could not be started.
    #[error("Failed to start the relay's thread")]
    Thread(#[source] io::Error),
    /// Its runtime could not be made.
    #[error("Failed to start a runtime")]
    Runtime(#[source] io::Error),
    /// The relay failed to start.
    #[error("Failed to start the relay")]
    Relay(#[from] RelayError),
    /// The thread ended without an error, which is a bug.
    #[error("The relay's thread ended")]
    Ended,
}

/// A relay and its thread; both end when this is dropped.
pub struct RelayHost {
    addr: SocketAddr,
    keys: RelayKeys,
    /// CPU time of its thread, in microseconds.
    cpu_micros: Arc<AtomicU64>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RelayHost {
    /// Starts a relay with this policy and rate limit, on this core if one is given.
    ///
    /// # Errors
    /// When its keys, port or thread cannot be made.
    pub fn start(
        policy: Policy,
        limit: Option<BytesPerSec>,
        core: Option<usize>,
    ) -> Result<Self, HostError> {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), policy, limit, core)
    }

    /// The same at this address.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_at(
        address: IpAddr,
        policy: Policy,
        limit: Option<BytesPerSec>,
        core: Option<usize>,
    ) -> Result<Self, HostError> {
        let keys = RelayKeys::generate()?;
        let extension = Extension::new(policy, None, limit)?;
        let config =
            RelayConfig { listen: SocketAddr::new(address, 0), keys: keys.clone(), extension };
        let cpu_micros = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let (started, is_started) = mpsc::channel();
        let noted = cpu_micros.clone();
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || run(config, core, &started, stopped, &noted))
            .map_err(HostError::Thread)?;
        let addr = is_started.recv().map_err(|_| HostError::Ended)??;
        Ok(Self { addr, keys, cpu_micros, stop: Some(stop), thread: Some(thread) })
    }

    /// Its ORPort.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its identity.
    #[must_use]
    pub fn keys(&self) -> &RelayKeys {
        &self.keys
    }

    /// CPU time of its thread so far, at most 50 ms old.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        Duration::from_micros(self.cpu_micros.load(Ordering::Relaxed))
    }
}

impl Drop for RelayHost {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed already.
            let _ = thread.join();
        }
    }
}

/// The thread: runs the relay until it is stopped.
fn run(
    config: RelayConfig,
    core: Option<usize>,
    started: &mpsc::Sender<Result<SocketAddr, HostError>>,
    stopped: oneshot::Receiver<()>,
    cpu_micros: &AtomicU64,
) {
    if let Some(id) = core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(HostError::Runtime(error)))),
    };
    runtime.block_on(async {
        let relay = match Relay::launch(config) {
            Ok(relay) => relay,
            Err(error) => return drop(started.send(Err(error.into()))),
        };
        let _ = started.send(Ok(relay.addr()));
        let note_cpu = async {
            loop {
                let cpu = thread_cpu_micros();
                cpu_micros.store(cpu, Ordering::Relaxed);
                tokio::time::sleep(CPU_PERIOD).await;
            }
        };
        tokio::select! {
            _ = stopped => {}
            () = note_cpu => {}
        }
    });
}

/// CPU time of this thread so far, in microseconds.
fn thread_cpu_micros() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    secs.unwrap_or(0).saturating_mul(1_000_000).saturating_add(nanos.unwrap_or(0) / 1000)
}
