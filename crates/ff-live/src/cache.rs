//! Documents on disk: what was fetched survives a restart, and is there without a network.
//!
//! Each file is replaced as a whole. Nothing in a file is believed: consensuses are verified again
//! when they are read, and pieces have other digests when they have been damaged. What cannot be
//! read is as if it were not there, and is fetched anew.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ff_base::files::{FileError, Readers, write_atomically};
use tor_netdoc::types::Iso8601TimeSp;

use super::config::DocumentLimits;
use super::error::DirectoryError;
use super::head::{Flavor, Head, secs, unix_secs};
use super::parts::{Microdescriptor, Part, ServerDescriptor};
use super::shelf::Shelf;

/// The documents' directory.
#[derive(Debug)]
pub(super) struct Cache {
    /// The directory.
    dir: PathBuf,
    /// What may be kept.
    limits: DocumentLimits,
    /// Locked for as long as this is here.
    _lock: File,
}

/// Where pieces of a kind are kept.
pub(super) trait Kept: Part {
    /// The file's name.
    const FILE: &'static str;
}

impl Kept for ServerDescriptor {
    const FILE: &'static str = "descriptors";
}

impl Kept for Microdescriptor {
    const FILE: &'static str = "microdescriptors";
}

/// The authorities' certificates.
const CERTIFICATES: &str = "certificates";
/// What consensuses' names begin with; the time and the flavour follow.
const CONSENSUS: &str = "consensus-";

/// The directory of the documents within the one of the config.
pub(super) fn dir(cache_dir: &Path) -> PathBuf {
    cache_dir.join("documents")
}

/// The file of the server descriptors that are kept there, also while a client keeps them up to
/// date.
#[must_use]
pub fn descriptors(cache_dir: &Path) -> PathBuf {
    dir(cache_dir).join(ServerDescriptor::FILE)
}

/// The newest consensus that is kept there with all of it.
///
/// # Errors
/// A sentence that says why there is none.
pub fn newest_consensus(cache_dir: &Path) -> Result<PathBuf, String> {
    let dir = dir(cache_dir);
    let times = consensus_times(&dir, Flavor::Ns).map_err(|error| error.to_string())?;
    let newest = times.first().map(|&time| dir.join(consensus_name(Flavor::Ns, time)));
    newest.ok_or_else(|| {
        format!("no consensus in {}: the coordinator has not fetched one yet", dir.display())
    })
}

/// When the consensuses of a flavour that are in a directory became valid, the newest first.
fn consensus_times(dir: &Path, flavor: Flavor) -> Result<Vec<u64>, FileError> {
    let failed = || FileError::new("read the directory", dir);
    let mut times = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        let stamp = name.to_str().and_then(|name| {
            name.strip_prefix(CONSENSUS)?.strip_suffix(flavor.name())?.strip_suffix('.')
        });
        times.extend(stamp.and_then(stamp_secs));
    }
    times.sort_unstable_by(|a, b| b.cmp(a));
    Ok(times)
}

impl Cache {
    /// Takes possession of a directory that exists.
    pub(super) fn open(dir: PathBuf, limits: DocumentLimits) -> Result<Self, DirectoryError> {
        let path = dir.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(FileError::new("open", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir, limits, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { path: dir }),
            Err(TryLockError::Error(error)) => Err(FileError::new("lock", &path)(error).into()),
        }
    }

    /// The certificates' text.
    pub(super) fn certificates(&self) -> Result<String, FileError> {
        self.read(&self.dir.join(CERTIFICATES))
    }

    /// Keeps the certificates.
    pub(super) fn keep_certificates(&self, text: &str) -> Result<(), FileError> {
        self.write(CERTIFICATES, text)
    }

    /// The pieces of a kind that are kept.
    pub(super) fn shelf<P: Kept>(&self) -> Result<Shelf<P>, FileError> {
        Ok(Shelf::read(&self.read(&self.dir.join(P::FILE))?))
    }

