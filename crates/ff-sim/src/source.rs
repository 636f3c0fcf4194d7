//! Networks, from whatever a file holds.

use std::path::Path;

use crate::input::{InputError, Inputs};
use crate::network::Network;
use crate::read::consensus::Consensus;
use crate::read::{january, relayinfo, shadow};
use crate::skipped::Skips;

/// How a table of an experiment's relays begins.
const TABLE: &[u8] = b"name,position,";

/// How the table of January 2019 begins.
const JANUARY: &[u8] = b"position,address,";

/// A file that is no network.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It is something else, or broken.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: String,
        /// What is wrong, with its line.
        reason: String,
    },
}

/// Reads the network of a file, and what of it had to be left out.
///
/// # Errors
/// [`SourceError`] names the file.
pub fn network(path: &Path, inputs: &mut Inputs) -> Result<(Network, Skips), SourceError> {
    let bytes = inputs.read(path)?;
    let name = path.display().to_string();
    let bad = |reason: String| SourceError::Content { path: name.clone(), reason };
    let (network, skips) = if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        relayinfo::parse(&name, &*bytes)
    } else if bytes.starts_with(TABLE) {
        let mut skips = Skips::default();
        let network = shadow::parse_network(&name, &bytes, &mut skips);
        (network.map_err(|error| bad(format!("{error:#}")))?, skips)
    } else if bytes.starts_with(JANUARY) {
        let mut skips = Skips::default();
        (january::relays(&name, &bytes, &mut skips), skips)
    } else {
        let consensus = Consensus::parse(&bytes).map_err(|error| bad(error.to_string()))?;
        let read = consensus.relays.len() as u64;
        (consensus.to_network(), Skips { read, ..Skips::default() })
    };
    if network.relays.is_empty() {
        let first = skips.all.first().map(|one| one.reason.clone());
        return Err(bad(first.unwrap_or_else(|| "it has no relays".to_owned())));
    }
    Ok((network, skips))
}
