//! The TLS 1.3 record layer for bulk traffic: encrypts and decrypts records in place.
//!
//! rustls does the handshake; then the traffic keys are taken out and used here, because a
//! measurement moves gigabytes per second and each copy is expensive. [`Sealer`] and [`Opener`]
//! work in the caller's buffer, allocate nothing and keep no data between calls.
//!
//! The bytes for [`Opener`] come from a relay that may be hostile: every length is checked, and an
//! error is final (the link must be dropped, and the buffer's content is undefined).
//!
//! Limits: keys are never updated. A peer that sends a KeyUpdate is refused with a clear error,
//! and [`Sealer`] stops at the cipher suite's confidentiality limit, where one would be due. That
//! is 2^24 records, 51 GB of 3,084-byte records.
//!
//! Decisions: doc/decisions.md, "A record layer of our own".

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{AlertDescription, ConnectionTrafficSecrets, ExtractedSecrets};
use zeroize::Zeroizing;

/// Bytes of a record's header: content type, version, length.
pub const HEADER: usize = 5;
/// Bytes of the authentication tag at a record's end; the same for all three suites.
pub const TAG: usize = 16;
/// Bytes a record takes on the wire beyond its plaintext: header, content type and tag.
pub const RECORD_OVERHEAD: usize = HEADER + 1 + TAG;
/// The largest number of plaintext bytes in a record (RFC 8446 §5.1).
pub const MAX_PLAINTEXT: usize = 1 << 14;
/// Length of the longest record on the wire: a header and the longest ciphertext (RFC 8446 §5.2).
pub const MAX_WIRE: usize = HEADER + MAX_CIPHERTEXT;

/// A cipher suite of TLS 1.3, by its AEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256
    ChaCha20Poly1305,
}

impl Suite {
    /// The AEAD of the suite.
    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Records that may be sealed with one key (RFC 8446 §5.5, rounded down to a power of two).
    fn confidentiality_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 24,
            Self::ChaCha20Poly1305 => u64::MAX,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Self::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Self::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        })
    }
}

/// Why a record could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The buffer given to [`Sealer::seal`] has no valid length for a record.
    #[error("a buffer of {len} bytes does not hold a record: {RECORD_OVERHEAD} to {} are needed",
            MAX_PLAINTEXT + RECORD_OVERHEAD)]
    Layout {
        /// The buffer's length.
        len: usize,
    },
    /// The key has sealed as many records as is safe; a new link is needed.
    #[error("this link's key has sealed all the records it may; open a new link")]
    KeyExhausted,
    /// The key material does not fit the suite, or AES failed; never seen in practice.
    #[error("the cipher refused its key or input")]
    Cipher,
    /// A record that is not encrypted, or not TLS at all.
    #[error("the peer sent an unencrypted record of type {0} on an established TLS link")]
    NotEncrypted(u8),
    /// The length field is out of bounds.
    #[error("the peer sent a TLS record whose length, {len}, is out of bounds")]
    Length {
        /// The value of the field, or the length of the decrypted content.
        len: usize,
    },
    /// Authentication failed: the bytes were changed on the way, or the keys differ.
    #[error("a TLS record failed its integrity check; it was changed on the way")]
    Forged,
    /// The record has only padding and no content type.
    #[error("the peer sent a TLS record of padding only")]
    OnlyPadding,
    /// The peer ended the link with an alert other than close_notify.
    #[error("the peer ended the link with the TLS alert {:?}", AlertDescription::from(*.0))]
    Alert(u8),
    /// The peer requests new keys, which FlashFlow never does within a measurement.
    #[error("the peer sent a TLS KeyUpdate, which FlashFlow links do not support; open a new link")]
    KeyUpdate,
    /// A handshake message that is not allowed after the handshake, or is fragmented.
    #[error("the peer sent an unexpected TLS handshake message of type {0}")]
    Handshake(u8),
    /// A record whose inner content type or form is not allowed here.
    #[error("the peer sent an unexpected TLS record of inner type {0}")]
    ContentType(u8),
    /// Many records with little or no data: only a hostile peer sends them.
    #[error("the peer sent many TLS records with less than {LEAST_MEAN} bytes of data on average")]
    TooSmall,
}

