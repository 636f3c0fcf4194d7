//! Errors of the network's view.

use std::path::PathBuf;

use ff_base::files::FileError;

/// The network's view could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The configuration cannot be meant.
    #[error("{field}: {reason}")]
    Config {
        /// The key, or the file, that it is about.
        field: String,
        /// The problem, and a valid value.
        reason: String,
    },
    /// Another process keeps its view in the same directory.
    #[error(
        "{} is in use by another process: end that one, or give this one a cache_dir of its own",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Arti's directory client could not be started.
    #[error("Arti's directory client cannot start with {}: {reason}", path.display())]
    Arti {
        /// Where it keeps its files.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// Arti's directory client has no directory of the network yet.
    #[error("no directory of the network before the deadline: {status}")]
    NotBootstrapped {
        /// How far it has come.
        status: String,
    },
    /// No server had a consensus to go by.
    #[error("no usable consensus: {}", if tried.is_empty() { "no server was asked, as none is known or the time was up".to_owned() } else { tried.join("; ") })]
    NoConsensus {
        /// Each server that was asked, with the reason.
        tried: Vec<String>,
    },
    /// A file of the cache cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DirectoryError {
    /// About a key of the configuration.
    pub(super) fn config(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { field: field.into(), reason: reason.into() }
    }
}
