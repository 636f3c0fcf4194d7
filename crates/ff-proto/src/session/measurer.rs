//! The measurer's end of one link: opens the circuit, makes the cells, judges the echoes.
//!
//! [`OpeningLink::new`] gives the MEAS_CREATE cell; [`OpeningLink::handle`] takes the answer and
//! turns into an [`EchoLink`]. There, [`EchoLink::write`] fills the cells to send and
//! [`EchoLink::handle`] takes the cells that come. Both are the hot path: no allocation, no lock.

use ed25519_dalek::SigningKey;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::cells::{CellDrain, CellSource};
use super::{PeerViolation, SessionFailure};
use crate::auth::Exporter;
use crate::cell::{
    CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, CMD_VPADDING, Cell, CellRef, fixed_cell,
};
use crate::circuit::{CircuitKeys, EphemeralKey, Exchange};
use crate::codec::DecodeError;
use crate::ids::{CryptoKind, MeasurementId};
use crate::msg::{MeasCreate, MeasCreated, Msg, Role, Signed};

/// The circuit id of measurement circuits: an initiator's ids have the high bit set (tor-spec),
/// and one circuit a link needs no other.
pub const MEASUREMENT_CIRC_ID: u32 = 0x8000_0001;
/// The random numbers one link needs, all fresh from a cryptographic generator.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct LinkSecrets {
    /// Makes the ephemeral key.
    pub ephemeral: [u8; 32],
    /// Makes the content.
    pub content: [u8; 16],
    /// Draws the cells to check.
    pub sampling: [u8; 16],
}

/// A link whose MEAS_CREATE has been sent.
pub struct OpeningLink {
    /// The measurement it belongs to.
    measurement: MeasurementId,
    /// Its TLS session.
    exporter: Exporter,
    /// Our half of the exchange.
    ephemeral: EphemeralKey,
    /// Content and sampling.
    secrets: LinkSecrets,
    /// The cipher that the target has granted.
    crypto: CryptoKind,
    /// Which share of the cells is checked.
    check_probability: f64,
}

/// What became of an opening link.
pub enum Opening {
    /// The answer is still to come.
    Waiting(OpeningLink),
    /// The circuit is open.
    Open(Box<EchoLink>),
}

impl OpeningLink {
    /// Starts; the cell is to be sent.
    #[must_use]
    pub fn new(
        measurement: MeasurementId,
        key: &SigningKey,
        exporter: Exporter,
        secrets: LinkSecrets,
        crypto: CryptoKind,
        check_probability: f64,
    ) -> (Self, Cell) {
        let ephemeral = EphemeralKey::new(secrets.ephemeral);
        let create = MeasCreate { measurement, public: ephemeral.public() };
        let create = Signed::new(create, key, &exporter)
            .expect("it has no number that could be out of bounds");
        let link = Self { measurement, exporter, ephemeral, secrets, crypto, check_probability };
        (link, control_cell(MEASUREMENT_CIRC_ID, &Msg::Create(create)))
    }

    /// Takes the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`] when the target refuses or breaks the protocol; the link is then of no
    /// further use.
    pub fn handle(self, cell: CellRef<'_>) -> Result<Opening, SessionFailure> {
        if is_padding(cell.command) {
            return Ok(Opening::Waiting(self));
        }
        match read_control(Role::Measurer, cell)? {
            Msg::Created(created) => {
                self.finish(&created).map(|link| Opening::Open(Box::new(link)))
            }
            Msg::Err(error) => Err(SessionFailure::Refused(error)),
            _ => Err(PeerViolation::UnexpectedMessage("a message before MEAS_CREATED").into()),
        }
    }

    /// Ends the key exchange.
    fn finish(self, created: &MeasCreated) -> Result<EchoLink, SessionFailure> {
        let keys = Exchange {
            measurement: &self.measurement,
            exporter: &self.exporter,
            measurer_public: &self.ephemeral.public(),
            target_public: &created.public,
            crypto: self.crypto,
        }
        .derive(&self.ephemeral)
        .filter(|keys| keys.confirms(&created.confirmation))
        .ok_or(PeerViolation::BadConfirmation)?;
        Ok(EchoLink::new(MEASUREMENT_CIRC_ID, &self.secrets, &keys, self.check_probability))
    }
}

