//! The directory of a network: it goes with the network, and with the next one's start if its owner
//! was killed.
//!
//! Its owner holds a lock on a file in it as long as it lives. What has that file, and no lock on
//! it, nobody owns. The file gets its name when it is locked already, so a directory that is just
//! being made is none of these.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::error::{Error, Result};

/// What the names of directories begin with.
const PREFIX: &str = "ff-lab-";
/// The file that is locked.
const LOCK: &str = "owned";

/// A directory of this process.
#[derive(Debug)]
pub(crate) struct OwnDir {
    /// The directory.
    dir: TempDir,
    _lock: File,
}

impl OwnDir {
    /// Makes one below a directory, after it has removed those there that nobody owns.
    ///
    /// # Errors
    /// When it cannot be made or locked.
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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Keeps the directory to be looked at: the next network does not remove it either.
    pub(crate) fn keep(&mut self) {
        self.dir.disable_cleanup(true);
        // If it stays, the next network removes the directory.
        let _ = fs::remove_file(self.path().join(LOCK));
    }
}

/// Removes directories that their owners have left.
fn remove_left(parent: &Path) {
    // What cannot be read or removed belongs to somebody else, or has gone.
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_one && is_left(&entry.path()) && remove(&entry.path()) {
            tracing::info!("removed {}, left over from a killed network", entry.path().display());
        }
    }
}

/// Removes a directory, if that can be. Its processes may be about to end, and write their state
/// meanwhile: then it is not empty when it should be.
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

/// Whether this is a directory of this user's, made here, whose owner has ended.
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
                // The first one in any case: what removes the directory waits for that.
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
        // Somebody's own, one that is being made, and a link to what is elsewhere.
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
