//! Bytes of a download, generated from a seed: the keystream of ChaCha20 with the seed as key and
//! nonce 0 (RFC 8439 §2.4). A client can check each byte, and nothing on the way can compress them.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Bytes generated at once.
const BLOCK: usize = 4096;

/// Seed of the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seed(pub [u8; 32]);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| "a seed is 64 hexadecimal digits".to_owned())?;
        Ok(Self(bytes))
    }
}

/// Generates the bytes in order.
#[derive(Debug)]
pub struct Pattern {
    generator: ChaCha20Rng,
    /// Bytes generated last.
    block: [u8; BLOCK],
    /// Number of these already used.
    taken: usize,
}

impl Pattern {
    /// Starts with the first byte.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let generator = ChaCha20Rng::from_seed(seed.0);
        Self { generator, block: [0; BLOCK], taken: BLOCK }
    }

    /// Writes the next bytes.
    pub fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            let next = self.next(out.len());
            let (now, later) = out.split_at_mut(next.len());
            now.copy_from_slice(next);
            out = later;
        }
    }

    /// Number of leading bytes that match the next ones. After a mismatch no more bytes can be
    /// compared.
    pub fn matching(&mut self, mut bytes: &[u8]) -> usize {
        let mut matched = 0;
        while !bytes.is_empty() {
            let next = self.next(bytes.len());
            let (now, later) = bytes.split_at(next.len());
            if now != next {
                return matched
                    + now.iter().zip(next).take_while(|(one, other)| one == other).count();
            }
            matched += now.len();
            bytes = later;
        }
        matched
    }

    /// At least one of the next bytes, at most `most`.
    fn next(&mut self, most: usize) -> &[u8] {
        if self.taken == BLOCK {
            self.generator.fill_bytes(&mut self.block);
            self.taken = 0;
        }
        let from = self.taken;
        self.taken = BLOCK.min(from.saturating_add(most));
        self.block.get(from..self.taken).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_keystream_of_chacha20() {
        // RFC 8439 appendix A.1, test vector 1: key, nonce and counter are 0.
        let mut begin = [0; 16];
        Pattern::new(Seed([0; 32])).fill(&mut begin);
        assert_eq!(hex::encode(begin), "76b8e0ada0f13d90405d6ae55386bd28");
    }

    #[test]
    fn it_is_the_same_in_pieces_of_any_length() {
        let seed: Seed = "07".repeat(32).parse().expect("a seed");
        let mut whole = vec![0; 3 * BLOCK + 5];
        Pattern::new(seed).fill(&mut whole);
        let mut pattern = Pattern::new(seed);
        let mut rest = whole.as_slice();
        for length in [1, 3, 4093, 5000, 7, 3189] {
            let (piece, later) = rest.split_at(length);
            assert_eq!(pattern.matching(piece), length);
            rest = later;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn the_first_other_byte_is_found() {
        let seed = Seed([9; 32]);
        for at in [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3] {
            let mut bytes = vec![0; 3 * BLOCK];
            Pattern::new(seed).fill(&mut bytes);
            bytes[at] ^= 0x10;
            assert_eq!(Pattern::new(seed).matching(&bytes), at);
        }
    }

    #[test]
    fn a_seed_is_read_as_it_is_written() {
        let seed = Seed([0xab; 32]);
        assert_eq!(seed.to_string().parse(), Ok(seed));
        for odd in ["", "ab", &"x".repeat(64), &"a".repeat(65)] {
            assert!(odd.parse::<Seed>().is_err(), "{odd}");
        }
    }
}
