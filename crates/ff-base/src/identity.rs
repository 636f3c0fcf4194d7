//! Relays' identities and keys, and how documents of the network write them.

use base64ct::{Base64Unpadded, Encoding};

/// A relay's RSA identity, by which the network's documents name it.
pub type Fingerprint = [u8; 20];

/// A fingerprint in base64, 27 characters, as `r` lines have it (dir-spec 3.4.1).
#[must_use]
pub fn fingerprint_base64(text: &str) -> Option<Fingerprint> {
    Base64Unpadded::decode_vec(text).ok()?.try_into().ok()
}

/// A fingerprint in 40 hex digits, with `$` before it or not, and perhaps with a nickname behind it.
#[must_use]
pub fn fingerprint_hex(text: &str) -> Option<Fingerprint> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let digits = text.split(['~', '=']).next()?;
    hex::decode(digits).ok()?.try_into().ok()
}

/// A key or a digest in base64, 43 characters, or 44 with the padding that some have.
#[must_use]
pub fn key_base64(text: &str) -> Option<[u8; 32]> {
    Base64Unpadded::decode_vec(text.strip_suffix('=').unwrap_or(text)).ok()?.try_into().ok()
}
