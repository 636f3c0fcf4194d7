//! The coordinators' common secret, from which the seed of each period's schedule follows.

use std::path::Path;

use anyhow::{Result, bail};
use ff_measurer::secret_file;
use zeroize::Zeroizing;

/// The least number of bytes of a secret.
const MIN_BYTES: usize = 32;
/// The largest number of bytes: a longer file is not a secret.
const MAX_BYTES: u64 = 4096;

/// Reads a secret.
///
/// # Errors
/// Naming the file: when it cannot be read, when others can read or replace it, or when it is too
/// short or too long.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let secret = secret_file::read(path, MAX_BYTES)?;
    if secret.len() < MIN_BYTES {
        bail!(
            "{} has fewer than {MIN_BYTES} bytes: head -c 32 /dev/urandom makes a secret",
            path.display()
        );
    }
    Ok(secret)
}
