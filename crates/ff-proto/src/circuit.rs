//! The measurement circuit: its key exchange, and the target's encryption of its cells.
//!
//! A fresh X25519 exchange gives the forward key and proves to the measurer that the target derived
//! the same key (PROTOCOL.md §5). Then an echoed cell costs the target as much as a forwarded cell
//! costs a middle relay whose client uses the same cipher (§6).
//!
//! Decisions: doc/decisions.md, "Two ciphers".

use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::auth::Exporter;
use crate::cell::{Body, CMD_MEAS_ECHO};
use crate::cgo::{self, Cgo};
use crate::ids::{CryptoKind, MeasurementId, MeasurerIndex};
use crate::keystream::Keystream;

/// Bytes of the forward key of [`CryptoKind::AES128_CTR`].
pub const AES128_CTR_KEY_LEN: usize = 16;
/// Bytes of the confirmation in MEAS_CREATED.
pub const CONFIRMATION_LEN: usize = 32;

/// One half of the exchange: an ephemeral X25519 key.
pub struct EphemeralKey {
    /// Wiped on drop by its type.
    secret: StaticSecret,
    /// The public half.
    public: [u8; 32],
}

impl EphemeralKey {
    /// Makes a key from 32 bytes, which must be fresh from a cryptographic generator.
    #[must_use]
    pub fn new(entropy: [u8; 32]) -> Self {
        let secret = StaticSecret::from(entropy);
        let public = PublicKey::from(&secret).to_bytes();
        Self { secret, public }
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// The secret shared with the owner of this point; `None` for a point of small order.
    pub(crate) fn agree(&self, theirs: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let shared = self.secret.diffie_hellman(&PublicKey::from(*theirs));
        shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
    }
}

/// The key, and with it the cipher, of a relay's encryption of forwarded cells in one direction;
/// for a measurement circuit the direction from measurer to target.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub enum ForwardKey {
    /// Of [`CryptoKind::AES128_CTR`].
    Aes128Ctr([u8; AES128_CTR_KEY_LEN]),
    /// Of [`CryptoKind::CGO_AES128`].
    CgoAes128([u8; cgo::KEY_LEN]),
}

impl ForwardKey {
    /// The key's cipher.
    #[must_use]
    pub fn crypto(&self) -> CryptoKind {
        match self {
            Self::Aes128Ctr(_) => CryptoKind::AES128_CTR,
            Self::CgoAes128(_) => CryptoKind::CGO_AES128,
        }
    }

    /// The key material: 16 or 80 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Aes128Ctr(key) => key,
            Self::CgoAes128(key) => key,
        }
    }
}

/// A relay's encryption or decryption of forwarded cells in one direction.
#[derive(Clone, Debug)]
pub struct Passage {
    /// The relay's key.
    pub key: ForwardKey,
    /// The command of the cells, which is an input of CGO.
    pub command: u8,
    /// The number of cells that have passed with that key before: with AES-128-CTR the keystream
    /// continues after them.
    pub first_cell: u64,
    /// The tag of the previous cell, with CGO; zeros if there is none.
    pub tag: cgo::Tag,
}

impl core::fmt::Debug for ForwardKey {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ForwardKey").field(&self.crypto().name()).finish()
    }
}

/// The keys that both ends derive.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct CircuitKeys {
    /// The key of the direction from measurer to target.
    pub forward: ForwardKey,
    /// The target's proof that it derived the same keys.
    pub confirmation: [u8; CONFIRMATION_LEN],
}

impl CircuitKeys {
    /// The target's encryption of the circuit's cells, from the first one on.
    #[must_use]
    pub fn passage(&self) -> Passage {
        let key = self.forward.clone();
        Passage { key, command: CMD_MEAS_ECHO, first_cell: 0, tag: [0; cgo::TAG_LEN] }
    }

    /// Compares the peer's confirmation with ours, in constant time.
    #[must_use]
    pub fn confirms(&self, confirmation: &[u8; CONFIRMATION_LEN]) -> bool {
        self.confirmation.ct_eq(confirmation).into()
    }
}

/// The public inputs of the exchange, to which the keys are bound.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The measurement.
    pub measurement: &'a MeasurementId,
    /// The link's TLS exporter.
    pub exporter: &'a Exporter,
    /// X25519 public key from MEAS_CREATE.
    pub measurer_public: &'a [u8; 32],
    /// X25519 public key from MEAS_CREATED.
    pub target_public: &'a [u8; 32],
    /// The granted cipher.
    pub crypto: CryptoKind,
}

