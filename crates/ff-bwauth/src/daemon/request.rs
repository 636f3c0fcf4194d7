//! An operator's requests to a running coordinator: files in its state directory, which only
//! authorised users can write.

use std::fs;
use std::path::{Path, PathBuf};

use ff_base::files::{FileError, Readers, write_atomically};
use ff_proto::ids::Ed25519Id;

use super::core::Action;

/// Requests an exchange of the measurers.
const EXCHANGE: &str = "exchange.request";
/// Requests trust in a measurer again; the name ends with its identity in hexadecimal.
const TRUST: &str = "trust.request-";

/// Asks the coordinator with this state directory to measure its measurers.
///
/// # Errors
/// When the file cannot be written.
pub fn exchange(state_dir: &Path) -> Result<(), FileError> {
    write_atomically(&state_dir.join(EXCHANGE), b"", Readers::Owner)
}

/// Asks it to trust a measurer again.
///
/// # Errors
/// When the file cannot be written.
pub fn trust(state_dir: &Path, measurer: &Ed25519Id) -> Result<(), FileError> {
    let name = format!("{TRUST}{}", hex::encode(measurer.0));
    write_atomically(&state_dir.join(name), b"", Readers::Owner)
}

/// The directory where requests arrive.
pub(super) struct Requests {
    state_dir: PathBuf,
}

impl Requests {
    /// Requests in this state directory.
    pub(super) fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned() }
    }

    /// Takes the requests since the last call.
    pub(super) fn take(&self, team: &[Ed25519Id]) -> Vec<Action> {
        let is_there = |name: &str| fs::remove_file(self.state_dir.join(name)).is_ok();
        let trusted = team.iter().filter(|id| is_there(&format!("{TRUST}{}", hex::encode(id.0))));
        let mut asked: Vec<_> = trusted.map(|&id| Action::Trust(id)).collect();
        if is_there(EXCHANGE) {
            asked.push(Action::ExchangeNow);
        }
        asked
    }
}
