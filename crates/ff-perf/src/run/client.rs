//! The common part of commands that build circuits: the choice of network and of client.

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
use crate::client::arti::{self, Arti};
use crate::client::tor::own::OwnTor;
use crate::client::tor::{Ending, Takeover, Tor};
use crate::signals::Signals;

/// Work with a client of either kind.
pub(super) trait Job {
    type Done;

    /// Does it, until its end or a signal. These are heard before a client is there, so that none
    /// finds a tor taken over and nobody to give it back.
    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Self::Done>;

    /// Does what is due while an Arti that chooses paths itself starts. If it ends first, the start is given up.
    async fn meanwhile(&mut self) -> Self::Done {
        std::future::pending().await
    }
}

/// Which client does it, and where that finds its network.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    /// Which program.
    pub(super) kind: ClientKind,
    /// Whether it chooses paths itself.
    pub(super) as_client: bool,
    /// Where such an Arti keeps its state; if none, in a temporary folder.
    pub(super) state: Option<&'a Path>,
    /// Further options of a tor, by name and value.
    pub(super) torrc: &'a [(String, String)],
    /// The directory of the network.
    pub(super) dir: &'a Path,
    /// The network.
    pub(super) network: &'a CircuitNetwork,
}

/// Starts a client, and has it do something.
pub(super) fn with_client<J: Job>(chosen: Chosen<'_>, mut job: J) -> Result<J::Done> {
    let Chosen { kind, as_client, state, torrc, dir, network } = chosen;
    // Dropped after the runtime and all that uses the tor in it, also in a panic.
    let mut ending = None;
    // One thread: to wake another one for each cell would cost more than the cells do.
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
/// When it does not come up; [`Stopped`] if a signal comes before.
pub(super) async fn started(
    network: &CircuitNetwork,
    state: &Path,
    signals: &mut Signals,
) -> Result<Arc<TorClient<PreferredRuntime>>> {
    tokio::select! {
        started = arti::start(network, state) => {
            started.map_err(anyhow::Error::msg).context("Failed to start Arti")
        }
        () = signals.recv() => Err(Stopped.into()),
    }
}

/// A signal came before there was a client.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal before Arti was ready")]
pub(super) struct Stopped;

/// Where Arti keeps guards, documents and keys.
pub(super) enum State {
    /// In this folder.
    Kept(PathBuf),
    /// In a temporary folder, removed when this is dropped.
    Forgotten(TempDir),
}

impl State {
    /// In this folder, which is created if missing, or in a temporary one.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self> {
        let Some(dir) = dir else {
            let dir = tempfile::tempdir().context("Failed to create a folder for Arti")?;
            return Ok(Self::Forgotten(dir));
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| format!("Failed to create {}", dir.display()))?;
        // Arti resolves relative names by other rules.
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        Ok(Self::Kept(dir))
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Kept(dir) => dir,
            Self::Forgotten(dir) => dir.path(),
        }
    }
}

/// Refuses the Internet's relays to those who have not asked for them; whether it is the Internet.
pub(super) fn check_internet(dir: &Path, network: &CircuitNetwork, is_meant: bool) -> Result<bool> {
    if network.is_public() && !is_meant {
        bail!(
            "{}: this network has relays on the Internet; read ETHICS.md, then allow it with --public",
            dir.display()
        );
    }
    Ok(network.is_public())
}

/// Tells the operator something; it may stay unread.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "ff-perf: {text}");
}
