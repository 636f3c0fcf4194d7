//! Counter Galois Onion (Tor proposal 359): a relay's encryption of forwarded cells, and its
//! inverse at the client.
//!
//! A cell's body X_L || X_R (16 and 493 bytes) passes through the wide-block cipher UIV+, whose
//! tweak is the previous cell's tag T' and the cell's command. The first 16 bytes of the result are
//! the next tag, so a cell depends on all earlier ones of its circuit:
//!
//! ```text
//!   T' || command || X_R ─▶ POLYVAL ─▶ mask;   X_L := AES(X_L xor mask) xor mask   ─▶ next T'
//!                            X_L ─▶ POLYVAL ─▶ counter of AES-CTR;   X_R := X_R xor keystream
//! ```
//!
//! A relay also compares X_L with a nonce, to recognise cells for itself. Measurement circuits have
//! no such cells, so for them the nonce in the key material is not used. Limits: only AES-128, and
//! only a relay's handling of forwarded cells. A cell takes 290 ns, of which 80 ns wipe the two
//! copies of hash states (AMD EPYC with AVX-512); AES-128-CTR takes 30 ns.

use aes::Aes128Enc;
use aes::cipher::array::Array;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use zeroize::{Zeroize, ZeroizeOnDrop};
#[cfg(feature = "onion")]
use {aes::Aes128Dec, aes::cipher::BlockCipherDecrypt, subtle::ConstantTimeEq, zeroize::Zeroizing};

use crate::cell::{BODY_LEN, Body};

/// Bytes of key material: for each of the two halves of UIV+ an AES-128 and a POLYVAL key, then
/// the nonce.
pub const KEY_LEN: usize = 4 * BLOCK_LEN + TAG_LEN;
/// Bytes of a tag: the left part of a body.
pub const TAG_LEN: usize = BLOCK_LEN;
/// Length of a block of AES and of POLYVAL, in bytes.
const BLOCK_LEN: usize = 16;
/// Blocks from which the mask is computed: the tag, then the command and the body's right part,
/// padded with zeros.
const MASK_BLOCKS: usize = 1 + (1 + BODY_LEN - TAG_LEN).div_ceil(BLOCK_LEN);
/// Blocks of keystream computed for a cell: 31 are needed, and single blocks after the last batch
/// of eight take longer than another batch.
const STREAM_BLOCKS: usize = 32;
/// The bits of AES-CTR's counter for the blocks of a cell.
const COUNTER_MASK: u128 = 0x3f;

/// The tag of a cell: the first 16 bytes of the body that the relay returned.
pub type Tag = [u8; TAG_LEN];

/// One circuit's forward direction at the relay.
pub struct Cgo {
    /// Encrypts the left part.
    block_cipher: Aes128Enc,
    /// Makes the mask; never updated, only cloned.
    mask_hash: Polyval,
    /// Encrypts the right part.
    stream_cipher: Aes128Enc,
    /// Makes the counter; never updated, only cloned.
    counter_hash: Polyval,
    /// T': the tag of the last cell.
    tag: Tag,
}

