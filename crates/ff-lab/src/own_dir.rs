//! A network's directory, which is removed with the network, or at the start of the next one if the
//! owner was killed.
//!
//! The owner holds a lock on a file in the directory for its whole life. A directory with that file
//! but without a lock has no owner. The file gets its name once it is locked, so a directory that
//! is being created is not mistaken for an abandoned one.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::error::{Error, Result};

/// Prefix of directory names.
const PREFIX: &str = "ff-lab-";
/// Name of the locked file.
const LOCK: &str = "owned";

/// A directory that this process owns.
#[derive(Debug)]
pub(crate) struct OwnDir {
    dir: TempDir,
    _lock: File,
}

impl OwnDir {
    /// Creates a directory below `parent`, after removing abandoned ones there.
    ///
    /// # Errors
    /// If it cannot be created or locked.
    pub(crate) fn new_in(parent: &Path) -> Result<Self> {
        remove_left(parent);
        let failed = || Error::io(format!("make a directory in {}", parent.display()));
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed())?;
        let unnamed = dir.path().join("new");
        let lock = File::create(&unnamed).map_err(failed())?;
        lock.lock().map_err(failed())?;
        fs::rename(&unnamed, dir.path().join(LOCK)).map_err(failed())?;
        Ok(Self { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Keeps the directory for inspection; later networks do not remove it either.
    pub(crate) fn keep(&mut self) {
        self.dir.disable_cleanup(true);
        // If the file remains, the next network removes the directory.
        let _ = fs::remove_file(self.path().join(LOCK));
    }
}

/// Removes directories whose owners have ended.
fn remove_left(parent: &Path) {
    // Unreadable or unremovable ones belong to other users or are gone.
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_one && is_left(&entry.path()) && remove(&entry.path()) {
            tracing::info!("removed {}, left over from a killed network", entry.path().display());
        }
    }
}

/// Tries to remove a directory. Processes that are about to end may still write their state, so
/// that it is not empty yet.
fn remove(dir: &Path) -> bool {
    const TRIES: u32 = 100;
    (0..TRIES).any(|_| match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
        _ => true,
    }) && !dir.exists()
}

/// Whether this is a directory of this user, made here, whose owner has ended.
fn is_left(dir: &Path) -> bool {
    let is_ours =
        |at: &Path| fs::symlink_metadata(at).is_ok_and(|found| found.uid() == geteuid().as_raw());
    let is_dir = fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir());
    let lock = dir.join(LOCK);
    if !is_dir || !is_ours(dir) || !is_ours(&lock) {
        return false;
    }
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().write(true).custom_flags(flags).open(lock);
    file.is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_written_to_a_little_longer_goes_all_the_same() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("ff-lab-left");
        fs::create_dir_all(left.join("relay")).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Write the first file in any case: the remover waits for it.
                let (begin, mut files) = (Instant::now(), 0);
                while fs::write(left.join(format!("relay/{files}")), "").is_ok()
                    && begin.elapsed() < Duration::from_millis(200)
                {
                    files += 1;
                }
            });
            while fs::read_dir(left.join("relay")).unwrap().next().is_none() {}
            drop(OwnDir::new_in(parent.path()).unwrap());
            writer.join().unwrap();
        });
        assert!(!left.exists());
    }

    #[test]
    fn what_nobody_owns_goes_and_everything_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let owned = OwnDir::new_in(parent.path()).unwrap();
        let mut kept = OwnDir::new_in(parent.path()).unwrap();
        kept.keep();
        let kept_at = kept.path().to_owned();
        drop(kept);
        // A directory of another program, one that is being created, and a link to elsewhere.
        for name in ["other", "ff-lab-young", "elsewhere"] {
            fs::create_dir(at(name)).unwrap();
        }
        for name in ["other", "elsewhere"] {
            fs::write(at(name).join(LOCK), "").unwrap();
        }
        symlink(at("elsewhere"), at("ff-lab-link")).unwrap();
        fs::create_dir(at("ff-lab-left")).unwrap();
        fs::write(at("ff-lab-left").join(LOCK), "").unwrap();

        let next = OwnDir::new_in(parent.path()).unwrap();
        assert!(!at("ff-lab-left").exists());
        for path in [owned.path(), &kept_at, &at("other"), &at("ff-lab-young"), &at("elsewhere")] {
            assert!(path.exists(), "{}", path.display());
        }
        let gone = next.path().to_owned();
        drop(next);
        assert!(!gone.exists() && owned.path().exists());
    }
}