impl Exchange<'_> {
    /// Derives the keys with our half; `None` if the peer's point makes the secret zero, or the
    /// cipher is not in [`CryptoKind::SUPPORTED`].
    #[must_use]
    pub fn derive(&self, ours: &EphemeralKey) -> Option<CircuitKeys> {
        let theirs = if ours.public == *self.measurer_public {
            self.target_public
        } else {
            self.measurer_public
        };
        let shared = ours.agree(theirs)?;
        match self.crypto {
            CryptoKind::AES128_CTR => {
                self.expand(b"flashflow-circuit-1", &shared, ForwardKey::Aes128Ctr)
            }
            CryptoKind::CGO_AES128 => {
                self.expand(b"flashflow-circuit-2", &shared, ForwardKey::CgoAes128)
            }
            _ => None,
        }
    }

    /// Derives the keys from the shared secret. Each cipher has its own label, so that two ends
    /// with different ciphers do not confirm each other.
    fn expand<const N: usize>(
        &self,
        label: &[u8],
        shared: &[u8; 32],
        forward: fn([u8; N]) -> ForwardKey,
    ) -> Option<CircuitKeys> {
        let info = [label, &self.measurement.0, self.measurer_public, self.target_public].concat();
        let mut output = Zeroizing::new([0; cgo::KEY_LEN + CONFIRMATION_LEN]);
        let output = output.get_mut(..N + CONFIRMATION_LEN)?;
        Hkdf::<Sha256>::new(Some(self.exporter), shared).expand(&info, output).ok()?;
        let (key, confirmation) = output.split_first_chunk()?;
        let confirmation = confirmation.try_into().ok()?;
        Some(CircuitKeys { forward: forward(*key), confirmation })
    }
}

/// The target's end of a measurement circuit: all that its cells need, without shared state.
#[derive(Debug)]
pub struct EchoCircuit {
    /// The only circuit id whose MEAS_ECHO cells belong here.
    circ_id: u32,
    /// The measurer of this circuit, so that its cells are counted without a look-up.
    measurer: MeasurerIndex,
    /// For hosts that decrypt with their own code.
    key: ForwardKey,
    /// The cipher in its current state.
    cipher: Cipher,
    /// Cells echoed so far.
    cells: u64,
}

/// The cipher of a circuit's cells.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a circuit is boxed as a whole, once a link")]
enum Cipher {
    /// [`CryptoKind::AES128_CTR`].
    Aes128Ctr(Keystream),
    /// [`CryptoKind::CGO_AES128`].
    CgoAes128(Cgo),
}

impl EchoCircuit {
    /// A circuit before its first cell, of the measurer with index 0.
    #[must_use]
    pub fn new(circ_id: u32, keys: &CircuitKeys) -> Self {
        let cipher = match &keys.forward {
            ForwardKey::Aes128Ctr(key) => Cipher::Aes128Ctr(Keystream::new(key)),
            ForwardKey::CgoAes128(key) => Cipher::CgoAes128(Cgo::new(key)),
        };
        let measurer = MeasurerIndex::default();
        Self { circ_id, measurer, key: keys.forward.clone(), cipher, cells: 0 }
    }

    /// The same circuit of this measurer.
    #[must_use]
    pub fn of_measurer(self, measurer: MeasurerIndex) -> Self {
        Self { measurer, ..self }
    }

    /// The measurer of this circuit.
    #[must_use]
    pub fn measurer(&self) -> MeasurerIndex {
        self.measurer
    }

    /// The circuit's id.
    #[must_use]
    pub fn circ_id(&self) -> u32 {
        self.circ_id
    }

