//! Writing files so that a reader, or a crash, never sees half of one.
//!
//! A file is written under a temporary name in its own directory, synced, renamed, and then the
//! directory is synced, because a rename is durable only with its directory. A crash leaves at most
//! a `.….tmp` file behind.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// The users that may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The owner: the file tells of a relay's clients.
    Owner,
    /// Everybody, as far as the umask allows: the tor process that votes with a bandwidth file
    /// runs as a user of its own.
    Everybody,
}

impl Readers {
    /// The file's mode, before the umask.
    fn permissions(self) -> Permissions {
        Permissions::from_mode(match self {
            Self::Owner => 0o600,
            Self::Everybody => 0o644,
        })
    }
}

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {}", path.display())]
pub struct FileError {
    /// The failed action.
    action: &'static str,
    /// On which file.
    path: PathBuf,
    /// The system's error.
    source: io::Error,
}

impl FileError {
    /// Makes an error of what the system said when `action` was tried on `path`.
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// Whether the file was there already.
    #[must_use]
    pub fn is_already_there(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

/// Writes `bytes` to `path`: a reader sees either the earlier contents or all of `bytes`.
///
/// # Errors
/// [`FileError`] naming the path; the earlier contents are then untouched, unless only the
/// directory could not be synced.
pub fn write_atomically(path: &Path, bytes: &[u8], readers: Readers) -> Result<(), FileError> {
    write_atomically_with(path, readers, |file| {
        file.write_all(bytes).map_err(FileError::new("write", path))
    })
}

/// As [`write_atomically`], with what `fill` writes; nothing is written when it fails.
///
/// # Errors
/// [`FileError`] naming the path, and what `fill` returns.
pub fn write_atomically_with<T, E: From<FileError>>(
    path: &Path,
    readers: Readers,
    fill: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    let fail = || FileError::new("write", path);
    let mut file = temporary(path, readers).map_err(fail())?;
    let value = fill(file.as_file_mut())?;
    let finish = || -> io::Result<()> {
        file.as_file().sync_all()?;
        file.persist(path)?;
        sync_directory_of(path)
    };
    finish().map_err(fail())?;
    Ok(value)
}

/// As [`write_atomically`], but a file that is there already is left alone.
///
/// # Errors
/// [`FileError`] naming the path; [`FileError::is_already_there`] tells whether that was why.
pub fn write_new(path: &Path, bytes: &[u8], readers: Readers) -> Result<(), FileError> {
    let fail = FileError::new("create", path);
    let write = || -> io::Result<()> {
        temporary_with(path, bytes, readers)?.persist_noclobber(path)?;
        sync_directory_of(path)
    };
    write().map_err(fail)
}

/// Makes `link` a symbolic link to `target_name`, replacing at once what was there.
///
/// # Errors
/// [`FileError`] naming the link.
pub fn point_symlink(link: &Path, target_name: &str) -> Result<(), FileError> {
    let fail = FileError::new("update the symbolic link", link);
    let replace = || -> io::Result<()> {
        let made = hidden_name().make_in(directory_of(link), |at| symlink(target_name, at))?;
        made.into_temp_path().persist(link)?;
        sync_directory_of(link)
    };
    replace().map_err(fail)
}

/// A synced temporary file next to `path` with these bytes.
fn temporary_with(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<NamedTempFile> {
    let mut file = temporary(path, readers)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// How temporary names begin.
const PREFIX: &str = ".ff-";
/// How they end.
const SUFFIX: &str = ".tmp";
/// An empty temporary file next to `path`.
fn temporary(path: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    hidden_name().permissions(readers.permissions()).tempfile_in(directory_of(path))
}

/// Temporary names are hidden, and no `*.v3bw` or `*.jsonl` matches a leftover.
fn hidden_name() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    builder
}

/// Whether a name is one of these.
pub fn is_temporary(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

/// The directory a path lies in.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename in the directory of `path` durable.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_readable_by_those_it_is_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latest");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_atomically(&path, b"old", Readers::Owner).unwrap();
        assert_eq!(mode(), 0o600);
        write_atomically(&path, b"new", Readers::Everybody).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // The umask may take rights away, but the owner's are there and nobody else may write.
        assert_eq!(mode() & 0o733, 0o600);
        write_atomically(&path, b"secret", Readers::Owner).unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn what_cannot_be_filled_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export.csv");
        fs::write(&path, b"old").unwrap();
        let failed: Result<(), FileError> = write_atomically_with(&path, Readers::Owner, |file| {
            file.write_all(b"half").expect("written");
            Err(FileError::new("fill", &path)(io::ErrorKind::StorageFull.into()))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_new_file_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        write_new(&path, b"first", Readers::Owner).unwrap();
        assert!(write_new(&path, b"second", Readers::Owner).unwrap_err().is_already_there());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_symbolic_link_moves_and_replaces_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("latest.v3bw");
        fs::write(&link, b"a file where the link should be").unwrap();
        for target in ["one.v3bw", "two.v3bw"] {
            point_symlink(&link, target).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary link is left");
    }

    #[test]
    fn errors_name_the_file() {
        let missing = Path::new("/nonexistent/directory/file");
        for error in [
            write_atomically(missing, b"", Readers::Owner).unwrap_err(),
            write_new(missing, b"", Readers::Owner).unwrap_err(),
            point_symlink(missing, "target").unwrap_err(),
        ] {
            assert!(error.to_string().contains("/nonexistent/directory/file"), "{error}");
            assert!(!error.is_already_there());
        }
    }
}
