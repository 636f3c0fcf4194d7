//! The datagrams between measurers: header, tag, statements or filling.
//!
//! ```text
//!  0 "FFX" 1 | kind 1 | from 1 | to 1 | statements 1 | session 16 | second 2 | length 2
//! 28 number 8 | nonce 8 | tag 8 | statements or filling
//! ```
//!
//! All numbers are big-endian. The tag is SipHash-2-4 with a key derived from the session's; it
//! covers the header and the statements. Filling is not read.

use aws_lc_rs::hkdf;
use siphasher::sip::SipHasher24;

use super::statement::{STATEMENT_LEN, Statement, word};

/// Length of the header with the tag, in bytes.
pub(super) const HEADER_LEN: usize = 52;
/// Bytes of the header that the tag covers.
const COVERED_LEN: usize = HEADER_LEN - 8;
/// Largest number of statements in a receipt, so that it fits into the smallest packet.
pub(super) const MAX_STATEMENTS: usize = 10;
/// Length of the longest control packet, in bytes.
pub(super) const MAX_CONTROL_LEN: usize = HEADER_LEN + MAX_STATEMENTS * STATEMENT_LEN;
/// The first bytes of every packet; the last one is the version.
const MAGIC: [u8; 4] = *b"FFX\x01";

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asks to send data, with a random number.
    Hello,
    /// Grants it, with the number of the hello.
    Welcome,
    /// Data, with a nonce that proves its arrival.
    Data,
    /// Statements about the data that has arrived.
    Receipt,
}

impl Kind {
    /// The byte on the wire.
    const fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Welcome => 2,
            Self::Data => 3,
            Self::Receipt => 4,
        }
    }

    /// The kind of a byte.
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Hello),
            2 => Some(Self::Welcome),
            3 => Some(Self::Data),
            4 => Some(Self::Receipt),
            _ => None,
        }
    }
}

/// A header's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The purpose of the packet.
    pub(super) kind: Kind,
    /// The host that sends it.
    pub(super) from: u8,
    /// The receiving host's index.
    pub(super) to: u8,
    /// The sender's second of the exchange.
    pub(super) second: u16,
    /// The number of the data packet or of the hello.
    pub(super) number: u64,
    /// The data packet's nonce.
    pub(super) nonce: u64,
}

/// Writes and checks the packets of one session.
pub(super) struct Seal {
    /// The session's id.
    session: [u8; 16],
    /// The MAC with the tags' key.
    mac: SipHasher24,
}

impl Seal {
    /// The seal of a session.
    pub(super) fn new(session: [u8; 16], key: &[u8; 32]) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &session);
        let mut mac_key = zeroize::Zeroizing::new([0; 16]);
        salt.extract(key)
            .expand(&[b"flashflow exchange, tags"], TagKey)
            .and_then(|okm| okm.fill(&mut *mac_key))
            .expect("HKDF gives 16 bytes");
        Self { session, mac: SipHasher24::new_with_key(&mac_key) }
    }

    /// Writes the header of a data packet that fills `packet`.
    pub(super) fn seal(&self, header: &Header, packet: &mut [u8]) {
        self.write(header, 0, packet);
        let tag = self.mac.hash(&packet[..COVERED_LEN]);
        packet[COVERED_LEN..HEADER_LEN].copy_from_slice(&tag.to_be_bytes());
    }

    /// Writes a control packet; returns its length.
    pub(super) fn seal_control(
        &self,
        header: &Header,
        said: &[Statement],
        buffer: &mut [u8],
    ) -> usize {
        let said = &said[..said.len().min(MAX_STATEMENTS)];
        let len = HEADER_LEN + said.len() * STATEMENT_LEN;
        let packet = &mut buffer[..len];
        self.write(header, u8::try_from(said.len()).unwrap_or(0), packet);
        for (statement, bytes) in said.iter().zip(packet[HEADER_LEN..].chunks_mut(STATEMENT_LEN)) {
            statement.write(bytes);
        }
        let tag = self.control_tag(packet);
        packet[COVERED_LEN..HEADER_LEN].copy_from_slice(&tag.to_be_bytes());
        len
    }

    /// Checks and reads a packet of this session: its header, and the statements of a receipt.
    /// `None` if it is not a valid packet.
    pub(super) fn open<'a>(
        &self,
        packet: &'a [u8],
    ) -> Option<(Header, impl Iterator<Item = Statement> + use<'a>)> {
        let (header, rest) = packet.split_at_checked(HEADER_LEN)?;
        let statements = usize::from(header[7]);
        let kind = Kind::from_code(header[4])?;
        let fits = match kind {
            Kind::Data => statements == 0,
            Kind::Receipt => {
                statements <= MAX_STATEMENTS && rest.len() == statements * STATEMENT_LEN
            }
            Kind::Hello | Kind::Welcome => statements == 0 && rest.is_empty(),
        };
        let length = usize::from(u16::from_be_bytes([header[26], header[27]]));
        if header[..4] != MAGIC || header[8..24] != self.session || length != packet.len() || !fits
        {
            return None;
        }
        let is_data = kind == Kind::Data;
        let tag =
            if is_data { self.mac.hash(&header[..COVERED_LEN]) } else { self.control_tag(packet) };
        // Comparing two integers takes the same time for all values.
        if tag != word(&header[COVERED_LEN..]) {
            return None;
        }
        let second = u16::from_be_bytes([header[24], header[25]]);
        let (number, nonce) = (word(&header[28..]), word(&header[36..]));
        let header = Header { kind, from: header[5], to: header[6], second, number, nonce };
        let said = &rest[..statements * STATEMENT_LEN];
        Some((header, said.chunks_exact(STATEMENT_LEN).map(Statement::read)))
    }

    /// Writes the header without the tag.
    fn write(&self, header: &Header, statements: u8, packet: &mut [u8]) {
        let length = u16::try_from(packet.len()).expect("packets are shorter than 64 KB");
        packet[..4].copy_from_slice(&MAGIC);
        packet[4..8].copy_from_slice(&[header.kind.code(), header.from, header.to, statements]);
        packet[8..24].copy_from_slice(&self.session);
        packet[24..26].copy_from_slice(&header.second.to_be_bytes());
        packet[26..28].copy_from_slice(&length.to_be_bytes());
        packet[28..36].copy_from_slice(&header.number.to_be_bytes());
        packet[36..44].copy_from_slice(&header.nonce.to_be_bytes());
    }

    /// The tag of a control packet.
    fn control_tag(&self, packet: &[u8]) -> u64 {
        let mut covered = [0; MAX_CONTROL_LEN - 8];
        let len = packet.len() - 8;
        covered[..COVERED_LEN].copy_from_slice(&packet[..COVERED_LEN]);
        covered[COVERED_LEN..len].copy_from_slice(&packet[HEADER_LEN..]);
        self.mac.hash(&covered[..len])
    }
}

