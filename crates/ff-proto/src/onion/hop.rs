//! The client's end of the first hop of its circuit: cells for that relay, and cells from it.
//!
//! There are two kinds of relay crypto: AES-128-CTR with a running SHA-1 digest (tor-spec 5.5,
//! 6.1), and Counter Galois Onion (Tor proposal 359). With both, a relay's encryption of a
//! forwarded cell depends, in both directions, only on its key and on earlier cells. So a
//! [`Passage`] is enough to compute it.

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::extend::{CMD_RELAY, Format, RelayMessage};
use crate::cell::{BODY_LEN, Body};
use crate::cgo::{self, CgoClient, TAG_LEN};
use crate::circuit::{ForwardKey, Passage};
use crate::codec::DecodeError;
use crate::ids::CryptoKind;
use crate::keystream::Keystream;

/// Bytes of a SHA-1 digest, and of its seed.
const DIGEST_LEN: usize = 20;
/// The position of the digest in a cell of tor's older relay crypto.
const DIGEST_AT: core::ops::Range<usize> = 5..9;

/// The positions of fields with the older crypto; between them are "recognized", the stream and the
/// digest.
const DIGEST_FORMAT: Format = Format { command_at: 0, len_at: DIGEST_AT.end };
/// The positions of fields with Counter Galois Onion, after the tag.
const TAG_FORMAT: Format = Format { command_at: TAG_LEN, len_at: TAG_LEN + 1 };

/// A relay to which a circuit is open.
#[derive(Debug)]
pub(super) struct Hop {
    /// The direction to the relay.
    forward: Layer,
    backward: Layer,
}

/// One direction.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives while a circuit is built")]
enum Layer {
    /// [`CryptoKind::AES128_CTR`].
    Aes128Ctr(DigestLayer),
    /// [`CryptoKind::CGO_AES128`].
    CgoAes128(CgoClient),
}

/// One direction of tor's older relay crypto.
struct DigestLayer {
    key: Zeroizing<[u8; 16]>,
    keystream: Keystream,
    /// The digest of the cells for this relay, or from it.
    digest: Sha1,
    /// The number of cells so far.
    cells: u64,
}

impl Hop {
    /// The relay with the keys that `fill` writes, one after the other; `None` for an unsupported
    /// kind.
    #[must_use]
    pub(super) fn new(crypto: CryptoKind, fill: &mut impl FnMut(&mut [u8])) -> Option<Self> {
        match crypto {
            CryptoKind::AES128_CTR => {
                let mut digests = [[0; DIGEST_LEN]; 2];
                digests.iter_mut().for_each(|seed| fill(seed));
                let [forward, backward] =
                    digests.map(|seed| Layer::Aes128Ctr(DigestLayer::new(&seed, fill)));
                digests.zeroize();
                Some(Self { forward, backward })
            }
            CryptoKind::CGO_AES128 => {
                let mut layer = || {
                    let mut key = Zeroizing::new([0; cgo::KEY_LEN]);
                    fill(&mut *key);
                    Layer::CgoAes128(CgoClient::new(&key))
                };
                Some(Self { forward: layer(), backward: layer() })
            }
            _ => None,
        }
    }

    /// A cell for the relay itself; `command` is the cell's command, RELAY or `RELAY_EARLY`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`].
    pub(super) fn seal(
        &mut self,
        command: u8,
        message: &RelayMessage<'_>,
    ) -> Result<Body, DecodeError> {
        match &mut self.forward {
            Layer::Aes128Ctr(layer) => {
                let mut body = message.encode(DIGEST_FORMAT)?;
                layer.seal(&mut body);
                Ok(body)
            }
            Layer::CgoAes128(layer) => {
                let mut body = message.encode(TAG_FORMAT)?;
                layer.seal(command, &mut body);
                Ok(body)
            }
        }
    }

    /// Decrypts a cell from the relay in place. Returns its message if it is the relay's own.
    ///
    /// # Errors
    /// [`DecodeError`] if it is the relay's own, but not a message.
    pub(super) fn open<'a>(
        &mut self,
        command: u8,
        body: &'a mut Body,
    ) -> Result<Option<RelayMessage<'a>>, DecodeError> {
        let (is_own, format) = match &mut self.backward {
            Layer::Aes128Ctr(layer) => (layer.open(body), DIGEST_FORMAT),
            Layer::CgoAes128(layer) => (layer.open(command, body), TAG_FORMAT),
        };
        if is_own { RelayMessage::decode(body, format).map(Some) } else { Ok(None) }
    }

    /// The relay's encryption of forwarded cells from now on: away from the client, and towards it.
    #[must_use]
    pub(super) fn into_passages(self) -> [Passage; 2] {
        [self.forward, self.backward].map(|layer| match layer {
            Layer::Aes128Ctr(layer) => Passage {
                key: ForwardKey::Aes128Ctr(*layer.key),
                command: CMD_RELAY,
                first_cell: layer.cells,
                tag: [0; TAG_LEN],
            },
            Layer::CgoAes128(layer) => Passage {
                key: ForwardKey::CgoAes128(*layer.key()),
                command: CMD_RELAY,
                first_cell: 0,
                tag: layer.tag(),
            },
        })
    }
}

impl DigestLayer {
    /// A direction before its first cell, with the key that `fill` writes next.
    fn new(seed: &[u8; DIGEST_LEN], fill: &mut impl FnMut(&mut [u8])) -> Self {
        let mut key = Zeroizing::new([0; 16]);
        fill(&mut *key);
        let keystream = Keystream::new(&key);
        Self { key, keystream, digest: Sha1::new_with_prefix(seed), cells: 0 }
    }

    /// Marks a cell, whose digest is zero, as the relay's own, and encrypts it.
    fn seal(&mut self, body: &mut Body) {
        self.digest.update(*body);
        let digest = self.digest.clone().finalize();
        body[DIGEST_AT].copy_from_slice(&digest[..DIGEST_AT.len()]);
        self.pass(body);
    }

    /// Decrypts a cell; returns whether it is the relay's own.
    fn open(&mut self, body: &mut Body) -> bool {
        self.pass(body);
        let mut plain = *body;
        plain[DIGEST_AT].fill(0);
        let digest = self.digest.clone().chain_update(plain);
        let expected = digest.clone().finalize();
        let is_own =
            body[1..3] == [0; 2] && bool::from(expected[..DIGEST_AT.len()].ct_eq(&body[DIGEST_AT]));
        if is_own {
            self.digest = digest;
        }
        is_own
    }

    /// The relay's encryption of each cell.
    fn pass(&mut self, body: &mut [u8; BODY_LEN]) {
        self.keystream.apply(body);
        self.cells += 1;
    }
}

impl core::fmt::Debug for DigestLayer {
    /// Without the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DigestLayer").field("cells", &self.cells).finish_non_exhaustive()
    }
}