/// Turns the secrets of a finished TLS 1.3 handshake into the two directions of a record layer.
///
/// # Errors
/// [`RecordError::Cipher`] for a suite that is not one of [`Suite`]'s.
pub fn pair(secrets: &ExtractedSecrets) -> Result<(Sealer, Opener, Suite), RecordError> {
    let (tx, suite) = Direction::new(secrets.tx.0, &secrets.tx.1)?;
    let (rx, _) = Direction::new(secrets.rx.0, &secrets.rx.1)?;
    let limit = suite.confidentiality_limit();
    Ok((Sealer { direction: tx, limit }, Opener { direction: rx, small_left: SMALL_BYTES }, suite))
}

/// Encrypts outgoing records.
pub struct Sealer {
    direction: Direction,
    /// The value of the counter at which the key must not be used any more.
    limit: u64,
}

impl Sealer {
    /// Seals one record of application data in place.
    ///
    /// `record` is laid out as `[5 header][plaintext][1 content type][16 tag]`; the caller fills in
    /// only the plaintext. Afterwards all of `record` must be sent.
    ///
    /// # Errors
    /// [`RecordError::Layout`] when the length is not valid, [`RecordError::KeyExhausted`] when the
    /// key must not be used any more. The record must not be sent then.
    pub fn seal(&mut self, record: &mut [u8]) -> Result<(), RecordError> {
        self.seal_as(CONTENT_DATA, record)
    }

    /// Seals the alert that announces the end of our data.
    ///
    /// # Errors
    /// [`RecordError::KeyExhausted`], as in [`seal`](Self::seal).
    pub fn close_notify(&mut self) -> Result<[u8; 2 + RECORD_OVERHEAD], RecordError> {
        let mut record = [0; 2 + RECORD_OVERHEAD];
        record[HEADER] = ALERT_WARNING;
        record[HEADER + 1] = ALERT_CLOSE_NOTIFY;
        self.seal_as(CONTENT_ALERT, &mut record)?;
        Ok(record)
    }

    /// The number of records that the key may still seal.
    #[must_use]
    pub fn records_left(&self) -> u64 {
        self.limit.saturating_sub(self.direction.seq)
    }

    /// Seals a record of any content type.
    fn seal_as(&mut self, content_type: u8, record: &mut [u8]) -> Result<(), RecordError> {
        let len = record.len();
        if !(RECORD_OVERHEAD..=MAX_PLAINTEXT + RECORD_OVERHEAD).contains(&len) {
            return Err(RecordError::Layout { len });
        }
        if self.direction.seq >= self.limit {
            return Err(RecordError::KeyExhausted);
        }
        let body_len = u16::try_from(len - HEADER).map_err(|_| RecordError::Layout { len })?;
        let [hi, lo] = body_len.to_be_bytes();
        let header = [CONTENT_DATA, 3, 3, hi, lo];
        let (front, tag) = record.split_at_mut(len - TAG);
        front[..HEADER].copy_from_slice(&header);
        front[len - TAG - 1] = content_type;
        let computed = self
            .direction
            .key
            .seal_in_place_separate_tag(
                self.direction.nonce(),
                Aad::from(header),
                &mut front[HEADER..],
            )
            .map_err(|_| RecordError::Cipher)?;
        tag.copy_from_slice(computed.as_ref());
        self.direction.seq += 1;
        Ok(())
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("seq", &self.direction.seq).finish_non_exhaustive()
    }
}

/// The result of [`Opener::open`] for the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The record is not complete yet.
    Incomplete {
        /// The least length of the buffer with which to try again.
        need_total_bytes: usize,
    },
    /// Application data.
    Data {
        /// The position of the plaintext in the buffer; may be empty.
        plaintext: Range<usize>,
        /// The record's length on the wire.
        wire_len: usize,
    },
    /// A record that is ignored (session tickets).
    Ignored {
        /// The record's length on the wire.
        wire_len: usize,
    },
    /// The peer announced the end of its data.
    Closed,
}

/// Decrypts incoming records.
pub struct Opener {
    direction: Direction,
    /// The number of bytes by which records may still be smaller than [`LEAST_MEAN`]; larger
    /// records add to it, up to [`SMALL_BYTES`].
    small_left: usize,
}

