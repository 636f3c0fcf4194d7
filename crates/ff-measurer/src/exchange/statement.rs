//! A receiver's statement about a block of packets, and its encoding.

/// Length of an encoded statement, in bytes.
pub(super) const STATEMENT_LEN: usize = 48;

/// States which packets of a block have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) block: u64,
    /// A bit for each packet that has arrived.
    pub(super) bits: [u64; 4],
    /// The exclusive-or of their nonces.
    pub(super) proof: u64,
}

impl Statement {
    /// Encodes it.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let [a, b, c, d] = self.bits;
        for (word, bytes) in [self.block, a, b, c, d, self.proof].iter().zip(bytes.chunks_mut(8)) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Decodes it.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let [block, a, b, c, d, proof] = std::array::from_fn(|i| word(&bytes[i * 8..]));
        Self { block, bits: [a, b, c, d], proof }
    }
}

/// The first eight bytes as a big-endian number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
