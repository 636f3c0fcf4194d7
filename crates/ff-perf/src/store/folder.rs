//! A folder of lines: its lock, and the files that are in it.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use super::error::{StoreError, io_error};
use super::rotation::Name;

/// Locks a folder until the returned file is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let folder = File::open(dir).map_err(io_error(dir))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error(dir)(error)),
    }
}

/// Files of lines in a folder, oldest first.
pub(super) fn files(dir: &Path) -> Result<Vec<Name>, StoreError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error(dir))? {
        let name = entry.map_err(io_error(dir))?.file_name();
        all.extend(name.to_str().and_then(Name::parse));
    }
    all.sort_unstable();
    Ok(all)
}

/// Whether a folder is a shelf: it has such files.
pub(crate) fn is_shelf(dir: &Path) -> bool {
    files(dir).is_ok_and(|files| !files.is_empty())
}
