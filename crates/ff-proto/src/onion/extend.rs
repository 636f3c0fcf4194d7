//! The cells with which a circuit is opened and extended (tor-spec 5.1, 5.3, 6.1), and the
//! extensions in their handshakes.

use std::net::SocketAddr;

use crate::cell::{BODY_LEN, Body};
use crate::codec::{DecodeError, Reader};
use crate::ids::{CryptoKind, Ed25519Id};

/// Command of a cell that opens a circuit.
pub const CMD_CREATE2: u8 = 10;
/// Command of the answer to it.
pub const CMD_CREATED2: u8 = 11;
/// Command of a relay cell.
pub const CMD_RELAY: u8 = 3;
/// Command of a relay cell that may extend a circuit.
pub const CMD_RELAY_EARLY: u8 = 9;
/// Command of a relay message that extends a circuit.
pub const RELAY_EXTEND2: u8 = 14;
/// Command of the answer to it.
pub const RELAY_EXTENDED2: u8 = 15;

/// Extension: the client's congestion control. Its field is empty.
const EXT_CONGESTION_CONTROL: u8 = 1;
/// Extension: the features of subprotocols that the client requests.
const EXT_SUBPROTOCOLS: u8 = 3;
/// The subprotocol `Relay` and its feature Counter Galois Onion.
const RELAY_CGO: [u8; 2] = [2, 6];

/// The positions of a message's command and length in a relay cell, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The position of the command.
    pub command_at: usize,
    /// The position of the length, which the data follow.
    pub len_at: usize,
}

/// A message to or from a relay of a circuit, without a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayMessage<'a> {
    /// The message's command.
    pub command: u8,
    /// Its content.
    pub data: &'a [u8],
}

impl<'a> RelayMessage<'a> {
    /// A cell's body with the message; the rest is zero.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`].
    pub fn encode(&self, format: Format) -> Result<Body, DecodeError> {
        let (mut body, data_at) = ([0; BODY_LEN], format.len_at + 2);
        let limit = BODY_LEN - data_at;
        let too_long = DecodeError::TooLong { field: "a relay message", limit };
        let Some(room) = body.get_mut(data_at..data_at + self.data.len()) else {
            return Err(too_long);
        };
        room.copy_from_slice(self.data);
        let len = u16::try_from(self.data.len()).map_err(|_| too_long)?;
        body[format.len_at..data_at].copy_from_slice(&len.to_be_bytes());
        body[format.command_at] = self.command;
        Ok(body)
    }

    /// The message in a cell's body.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn decode(body: &'a Body, format: Format) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&body[format.len_at..]);
        let len = reader.u16("a relay message's length")?;
        let data = reader.take(len.into(), "a relay message")?;
        Ok(Self { command: body[format.command_at], data })
    }
}

/// A relay to which a circuit can be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRelay {
    /// Its address.
    pub addr: SocketAddr,
    /// Its RSA identity, which tor requires.
    pub rsa_id: [u8; 20],
    /// Its Ed25519 identity.
    pub ed_id: Ed25519Id,
}

impl NextRelay {
    /// The data of EXTEND2 for it with this handshake.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`].
    pub fn extend(&self, handshake_type: u16, handshake: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let (kind, addr) = match self.addr {
            SocketAddr::V4(addr) => (0, addr.ip().octets().to_vec()),
            SocketAddr::V6(addr) => (1, addr.ip().octets().to_vec()),
        };
        let addr = [&addr[..], &self.addr.port().to_be_bytes()].concat();
        let specifiers: [(u8, &[u8]); 3] = [(kind, &addr), (2, &self.rsa_id), (3, &self.ed_id.0)];
        let mut data = vec![3];
        for (kind, value) in specifiers {
            data.push(kind);
            data.extend(u8::try_from(value.len()));
            data.extend_from_slice(value);
        }
        data.extend(create(handshake_type, handshake)?);
        Ok(data)
    }
}

/// The body of CREATE2.
///
/// # Errors
/// [`DecodeError::TooLong`].
pub fn create(handshake_type: u16, handshake: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Ok([&handshake_type.to_be_bytes()[..], &created(handshake)?].concat())
}

/// The body of CREATED2, and the data of EXTENDED2.
///
/// # Errors
/// [`DecodeError::TooLong`].
pub fn created(handshake: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let limit = BODY_LEN - 4;
    let len = u16::try_from(handshake.len()).ok().filter(|&len| usize::from(len) <= limit);
    let len = len.ok_or(DecodeError::TooLong { field: "a handshake", limit })?;
    Ok([&len.to_be_bytes()[..], handshake].concat())
}

/// The handshake's type and its data in the body of CREATE2.
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn read_create(body: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let (kind, body) =
        body.split_first_chunk().ok_or(DecodeError::Truncated { field: "CREATE2" })?;
    Ok((u16::from_be_bytes(*kind), read_created(body)?))
}

/// The handshake's data in the body of CREATED2, or in EXTENDED2.
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn read_created(body: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new(body);
    let len = reader.u16("a handshake's length")?;
    reader.take(len.into(), "a handshake")
}

/// The message in a client's handshake that requests this crypto, like tor 0.4.9's clients: CGO
/// requires congestion control.
#[must_use]
pub fn ask_for(crypto: CryptoKind) -> Vec<u8> {
    let mut message = vec![0];
    if crypto == CryptoKind::CGO_AES128 {
        message[0] = 2;
        message.extend([EXT_CONGESTION_CONTROL, 0, EXT_SUBPROTOCOLS, 2]);
        message.extend(RELAY_CGO);
    }
    message
}

/// Whether a message is exactly a list of extensions.
#[must_use]
pub fn is_extensions(message: &[u8]) -> bool {
    let mut reader = Reader::new(message);
    let Ok(count) = reader.u8("the number of extensions") else { return false };
    let all = (0..count).all(|_| {
        let len = reader.u8("an extension's type").and_then(|_| reader.u8("its length"));
        len.is_ok_and(|len| reader.take(len.into(), "an extension").is_ok())
    });
    all && reader.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_fits_or_does_not() {
        for format in [Format { command_at: 0, len_at: 9 }, Format { command_at: 16, len_at: 17 }] {
            let room = BODY_LEN - format.len_at - 2;
            let data = vec![7; room];
            let message = RelayMessage { command: RELAY_EXTEND2, data: &data };
            let body = message.encode(format).unwrap();
            assert_eq!(RelayMessage::decode(&body, format).unwrap(), message);
            let data = vec![7; room + 1];
            let longer = RelayMessage { command: RELAY_EXTEND2, data: &data };
            assert!(matches!(longer.encode(format), Err(DecodeError::TooLong { .. })));
            let mut body = body;
            body[format.len_at..format.len_at + 2]
                .copy_from_slice(&u16::try_from(room + 1).unwrap().to_be_bytes());
            assert!(RelayMessage::decode(&body, format).is_err());
        }
    }

    #[test]
    fn extensions_are_bounded() {
        for crypto in [CryptoKind::CGO_AES128, CryptoKind::AES128_CTR] {
            let message = ask_for(crypto);
            assert!(is_extensions(&message));
            assert!(!is_extensions(&[&message[..], &[0]].concat()), "one byte more");
            assert!(!is_extensions(&message[..message.len() - 1]), "one byte less");
        }
        assert!(!is_extensions(&[1, 1, 255]));
    }
}
