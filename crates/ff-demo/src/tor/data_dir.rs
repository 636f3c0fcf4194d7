//! The data directory of the demo's tor: a fresh one each time.
//!
//! Only what is recognisably an earlier demo's is removed: a directory, not a link to one, whose
//! torrc begins with our mark, and in which no tor runs.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::torrc::MARK;

/// The configuration's name in it.
pub(super) const TORRC: &str = "torrc";

/// Its name in the directory of the demo's files.
const NAME: &str = "tor";

/// Makes an empty one in `parent` and gives its absolute path.
pub(super) fn make_fresh(parent: &Path) -> Result<PathBuf> {
    // Tor warns about relative paths, because it may change its current directory.
    let parent = fs::canonicalize(parent)
        .with_context(|| format!("Failed to find the directory {}", parent.display()))?;
    let dir = parent.join(NAME);
    clear(&dir)?;
    // Tor wants it to be its user's alone: its keys lie there.
    let made = DirBuilder::new().mode(0o700).create(&dir);
    made.with_context(|| format!("Failed to make the directory {}", dir.display()))?;
    Ok(dir)
}

/// Removes what an earlier demo has left.
fn clear(dir: &Path) -> Result<()> {
    let shown = dir.display();
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("Failed to look at {shown}")),
        Ok(data) if !data.is_dir() || !is_ours(dir) => bail!(
            "{shown} is in the way and not an earlier demo's data directory: \
             move it, or choose another directory with --out"
        ),
        Ok(_) => {}
    }
    if is_in_use(dir) {
        bail!(
            "a tor runs with the data directory {shown}: choose another directory with --out, or \
             wait (the tor of a demo that was killed ends within 15 seconds)"
        );
    }
    fs::remove_dir_all(dir).with_context(|| format!("Failed to remove {shown}"))
}

/// Whether a demo has made the directory; it may have been interrupted before it wrote the torrc.
fn is_ours(dir: &Path) -> bool {
    let mut start = vec![0; MARK.len()];
    let is_marked = File::open(dir.join(TORRC))
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok_and(|()| start == MARK.as_bytes());
    is_marked || fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether a tor has locked the directory; tor does that with flock(2).
fn is_in_use(dir: &Path) -> bool {
    let lock = File::open(dir.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn an_earlier_demos_directory_is_made_anew_and_private() {
        let parent = tempfile::tempdir().unwrap();
        let dir = make_fresh(parent.path()).unwrap();
        assert!(dir.is_absolute() && dir.ends_with(NAME), "{}", dir.display());
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);

        // Interrupted before the torrc, and after a whole run.
        make_fresh(parent.path()).unwrap();
        fs::write(dir.join(TORRC), format!("{MARK}Nickname ffdemo\n")).unwrap();
        fs::create_dir(dir.join("keys")).unwrap();
        fs::write(dir.join("lock"), "").unwrap();
        make_fresh(parent.path()).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_a_demos_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join(NAME);
        let refused = |what: &str| {
            let error = make_fresh(parent.path()).unwrap_err().to_string();
            assert!(error.contains("in the way") && error.contains("--out"), "{what}: {error}");
        };

        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("precious"), "keys").unwrap();
        refused("a directory without a torrc");
        fs::write(dir.join(TORRC), "Nickname precious\n").unwrap();
        refused("another torrc");
        assert_eq!(fs::read(dir.join("precious")).unwrap(), b"keys");

        fs::write(dir.join(TORRC), MARK).unwrap();
        fs::rename(&dir, parent.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &dir).unwrap();
        refused("a link to a demo's directory");
        fs::remove_file(&dir).unwrap();
        fs::write(&dir, "").unwrap();
        refused("a file");
    }

    #[test]
    fn a_directory_that_a_tor_has_locked_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = make_fresh(parent.path()).unwrap();
        fs::write(dir.join(TORRC), MARK).unwrap();
        let lock = File::create(dir.join("lock")).unwrap();
        lock.try_lock().unwrap();
        let error = make_fresh(parent.path()).unwrap_err().to_string();
        assert!(error.contains("a tor runs"), "{error}");
        assert!(dir.join(TORRC).exists());
        drop(lock);
        make_fresh(parent.path()).unwrap();
    }
}
