//! The directory of bandwidth files: `2026-11-20-09-30-00.v3bw`, named by their time, and the link
//! [`LATEST`] to the newest.
//!
//! Authorities may read at any moment, and the power may fail at any moment. So a file is written
//! under another name, synced and renamed, and then the link is replaced atomically. At any time
//! the link leads to the old file or to the new one, and both are complete.
//!
//! The directory may belong to other software by mistake. Only our own files are replaced or
//! deleted: regular files of our user with `software=flashflow` in the header. A link that leads
//! elsewhere, or to a file that is not ours, is not changed, which is an error.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use ff_base::files::{self, FileError, Readers};
use ff_base::identity::Fingerprint;
use ff_base::utc::{DAY_SECS, Utc};
use ff_dir::bandwidth::{MAX_FILE_AGE_SECS, Reading};

use super::v3bw::{BandwidthFile, SOFTWARE};

/// Name of the symbolic link to the newest file; torrc's `V3BandwidthsFile` should name it.
pub const LATEST: &str = "latest.v3bw";
/// The suffix of bandwidth files' names.
const ENDING: &str = ".v3bw";
/// The largest file that is read, in bytes: the lines of a hundred thousand relays take a fifth of
/// it.
const MAX_FILE_BYTES: u64 = 1 << 28;
/// The number of bytes at the start of a file that are read to find which software wrote it.
const HEAD_BYTES: u64 = 1 << 14;

/// A directory of bandwidth files.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    /// Our user ID, which owns the files that we make there.
    owner: u32,
    /// The file to which the link leads.
    last: Option<Last>,
}

/// A file that authorities vote with, or voted with.
#[derive(Clone, Debug)]
pub struct Last {
    /// Its name in the directory.
    pub name: PathBuf,
    /// When it was made, in seconds since 1970, if its name has the time.
    pub made_unix_secs: Option<u64>,
    /// The content of the file.
    pub reading: Reading,
}

impl Last {
    /// Whether authorities vote with it at this time.
    #[must_use]
    pub fn is_voted(&self, now_unix_secs: u64) -> bool {
        let age = now_unix_secs.saturating_sub(self.reading.unix_secs);
        age <= MAX_FILE_AGE_SECS && self.reading.lines.iter().any(|line| line.votes)
    }

    /// The numbers that authorities vote with, in kilobytes a second, if they read it in time.
    #[must_use]
    pub fn votes(&self) -> BTreeMap<Fingerprint, u64> {
        self.reading.votes().into_iter().map(|(relay, line)| (relay, line.bw)).collect()
    }
}

