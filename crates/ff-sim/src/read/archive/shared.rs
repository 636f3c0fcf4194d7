//! Bytes that stay where they are while somebody needs them.

use std::ops::Range;
use std::sync::Arc;

/// A part of a buffer, which is not used again before the last that knows it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The buffer.
    whole: Arc<Vec<u8>>,
    /// The part.
    range: Range<usize>,
}

impl Shared {
    /// A part of a buffer.
    pub(super) const fn new(whole: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        Self { whole, range }
    }

    /// A copy of bytes.
    #[must_use]
    pub fn copy(bytes: &[u8]) -> Self {
        Self { range: 0..bytes.len(), whole: Arc::new(bytes.to_vec()) }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}
