//! Errors of a store.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveStoreError {
    /// An error of the file system.
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
    /// The folder contains other files; such a folder is never written to.
    #[error("{} is not a store of ff-sim, and not empty: give a new or empty folder", .0.display())]
    Foreign(PathBuf),
    /// The store does not exist.
    #[error("{} is not a store of ff-sim", .0.display())]
    None(PathBuf),
    /// The store was written by another version of this program.
    #[error(
        "{} has schema {found}, and this program reads only schema {known}: ingest the archives again, into another \
         folder, or use the ff-sim that made it",
        path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema of the store.
        found: u32,
        /// The schema of this program.
        known: u32,
    },
    /// A file is invalid.
    #[error("{}: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// Another run is writing the same month.
    #[error("{} is locked: another run works on this month; wait until it ends", .0.display())]
    InUse(PathBuf),
    /// Two stores have different data of the same month.
    #[error("{} and {} are of the same month but differ: ingest one of them again", one.display(), other.display())]
    Contradiction {
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
    },
}

impl ArchiveStoreError {
    /// An error of the file system for this path.
    pub(super) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), what, source }
    }

    /// An error in a partition.
    pub(super) fn parquet(
        path: &Path,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    /// An error for an invalid file.
    pub(super) fn broken(path: &Path, reason: impl Into<String>) -> Self {
        Self::Broken { path: path.to_owned(), reason: reason.into() }
    }
}
