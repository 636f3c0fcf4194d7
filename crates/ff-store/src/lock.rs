//! The lock that keeps a second coordinator away from a store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{self, StoreError};

/// The longest process id that is read from a lock file, in bytes.
const MAX_PID_LEN: u64 = 20;

/// A lock that is held until it is dropped or its process ends.
///
/// The file stays afterwards: removing it could remove the next process's lock.
#[derive(Debug)]
pub(super) struct Lock {
    /// The locked file.
    file: File,
}

impl Drop for Lock {
    /// Closing the file would not be enough while a program that was just started still has a copy
    /// of the descriptor.
    fn drop(&mut self) {
        // If it fails, the lock ends when the file is closed.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Locks the store at `path`.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process holds it.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let beside = lock_path(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&beside).map_err(error::io("be opened", &beside))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: path.to_owned(), pid: pid_in(&file) });
            }
            Err(TryLockError::Error(source)) => {
                return Err(error::io("be locked", &beside)(source));
            }
        }
        let write = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        write.map_err(error::io("be written", &beside))?;
        Ok(Self { file })
    }
}

/// The lock file of the store at `path`.
fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

/// A path with a suffix appended to its name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The process id in a lock file.
fn pid_in(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_PID_LEN).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
