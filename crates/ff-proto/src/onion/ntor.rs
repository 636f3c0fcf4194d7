//! The key exchange for opening and extending circuits: ntor, version 3 (Tor proposal 332).
//!
//! ```text
//!   client                                                         relay
//!     id, onion key B, X, ENC(message), MAC ───── CREATE2 ────────▶  takes it, or refuses
//!     takes it, or refuses ◀───────────────────── CREATED2 ───────  Y, AUTH, ENC(message)
//!   both: keys from H(Xy, Xb, id, B, X, Y)
//! ```
//!
//! Only the holder of b can make AUTH, so the answer is from the relay with this id. The messages
//! are lists of extensions ([`super::extend`]), and only the other end can read them.

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha3::digest::{ExtendableOutput, Update, XofReader};
use sha3::{Digest, Sha3_256, Shake256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::circuit::EphemeralKey;
use crate::codec::{DecodeError, Reader};
use crate::ids::Ed25519Id;

/// The handshake's type in CREATE2 and EXTEND2.
pub const HANDSHAKE_TYPE: u16 = 3;
/// The name of the protocol, a prefix of all its labels.
const PROTOID: &[u8] = b"ntor3-curve25519-sha3_256-1";
/// The purpose of the exchange: opening circuits.
const VERIFICATION: &[u8] = b"circuit extend";
/// Bytes of keys, points and hashes.
const LEN: usize = 32;

/// A relay's public keys for clients: its identity, and its key for circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnionKey {
    /// Its identity.
    pub id: Ed25519Id,
    /// B: the X25519 key of its descriptor's `ntor-onion-key`.
    pub key: [u8; LEN],
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NtorError {
    /// It cannot be decoded.
    #[error("a handshake is too short")]
    Decode(#[from] DecodeError),
    /// A point that makes the secret zero.
    #[error("a handshake's point is of a small order")]
    BadPoint,
    /// It is for another relay or another key.
    #[error("a handshake is for another relay")]
    OtherRelay,
    /// MAC or AUTH is wrong.
    #[error("a handshake's authentication is wrong")]
    BadAuth,
    /// The server refuses the client's message.
    #[error("a handshake's message is refused")]
    Refused,
}

/// The key material, in the order of its use.
pub struct KeySource(<Shake256 as ExtendableOutput>::Reader);

impl KeySource {
    /// Writes the next bytes of it.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.read(bytes);
    }
}

impl core::fmt::Debug for KeySource {
    /// Without the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeySource").finish_non_exhaustive()
    }
}

/// A client that has sent its handshake.
pub struct NtorClient {
    /// The relay.
    relay: OnionKey,
    /// x.
    ephemeral: EphemeralKey,
    /// Bx.
    shared: Zeroizing<[u8; LEN]>,
    /// The MAC of the sent message.
    mac: [u8; LEN],
}

impl NtorClient {
    /// Starts the exchange; the second value is the handshake data of CREATE2 or EXTEND2.
    ///
    /// # Errors
    /// [`NtorError::BadPoint`].
    pub fn new(
        relay: OnionKey,
        ephemeral: EphemeralKey,
        message: &[u8],
    ) -> Result<(Self, Vec<u8>), NtorError> {
        let shared = ephemeral.agree(&relay.key).ok_or(NtorError::BadPoint)?;
        let keys = MessageKeys::new(&shared, &relay, &ephemeral.public());
        let mut message = message.to_vec();
        apply_aes256_ctr(&keys.encryption, &mut message);
        let mac = keys.mac(&relay, &ephemeral.public(), &message);
        let request = [&relay.id.0[..], &relay.key, &ephemeral.public(), &message, &mac].concat();
        Ok((Self { relay, ephemeral, shared, mac }, request))
    }

    /// Reads the handshake data of CREATED2 or EXTENDED2. Returns the relay's message and the keys.
    ///
    /// # Errors
    /// [`NtorError`] if the answer is not from the holder of b.
    pub fn finish(self, reply: &[u8]) -> Result<(Vec<u8>, KeySource), NtorError> {
        let mut reader = Reader::new(reply);
        let theirs: [u8; LEN] = reader.array("a relay's point")?;
        let auth: [u8; LEN] = reader.array("a relay's AUTH")?;
        let mut message = reader.rest().to_vec();
        let fresh = self.ephemeral.agree(&theirs).ok_or(NtorError::BadPoint)?;
        let agreement = Agreement {
            secrets: [fresh, self.shared],
            relay: &self.relay,
            client: &self.ephemeral.public(),
            server: &theirs,
        };
        let mut keys = agreement.keys();
        let expected = agreement.auth(&self.mac, &message);
        if !bool::from(expected.ct_eq(&auth)) {
            return Err(NtorError::BadAuth);
        }
        apply_aes256_ctr(&take_key(&mut keys), &mut message);
        Ok((message, keys))
    }
}

/// A relay's secret key for circuits.
pub struct NtorServer {
    /// Its identity.
    pub id: Ed25519Id,
    /// b.
    pub key: EphemeralKey,
}

impl NtorServer {
    /// The public keys for clients.
    #[must_use]
    pub fn public(&self) -> OnionKey {
        OnionKey { id: self.id, key: self.key.public() }
    }