    /// Keeps a kind's pieces.
    pub(super) fn keep_shelf<P: Kept>(&self, shelf: &Shelf<P>) -> Result<(), FileError> {
        self.write(P::FILE, &shelf.render())
    }

    /// When the consensuses of a flavour that are kept became valid, the newest first.
    pub(super) fn consensus_times(&self, flavor: Flavor) -> Result<Vec<u64>, FileError> {
        consensus_times(&self.dir, flavor)
    }

    /// The text of a consensus.
    pub(super) fn consensus(
        &self,
        flavor: Flavor,
        valid_after_secs: u64,
    ) -> Result<String, FileError> {
        self.read(&self.dir.join(consensus_name(flavor, valid_after_secs)))
    }

    /// Keeps a consensus.
    pub(super) fn keep_consensus(&self, head: &Head, text: &str) -> Result<(), FileError> {
        self.write(&consensus_name(head.flavor, head.valid_after_secs), text)
    }

    /// When a consensus was fetched, as its file says.
    pub(super) fn fetched_at_secs(&self, flavor: Flavor, valid_after_secs: u64) -> Option<u64> {
        let path = self.dir.join(consensus_name(flavor, valid_after_secs));
        fs::metadata(path).and_then(|file| file.modified()).ok().map(secs)
    }

