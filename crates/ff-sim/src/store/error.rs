//! What can be wrong with a store.

use std::io;
use std::path::{Path, PathBuf};

/// What can be wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveStoreError {
    /// The system does not let us.
    #[error("{} cannot be {what}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A partition cannot be written or read.
    #[error("{} is not a partition, or cannot be written", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The error.
        source: parquet::errors::ParquetError,
    },
    /// A folder that has other things in it is never written to.
    #[error("{} is not a store of ff-sim, and not empty: give a new or empty folder", .0.display())]
    Foreign(PathBuf),
    /// The store does not exist.
    #[error("{} is not a store of ff-sim", .0.display())]
    None(PathBuf),
    /// It was made by another version of this program.
    #[error(
        "{} has schema {found}, and this program reads only schema {known}: ingest the archives again, into another \
         folder, or use the ff-sim that made it",
        path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that it has.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// Another run is at the same month.
    #[error("{} is locked: another run works on this month; wait until it ends", .0.display())]
    InUse(PathBuf),
    /// Two stores have the same month, and it is not the same.
    #[error("{} and {} are of the same month but differ: ingest one of them again", one.display(), other.display())]
    Contradiction {
        /// A file.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
}

impl ArchiveStoreError {
    /// About a file that something cannot be done to.
    pub(super) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), what, source }
    }

    /// About a partition.
    pub(super) fn parquet(
        path: &Path,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    /// About a file that is not what it should be.
    pub(super) fn broken(path: &Path, reason: impl Into<String>) -> Self {
        Self::Broken { path: path.to_owned(), reason: reason.into() }
    }
}