impl Opener {
    /// Opens the record that begins at `buf[0]`, in place.
    ///
    /// # Errors
    /// Any error is final: neither the opener nor the rest of `buf` may be used again.
    pub fn open(&mut self, buf: &mut [u8]) -> Result<Opened, RecordError> {
        let Some((&mut header, rest)) = buf.split_first_chunk_mut::<HEADER>() else {
            return Ok(Opened::Incomplete { need_total_bytes: HEADER });
        };
        let body_len = body_len(header)?;
        let wire_len = HEADER + body_len;
        let Some(body) = rest.get_mut(..body_len) else {
            return Ok(Opened::Incomplete { need_total_bytes: wire_len });
        };
        let (inner, tag) = body.split_at_mut(body_len - TAG);
        self.direction
            .key
            .open_in_place_separate_tag(self.direction.nonce(), Aad::from(header), tag, inner)
            .map_err(|_| RecordError::Forged)?;
        self.direction.seq = self.direction.seq.checked_add(1).ok_or(RecordError::KeyExhausted)?;
        let (content_type, content) = split_inner(inner)?;
        self.count_small(content_type, content, wire_len)?;
        match content_type {
            CONTENT_DATA => {
                Ok(Opened::Data { plaintext: HEADER..HEADER + content.len(), wire_len })
            }
            CONTENT_HANDSHAKE => only_tickets(content).map(|()| Opened::Ignored { wire_len }),
            CONTENT_ALERT => alert(content),
            other => Err(RecordError::ContentType(other)),
        }
    }

    /// Refuses a peer whose records have almost no data, or are mostly TLS's own padding. Each
    /// costs as much as a cell, so a relay could use them to overload a measurer.
    fn count_small(
        &mut self,
        content_type: u8,
        content: &[u8],
        wire_len: usize,
    ) -> Result<(), RecordError> {
        let data_len = if content_type == CONTENT_DATA { content.len() } else { 0 };
        let padding = wire_len.saturating_sub(data_len + RECORD_OVERHEAD);
        let least = LEAST_MEAN + padding / LEAST_PART;
        let left = (self.small_left + data_len).checked_sub(least);
        self.small_left = left.ok_or(RecordError::TooSmall)?.min(SMALL_BYTES);
        Ok(())
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("seq", &self.direction.seq).finish_non_exhaustive()
    }
}

/// Key, nonce base and record counter of one direction.
struct Direction {
    /// The AEAD key.
    key: LessSafeKey,
    /// The vector that is combined with the counter to make the nonce (RFC 8446 §5.3).
    iv: Zeroizing<[u8; aead::NONCE_LEN]>,
    /// Number of the next record.
    seq: u64,
}

