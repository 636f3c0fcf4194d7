//! The network's view of its relays, from its documents.
//!
//! Only what the schedule needs is read, and everything else skipped, so that a document that is odd
//! elsewhere does not stop a measurement. Errors name the line.

pub mod consensus;
pub mod descriptors;
#[cfg(feature = "live")]
pub mod live;

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

/// A document's lines with their numbers, from 1, without the objects between them: whatever stands in one
/// is not for us.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_in_object = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let was_in_object = is_in_object;
        if line.starts_with("-----BEGIN ") {
            is_in_object = true;
        } else if line.starts_with("-----END ") {
            is_in_object = false;
        }
        !was_in_object && !is_in_object
    })
}

/// A line's keyword and what stands behind it; keywords may be marked as optional (dir-spec 1.2).
fn keyword(line: &str) -> (&str, &str) {
    let line = line.strip_prefix("opt ").unwrap_or(line);
    line.split_once([' ', '\t']).unwrap_or((line, ""))
}

/// The words of a line's rest.
fn words(rest: &str) -> impl DoubleEndedIterator<Item = &str> {
    rest.split([' ', '\t']).filter(|word| !word.is_empty())
}

/// A fingerprint in base64, 27 characters, as `r` lines have it (dir-spec 3.4.1).
fn fingerprint_base64(text: &str) -> Option<Fingerprint> {
    Base64Unpadded::decode_vec(text).ok()?.try_into().ok()
}

/// A fingerprint in 40 hex digits, with `$` before it or not, and perhaps with a nickname behind it.
pub(crate) fn fingerprint_hex(text: &str) -> Option<Fingerprint> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let digits = text.split(['~', '=']).next()?;
    hex::decode(digits).ok()?.try_into().ok()
}
