//! FlashFlow in this relay: where its runtime, its circuits and its configuration meet
//! `ff_relay_ext::arti::embedding`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use ff_relay_ext::arti::embedding::{Embedding, Provider};
use ff_relay_ext::arti::section::Section;
use futures::StreamExt as _;
use futures::channel::oneshot;
use tor_chanmgr::ChanMgr;
use tor_dircommon::dir_plugin_backend::{DirBackendPlugin, http::Request};
use tor_dirmgr::DirPlugin;
use tor_error::warn_report;
use tor_memquota::MemoryQuotaTracker;
use tor_netdir::{DirEvent, NetDirProvider};
use tor_rtcompat::{Runtime, SpawnExt as _};
use tracing::warn;

/// Where the mirror has the last consensus: dir-spec's name, and the only one that tor-dirmgr 0.47 answers.
const CONSENSUS: [&str; 2] =
    ["/tor/status-vote/current/consensus-microdesc", "/tor/status-vote/current/consensus-md"];

/// FlashFlow in this process' relay, once it is configured.
static EMBEDDING: OnceLock<Embedding> = OnceLock::new();
/// What the relay's circuits get their links from. The relay itself has a weak handle only.
static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// FlashFlow by this section, in a relay that keeps its state in this folder.
pub(crate) fn embed(section: &Section, state: &Path) -> &'static Embedding {
    EMBEDDING.get_or_init(|| Embedding::new(section, state))
}

/// What circuits get their links from: the relay's own channels, and measurements' next hop.
pub(crate) fn provide<R: Runtime>(
    channels: Arc<ChanMgr<R>>,
    runtime: &R,
    memory: &Arc<MemoryQuotaTracker>,
) -> Provider {
    let own: Provider = channels;
    let Some(embedding) = EMBEDDING.get() else { return own };
    match embedding.provide(Arc::clone(&own), runtime.clone(), Arc::clone(memory)) {
        Ok(provider) => Arc::clone(PROVIDER.get_or_init(|| provider)),
        Err(error) => {
            warn_report!(error, "FlashFlow: this relay will not be measured");
            own
        }
    }
}

/// Passes on each consensus until the relay ends.
pub(crate) fn follow<R: Runtime>(runtime: &R, netdir: Arc<dyn NetDirProvider>, mirror: DirPlugin) {
    let Some(embedding) = EMBEDDING.get().filter(|embedding| embedding.extension().is_some()) else {
        return;
    };
    let mut events = netdir.events();
    let threads = runtime.clone();
    let following = async move {
        let mut event = Some(DirEvent::NewConsensus);
        while let Some(happened) = event {
            // tor-dirmgr holds the lock of its store, which the mirror waits for, until the consensus can be read.
            if happened == DirEvent::NewConsensus
                && let Some(consensus) = consensus(&mirror)
            {
                // Clients' cells do not wait for thousands of relays to be read.
                let (done, is_done) = oneshot::channel();
                drop(threads.spawn_blocking(move || {
                    embedding.set_consensus(&consensus);
                    let _ = done.send(());
                }));
                // An error is a panic in there, which has been printed.
                let _ = is_done.await;
            }
            event = events.next().await;
        }
    };
    if let Err(error) = runtime.spawn(following) {
        warn!("FlashFlow: the consensus is not followed: {error}");
    }
}

/// The last consensus; `None` while there is none.
fn consensus(mirror: &DirPlugin) -> Option<String> {
    CONSENSUS.iter().find_map(|path| {
        let request = Request::get(*path).body(()).ok()?;
        let answer = mirror.get(&request).ok().filter(|answer| answer.status().is_success())?;
        Some(String::from_utf8_lossy(&answer.into_body()).into_owned())
    })
}
