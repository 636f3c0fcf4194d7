//! Reads documents of the network that commands get as files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ff_base::identity::Fingerprint;
use ff_base::text::read_bytes;
use ff_dir::DocumentError;
use ff_dir::consensus::Consensus;
use ff_dir::descriptors::{Descriptor, Descriptors};

/// The largest document that is read, in bytes: a consensus has about 3 MB, a month of descriptors
/// about 100 MB.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a consensus.
///
/// # Errors
/// When the file cannot be read, or is not a consensus.
pub(super) fn consensus(path: &Path) -> Result<Consensus> {
    Consensus::parse(&text(path)?).with_context(|| format!("Failed to read {}", path.display()))
}

/// Reads descriptors. If a relay has several, the one named by the consensus is used, or else the
/// newest. Reports each descriptor that cannot be parsed.
///
/// # Errors
/// When a file cannot be read, or contains no descriptor.
pub(super) fn descriptors(
    paths: &[PathBuf],
    consensus: &Consensus,
) -> Result<HashMap<Fingerprint, Descriptor>> {
    let mut all = Descriptors::default();
    for path in paths {
        let read = Descriptors::parse(bytes(path)?);
        tell_skipped(path, &read.skipped);
        if read.relays.is_empty() {
            bail!(
                "{} has no server descriptor in it: give files such as cached-descriptors of a tor",
                path.display()
            );
        }
        all.extend(read);
    }
    Ok(all.named_by(consensus))
}

/// Reports the parts of a file that could not be read.
pub(super) fn tell_skipped(path: &Path, skipped: &[DocumentError]) {
    for error in skipped {
        ff_measurer::console::note(&format!("{} is skipped from {error}", path.display()));
    }
}

/// The text of a file; invalid UTF-8 is replaced.
///
/// # Errors
/// When it cannot be read, or is compressed.
pub(super) fn text(path: &Path) -> Result<String> {
    // Contact lines may be of any encoding.
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

/// The bytes of a file.
///
/// # Errors
/// Those of [`text`].
fn bytes(path: &Path) -> Result<Vec<u8>> {
    read_bytes(path, MAX_BYTES).with_context(|| format!("Failed to read {}", path.display()))
}