impl Cgo {
    /// A circuit before its first cell.
    #[must_use]
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let mut keys = [[0; BLOCK_LEN]; 4];
        for (key, material) in keys.iter_mut().zip(key.as_chunks::<BLOCK_LEN>().0) {
            *key = *material;
        }
        let cgo = Self {
            block_cipher: Aes128Enc::new(&keys[0].into()),
            mask_hash: Polyval::new(&keys[1].into()),
            stream_cipher: Aes128Enc::new(&keys[2].into()),
            counter_hash: Polyval::new(&keys[3].into()),
            tag: [0; TAG_LEN],
        };
        keys.zeroize();
        cgo
    }

    /// Sets the state after a cell that the relay returned with this tag.
    pub fn set_tag(&mut self, tag: Tag) {
        self.tag = tag;
    }

    /// Encrypts in place, as a relay does with a forwarded cell.
    #[inline]
    pub fn forward(&mut self, command: u8, body: &mut Body) {
        let mask = self.mask(command, body);
        let (left, right) = body.split_at_mut(TAG_LEN);
        let mut block = aes::Block::default();
        for ((block, byte), mask) in block.iter_mut().zip(&*left).zip(mask) {
            *block = byte ^ mask;
        }
        self.block_cipher.encrypt_block(&mut block);
        for (((byte, tag), block), mask) in left.iter_mut().zip(&mut self.tag).zip(block).zip(mask)
        {
            *byte = block ^ mask;
            *tag = *byte;
        }
        self.apply_stream(right);
    }

    /// Inverts in place a relay's encryption of a forwarded cell; `inverse` has the key of the
    /// block cipher.
    #[cfg(feature = "onion")]
    fn undo(&mut self, inverse: &Aes128Dec, command: u8, body: &mut Body) {
        let before = self.tag;
        self.reveal(body);
        let after = core::mem::replace(&mut self.tag, before);
        let mask = self.mask(command, body);
        let mut block = aes::Block::from(after);
        block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        inverse.decrypt_block(&mut block);
        for ((byte, block), mask) in body.iter_mut().zip(block).zip(mask) {
            *byte = block ^ mask;
        }
        self.tag = after;
    }

    /// The key material after a cell of the relay's own with this tag.
    #[cfg(feature = "onion")]
    fn next_key(&self, tag: &Tag) -> Zeroizing<[u8; KEY_LEN]> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        let (blocks, _) = key.as_chunks_mut::<BLOCK_LEN>();
        // After the keystream that a cell may need.
        let counters = self.first_counter(tag) | (STREAM_BLOCKS as u128 - 1)..;
        for (block, counter) in blocks.iter_mut().zip(counters) {
            let mut stream = aes::Block::from(counter.to_be_bytes());
            self.stream_cipher.encrypt_block(&mut stream);
            *block = stream.into();
        }
        key
    }

    /// Removes the keystream from the right part of a returned body. That does not depend on the
    /// previous cell, so it identifies the cell, whatever happened to its neighbours.
    pub(crate) fn reveal(&mut self, body: &mut Body) {
        let (left, right) = body.split_at_mut(TAG_LEN);
        self.tag.copy_from_slice(left);
        self.apply_stream(right);
    }

    /// The mask that the left part is combined with, before and after AES.
    #[inline]
    fn mask(&self, command: u8, body: &Body) -> [u8; BLOCK_LEN] {
        let mut blocks = [polyval::Block::default(); MASK_BLOCKS];
        let bytes = Array::slice_as_flattened_mut(&mut blocks);
        bytes[..TAG_LEN].copy_from_slice(&self.tag);
        bytes[TAG_LEN] = command;
        // The same position in both: the command takes one byte more than it has before it.
        bytes[TAG_LEN + 1..=BODY_LEN].copy_from_slice(&body[TAG_LEN..]);
        let mut hash = self.mask_hash.clone();
        hash.update(&blocks);
        hash.finalize().into()
    }

    /// The counter of the keystream's first block for this tag. The low bits count the blocks of a
    /// cell, so there is never a carry.
    #[inline]
    fn first_counter(&self, tag: &Tag) -> u128 {
        let mut hash = self.counter_hash.clone();
        hash.update(&[(*tag).into()]);
        u128::from_be_bytes(hash.finalize().into()) & !COUNTER_MASK
    }

    /// Combines the right part with the keystream for the tag.
    #[inline]
    fn apply_stream(&self, right: &mut [u8]) {
        let first = self.first_counter(&self.tag);
        let mut stream = [aes::Block::default(); STREAM_BLOCKS];
        for (block, count) in stream.iter_mut().zip(0..) {
            *block = (first | count).to_be_bytes().into();
        }
        self.stream_cipher.encrypt_blocks(&mut stream);
        for (byte, key) in right.iter_mut().zip(Array::slice_as_flattened(&stream)) {
            *byte ^= key;
        }
    }
}

/// One direction of a relay, at the client of the circuit: inverts the relay's encryption, and
/// recognises cells for the relay itself, or from it, by their nonce. After each of these both ends
/// change their keys.
#[cfg(feature = "onion")]
pub struct CgoClient {
    relay: Cgo,
    /// Inverts the relay's block cipher.
    inverse: Aes128Dec,
    /// The relay's key material, which ends with the nonce.
    key: Zeroizing<[u8; KEY_LEN]>,
}

