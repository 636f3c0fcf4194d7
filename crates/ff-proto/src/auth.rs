//! Authentication of peers: Ed25519 signatures bound to one TLS session (PROTOCOL.md §3).
//!
//! The signature covers a value that only the two ends of this TLS session can compute (RFC 5705
//! exporter), so neither a man in the middle nor another link can replay it.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::ids::Ed25519Id;

/// Label of the TLS exporter (RFC 5705 §4: private labels begin with `EXPORTER`); no context.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-flashflow-link-1";
/// Bytes taken from the TLS exporter.
pub const EXPORTER_LEN: usize = 32;
/// The output of a link's TLS exporter.
pub type Exporter = [u8; EXPORTER_LEN];
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

/// The prefix of all signed bytes, so that no signature of another protocol is valid here.
const SIGNED_PREFIX: &[u8] = b"flashflow-link-signature-1";

/// The bytes under a signature: `prefix || command || exporter || payload before the signature`.
fn signed_bytes(exporter: &Exporter, command: u8, payload: &[u8]) -> Vec<u8> {
    [SIGNED_PREFIX, &[command], exporter, payload].concat()
}

/// Signs a control message for one link.
#[must_use]
pub fn sign(
    key: &SigningKey,
    exporter: &Exporter,
    command: u8,
    payload: &[u8],
) -> [u8; SIGNATURE_LEN] {
    key.sign(&signed_bytes(exporter, command, payload)).to_bytes()
}

/// Whether `signature` is `signer`'s signature of this message on this link.
///
/// Weak keys and non-canonical signatures are refused (`verify_strict`).
#[must_use]
pub fn verify(
    signer: &Ed25519Id,
    exporter: &Exporter,
    command: u8,
    payload: &[u8],
    signature: &[u8; SIGNATURE_LEN],
) -> bool {
    VerifyingKey::from_bytes(&signer.0).is_ok_and(|key| {
        let message = signed_bytes(exporter, command, payload);
        key.verify_strict(&message, &Signature::from_bytes(signature)).is_ok()
    })
}
