//! Writes the bandwidth file of what the store has.

use std::path::PathBuf;

use super::config::Config;
use super::core::Written;
use crate::publish::v3bw::Publication;
use crate::publish::{PublishRules, publish};
use crate::store::Store;

/// What writes bandwidth files.
#[derive(Clone)]
pub(super) struct Publisher {
    /// The store's file, which is only read.
    pub(super) store: PathBuf,
    /// Where the files go.
    pub(super) dir: PathBuf,
    /// By which rules.
    pub(super) rules: PublishRules,
    /// The nickname of the authority that votes with them.
    pub(super) dirauth_nickname: Option<String>,
}

impl Publisher {
    /// What the config says.
    #[must_use]
    pub(super) fn new(config: &Config) -> Self {
        Self {
            store: config.store(),
            dir: config.publish_dir.clone(),
            rules: config.publish.rules(),
            dirauth_nickname: config.publish.dirauth_nickname.clone(),
        }
    }

    /// Writes a file of what has been measured, with what is known of the network.
    ///
    /// # Errors
    /// A sentence that says why there is none; the file before stays.
    pub(super) fn publish(&self, mut network: Publication) -> Result<Written, String> {
        let now = network.now_unix_secs;
        network.max_age_secs = self.rules.max_age_secs;
        let reader = Store::open_read_only(&self.store).map_err(|error| error.to_string())?;
        let since = now.saturating_sub(self.rules.max_age_secs);
        let outcomes = reader.outcomes(since..now.saturating_add(1));
        let outcomes = outcomes.map_err(|error| error.to_string())?;
        reader.complete(&mut network).map_err(|error| error.to_string())?;
        network.dirauth_nickname.clone_from(&self.dirauth_nickname);
        std::fs::create_dir_all(&self.dir)
            .map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let published = publish(&self.dir, &self.rules, &outcomes, network);
        let published = published.map_err(|error| error.to_string())?;
        Ok(Written {
            path: published.path.display().to_string(),
            relays: published.prepared.file.relays().len() as u64,
            unix_secs: now,
        })
    }
}
