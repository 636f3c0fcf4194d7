//! The coordinators' common secret, from which the seed of each period's schedule follows.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ff_measurer::owner;
use zeroize::Zeroizing;

/// Bytes of a secret at least.
const MIN_LEN: usize = 32;
/// And at most: what is longer is another file.
const MAX_LEN: u64 = 4096;

/// Reads a secret.
///
/// # Errors
/// Naming the file: when it cannot be read, when others may read it, or when it is too short or too long.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let failed = || format!("Failed to read {}", path.display());
    let data = fs::metadata(path).with_context(failed)?;
    if data.permissions().mode() & 0o077 != 0 {
        bail!("{} can be read by others: chmod 600 it", path.display());
    }
    if data.len() > MAX_LEN {
        bail!("{} has more than {MAX_LEN} bytes: is it a secret?", path.display());
    }
    let read = fs::read(path).map_err(|error| match owner::advice(path) {
        Some(advice) if error.kind() == ErrorKind::PermissionDenied => anyhow!(advice),
        _ => anyhow::Error::new(error).context(failed()),
    });
    let secret = Zeroizing::new(read?);
    if secret.len() < MIN_LEN {
        bail!(
            "{} has fewer than {MIN_LEN} bytes: head -c 32 /dev/urandom makes a secret",
            path.display()
        );
    }
    Ok(secret)
}
