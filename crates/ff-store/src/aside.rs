//! Renames damaged stores.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ff_base::utc::Utc;

use super::error::{self, StoreError};
use super::lock::{Lock, with_suffix};

/// The files of a store: the suffixes after its name.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];
/// The largest number of names that are tried: stores renamed in the same second.
const MAX_SAME_SECOND: u32 = 1000;

/// Renames the store at `path` and its other files to `….corrupt-2026-11-20-09-30-00`, and returns
/// the new name. Nothing is overwritten, and nothing is lost if it is interrupted: each file has
/// both names for a moment.
pub(super) fn move_aside(path: &Path, now_unix_secs: u64) -> Result<PathBuf, StoreError> {
    let _lock = Lock::take(path)?;
    let stamp = Utc::from_unix_secs(now_unix_secs)
        .map_or_else(|_| now_unix_secs.to_string(), Utc::file_stamp);
    let names = (1..=MAX_SAME_SECOND).map(|number| match number {
        1 => with_suffix(path, &format!(".corrupt-{stamp}")),
        _ => with_suffix(path, &format!(".corrupt-{stamp}-{number}")),
    });
    let is_free = |name: &PathBuf| PARTS.iter().all(|part| !is_there(&with_suffix(name, part)));
    let aside = names.into_iter().find(is_free).ok_or_else(|| {
        error::io("be moved aside: there is no free name", path)(
            io::ErrorKind::AlreadyExists.into(),
        )
    })?;
    let parts = PARTS.map(|part| (with_suffix(path, part), with_suffix(&aside, part)));
    let parts: Vec<_> = parts.into_iter().filter(|(from, _)| is_there(from)).collect();
    if parts.is_empty() {
        return Err(StoreError::Missing(path.to_owned()));
    }
    for (from, to) in &parts {
        fs::hard_link(from, to).map_err(error::io("be moved aside", from))?;
    }
    for (from, _) in &parts {
        fs::remove_file(from).map_err(error::io("be moved aside", from))?;
    }
    Ok(aside)
}

/// Whether a name exists, even as a broken link.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
