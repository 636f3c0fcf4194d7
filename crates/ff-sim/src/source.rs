//! Networks, from whatever a file holds.

use std::path::Path;

use ff_bwauth::network::consensus::Consensus;

use crate::input::{InputError, Inputs};
use crate::network::Network;
use crate::read::relayinfo;
use crate::skipped::Skips;

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
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        let (network, skips) = relayinfo::parse(&name, &*bytes);
        if network.relays.is_empty() {
            let first = skips.all.first().map(|one| one.reason.clone());
            return Err(bad(first.unwrap_or_else(|| "it has no relays".to_owned())));
        }
        return Ok((network, skips));
    }
    let text =
        std::str::from_utf8(&bytes).map_err(|_| bad("it is neither text nor .xz".to_owned()))?;
    let consensus = Consensus::parse(text).map_err(|error| bad(error.to_string()))?;
    let read = consensus.relays.len() as u64;
    Ok((Network::from(&consensus), Skips { read, ..Skips::default() }))
}
