//! Why a folder cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// A folder cannot be used, or a line cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The folder has circuits of another run.
    #[error("{} has circuits already: use --resume to continue with the same options, or give another folder", .0.display())]
    Occupied(PathBuf),
    /// Another process writes to the folder.
    #[error("{} is in use: another program writes circuits there", .0.display())]
    Busy(PathBuf),
    /// The folder was created with other options.
    #[error("{}: this run had other options: {difference}; give those, or another folder", .path.display())]
    Other {
        /// File with the options.
        path: PathBuf,
        /// The options that differ, with both values.
        difference: String,
    },
    /// A line is not a circuit.
    #[error("{}, line {line}: {reason}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Reason.
        reason: String,
    },
}

/// Error about this file.
pub(super) fn io_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    |error| StoreError::Io { path: path.to_owned(), error }
}