    /// Answers a client: returns the handshake data of CREATED2, and the keys. `respond` returns
    /// our message for the client's, or refuses it.
    ///
    /// # Errors
    /// [`NtorError`]; then the only answer must be DESTROY.
    pub fn answer(
        &self,
        request: &[u8],
        ephemeral: &EphemeralKey,
        respond: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<(Vec<u8>, KeySource), NtorError> {
        let relay = self.public();
        let mut reader = Reader::new(request);
        let asked = OnionKey {
            id: Ed25519Id(reader.array("a client's relay")?),
            key: reader.array("a client's onion key")?,
        };
        if asked != relay {
            return Err(NtorError::OtherRelay);
        }
        let client: [u8; LEN] = reader.array("a client's point")?;
        let (message, mac) = reader
            .rest()
            .split_last_chunk::<LEN>()
            .ok_or(DecodeError::Truncated { field: "a client's MAC" })?;
        let shared = self.key.agree(&client).ok_or(NtorError::BadPoint)?;
        let keys = MessageKeys::new(&shared, &relay, &client);
        if !bool::from(keys.mac(&relay, &client, message).ct_eq(mac)) {
            return Err(NtorError::BadAuth);
        }
        let mut message = message.to_vec();
        apply_aes256_ctr(&keys.encryption, &mut message);
        let mut answer = respond(&message).ok_or(NtorError::Refused)?;
        let fresh = ephemeral.agree(&client).ok_or(NtorError::BadPoint)?;
        let server = ephemeral.public();
        let agreement =
            Agreement { secrets: [fresh, shared], relay: &relay, client: &client, server: &server };
        let mut keys = agreement.keys();
        apply_aes256_ctr(&take_key(&mut keys), &mut answer);
        let auth = agreement.auth(mac, &answer);
        Ok(([&server[..], &auth, &answer].concat(), keys))
    }
}

/// The client's public key in the handshake data of CREATE2, which identifies a circuit.
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn client_point(request: &[u8]) -> Result<[u8; LEN], DecodeError> {
    let mut reader = Reader::new(request);
    reader.take(2 * LEN, "a client's relay")?;
    reader.array("a client's point")
}

/// Keys of the client's message.
struct MessageKeys {
    encryption: Zeroizing<[u8; LEN]>,
    authentication: Zeroizing<[u8; LEN]>,
}

impl MessageKeys {
    /// The keys for a client that shares this secret with the relay's onion key.
    fn new(shared: &[u8; LEN], relay: &OnionKey, client: &[u8; LEN]) -> Self {
        let mut source = Shake256::default();
        tag(&mut source, ":kdf_phase1");
        for part in [shared, &relay.id.0, client, &relay.key, PROTOID] {
            source.update(part);
        }
        encapsulate(&mut source, VERIFICATION);
        let mut source = KeySource(source.finalize_xof());
        Self { encryption: take_key(&mut source), authentication: take_key(&mut source) }
    }

    /// The MAC of the encrypted message.
    fn mac(&self, relay: &OnionKey, client: &[u8; LEN], message: &[u8]) -> [u8; LEN] {
        let mut hash = Sha3_256::default();
        tag(&mut hash, ":msg_mac");
        encapsulate(&mut hash, &*self.authentication);
        for part in [&relay.id.0, &relay.key, client, message] {
            Update::update(&mut hash, part);
        }
        hash.finalize().into()
    }
}

/// The values that both ends know.
struct Agreement<'a> {
    /// Xy and Xb.
    secrets: [Zeroizing<[u8; LEN]>; 2],
    relay: &'a OnionKey,
    /// X.
    client: &'a [u8; LEN],
    /// Y.
    server: &'a [u8; LEN],
}

impl Agreement<'_> {
    /// Their hash for one purpose.
    fn hash(&self, purpose: &str) -> Zeroizing<[u8; LEN]> {
        let mut hash = Sha3_256::default();
        tag(&mut hash, purpose);
        let [fresh, shared] = &self.secrets;
        let relay = self.relay;
        for part in
            [&fresh[..], &shared[..], &relay.id.0, &relay.key, self.client, self.server, PROTOID]
        {
            Update::update(&mut hash, part);
        }
        encapsulate(&mut hash, VERIFICATION);
        Zeroizing::new(hash.finalize().into())
    }

    /// The keys, beginning with that of the relay's message.
    fn keys(&self) -> KeySource {
        let mut source = Shake256::default();
        tag(&mut source, ":kdf_final");
        source.update(&*self.hash(":key_seed"));
        KeySource(source.finalize_xof())
    }

    /// AUTH for the client's MAC and the relay's encrypted message.
    fn auth(&self, mac: &[u8; LEN], message: &[u8]) -> [u8; LEN] {
        let mut hash = Sha3_256::default();
        tag(&mut hash, ":auth_final");
        let verify = self.hash(":verify");
        for part in [&verify[..], &self.relay.id.0, &self.relay.key, self.server, self.client, mac]
        {
            Update::update(&mut hash, part);
        }
        encapsulate(&mut hash, message);
        Update::update(&mut hash, PROTOID);
        Update::update(&mut hash, b"Server");
        hash.finalize().into()
    }
}

/// The next 32 bytes as a key.
fn take_key(source: &mut KeySource) -> Zeroizing<[u8; LEN]> {
    let mut key = Zeroizing::new([0; LEN]);
    source.fill(&mut *key);
    key
}

/// Adds the tag of a purpose with its length.
fn tag(hash: &mut impl Update, purpose: &str) {
    hash.update(&((PROTOID.len() + purpose.len()) as u64).to_be_bytes());
    hash.update(PROTOID);
    hash.update(purpose.as_bytes());
}

/// Adds bytes with their length.
fn encapsulate(hash: &mut impl Update, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Encrypts or decrypts with a zero initial counter.
fn apply_aes256_ctr(key: &[u8; LEN], bytes: &mut [u8]) {
    let cipher = Aes256::new(&(*key).into());
    for (chunk, counter) in bytes.chunks_mut(16).zip(0_u128..) {
        let mut block = counter.to_be_bytes().into();
        cipher.encrypt_block(&mut block);
        chunk.iter_mut().zip(block).for_each(|(byte, key)| *byte ^= key);
    }
}

#[cfg(test)]
mod tests;
