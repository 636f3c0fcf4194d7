//! What commands that build circuits share: whose network it may be, and who builds.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ff_circuits::network::Network;

use crate::cli::measure::ClientKind;
use crate::client::Client;
use crate::client::arti::Arti;
use crate::client::tor::{Ending, Takeover, Tor};
use crate::signals::Signals;

/// What is done with a client, whichever it is.
pub(super) trait Job {
    /// What comes of it.
    type Done;

    /// Does it, until its end or a signal. These are heard before a client is there, so that none finds a tor taken over
    /// and nobody to give it back.
    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Self::Done>;
}

/// Starts a client for the network in a directory, and has it do something.
pub(super) fn with_client<J: Job>(
    kind: ClientKind,
    dir: &Path,
    network: &Network,
    job: J,
) -> Result<J::Done> {
    with_client_of(kind, dir, network, &[], job)
}

/// The same with these further options of a tor, by name and value.
pub(super) fn with_client_of<J: Job>(
    kind: ClientKind,
    dir: &Path,
    network: &Network,
    torrc: &[(String, String)],
    job: J,
) -> Result<J::Done> {
    // Dropped after the runtime and all that uses the tor in it, also in a panic.
    let mut ending = None;
    // One thread: to wake another one for each cell would cost more than the cells do.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start the runtime")?;
    let done = runtime.block_on(async {
        let signals = Signals::listen().context("Failed to listen for signals")?;
        match kind {
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
    // What is left of tasks has nothing to say any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(Err(reason)) = ending.map(Ending::wait) {
        say(&reason);
    }
    done
}

/// Refuses the Internet's relays to those who have not asked for them; whether it is the Internet.
pub(super) fn check_internet(dir: &Path, network: &Network, is_meant: bool) -> Result<bool> {
    if network.is_public() && !is_meant {
        bail!(
            "{}: this network has relays on the Internet; read ETHICS.md, then allow it with --public",
            dir.display()
        );
    }
    Ok(network.is_public())
}

/// Says something to whoever looks after it; nobody need listen.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "ff-perf: {text}");
}
