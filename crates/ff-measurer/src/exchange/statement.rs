//! What a receiver says of a block of packets, and its bytes on the wire.

/// Bytes of a statement on the wire.
pub(super) const STATEMENT_LEN: usize = 48;

/// Which packets of a block have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) block: u64,
    /// A bit for each of its packets.
    pub(super) bits: [u64; 4],
    /// The exclusive-or of their nonces.
    pub(super) proof: u64,
}

impl Statement {
    /// Writes it to its bytes on the wire.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let [a, b, c, d] = self.bits;
        for (word, bytes) in [self.block, a, b, c, d, self.proof].iter().zip(bytes.chunks_mut(8)) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Reads it from its bytes on the wire.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let [block, a, b, c, d, proof] = std::array::from_fn(|i| word(&bytes[i * 8..]));
        Self { block, bits: [a, b, c, d], proof }
    }
}

/// The number that bytes begin with.
pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
