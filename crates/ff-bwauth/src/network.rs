//! The network's view of its relays, from its documents.
//!
//! Only what the schedule needs is read, and everything else skipped, so that a document that is odd
//! elsewhere does not stop a measurement. Errors name the line.

pub mod consensus;
pub mod descriptors;

use base64ct::{Base64Unpadded, Encoding};

use crate::period::Fingerprint;

/// A document that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct DocumentError {
    /// In which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl DocumentError {
    /// About this line.
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// A document's lines with their numbers, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// A fingerprint in base64, 27 characters, as `r` lines have it (dir-spec 3.4.1).
fn fingerprint_base64(text: &str) -> Option<Fingerprint> {
    Base64Unpadded::decode_vec(text).ok()?.try_into().ok()
}

/// A fingerprint in 40 hex digits, with `$` before it or not, and perhaps with a nickname behind it.
fn fingerprint_hex(text: &str) -> Option<Fingerprint> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let digits = text.split(['~', '=']).next()?;
    hex::decode(digits).ok()?.try_into().ok()
}
