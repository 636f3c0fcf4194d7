//! Options that are valid alone and contradict each other.

use clap::error::ErrorKind;

/// Options that contradict each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    /// The kind of the error, with its exit status.
    pub(super) kind: ErrorKind,
    /// What is wrong with them.
    pub(super) text: &'static str,
}
