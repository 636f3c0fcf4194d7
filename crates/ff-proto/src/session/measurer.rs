//! The measurer's end of one link: opens the circuit, makes the cells, checks the echoes.
//!
//! [`OpeningLink::new`] returns the MEAS_CREATE cell; [`OpeningLink::handle`] takes the answer and
//! returns an [`EchoLink`]. There, [`EchoLink::write`] makes the cells to send and
//! [`EchoLink::handle`] takes the received ones. Both are on the hot path: no allocation, no lock.

use ed25519_dalek::SigningKey;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::cells::{CellDrain, CellSource};
use super::{Padding, PeerViolation, SessionFailure};
use crate::auth::Exporter;
use crate::cell::{CMD_MEAS_ECHO, CMD_MEASUREMENT, Cell, CellRef, fixed_cell};
use crate::circuit::{CircuitKeys, EphemeralKey, Exchange};
use crate::codec::DecodeError;
use crate::ids::{CryptoKind, MeasurementId};
use crate::msg::{MeasCreate, MeasCreated, Msg, Role, Signed};

/// The circuit id of measurement circuits: an initiator's ids have the high bit set (tor-spec), and
/// each link has one circuit.
pub const MEASUREMENT_CIRC_ID: u32 = 0x8000_0001;
/// The random numbers of one link, which must be fresh from a cryptographic generator.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct LinkSecrets {
    /// The ephemeral key.
    pub ephemeral: [u8; 32],
    /// The key of the content.
    pub content: [u8; 16],
    /// The key for drawing the cells to check.
    pub sampling: [u8; 16],
}

/// A link whose MEAS_CREATE has been sent.
pub struct OpeningLink {
    /// The measurement to which it belongs.
    measurement: MeasurementId,
    /// Its TLS session.
    exporter: Exporter,
    /// Our half of the exchange.
    ephemeral: EphemeralKey,
    /// Content and sampling.
    secrets: LinkSecrets,
    /// The cipher that the target has granted.
    crypto: CryptoKind,
    /// The least probability with which a cell is checked.
    check_probability: f64,
    padding: Padding,
}

/// The result of handling a cell while opening.
pub enum Opening {
    /// The answer has not arrived.
    Waiting(OpeningLink),
    /// The circuit is open.
    Open(Box<EchoLink>),
}

impl OpeningLink {
    /// Starts opening; the returned cell must be sent.
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
        let padding = Padding::default();
        let link =
            Self { measurement, exporter, ephemeral, secrets, crypto, check_probability, padding };
        (link, control_cell(MEASUREMENT_CIRC_ID, &Msg::Create(create)))
    }

    /// Handles the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`] when the target refuses or breaks the protocol; the link cannot be used
    /// then.
    pub fn handle(mut self, cell: CellRef<'_>) -> Result<Opening, SessionFailure> {
        if self.padding.take(&cell)? {
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

    /// Completes the key exchange.
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

/// The meaning of a cell on an open link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoEvent {
    /// An echo that was not checked.
    Echo,
    /// An echo that was checked and is right.
    Checked,
    /// Padding.
    Ignored,
    /// The target ended the measurement.
    Ended,
}

/// A link that echoes.
#[derive(Debug)]
pub struct EchoLink {
    source: CellSource,
    /// Counts and checks the echoes.
    drain: CellDrain,
    padding: Padding,
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
            padding: Padding::default(),
        }
    }

    /// Writes the next echo cell.
    #[inline]
    pub fn write(&mut self, cell: &mut Cell) {
        self.source.write(cell);
    }

    /// Sets the number of cells that have come back on all links that are counted together
    /// ([`CellDrain::note_taken_in_all`]).
    pub fn note_echoed_in_all(&mut self, cells: u64) {
        self.drain.note_taken_in_all(cells);
    }

    /// Handles the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`] if the measurement has failed.
    #[inline]
    pub fn handle(&mut self, cell: CellRef<'_>) -> Result<EchoEvent, SessionFailure> {
        if cell.command != CMD_MEAS_ECHO {
            return handle_other(&mut self.padding, cell);
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

    /// Bytes of memory that the link uses.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.drain.held_bytes()
    }

    /// The number of cells written.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.source.sent()
    }

    /// The number of cells that have come back.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.drain.taken()
    }
}

/// Handles a cell that is not an echo.
#[cold]
fn handle_other(padding: &mut Padding, cell: CellRef<'_>) -> Result<EchoEvent, SessionFailure> {
    if padding.take(&cell)? {
        return Ok(EchoEvent::Ignored);
    }
    match read_control(Role::Measurer, cell)? {
        Msg::End(_) => Ok(EchoEvent::Ended),
        Msg::Err(error) => Err(SessionFailure::Refused(error)),
        _ => Err(PeerViolation::UnexpectedMessage("a message on an open circuit").into()),
    }
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

/// Encodes a session's own message as a cell: its numbers are within their bounds, and it fits.
pub(super) fn control_cell(circ_id: u32, message: &Msg) -> Cell {
    let body = message.encode().expect("a session's own message is within its bounds");
    fixed_cell(circ_id, CMD_MEASUREMENT, &body).expect("a body is as long as a body")
}
