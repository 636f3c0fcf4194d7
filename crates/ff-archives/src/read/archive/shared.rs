//! Shared parts of buffers, which stay valid as long as they are in use.

use std::ops::Range;
use std::sync::Arc;

/// A part of a buffer; the buffer is not reused while any such part exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The buffer.
    whole: Arc<Vec<u8>>,
    /// The part.
    range: Range<usize>,
}

impl Shared {
    pub(super) const fn new(whole: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        Self { whole, range }
    }

    /// A copy of these bytes.
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