/// Why a directory cannot be published to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShelfError {
    /// A file or object that is not ours is in the way.
    #[error("{} is {what}; it is left alone: move it, or publish to another directory", path.display())]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// A description of it.
        what: String,
    },
    /// Another user's file is in the way.
    #[error("{advice}")]
    OtherUser {
        /// The file's owner, and the user who should run the command.
        advice: String,
    },
    /// An operation on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Shelf {
    /// Opens a directory, which must exist and be writable.
    ///
    /// # Errors
    /// [`ShelfError`] when it is not writable, or when the link or its target is not ours.
    pub fn open(dir: &Path) -> Result<Self, ShelfError> {
        // A file without a name shows our user ID there, and whether we may write.
        let made = tempfile::tempfile_in(dir).and_then(|file| file.metadata());
        let owner = made.map_err(FileError::new("write to the directory", dir))?.uid();
        let mut shelf = Self { dir: dir.to_owned(), owner, last: None };
        shelf.last = shelf.read_last()?;
        Ok(shelf)
    }

    /// The file that authorities vote with now.
    #[must_use]
    pub fn last(&self) -> Option<&Last> {
        self.last.as_ref()
    }

    /// The file that authorities voted with the day before: the newest file that is at least a day
    /// older than [`Shelf::last`], or else the oldest one.
    ///
    /// # Errors
    /// [`ShelfError`] when the directory or the file cannot be read, or the file is not ours.
    pub fn day_before(&self) -> Result<Option<Last>, ShelfError> {
        let Some(last) = self.last.as_ref().and_then(|last| last.made_unix_secs) else {
            return Ok(None);
        };
        let entries = fs::read_dir(&self.dir).map_err(FileError::new("read", &self.dir))?;
        let names = entries.flatten().map(|entry| PathBuf::from(entry.file_name()));
        let made = names.filter_map(|name| Some((made_unix_secs(&name)?, name)));
        let mut earlier: Vec<_> = made.filter(|(made, _)| *made < last).collect();
        earlier.sort_unstable();
        let old = earlier.partition_point(|(made, _)| made.saturating_add(DAY_SECS) <= last);
        let name = earlier.into_iter().nth(old.saturating_sub(1)).map(|(_, name)| name);
        name.map_or(Ok(None), |name| self.read_named(name))
    }

    /// Writes a file under its time and then moves the link to it. Returns the path of the file,
    /// not of the link.
    ///
    /// # Errors
    /// [`ShelfError`]; the link then still leads to the previous file, unless only syncing the
    /// directory failed.
    pub fn place(&self, file: &BandwidthFile) -> Result<PathBuf, ShelfError> {
        let name = format!("{}{ENDING}", file.header().file_created.file_stamp());
        let path = self.dir.join(&name);
        self.check_is_ours(&path)?;
        files::write_atomically(&path, file.to_string().as_bytes(), Readers::Everybody)?;
        files::point_symlink(&self.dir.join(LATEST), &name)?;
        Ok(path)
    }

    /// Deletes our files that were made more than `keep_days` ago, except the one to which the link
    /// leads, and temporary files of crashes that are older than a day. Returns their names.
    ///
    /// # Errors
    /// [`FileError`] when the directory cannot be read. A file that cannot be deleted is kept.
    pub fn prune(&self, now_unix_secs: u64, keep_days: u64) -> Result<Vec<PathBuf>, FileError> {
        let oldest = now_unix_secs.saturating_sub(keep_days.saturating_mul(DAY_SECS));
        let latest = fs::read_link(self.dir.join(LATEST)).unwrap_or_default();
        let entries = fs::read_dir(&self.dir).map_err(FileError::new("read", &self.dir))?;
        let mut deleted = Vec::new();
        for entry in entries.flatten() {
            let name = PathBuf::from(entry.file_name());
            let path = self.dir.join(&name);
            let is_old = made_unix_secs(&name).is_some_and(|made| made < oldest)
                || is_leftover(&name, &path, now_unix_secs);
            if is_old && name != latest && self.is_ours(&path) && fs::remove_file(&path).is_ok() {
                deleted.push(name);
            }
        }
        deleted.sort_unstable();
        Ok(deleted)
    }

    /// Reads the file to which the link leads.
    fn read_last(&self) -> Result<Option<Last>, ShelfError> {
        let link = self.dir.join(LATEST);
        let metadata = match fs::symlink_metadata(&link) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(FileError::new("look at", &link))?,
        };
        let name = if metadata.is_symlink() {
            fs::read_link(&link).map_err(FileError::new("read the symbolic link", &link))?
        } else {
            PathBuf::from(LATEST)
        };
        let mut parts = name.components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let what = format!("a link to {}, outside of its directory", name.display());
            return Err(ShelfError::NotOurs { path: link, what });
        }
        self.read_named(name)
    }

    /// Reads the file of this name in the directory.
    fn read_named(&self, name: PathBuf) -> Result<Option<Last>, ShelfError> {
        let path = self.dir.join(&name);
        self.check_is_ours(&path)?;
        let Some(bytes) = read_up_to(&path, MAX_FILE_BYTES)? else { return Ok(None) };
        let reading = Reading::of(&bytes, 0);
        Ok(Some(Last { made_unix_secs: made_unix_secs(&name), name, reading }))
    }

    /// Fails if the path exists and is not ours.
    fn check_is_ours(&self, path: &Path) -> Result<(), ShelfError> {
        let not_ours =
            |what: &str| Err(ShelfError::NotOurs { path: path.to_owned(), what: what.to_owned() });
        let metadata = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(FileError::new("look at", path))?,
        };
        if metadata.is_dir() {
            return not_ours("a directory");
        }
        if !metadata.is_file() {
            return not_ours("no plain file");
        }
        if metadata.uid() != self.owner {
            let advice = ff_base::owner::advice_for(path, metadata.uid(), self.owner);
            return Err(ShelfError::OtherUser { advice });
        }
        let Some(head) = read_up_to(path, HEAD_BYTES)? else { return Ok(()) };
        match Reading::of(&head, 0).header("software") {
            Some(SOFTWARE) => Ok(()),
            Some(other) => not_ours(&format!("a file by {}", other.escape_debug())),
            None => not_ours("no bandwidth file of ours"),
        }
    }

    /// Whether the path exists and is a file of ours.
    fn is_ours(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok() && self.check_is_ours(path).is_ok()
    }
}

/// When the file to which a directory's link leads was made, by its name; the file is not read.
#[must_use]
pub fn latest_unix_secs(dir: &Path) -> Option<u64> {
    made_unix_secs(&fs::read_link(dir.join(LATEST)).ok()?)
}

/// When a file was made, by its name.
fn made_unix_secs(name: &Path) -> Option<u64> {
    let stamp = name.to_str()?.strip_suffix(ENDING)?;
    Utc::from_file_stamp(stamp).map(Utc::unix_secs)
}

/// Whether this is a temporary file that a crash left more than a day ago.
fn is_leftover(name: &Path, path: &Path, now_unix_secs: u64) -> bool {
    let modified =
        || fs::symlink_metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    files::is_temporary(name)
        && modified().is_some_and(|at| at.as_secs().saturating_add(DAY_SECS) < now_unix_secs)
}

/// The beginning of a file; `None` if it does not exist now.
fn read_up_to(path: &Path, most_bytes: u64) -> Result<Option<Vec<u8>>, FileError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(most_bytes).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new("read", path)(error)),
    }
}