/// What a cell meant on an open link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoEvent {
    /// An echo, not checked.
    Echo,
    /// An echo that was checked and is right.
    Checked,
    /// Nothing: padding.
    Ignored,
    /// The target ended the measurement.
    Ended,
}

/// A link that echoes.
#[derive(Debug)]
pub struct EchoLink {
    source: CellSource,
    /// Takes them as they come back.
    drain: CellDrain,
}

impl EchoLink {
    /// An open link before its first cell.
    #[must_use]
    pub fn new(
        circ_id: u32,
        secrets: &LinkSecrets,
        keys: &CircuitKeys,
        check_probability: f64,
    ) -> Self {
        let (content, passage) = (&secrets.content, keys.passage());
        Self {
            source: CellSource::new(circ_id, CMD_MEAS_ECHO, content),
            drain: CellDrain::new(content, &passage, &secrets.sampling, check_probability),
        }
    }

    /// Writes the next echo cell.
    #[inline]
    pub fn write(&mut self, cell: &mut Cell) {
        self.source.write(cell);
    }

    /// Notes how many cells have come back on all links that are counted together
    /// ([`CellDrain::note_taken_in_all`]).
    pub fn note_echoed_in_all(&mut self, cells: u64) {
        self.drain.note_taken_in_all(cells);
    }

    /// Takes the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`]: the measurement has failed.
    #[inline]
    pub fn handle(&mut self, cell: CellRef<'_>) -> Result<EchoEvent, SessionFailure> {
        if cell.command != CMD_MEAS_ECHO {
            return handle_other(cell);
        }
        let sent = self.source.sent();
        if self.drain.taken() == sent {
            return Err(PeerViolation::MoreThanSent { sent }.into());
        }
        if !self.source.is_on(cell.circ_id) {
            return Err(PeerViolation::WrongCircuit(cell.circ_id).into());
        }
        Ok(if self.drain.take(cell.body)? { EchoEvent::Checked } else { EchoEvent::Echo })
    }

    /// Bytes of memory the link holds on to.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.drain.held_bytes()
    }

    /// Cells written.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.source.sent()
    }

    /// Cells that came back.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.drain.taken()
    }
}

/// Takes a cell that is not an echo.
#[cold]
fn handle_other(cell: CellRef<'_>) -> Result<EchoEvent, SessionFailure> {
    if is_padding(cell.command) {
        return Ok(EchoEvent::Ignored);
    }
    match read_control(Role::Measurer, cell)? {
        Msg::End(_) => Ok(EchoEvent::Ended),
        Msg::Err(error) => Err(SessionFailure::Refused(error)),
        _ => Err(PeerViolation::UnexpectedMessage("a message on an open circuit").into()),
    }
}

/// Whether a cell is to be dropped wherever it comes (tor-spec: link padding).
pub(super) fn is_padding(command: u8) -> bool {
    matches!(command, CMD_PADDING | CMD_VPADDING)
}

/// Reads a control message to this role from a cell that must be a MEASUREMENT cell.
pub(super) fn read_control(role: Role, cell: CellRef<'_>) -> Result<Msg, PeerViolation> {
    if cell.command != CMD_MEASUREMENT {
        return Err(PeerViolation::UnexpectedCommand(cell.command));
    }
    match Msg::decode_for(role, cell.body) {
        Err(DecodeError::NotForRole(_)) => {
            Err(PeerViolation::UnexpectedMessage("a message for another role"))
        }
        message => Ok(message?),
    }
}

/// Puts a message of a session's own into its cell: its numbers are within their bounds, and it
/// fits.
pub(super) fn control_cell(circ_id: u32, message: &Msg) -> Cell {
    let body = message.encode().expect("a session's own message is within its bounds");
    fixed_cell(circ_id, CMD_MEASUREMENT, &body).expect("a body is as long as a body")
}