impl Direction {
    /// The state of a direction whose next record has the number `seq`.
    fn new(seq: u64, secrets: &ConnectionTrafficSecrets) -> Result<(Self, Suite), RecordError> {
        let (suite, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (Suite::ChaCha20Poly1305, key, iv)
            }
            _ => return Err(RecordError::Cipher),
        };
        let key =
            UnboundKey::new(suite.algorithm(), key.as_ref()).map_err(|_| RecordError::Cipher)?;
        let iv = Zeroizing::new(iv.as_ref().try_into().map_err(|_| RecordError::Cipher)?);
        Ok((Self { key: LessSafeKey::new(key), iv, seq }, suite))
    }

    /// The nonce of the next record: the counter, big-endian, XORed to the end of the IV.
    fn nonce(&self) -> Nonce {
        let mut nonce = *self.iv;
        for (byte, seq) in nonce[4..].iter_mut().zip(self.seq.to_be_bytes()) {
            *byte ^= seq;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Checks a header and returns the length of the rest of the record.
///
/// A plaintext change_cipher_spec is refused too: RFC 8446 §5 allows it only before the peer's
/// Finished, and this layer begins after that.
fn body_len(header: [u8; HEADER]) -> Result<usize, RecordError> {
    let [content_type, _, _, hi, lo] = header;
    if content_type != CONTENT_DATA {
        return Err(RecordError::NotEncrypted(content_type));
    }
    // RFC 8446 §5.2: "The length MUST NOT exceed 2^14 + 256 bytes."
    let len = usize::from(u16::from_be_bytes([hi, lo]));
    if (TAG + 1..=MAX_CIPHERTEXT).contains(&len) {
        Ok(len)
    } else {
        Err(RecordError::Length { len })
    }
}

/// Splits a decrypted record into content type and content, dropping the zero padding.
fn split_inner(inner: &[u8]) -> Result<(u8, &[u8]), RecordError> {
    // RFC 8446 §5.4: the inner plaintext, content type and padding included, is at most 2^14 + 1.
    if inner.len() > MAX_PLAINTEXT + 1 {
        return Err(RecordError::Length { len: inner.len() });
    }
    let end = inner.iter().rposition(|&byte| byte != 0).ok_or(RecordError::OnlyPadding)?;
    Ok((inner[end], &inner[..end]))
}

/// Accepts only a record of whole NewSessionTicket messages.
fn only_tickets(mut content: &[u8]) -> Result<(), RecordError> {
    if content.is_empty() {
        return Err(RecordError::ContentType(CONTENT_HANDSHAKE));
    }
    while let Some((&[kind, a, b, c], rest)) = content.split_first_chunk::<4>() {
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            HANDSHAKE_NEW_SESSION_TICKET => {}
            HANDSHAKE_KEY_UPDATE => return Err(RecordError::KeyUpdate),
            other => return Err(RecordError::Handshake(other)),
        }
        content = rest.get(len..).ok_or(RecordError::Handshake(kind))?;
    }
    // Fewer than four bytes are left: a fragmented message, which no valid peer sends.
    content.first().map_or(Ok(()), |&kind| Err(RecordError::Handshake(kind)))
}

/// Accepts close_notify and refuses all other alerts.
fn alert(content: &[u8]) -> Result<Opened, RecordError> {
    match *content {
        [_, ALERT_CLOSE_NOTIFY] => Ok(Opened::Closed),
        [_, description] => Err(RecordError::Alert(description)),
        _ => Err(RecordError::ContentType(CONTENT_ALERT)),
    }
}

/// RFC 8446 §5.2: longest encrypted part of a record.
const MAX_CIPHERTEXT: usize = MAX_PLAINTEXT + 256;
/// The least mean number of data bytes in a peer's records. Relays write cells of 514 bytes.
const LEAST_MEAN: usize = 64;
/// One byte of data is the least for this number of bytes of TLS's padding.
const LEAST_PART: usize = 4;
/// The number of bytes by which records may be smaller in total: 32 records without data. Servers
/// send two session tickets.
const SMALL_BYTES: usize = 32 * LEAST_MEAN;
/// Content type of application data, and outer type of every encrypted record.
const CONTENT_DATA: u8 = 23;
/// Content type of handshake messages.
const CONTENT_HANDSHAKE: u8 = 22;
/// Content type of alerts.
const CONTENT_ALERT: u8 = 21;
/// Handshake message that offers a session for resumption.
const HANDSHAKE_NEW_SESSION_TICKET: u8 = 4;
/// Handshake message that changes the sender's key.
const HANDSHAKE_KEY_UPDATE: u8 = 24;
/// Alert level of close_notify.
const ALERT_WARNING: u8 = 1;
/// Alert that announces the end of the data.
const ALERT_CLOSE_NOTIFY: u8 = 0;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};

    use proptest::prelude::*;
    use rustls::crypto::aws_lc_rs::cipher_suite;
    use rustls::crypto::cipher::{AeadKey, Iv};
    use rustls::{ClientConnection, ServerConnection, SupportedCipherSuite};

    use super::*;
    use crate::link::tls::{client_config, tests::server_config};

    /// Moves all bytes that one side has to send to the other.
    fn transfer<A, B>(
        from: &mut rustls::ConnectionCommon<A>,
        to: &mut rustls::ConnectionCommon<B>,
    ) {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire).expect("write");
        }
        let mut wire = &wire[..];
        while !wire.is_empty() {
            to.read_tls(&mut wire).expect("read");
            to.process_new_packets().expect("process");
        }
    }

    /// A server with a finished handshake, and our record layer as its client. The server has not
    /// sent its session tickets yet.
    fn connected(suite: SupportedCipherSuite) -> (ServerConnection, Sealer, Opener, Suite) {
        let config = client_config().expect("client config");
        let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
        let mut client = ClientConnection::new(config, name).expect("client");
        let mut server = ServerConnection::new(server_config(&[suite]).into()).expect("server");
        while client.is_handshaking() {
            transfer(&mut client, &mut server);
            if client.is_handshaking() {
                transfer(&mut server, &mut client);
            }
        }
        transfer(&mut client, &mut server);
        assert!(!server.is_handshaking());
        let (sealer, opener, suite) =
            pair(&client.dangerous_extract_secrets().expect("secrets")).expect("pair");
        (server, sealer, opener, suite)
    }

    /// A pair of record layers with the same keys.
    pub(crate) fn looped() -> (Sealer, Opener) {
        let secrets = || ConnectionTrafficSecrets::Chacha20Poly1305 {
            key: AeadKey::from([7; 32]),
            iv: Iv::from([9; 12]),
        };
        let secrets = ExtractedSecrets { tx: (0, secrets()), rx: (0, secrets()) };
        let (sealer, opener, _) = pair(&secrets).expect("pair");
        (sealer, opener)
    }

    /// A sealed record around `content`, with any content type and padding.
    fn sealed(sealer: &mut Sealer, content: &[u8], content_type: u8) -> Vec<u8> {
        let mut record = vec![0; content.len() + RECORD_OVERHEAD];
        record[HEADER..HEADER + content.len()].copy_from_slice(content);
        sealer.seal_as(content_type, &mut record).expect("seal");
        record
    }

    /// Bytes that differ from record to record.
    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i * 7 % 251).expect("small")).collect()
    }

    fn round_trip(suite: SupportedCipherSuite, expected: Suite) {
        let (mut server, mut sealer, mut opener, suite) = connected(suite);
        assert_eq!(suite, expected);
        for plain in [1, 514, 8 * 514, 31 * 514, MAX_PLAINTEXT].map(sample) {
            let record = sealed(&mut sealer, &plain, CONTENT_DATA);
            let mut wire = &record[..];
            while !wire.is_empty() {
                server.read_tls(&mut wire).expect("read");
            }
            server.process_new_packets().expect("process");
            let mut got = vec![0; plain.len()];
            server.reader().read_exact(&mut got).expect("plaintext");
            assert_eq!(got, plain);

            server.writer().write_all(&plain).expect("write");
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).expect("write");
            }
            assert_eq!(received(&mut opener, &mut wire), plain);
        }
        let record = sealer.close_notify().expect("close_notify");
        server.read_tls(&mut &record[..]).expect("read");
        assert!(server.process_new_packets().expect("process").peer_has_closed());
        server.send_close_notify();
        let mut wire = Vec::new();
        server.write_tls(&mut wire).expect("write");
        assert_eq!(opener.open(&mut wire), Ok(Opened::Closed));
    }

    /// Opens all records of `wire` and joins their data.
    fn received(opener: &mut Opener, mut wire: &mut [u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !wire.is_empty() {
            let len = match opener.open(wire).expect("open") {
                Opened::Data { plaintext, wire_len } => {
                    plain.extend_from_slice(&wire[plaintext]);
                    wire_len
                }
                Opened::Ignored { wire_len } => wire_len,
                other => panic!("unexpected {other:?}"),
            };
            wire = &mut wire[len..];
        }
        plain
    }

    #[test]
    fn aes_128_gcm_talks_to_rustls() {
        round_trip(cipher_suite::TLS13_AES_128_GCM_SHA256, Suite::Aes128Gcm);
    }

    #[test]
    fn aes_256_gcm_talks_to_rustls() {
        round_trip(cipher_suite::TLS13_AES_256_GCM_SHA384, Suite::Aes256Gcm);
    }

    #[test]
    fn chacha20_poly1305_talks_to_rustls() {
        round_trip(cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, Suite::ChaCha20Poly1305);
    }

    #[test]
    fn key_update_of_a_real_peer_is_refused() {
        let (mut server, _, mut opener, _) = connected(cipher_suite::TLS13_AES_128_GCM_SHA256);
        server.refresh_traffic_keys().expect("key update");
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("write");
        }
        let mut wire = &mut wire[..];
        let error = loop {
            match opener.open(wire) {
                Ok(Opened::Ignored { wire_len }) => wire = &mut wire[wire_len..],
                other => break other,
            }
        };
        assert_eq!(error, Err(RecordError::KeyUpdate));
    }

    #[test]
    fn tampered_byte_anywhere_fails() {
        for at in 0..600 + RECORD_OVERHEAD {
            let (mut sealer, mut opener) = looped();
            let mut record = sealed(&mut sealer, &sample(600), CONTENT_DATA);
            record[at] ^= 1;
            let opened = opener.open(&mut record);
            assert!(!matches!(opened, Ok(Opened::Data { .. })), "byte {at}: {opened:?}");
        }
    }

    #[test]
    fn replayed_record_fails() {
        let (mut sealer, mut opener) = looped();
        let record = sealed(&mut sealer, b"cell", CONTENT_DATA);
        assert!(opener.open(&mut record.clone()).is_ok());
        assert_eq!(opener.open(&mut record.clone()), Err(RecordError::Forged));
    }

    #[test]
    fn padding_is_stripped_and_must_not_be_all() {
        let (mut sealer, mut opener) = looped();
        // Content "ab", its type, and three bytes of padding, the last where the type usually is.
        let mut record = sealed(&mut sealer, &[b'a', b'b', CONTENT_DATA, 0, 0], 0);
        let wire_len = record.len();
        let plaintext = HEADER..HEADER + 2;
        assert_eq!(opener.open(&mut record), Ok(Opened::Data { plaintext, wire_len }));

        let mut record = sealed(&mut sealer, &[], CONTENT_DATA);
        let plaintext = HEADER..HEADER;
        let opened = opener.open(&mut record);
        assert_eq!(opened, Ok(Opened::Data { plaintext, wire_len: RECORD_OVERHEAD }));

        let mut record = sealed(&mut sealer, &[0; 40], 0);
        assert_eq!(opener.open(&mut record), Err(RecordError::OnlyPadding));
    }

    #[test]
    fn incomplete_record_says_how_much_is_missing() {
        let (mut sealer, mut opener) = looped();
        let mut record = sealed(&mut sealer, &sample(100), CONTENT_DATA);
        for have in 0..record.len() {
            let need_total_bytes = if have < HEADER { HEADER } else { record.len() };
            let opened = opener.open(&mut record[..have]);
            assert_eq!(opened, Ok(Opened::Incomplete { need_total_bytes }));
        }
        assert!(matches!(opener.open(&mut record), Ok(Opened::Data { .. })));
    }

    #[test]
    fn control_records_are_told_apart() {
        let key_update = [HANDSHAKE_KEY_UPDATE, 0, 0, 1, 0];
        let tickets =
            [HANDSHAKE_NEW_SESSION_TICKET, 0, 0, 1, 9, HANDSHAKE_NEW_SESSION_TICKET, 0, 0, 0];
        let ignored = Opened::Ignored { wire_len: tickets.len() + RECORD_OVERHEAD };
        let cases: [(&[u8], u8, Result<Opened, RecordError>); 9] = [
            (&tickets, CONTENT_HANDSHAKE, Ok(ignored)),
            (&tickets[..4], CONTENT_HANDSHAKE, Err(RecordError::Handshake(4))),
            (&tickets[..6], CONTENT_HANDSHAKE, Err(RecordError::Handshake(4))),
            (&[], CONTENT_HANDSHAKE, Err(RecordError::ContentType(CONTENT_HANDSHAKE))),
            (&key_update, CONTENT_HANDSHAKE, Err(RecordError::KeyUpdate)),
            (&[1, 0], CONTENT_ALERT, Ok(Opened::Closed)),
            (&[2, 20], CONTENT_ALERT, Err(RecordError::Alert(20))),
            (&[2], CONTENT_ALERT, Err(RecordError::ContentType(CONTENT_ALERT))),
            (&[1], 20, Err(RecordError::ContentType(20))),
        ];
        for (content, content_type, expected) in cases {
            let (mut sealer, mut opener) = looped();
            let mut record = sealed(&mut sealer, content, content_type);
            assert_eq!(opener.open(&mut record), expected, "{content:?}");
        }
    }

    #[test]
    fn bad_headers_are_refused_at_once() {
        let (_, mut opener) = looped();
        for content_type in [0, 20, 21, 22, 24, b'H'] {
            let opened = opener.open(&mut [content_type, 3, 3, 0, 30]);
            assert_eq!(opened, Err(RecordError::NotEncrypted(content_type)));
        }
        for len in [0, 16, 16_641, 65_535_u16] {
            let [hi, lo] = len.to_be_bytes();
            let opened = opener.open(&mut [23, 3, 3, hi, lo]);
            assert_eq!(opened, Err(RecordError::Length { len: len.into() }));
        }
    }

    #[test]
    fn records_with_next_to_no_data_are_refused() {
        for (len, expected) in [(0, Some(32)), (1, Some(32)), (32, Some(64)), (64, None)] {
            let (mut sealer, mut opener) = looped();
            let content = vec![7; len];
            let refused = (0..1000)
                .map(|_| opener.open(&mut sealed(&mut sealer, &content, CONTENT_DATA)))
                .position(|opened| opened == Err(RecordError::TooSmall));
            assert_eq!(refused, expected, "records of {len} bytes");
        }
        // A cell makes up for a few empty records.
        let (mut sealer, mut opener) = looped();
        for round in 0..1000 {
            let len = if round % 8 == 0 { 514 } else { 1 };
            let opened = opener.open(&mut sealed(&mut sealer, &vec![7; len], CONTENT_DATA));
            assert!(opened.is_ok(), "round {round}: {opened:?}");
        }
    }

    #[test]
    fn records_that_are_mostly_padding_are_refused() {
        for (len, padding, expected) in
            [(514, 1000, None), (514, 3000, Some(6)), (514, 15_000, Some(0)), (4000, 11_900, None)]
        {
            let (mut sealer, mut opener) = looped();
            // Zeros behind the content's type are TLS's padding (RFC 8446 §5.4).
            let mut content = vec![7; len];
            content.push(CONTENT_DATA);
            content.resize(len + padding, 0);
            let refused = (0..1000)
                .map(|_| opener.open(&mut sealed(&mut sealer, &content, 0)))
                .position(|opened| opened == Err(RecordError::TooSmall));
            assert_eq!(refused, expected, "{padding} bytes after {len}");
        }
    }

    #[test]
    fn sealer_stops_at_the_confidentiality_limit() {
        let secrets = || ConnectionTrafficSecrets::Aes256Gcm {
            key: AeadKey::from([7; 32]),
            iv: Iv::from([9; 12]),
        };
        let secrets = ExtractedSecrets { tx: ((1 << 24) - 1, secrets()), rx: (0, secrets()) };
        let (mut sealer, _, _) = pair(&secrets).expect("pair");
        let mut record = [0; 100];
        assert_eq!(sealer.records_left(), 1);
        assert_eq!(sealer.seal(&mut record), Ok(()));
        assert_eq!(sealer.seal(&mut record), Err(RecordError::KeyExhausted));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let (mut sealer, _) = looped();
        for len in [0, 5, RECORD_OVERHEAD - 1, MAX_PLAINTEXT + RECORD_OVERHEAD + 1, 70_000] {
            assert_eq!(sealer.seal(&mut vec![0; len]), Err(RecordError::Layout { len }));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_wire_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (_, mut opener) = looped();
            let _ = opener.open(&mut bytes);
            if let Some(first) = bytes.first_mut() {
                *first = CONTENT_DATA;
            }
            let _ = opener.open(&mut bytes);
        }

        #[test]
        fn arbitrary_inner_plaintext_never_panics(
            content in proptest::collection::vec(any::<u8>(), 0..400),
            content_type in prop_oneof![20_u8..26, any::<u8>()],
        ) {
            let (mut sealer, mut opener) = looped();
            let mut record = sealed(&mut sealer, &content, content_type);
            let _ = opener.open(&mut record);
        }
    }
}
