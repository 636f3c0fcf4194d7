//! The control messages and their encoding in a MEASUREMENT cell (PROTOCOL.md §4).
//!
//! A body is `version [1] command [1] length [2] payload [length]`, the rest zero. A payload has
//! its message's fixed fields, then extensions, then, if the message is signed, the signer's id and
//! signature. Extensions are `count [1]` and then that many of `type [1] length [1] value
//! [length]`; a reader ignores unknown types.
//!
//! Each message lists its fields once, for reading and for writing: `fields!` makes both from the
//! list.

mod create;
mod fields;
mod params;
mod report;
mod team_cells;

pub use create::{MeasCreate, MeasCreated};
pub use params::{MAX_CRYPTO_KINDS, MAX_MEASURERS, MeasParams, MeasParamsOk, MeasurerGrant};
pub use report::{ErrCode, MeasBg, MeasEnd, MeasErr, MeasStats};
pub use team_cells::TeamCells;

use self::fields::{Fields, count};
use crate::auth::{self, Exporter, SIGNATURE_LEN};
use crate::cell::{BODY_LEN, Body};
use crate::codec::{DecodeError, Reader};
use crate::ids::Ed25519Id;

/// The supported version of the measurement protocol.
pub const VERSION: u8 = 1;
/// Bytes of a body before the payload.
const PREFIX_LEN: usize = 4;
/// The longest payload.
pub const MAX_PAYLOAD_LEN: usize = BODY_LEN - PREFIX_LEN;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Msg {
    /// Coordinator to target: requests a measurement by this team.
    Params(Signed<MeasParams>),
    /// Target to coordinator: granted.
    ParamsOk(MeasParamsOk),
    /// Measurer to target: open the measurement circuit of this link.
    Create(Signed<MeasCreate>),
    /// Target to measurer: the circuit is open.
    Created(MeasCreated),
    /// Target to coordinator: the background traffic of one second.
    Bg(MeasBg),
    /// Target to coordinator: the load of the target; may only lower its weight.
    Stats(MeasStats),
    /// In both directions: the measurement is over.
    End(MeasEnd),
    /// In both directions: the measurement failed.
    Err(MeasErr),
}

/// The role that reads a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The measured relay.
    Target,
    /// The role that requests the measurement.
    Coordinator,
    /// The role that sends the cells.
    Measurer,
}

impl Role {
    /// Whether this role may receive a message with this command (PROTOCOL.md §4).
    fn receives(self, command: u8) -> bool {
        match command {
            MeasParams::COMMAND | MeasCreate::COMMAND => self == Self::Target,
            MeasParamsOk::COMMAND | MeasBg::COMMAND | MeasStats::COMMAND => {
                self == Self::Coordinator
            }
            MeasCreated::COMMAND => self == Self::Measurer,
            _ => true,
        }
    }
}

/// An extension: its type and its value.
pub(crate) type Extension = (u8, Vec<u8>);

/// A message's command byte and its extensions; most have none.
pub(crate) trait Payload: Fields {
    /// The command byte.
    const COMMAND: u8;

    /// The extensions to write.
    fn extensions(&self) -> Result<Vec<Extension>, DecodeError> {
        Ok(Vec::new())
    }

    /// Reads an extension; ignores an unknown type.
    fn extend(&mut self, _kind: u8, _value: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Appends fields and extensions.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.write_fields(out)?;
        let extensions = self.extensions()?;
        out.push(count("extension count", extensions.len(), &(0..=u8::MAX))?);
        for (kind, value) in &extensions {
            let length = count("extension length", value.len(), &(0..=u8::MAX))?;
            out.extend_from_slice(&[*kind, length]);
            out.extend_from_slice(value);
        }
        Ok(())
    }

    /// Reads fields and extensions, and leaves the rest.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut message = Self::read_fields(reader)?;
        for _ in 0..reader.u8("extension count")? {
            let kind = reader.u8("extension type")?;
            let length = usize::from(reader.u8("extension length")?);
            message.extend(kind, reader.take(length, "extension")?)?;
        }
        Ok(message)
    }
}

/// A message with its claimed signer. Use [`verify`](Self::verify) before trusting it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<T> {
    message: T,
    /// The claimed key of the sender.
    signer: Ed25519Id,
    signature: [u8; SIGNATURE_LEN],
    /// The bytes that the signature covers: the payload before it.
    signed: Vec<u8>,
}

#[expect(private_bounds, reason = "the messages are a closed set; see `Msg`")]
impl<T: Payload> Signed<T> {
    /// Signs a message for one link.
    ///
    /// # Errors
    /// [`DecodeError::OutOfRange`] when a number of the message is out of its bounds.
    pub fn new(
        message: T,
        key: &ed25519_dalek::SigningKey,
        exporter: &Exporter,
    ) -> Result<Self, DecodeError> {
        let signer = Ed25519Id(key.verifying_key().to_bytes());
        let mut signed = Vec::new();
        message.encode(&mut signed)?;
        signed.extend_from_slice(&signer.0);
        let signature = auth::sign(key, exporter, T::COMMAND, &signed);
        Ok(Self { message, signer, signature, signed })
    }

