//! Chooses network and client for commands that build circuits.

use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use arti_client::TorClient;
use ff_circuits::network::CircuitNetwork;
use tempfile::TempDir;
use tor_rtcompat::PreferredRuntime;

use crate::cli::measure::ClientKind;
use crate::client::Client;
use crate::client::arti::own::OwnArti;
use crate::client::arti::{Arti, bootstrap};
use crate::client::tor::own::OwnTor;
use crate::client::tor::{Ending, Takeover, Tor};
use crate::signals::Signals;

/// Work with a client of either kind.
pub(super) trait Job {
    type Done;

    /// Runs until its end or a signal. Signals are caught before the client starts, so that none
    /// leaves a tor with changed options.
    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Self::Done>;

    /// Does due work while an Arti that chooses its own paths starts. If it ends first, the start
    /// is cancelled.
    async fn meanwhile(&mut self) -> Self::Done {
        std::future::pending().await
    }
}

/// The chosen client and network.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) kind: ClientKind,
    /// Whether the client chooses its own paths.
    pub(super) as_client: bool,
    /// State folder of such an Arti; `None` for a temporary one.
    pub(super) state: Option<&'a Path>,
    /// Options for a tor, by name and value.
    pub(super) torrc: &'a [(String, String)],
    /// Directory of the network.
    pub(super) dir: &'a Path,
    pub(super) network: &'a CircuitNetwork,
}

/// Starts a client and runs a job with it.
pub(super) fn with_client<J: Job>(chosen: Chosen<'_>, mut job: J) -> Result<J::Done> {
    let Chosen { kind, as_client, state, torrc, dir, network } = chosen;
    // Dropped after the runtime and everything in it that uses the tor, also in a panic.
    let mut ending = None;
    // One thread: waking another for each cell would cost more than the cells.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start the runtime")?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen().context("Failed to listen for signals")?;
        match kind {
            ClientKind::Arti if as_client => {
                let state = State::new(state)?;
                let client = tokio::select! {
                    client = started(network, state.path(), &mut signals) => client?,
                    done = job.meanwhile() => return Ok(done),
                };
                job.run(OwnArti::new(client, network), signals).await
            }
            ClientKind::Tor if as_client => {
                let (client, end) = OwnTor::connect(dir, torrc).map_err(anyhow::Error::msg)?;
                ending = end;
                job.run(client, signals).await
            }
            ClientKind::Arti => {
                let client = Arti::new(network).map_err(anyhow::Error::msg);
                job.run(client.context("Failed to start Arti")?, signals).await
            }
            ClientKind::Tor => {
                let Takeover { tor, ending: end, note } =
                    Tor::take_over_with(dir, torrc).map_err(anyhow::Error::msg)?;
                note.iter().for_each(|note| say(note));
                ending = Some(end);
                job.run(tor, signals).await
            }
        }
    });
    // Late messages of tasks are of no use.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(Err(reason)) = ending.map(Ending::wait) {
        say(&reason);
    }
    done
}

/// Starts Arti with its state in a folder.
///
/// # Errors
/// If it does not start; [`Stopped`] if a signal is received first.
pub(super) async fn started(
    network: &CircuitNetwork,
    state: &Path,
    signals: &mut Signals,
) -> Result<Arc<TorClient<PreferredRuntime>>> {
    tokio::select! {
        started = bootstrap::start(network, state) => {
            started.map_err(anyhow::Error::msg).context("Failed to start Arti")
        }
        () = signals.recv() => Err(Stopped.into()),
    }
}

/// A signal was received before there was a client.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal before Arti was ready")]
pub(super) struct Stopped;

/// Folder of Arti's guards, documents and keys.
pub(super) enum State {
    /// A given folder.
    Kept(PathBuf),
    /// A temporary folder, removed when dropped.
    Forgotten(TempDir),
}

impl State {
    /// The given folder, created if missing, or a temporary one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self> {
        let Some(dir) = dir else {
            let dir = tempfile::tempdir().context("Failed to create a folder for Arti")?;
            return Ok(Self::Forgotten(dir));
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| format!("Failed to create {}", dir.display()))?;
        // Arti resolves relative paths differently.
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        Ok(Self::Kept(dir))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Kept(dir) => dir,
            Self::Forgotten(dir) => dir.path(),
        }
    }
}

/// Refuses relays on the Internet unless `is_meant`; returns whether the network has any.
pub(super) fn check_internet(dir: &Path, network: &CircuitNetwork, is_meant: bool) -> Result<bool> {
    if network.is_public() && !is_meant {
        bail!(
            "{}: this network has relays on the Internet; read ETHICS.md, then allow it with --public",
            dir.display()
        );
    }
    Ok(network.is_public())
}

/// Writes a note to standard error; errors are ignored.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "ff-perf: {text}");
}
