//! The data that all pages share.

use std::path::PathBuf;
use std::sync::Arc;

use ff_plan::publish::PublishRules;
use ff_plan::publish::v3bw::Publication;
use tokio::sync::{Semaphore, watch};

use super::pool::Pool;
use crate::watch::status::Status;

/// The current status, renewed every second.
pub type Live = watch::Receiver<Option<Arc<Status>>>;

/// The largest number of event streams; each open page has one, and a connection for it.
pub(super) const MAX_STREAMS: usize = 16;

/// Options of the page.
#[derive(Clone, Debug, Default)]
pub struct PageOptions {
    /// Host names for which it answers, in addition to those of loopback.
    pub hosts: Vec<String>,
    /// Whether metrics name relays.
    pub figures_per_relay: bool,
    /// The directory of the bandwidth files.
    pub publish_dir: Option<PathBuf>,
    /// The rules of the bandwidth files.
    pub rules: PublishRules,
    /// The documents' data about relays; without them no relay's number is explained.
    pub network: Option<watch::Receiver<Option<Arc<Publication>>>>,
}

/// The data that all pages share.
pub(super) struct Site {
    /// The coordinator's status.
    pub(super) live: Live,
    pub(super) pool: Arc<Pool>,
    pub(super) options: PageOptions,
    /// Permits for event streams.
    pub(super) streams: Arc<Semaphore>,
}

impl Site {
    /// The data for a page of this status and this store.
    pub(super) fn new(live: Live, store: PathBuf, options: PageOptions) -> Self {
        let (pool, streams) = (Arc::new(Pool::new(store)), Arc::new(Semaphore::new(MAX_STREAMS)));
        Self { live, pool, options, streams }
    }
}