/// Length of the tags' key, for HKDF.
struct TagKey;

impl hkdf::KeyType for TagKey {
    fn len(&self) -> usize {
        16
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seal() -> Seal {
        Seal::new([7; 16], &[9; 32])
    }

    fn header(kind: Kind) -> Header {
        Header { kind, from: 1, to: 2, second: 59, number: 0x0102_0304_0506_0708, nonce: 11 }
    }

    fn receipt() -> Vec<u8> {
        let mut buffer = [0; MAX_CONTROL_LEN];
        let said = [Statement { block: 3, bits: [1, 2, 3, 4], proof: 5 }; 2];
        let len = seal().seal_control(&header(Kind::Receipt), &said, &mut buffer);
        buffer[..len].to_vec()
    }

    fn data() -> Vec<u8> {
        let mut packet = vec![0xaa; 1452];
        seal().seal(&header(Kind::Data), &mut packet);
        packet
    }

    #[test]
    fn what_is_sealed_opens() {
        let seal = seal();
        let (opened, mut said) =
            seal.open(&data()).map(|(h, s)| (h, s.collect::<Vec<_>>())).unwrap();
        assert_eq!((opened, said.len()), (header(Kind::Data), 0));
        let packet = receipt();
        let opened = seal.open(&packet).unwrap();
        said.extend(opened.1);
        assert_eq!(opened.0, header(Kind::Receipt));
        assert_eq!(said, [Statement { block: 3, bits: [1, 2, 3, 4], proof: 5 }; 2]);
    }

    #[test]
    fn a_packet_of_another_key_session_or_length_is_a_strangers() {
        for packet in [data(), receipt()] {
            assert!(Seal::new([7; 16], &[8; 32]).open(&packet).is_none());
            assert!(Seal::new([8; 16], &[9; 32]).open(&packet).is_none());
            assert!(seal().open(&packet[..packet.len() - 1]).is_none());
            assert!(seal().open(&[&packet[..], &[0]].concat()).is_none());
        }
        assert!(seal().open(&[]).is_none());
    }

    proptest! {
        #[test]
        fn no_bit_that_counts_can_be_changed(byte in 0..MAX_CONTROL_LEN, bit in 0..8) {
            for (mut packet, covered) in [(data(), HEADER_LEN), (receipt(), receipt().len())] {
                let byte = byte % covered;
                packet[byte] ^= 1_u8 << bit;
                prop_assert!(seal().open(&packet).is_none());
            }
        }

        #[test]
        fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            prop_assert!(seal().open(&bytes).is_none());
            let mut likely = receipt();
            let len = bytes.len().min(likely.len());
            likely[..len].copy_from_slice(&bytes[..len]);
            if bytes.len() >= HEADER_LEN { prop_assert!(seal().open(&likely).is_none()); }
        }
    }
}