    /// The signer and the message, if the signature is valid on this link.
    #[must_use]
    pub fn verify(&self, exporter: &Exporter) -> Option<(&Ed25519Id, &T)> {
        auth::verify(&self.signer, exporter, T::COMMAND, &self.signed, &self.signature)
            .then_some((&self.signer, &self.message))
    }

    /// The claimed key of the signer, unchecked.
    #[must_use]
    pub fn claimed_signer(&self) -> &Ed25519Id {
        &self.signer
    }

    /// The message, whose sender is unchecked.
    #[must_use]
    pub fn unverified(&self) -> &T {
        &self.message
    }

    /// Reads fields, signer and signature.
    fn decode_signed(payload: &[u8]) -> Result<Self, DecodeError> {
        let cut = payload
            .len()
            .checked_sub(SIGNATURE_LEN)
            .ok_or(DecodeError::Truncated { field: "signature" })?;
        let (signed, signature) = payload.split_at(cut);
        let mut reader = Reader::new(signed);
        let message = T::decode(&mut reader)?;
        let signer = Ed25519Id(reader.array("signer")?);
        reader.finish()?;
        let signature = Reader::new(signature).array("signature")?;
        Ok(Self { message, signer, signature, signed: signed.to_vec() })
    }
}

/// Reads an unsigned payload.
fn decode_plain<T: Payload>(payload: &[u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(payload);
    let message = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

impl Msg {
    /// Writes the message into the body of a MEASUREMENT cell.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] when it does not fit, which only MEAS_PARAMS with many addresses
    /// can cause; [`DecodeError::OutOfRange`] when a number is out of its bounds.
    pub fn encode(&self) -> Result<Body, DecodeError> {
        let mut payload = Vec::with_capacity(MAX_PAYLOAD_LEN);
        let command = match self {
            Self::Params(message) => put_signed(message, &mut payload),
            Self::ParamsOk(message) => put(message, &mut payload)?,
            Self::Create(message) => put_signed(message, &mut payload),
            Self::Created(message) => put(message, &mut payload)?,
            Self::Bg(message) => put(message, &mut payload)?,
            Self::Stats(message) => put(message, &mut payload)?,
            Self::End(message) => put(message, &mut payload)?,
            Self::Err(message) => put(message, &mut payload)?,
        };
        let too_long = || DecodeError::TooLong { field: "payload", limit: MAX_PAYLOAD_LEN };
        let length = u16::try_from(payload.len()).map_err(|_| too_long())?;
        let mut body = [0; BODY_LEN];
        body[..2].copy_from_slice(&[VERSION, command]);
        body[2..PREFIX_LEN].copy_from_slice(&length.to_be_bytes());
        body[PREFIX_LEN..].get_mut(..payload.len()).ok_or_else(too_long)?.copy_from_slice(&payload);
        Ok(body)
    }

    /// Reads a message from the body of a MEASUREMENT cell that was sent to this role.
    ///
    /// # Errors
    /// [`DecodeError::NotForRole`] for a message to other roles, whose payload is not read;
    /// otherwise those of [`decode`](Self::decode).
    pub fn decode_for(role: Role, body: &[u8]) -> Result<Self, DecodeError> {
        let (command, payload) = open_body(body)?;
        if !role.receives(command) {
            return Err(DecodeError::NotForRole(command));
        }
        Self::decode_payload(command, payload)
    }

    /// Reads a message from the body of a MEASUREMENT cell, for any role.
    ///
    /// # Errors
    /// [`DecodeError`]; bytes after the payload are ignored.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let (command, payload) = open_body(body)?;
        Self::decode_payload(command, payload)
    }

    /// Reads the payload of a command.
    fn decode_payload(command: u8, payload: &[u8]) -> Result<Self, DecodeError> {
        match command {
            MeasParams::COMMAND => Signed::decode_signed(payload).map(Self::Params),
            MeasParamsOk::COMMAND => decode_plain(payload).map(Self::ParamsOk),
            MeasCreate::COMMAND => Signed::decode_signed(payload).map(Self::Create),
            MeasCreated::COMMAND => decode_plain(payload).map(Self::Created),
            MeasBg::COMMAND => decode_plain(payload).map(Self::Bg),
            MeasStats::COMMAND => decode_plain(payload).map(Self::Stats),
            MeasEnd::COMMAND => decode_plain(payload).map(Self::End),
            MeasErr::COMMAND => decode_plain(payload).map(Self::Err),
            unknown => Err(DecodeError::UnknownCommand(unknown)),
        }
    }
}

/// The command and the payload of a body (PROTOCOL.md §4).
fn open_body(body: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let mut reader = Reader::new(body);
    let version = reader.u8("version")?;
    if version != VERSION {
        return Err(DecodeError::UnknownVersion(version));
    }
    let command = reader.u8("command")?;
    let length = usize::from(reader.u16("length")?);
    Ok((command, reader.take(length, "payload")?))
}

/// Appends an unsigned payload and returns its command.
fn put<T: Payload>(message: &T, payload: &mut Vec<u8>) -> Result<u8, DecodeError> {
    message.encode(payload)?;
    Ok(T::COMMAND)
}

/// Appends a signed payload and returns its command.
fn put_signed<T: Payload>(message: &Signed<T>, payload: &mut Vec<u8>) -> u8 {
    payload.extend_from_slice(&message.signed);
    payload.extend_from_slice(&message.signature);
    T::COMMAND
}
