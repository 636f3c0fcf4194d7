#![doc = include_str!("../README.md")]

mod arti;
mod ask;
mod cache;
mod circuit;
mod collect;
mod config;
mod documents;
mod error;
#[cfg(test)]
mod fake;
mod head;
mod parts;
mod private;
mod relay;
mod server;
mod shelf;
mod signed;
mod view;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ff_base::files::FileError;
use fs_mistrust::Mistrust;
use tokio::time::Instant;
use tor_rtcompat::PreferredRuntime;

use self::arti::Arti;
use self::cache::Cache;
use self::head::secs;
use self::server::{Channels, servers};
use self::view::View;

pub use self::cache::{descriptors, newest_consensus};
pub use self::config::{DocumentLimits, LiveConfig};
pub use self::documents::Documents;
pub use self::error::DirectoryError;
pub use self::relay::{Authority, Fallback};

/// Fetches the network's documents and keeps them.
pub struct DirectoryClient {
    /// Runs background tasks.
    runtime: PreferredRuntime,
    /// Arti's client.
    arti: Arti,
    /// The documents.
    view: Arc<View>,
    /// Whether to ask servers at private addresses.
    allow_private_addresses: bool,
    /// The last documents, if they could not be kept.
    unkept: Option<Documents>,
    /// Why the last refresh failed, if it did.
    last_error: Option<String>,
}

impl core::fmt::Debug for DirectoryClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { view, last_error, .. } = self;
        f.debug_struct("DirectoryClient")
            .field("view", view)
            .field("last_error", last_error)
            .finish_non_exhaustive()
    }
}

impl DirectoryClient {
    /// Prepares everything; nobody is asked yet. [`runtime`] makes a runtime for it.
    ///
    /// # Errors
    /// For a configuration that cannot be meant, and directories that cannot be used.
    pub fn new(runtime: PreferredRuntime, config: &LiveConfig) -> Result<Self, DirectoryError> {
        let resolved = config.resolve()?;
        let view_dir = cache::dir(&config.cache_dir);
        let arti_dir = config.cache_dir.join("arti");
        let state_dir = config.state_dir.clone().unwrap_or_else(|| config.cache_dir.join("state"));
        for dir in [&view_dir, &arti_dir, &state_dir] {
            make_dir(dir)?;
        }
        let cache = Cache::open(view_dir, config.limits)?;
        let arti = Arti::start(&runtime, &resolved.network, &arti_dir, &state_dir)?;
        let view = View::new(cache, resolved.authorities().to_vec(), config.limits);
        Ok(Self {
            runtime,
            arti,
            view: Arc::new(view),
            allow_private_addresses: resolved.allow_private_addresses,
            unkept: None,
            last_error: None,
        })
    }

    /// Brings the documents up to date before the deadline. What comes may lack descriptors, and
    /// the next refresh goes on there; it may be cancelled at any moment.
    ///
    /// # Errors
    /// When there is no valid consensus to be had. [`Self::last`] has what there was then.
    pub async fn refresh(&mut self, deadline: Instant) -> Result<Documents, DirectoryError> {
        let result = self.try_refresh(deadline).await;
        self.last_error = result.as_ref().err().map(ToString::to_string);
        result
    }

    /// As [`Self::refresh`].
    async fn try_refresh(&mut self, deadline: Instant) -> Result<Documents, DirectoryError> {
        let directory = self.arti.directory(deadline).await?;
        let servers = servers(&directory, self.allow_private_addresses);
        let channels = Channels::new(&self.runtime, &self.arti, directory);
        let now_secs = secs(SystemTime::now());
        let refreshed = self.view.refresh(&channels, &servers, deadline, now_secs).await?;
        self.unkept = (!refreshed.is_kept).then(|| refreshed.documents.clone());
        Ok(refreshed.documents)
    }

    /// The last documents, however old, without asking anybody; `None` if there are none.
    ///
    /// # Errors
    /// When what is kept cannot be read.
    pub async fn last(&self) -> Result<Option<Documents>, FileError> {
        match &self.unkept {
            Some(documents) => Ok(Some(documents.clone())),
            None => self.view.stored(secs(SystemTime::now())).await,
        }
    }

    /// Why the last refresh failed, if it did.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

/// The runtime that Arti's crates want, around the one that this is called in.
///
/// # Errors
/// When it is called in none.
pub fn runtime() -> io::Result<PreferredRuntime> {
    // An error only says that the program has chosen its cryptography already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    PreferredRuntime::current()
}

/// Makes a directory that only its owner can enter, as Arti wants it.
fn make_dir(path: &Path) -> Result<(), DirectoryError> {
    checked_dir(path, Mistrust::new().verifier().make_directory(path))
}

/// Fails if [`make_dir`] would refuse a directory because other users could change a directory
/// above it.
fn check_dir(path: &Path) -> Result<(), DirectoryError> {
    let existing = path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    checked_dir(path, Mistrust::new().verifier().permit_readable().check(existing))
}

/// Adds the directory to an error.
fn checked_dir(path: &Path, looked: fs_mistrust::Result<()>) -> Result<(), DirectoryError> {
    looked
        .map_err(|error| DirectoryError::Arti { path: path.to_owned(), reason: error.to_string() })
}
