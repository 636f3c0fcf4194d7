//! The source of the network's documents: the directory authorities, or files.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ff_base::text::read_bytes;
use ff_live::{DirectoryClient, Documents};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tor_rtcompat::PreferredRuntime;

use super::view::View;
use crate::config::{Files, NetworkConfig};

/// The time limit of a refresh.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(300);
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The source of the network's documents.
#[derive(Clone)]
pub(super) enum Source {
    /// Files that other software keeps up to date.
    Files(Files),
    /// The network itself.
    Live(Arc<Mutex<DirectoryClient>>),
}

impl Source {
    /// The source that the config names; must be called inside the runtime.
    ///
    /// # Errors
    /// When the directory client cannot be set up.
    pub(super) fn new(network: &NetworkConfig) -> Result<Self> {
        match network {
            NetworkConfig::Files(files) => Ok(Self::Files(files.clone())),
            NetworkConfig::Live(live) => {
                let runtime = PreferredRuntime::current()?;
                let client = DirectoryClient::new(runtime, live)?;
                Ok(Self::Live(Arc::new(Mutex::new(client))))
            }
        }
    }

    /// Fetches the newest documents.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(super) async fn refresh(&self) -> Result<View, String> {
        match self {
            Self::Files(files) => {
                let files = files.clone();
                let read = tokio::task::spawn_blocking(move || read(&files)).await;
                read.map_err(|error| error.to_string())?
            }
            Self::Live(client) => {
                let deadline = Instant::now() + REFRESH_TIMEOUT;
                let documents = client.lock().await.refresh(deadline).await;
                let documents = documents.map_err(|error| error.to_string())?;
                let parsing = tokio::task::spawn_blocking(move || view(&documents)).await;
                parsing.map_err(|error| error.to_string())?
            }
        }
    }
}

/// The network in these documents.
fn view(documents: &Documents) -> Result<View, String> {
    let descriptors: Vec<&str> = documents.descriptors.iter().map(AsRef::as_ref).collect();
    View::parse(&documents.consensus, &descriptors)
}

/// Reads the files.
fn read(files: &Files) -> Result<View, String> {
    let bytes = |path: &std::path::PathBuf| {
        read_bytes(path, MAX_FILE_BYTES).map_err(|error| format!("{}: {error}", path.display()))
    };
    let consensus = bytes(&files.consensus)?;
    let descriptors = files.descriptors.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    View::parse(&String::from_utf8_lossy(&consensus), &descriptors)
}