    /// Drops consensuses that are too many.
    pub(super) fn drop_old_consensuses(&self) -> Result<(), FileError> {
        for flavor in [Flavor::Ns, Flavor::Microdesc] {
            for old in self.consensus_times(flavor)?.into_iter().skip(self.limits.consensuses) {
                let path = self.dir.join(consensus_name(flavor, old));
                fs::remove_file(&path).map_err(FileError::new("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Bytes of the consensuses and certificates that are kept.
    pub(super) fn other_bytes(&self) -> Result<u64, FileError> {
        let failed = || FileError::new("read the directory", &self.dir);
        let mut bytes = 0;
        for entry in fs::read_dir(&self.dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name();
            if name != ServerDescriptor::FILE && name != Microdescriptor::FILE {
                bytes += entry.metadata().map_err(failed())?.len();
            }
        }
        Ok(bytes)
    }

    /// Reads a file; one that is not there is empty. Bytes that are no UTF-8 are replaced, and what
    /// they stand in is not what it was.
    fn read(&self, path: &Path) -> Result<String, FileError> {
        let failed = || FileError::new("read", path);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(failed()(error)),
        };
        let mut bytes = Vec::new();
        // Somebody may have put something larger there.
        file.take(self.limits.cache_bytes).read_to_end(&mut bytes).map_err(failed())?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Writes a file.
    fn write(&self, name: &str, text: &str) -> Result<(), FileError> {
        write_atomically(&self.dir.join(name), text.as_bytes(), Readers::Owner)
    }
}

/// The name of a consensus' file, as `consensus-2026-11-22-18-00-00.ns`.
fn consensus_name(flavor: Flavor, valid_after_secs: u64) -> String {
    let time = Iso8601TimeSp(UNIX_EPOCH + Duration::from_secs(valid_after_secs)).to_string();
    format!("{CONSENSUS}{}.{}", time.replace([' ', ':'], "-"), flavor.name())
}

/// The time in such a name.
fn stamp_secs(stamp: &str) -> Option<u64> {
    let (date, time) = stamp.split_at_checked(10)?;
    unix_secs(&format!("{date} {}", time.strip_prefix('-')?.replace('-', ":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache in a directory of its own.
    fn cache(limits: DocumentLimits) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::open(dir.path().to_owned(), limits).expect("a cache");
        (dir, cache)
    }

    /// A consensus of this time.
    fn head(flavor: Flavor, valid_after_secs: u64) -> Head {
        let (fresh_until_secs, valid_until_secs) = (valid_after_secs + 1, valid_after_secs + 2);
        Head { flavor, valid_after_secs, fresh_until_secs, valid_until_secs }
    }

    #[test]
    fn consensuses_are_kept_by_time_and_the_oldest_dropped() {
        let (dir, cache) = cache(DocumentLimits { consensuses: 2, ..DocumentLimits::default() });
        let times = [1_795_370_400, 1_795_374_000, 1_795_377_600];
        for time in times {
            cache.keep_consensus(&head(Flavor::Ns, time), &format!("text {time}")).expect("kept");
        }
        cache.keep_consensus(&head(Flavor::Microdesc, times[0]), "other").expect("kept");
        fs::write(dir.path().join("consensus-x.ns"), "junk").expect("a file");
        fs::write(dir.path().join("consensus-2026-11-22-18-00-00-00.ns"), "junk").expect("a file");
        cache.drop_old_consensuses().expect("dropped");
        assert_eq!(cache.consensus_times(Flavor::Ns).expect("times"), [times[2], times[1]]);
        assert_eq!(cache.consensus_times(Flavor::Microdesc).expect("times"), [times[0]]);
        assert_eq!(
            cache.consensus(Flavor::Ns, times[2]).expect("it"),
            format!("text {}", times[2])
        );
        assert_eq!(cache.consensus(Flavor::Ns, times[0]).expect("nothing"), "");
        assert!(dir.path().join("consensus-2026-11-22-20-00-00.ns").is_file());
    }

    #[test]
    fn a_directory_belongs_to_one_at_a_time() {
        let (dir, cache) = cache(DocumentLimits::default());
        let error =
            Cache::open(dir.path().to_owned(), DocumentLimits::default()).expect_err("in use");
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(cache);
        Cache::open(dir.path().to_owned(), DocumentLimits::default()).expect("free again");
    }

    #[test]
    fn what_is_no_utf8_or_too_large_is_read_as_far_as_it_goes() {
        let (dir, cache) =
            cache(DocumentLimits { cache_bytes: 1 << 20, ..DocumentLimits::default() });
        fs::write(dir.path().join(CERTIFICATES), b"a\xff\n").expect("a file");
        assert_eq!(cache.certificates().expect("text"), "a\u{fffd}\n");
        fs::write(dir.path().join(CERTIFICATES), vec![b'x'; 3 << 20]).expect("a file");
        assert_eq!(cache.certificates().expect("text").len(), 1 << 20);
        fs::remove_file(dir.path().join(CERTIFICATES)).expect("removed");
        fs::create_dir(dir.path().join(CERTIFICATES)).expect("a directory");
        assert!(cache.certificates().expect_err("no file").to_string().contains(CERTIFICATES));
    }

    #[test]
    fn others_find_the_newest_consensus_and_the_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = newest_consensus(dir.path()).expect_err("no directory");
        assert!(missing.contains("documents"), "{missing}");
        let documents = super::dir(dir.path());
        fs::create_dir(&documents).expect("made");
        assert!(newest_consensus(dir.path()).expect_err("none").contains("no consensus"));
        let cache = Cache::open(documents, DocumentLimits::default()).expect("a cache");
        let times = [1_795_370_400, 1_795_374_000].map(|time| head(Flavor::Ns, time));
        for head in times.iter().chain([&head(Flavor::Microdesc, 1_795_999_999)]) {
            cache.keep_consensus(head, &format!("{}", head.valid_after_secs)).expect("kept");
        }
        let found = newest_consensus(dir.path()).expect("one");
        assert_eq!(fs::read_to_string(found).expect("read"), "1795374000");
        let mut shelf = Shelf::<ServerDescriptor>::default();
        let text = super::super::parts::tests::descriptor([1; 20], "");
        shelf.add(ServerDescriptor::digest(&text), &text, 1_795_370_400);
        cache.keep_shelf(&shelf).expect("kept");
        assert!(fs::read_to_string(descriptors(dir.path())).expect("read").contains(&text));
    }
}
