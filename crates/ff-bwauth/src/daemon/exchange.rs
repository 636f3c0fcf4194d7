//! How the team is measured, and how an operator asks a running coordinator for it: by a file in its state
//! directory, where only those write who may tell it what to do.

use std::path::{Path, PathBuf};

use ff_proto::ids::Ed25519Id;

use crate::files::{FileError, Readers, write_atomically};
use crate::team::exchange::{Found, Partner, exchange};
use crate::team::{RemoteMeasurer, TeamMeasurer};

use super::config::Config;

/// The file's name.
const REQUEST: &str = "exchange.request";

/// Asks the coordinator with this state directory to measure its measurers.
///
/// # Errors
/// When the file cannot be written.
pub fn request(state_dir: &Path) -> Result<(), FileError> {
    write_atomically(&state_dir.join(REQUEST), b"", Readers::Owner)
}

/// The team with which, and the file by which, exchanges are asked for.
pub(super) struct Exchanger {
    /// The team.
    partners: Vec<Partner>,
    /// The file.
    request: PathBuf,
}

impl Exchanger {
    /// For this team, which is that of the config.
    pub(super) fn new(config: &Config, remotes: &[RemoteMeasurer]) -> Self {
        let partner = |(remote, table): (&RemoteMeasurer, &super::config::MeasurerTable)| Partner {
            remote: remote.clone(),
            stated: table.capacity,
        };
        let partners = remotes.iter().zip(&config.measurers).map(partner).collect();
        Self { partners, request: config.state_dir.join(REQUEST) }
    }

    /// Whether somebody has asked for an exchange since the last time.
    pub(super) fn is_asked(&self) -> bool {
        std::fs::remove_file(&self.request).is_ok()
    }

    /// Carries one out.
    pub(super) fn exchange(
        &self,
        secs: u16,
    ) -> impl Future<Output = Vec<(Ed25519Id, Found)>> + use<> {
        let partners = self.partners.clone();
        async move {
            let found = exchange(&partners, secs).await;
            partners.iter().map(|partner| partner.remote.id()).zip(found).collect()
        }
    }
}