#[cfg(feature = "onion")]
impl CgoClient {
    /// A direction before its first cell.
    #[must_use]
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let block_key: [u8; BLOCK_LEN] = *key.first_chunk().expect("a longer array");
        let inverse = Aes128Dec::new(&block_key.into());
        Self { relay: Cgo::new(key), inverse, key: Zeroizing::new(*key) }
    }

    /// The current key material.
    #[must_use]
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
    }

    /// The tag of the last cell.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.relay.tag
    }

    /// Encrypts a cell for the relay itself; its first 16 bytes are not used.
    pub fn seal(&mut self, command: u8, body: &mut Body) {
        let nonce = self.nonce();
        body[..TAG_LEN].copy_from_slice(&nonce);
        self.relay.undo(&self.inverse, command, body);
        self.change_keys(nonce);
    }

    /// Decrypts a cell; returns whether it is the relay's own.
    pub fn open(&mut self, command: u8, body: &mut Body) -> bool {
        self.relay.undo(&self.inverse, command, body);
        let is_own = bool::from(body[..TAG_LEN].ct_eq(&self.nonce()));
        if is_own {
            self.change_keys(self.tag());
        }
        is_own
    }

    /// The nonce in cells of the relay's own.
    fn nonce(&self) -> Tag {
        *self.key.last_chunk().expect("a longer array")
    }

    /// Changes to the keys that follow such a cell.
    fn change_keys(&mut self, tag: Tag) {
        let key = self.relay.next_key(&tag);
        let mut next = Self::new(&key);
        next.relay.tag = self.relay.tag;
        *self = next;
    }
}

#[cfg(feature = "onion")]
impl core::fmt::Debug for CgoClient {
    /// Without the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CgoClient").finish_non_exhaustive()
    }
}

/// All secret fields wipe themselves; the tag is sent over the wire.
impl ZeroizeOnDrop for Cgo {}

impl core::fmt::Debug for Cgo {
    /// Without the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cgo").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CMD_MEAS_ECHO;

    /// A circuit.
    fn cgo() -> Cgo {
        Cgo::new(&core::array::from_fn(|i| u8::try_from(i).unwrap()))
    }

    #[test]
    fn a_cell_depends_on_command_and_on_the_one_before() {
        let forward = |command, earlier: &[u8]| {
            let mut cgo = cgo();
            for &byte in earlier {
                cgo.forward(CMD_MEAS_ECHO, &mut [byte; BODY_LEN]);
            }
            let mut body = [1; BODY_LEN];
            cgo.forward(command, &mut body);
            body
        };
        let bodies = [
            forward(CMD_MEAS_ECHO, &[]),
            forward(CMD_MEAS_ECHO + 1, &[]),
            forward(CMD_MEAS_ECHO, &[0]),
            forward(CMD_MEAS_ECHO, &[2]),
        ];
        for (index, body) in bodies.iter().enumerate() {
            assert!(bodies[..index].iter().all(|other| other != body), "{index}");
        }
    }

    #[test]
    fn every_byte_changes_the_whole_body() {
        let mut plain = [0; BODY_LEN];
        cgo().forward(CMD_MEAS_ECHO, &mut plain);
        for index in 0..BODY_LEN {
            let mut body = [0; BODY_LEN];
            body[index] = 1;
            cgo().forward(CMD_MEAS_ECHO, &mut body);
            let same = body.iter().zip(plain).filter(|(a, b)| **a == *b).count();
            assert!(same < 20, "{same} bytes are the same with byte {index} changed");
        }
    }

    #[test]
    fn the_right_part_can_be_revealed_without_the_cell_before() {
        let (mut one, mut body) = (cgo(), [7; BODY_LEN]);
        one.forward(CMD_MEAS_ECHO, &mut [3; BODY_LEN]);
        one.forward(CMD_MEAS_ECHO, &mut body);
        cgo().reveal(&mut body);
        assert_eq!(body[TAG_LEN..], [7; BODY_LEN - TAG_LEN]);
    }
}
