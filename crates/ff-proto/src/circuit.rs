//! The measurement circuit: its key exchange, and what the target does with a cell.
//!
//! A fresh X25519 exchange gives the forward key and proves to the measurer that the target
//! computed the same (PROTOCOL.md §5). An echoed cell then costs the target one AES-128-CTR
//! pass, what a middle relay pays for a forwarded cell.

use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::auth::Exporter;
use crate::cell::Body;
use crate::keystream::Keystream;
use crate::msg::MeasurementId;

/// HKDF's info starts with this.
const KDF_INFO: &[u8] = b"flashflow-circuit-1";
/// Bytes of the confirmation in MEAS_CREATED.
pub const CONFIRMATION_LEN: usize = 32;

/// One half of the exchange: an ephemeral X25519 key.
pub struct EphemeralKey {
    /// Wiped on drop by its own type.
    secret: StaticSecret,
    /// What the peer gets.
    public: [u8; 32],
}

impl EphemeralKey {
    /// Makes a key of 32 bytes that must be fresh from a cryptographic generator.
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
}

/// What both ends derive.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct CircuitKeys {
    /// AES-128 key of the direction from measurer to target.
    pub forward: [u8; 16],
    /// What the target sends to show that it derived the same keys.
    pub confirmation: [u8; CONFIRMATION_LEN],
}

impl CircuitKeys {
    /// Whether the peer's confirmation is ours, in constant time.
    #[must_use]
    pub fn confirms(&self, confirmation: &[u8; CONFIRMATION_LEN]) -> bool {
        self.confirmation.ct_eq(confirmation).into()
    }
}

/// The exchange's public part: everything the keys are bound to.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The measurement.
    pub measurement: &'a MeasurementId,
    /// The link.
    pub exporter: &'a Exporter,
    /// X25519 public key from MEAS_CREATE.
    pub measurer_public: &'a [u8; 32],
    /// X25519 public key from MEAS_CREATED.
    pub target_public: &'a [u8; 32],
}

impl Exchange<'_> {
    /// Derives the keys with our half; `None` when the peer's point makes the secret zero.
    #[must_use]
    pub fn derive(&self, ours: &EphemeralKey) -> Option<CircuitKeys> {
        let theirs = if ours.public == *self.measurer_public {
            self.target_public
        } else {
            self.measurer_public
        };
        let shared = ours.secret.diffie_hellman(&PublicKey::from(*theirs));
        if !shared.was_contributory() {
            return None;
        }
        let info =
            [KDF_INFO, &self.measurement.0, self.measurer_public, self.target_public].concat();
        let mut output = [0; 16 + CONFIRMATION_LEN];
        Hkdf::<Sha256>::new(Some(self.exporter), shared.as_bytes())
            .expand(&info, &mut output)
            .ok()?;
        let mut keys = CircuitKeys { forward: [0; 16], confirmation: [0; CONFIRMATION_LEN] };
        keys.forward.copy_from_slice(&output[..16]);
        keys.confirmation.copy_from_slice(&output[16..]);
        output.zeroize();
        Some(keys)
    }
}

/// The target's end of a measurement circuit: all that a cell needs, and nothing shared.
#[derive(Debug)]
pub struct EchoCircuit {
    /// The only circuit id whose MEAS_ECHO cells belong here.
    circ_id: u32,
    /// The forward keystream.
    keystream: Keystream,
    /// Cells echoed so far.
    cells: u64,
}

impl EchoCircuit {
    /// A circuit at its first cell.
    #[must_use]
    pub fn new(circ_id: u32, keys: &CircuitKeys) -> Self {
        Self { circ_id, keystream: Keystream::new(&keys.forward), cells: 0 }
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

    /// Decrypts a MEAS_ECHO body in place; the cell then goes back as it is.
    #[inline]
    pub fn echo(&mut self, body: &mut Body) {
        self.keystream.apply(body);
        self.cells += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the exchange and returns both ends' keys.
    fn exchange(measurer_exporter: Exporter, target_exporter: Exporter) -> [CircuitKeys; 2] {
        let (ours, theirs) = (EphemeralKey::new([1; 32]), EphemeralKey::new([2; 32]));
        let measurement = MeasurementId([3; 16]);
        [(&ours, measurer_exporter), (&theirs, target_exporter)].map(|(key, exporter)| {
            Exchange {
                measurement: &measurement,
                exporter: &exporter,
                measurer_public: &ours.public(),
                target_public: &theirs.public(),
            }
            .derive(key)
            .unwrap()
        })
    }

    #[test]
    fn both_ends_derive_the_same_keys_on_one_link_only() {
        let [ours, theirs] = exchange([5; 32], [5; 32]);
        assert_eq!(ours.forward, theirs.forward);
        assert!(ours.confirms(&theirs.confirmation));
        let [ours, theirs] = exchange([5; 32], [6; 32]);
        assert_ne!(ours.forward, theirs.forward);
        assert!(!ours.confirms(&theirs.confirmation));
    }

    #[test]
    fn a_zero_point_is_refused() {
        let ours = EphemeralKey::new([1; 32]);
        let exchange = Exchange {
            measurement: &MeasurementId([3; 16]),
            exporter: &[0; 32],
            measurer_public: &ours.public(),
            target_public: &[0; 32],
        };
        assert!(exchange.derive(&ours).is_none());
    }
}
