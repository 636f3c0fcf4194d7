//! The microdescriptors that a tor keeps in the directory of its consensus.

use std::io;
use std::path::{Path, PathBuf};

use ff_base::text::read_file;
use ff_dir::microdescriptors::Microdescriptors;

/// The file names; the second file has the newest ones.
pub(crate) const MICRODESCRIPTORS: [&str; 2] = ["cached-microdescs", "cached-microdescs.new"];

/// The longest document that is read, in bytes: more than in a network of 100,000 relays.
pub(crate) const MOST_BYTES: u64 = 128 << 20;

/// A file that exists and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub error: io::Error,
}

/// Reads the microdescriptors in a tor's directory; none if it does not have these files.
pub(crate) fn microdescriptors(dir: &Path) -> Result<Microdescriptors, Unreadable> {
    let mut all = Microdescriptors::default();
    for name in MICRODESCRIPTORS {
        let path = dir.join(name);
        match read_file(&path, MOST_BYTES) {
            Ok(text) => all.by_digest.extend(Microdescriptors::parse(&text).by_digest),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(Unreadable { path, error }),
        }
    }
    Ok(all)
}

/// Whether a file or its directory does not exist.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