    /// Cells echoed so far.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells
    }

    /// Decrypts a MEAS_ECHO body in place; the cell is then sent back.
    #[inline]
    pub fn echo(&mut self, body: &mut Body) {
        match &mut self.cipher {
            Cipher::Aes128Ctr(keystream) => keystream.apply(body),
            Cipher::CgoAes128(cgo) => cgo.forward(CMD_MEAS_ECHO, body),
        }
        self.cells += 1;
    }

    /// The forward key, for a host that decrypts with its own relay crypto instead of calling
    /// [`echo`](Self::echo).
    #[must_use]
    pub fn forward_key(&self) -> &ForwardKey {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs in which the two ends may differ.
    type Part = (Exporter, CryptoKind);

    /// Runs the exchange and returns both ends' keys.
    fn exchange(measurer: Part, target: Part) -> [CircuitKeys; 2] {
        let (ours, theirs) = (EphemeralKey::new([1; 32]), EphemeralKey::new([2; 32]));
        let measurement = MeasurementId([3; 16]);
        [(&ours, measurer), (&theirs, target)].map(|(key, (exporter, crypto))| {
            Exchange {
                measurement: &measurement,
                exporter: &exporter,
                measurer_public: &ours.public(),
                target_public: &theirs.public(),
                crypto,
            }
            .derive(key)
            .unwrap()
        })
    }

    #[test]
    fn both_ends_derive_the_same_keys_on_one_link_and_for_one_cipher_only() {
        let (cgo, ctr) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR);
        for crypto in [cgo, ctr] {
            let [ours, theirs] = exchange(([5; 32], crypto), ([5; 32], crypto));
            assert_eq!((ours.forward.crypto(), theirs.forward.crypto()), (crypto, crypto));
            assert_eq!(ours.forward.as_bytes(), theirs.forward.as_bytes());
            assert!(ours.confirms(&theirs.confirmation));
            let [ours, theirs] = exchange(([5; 32], crypto), ([6; 32], crypto));
            assert_ne!(ours.forward.as_bytes(), theirs.forward.as_bytes());
            assert!(!ours.confirms(&theirs.confirmation));
        }
        let [ours, theirs] = exchange(([5; 32], ctr), ([5; 32], cgo));
        assert_ne!(ours.forward.as_bytes(), &theirs.forward.as_bytes()[..16]);
        assert!(!ours.confirms(&theirs.confirmation));
    }

    #[test]
    fn a_zero_point_and_an_unknown_cipher_are_refused() {
        let (ours, other) = (EphemeralKey::new([1; 32]), EphemeralKey::new([2; 32]).public());
        for (target_public, crypto, is_good) in [
            (other, CryptoKind::AES128_CTR, true),
            ([0; 32], CryptoKind::AES128_CTR, false),
            ([0; 32], CryptoKind::CGO_AES128, false),
            (other, CryptoKind(3), false),
        ] {
            let exchange = Exchange {
                measurement: &MeasurementId([3; 16]),
                exporter: &[0; 32],
                measurer_public: &ours.public(),
                target_public: &target_public,
                crypto,
            };
            assert_eq!(exchange.derive(&ours).is_some(), is_good, "{crypto:?}");
        }
    }

    #[test]
    fn a_cell_that_a_relay_would_take_as_its_own_is_echoed_like_any_other() {
        let forward = ForwardKey::CgoAes128([6; cgo::KEY_LEN]);
        let keys = CircuitKeys { forward, confirmation: [0; 32] };
        let nonce = *keys.forward.as_bytes().last_chunk::<16>().unwrap();
        // With the left part of the first cell's echo as the nonce, that cell is the relay's own.
        let mut body = [7; crate::cell::BODY_LEN];
        EchoCircuit::new(1, &keys).echo(&mut body);
        let ForwardKey::CgoAes128(mut key) = keys.forward.clone() else { unreachable!() };
        assert_ne!(body[..16], nonce);
        key[64..].copy_from_slice(&body[..16]);
        let own = CircuitKeys { forward: ForwardKey::CgoAes128(key), confirmation: [0; 32] };
        let (mut plain, mut recognising) = (EchoCircuit::new(1, &keys), EchoCircuit::new(1, &own));
        for content in [7, 8, 9] {
            let mut bodies = [[content; crate::cell::BODY_LEN]; 2];
            plain.echo(&mut bodies[0]);
            recognising.echo(&mut bodies[1]);
            assert_eq!(bodies[0], bodies[1], "the nonce changes nothing");
        }
        assert_eq!(recognising.cells(), 3);
    }

    #[test]
    fn keys_stay_out_of_debug_output() {
        let [keys, _] =
            exchange(([5; 32], CryptoKind::CGO_AES128), ([5; 32], CryptoKind::CGO_AES128));
        let text = format!("{:?}", EchoCircuit::new(1, &keys));
        assert!(text.contains("ForwardKey(\"cgo-aes128\")") && text.len() < 150, "{text}");
    }
}
