//! The measurer's end of one link: opens the circuit, makes the cells, judges the echoes.
//!
//! [`OpeningLink::new`] gives the MEAS_CREATE cell; [`OpeningLink::handle`] takes the answer and
//! turns into an [`EchoLink`]. There, [`EchoLink::write`] fills the cells to send and
//! [`EchoLink::handle`] takes the cells that come. Both are the hot path: no allocation, no lock.

use ed25519_dalek::SigningKey;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{PeerViolation, SessionFailure};
use crate::auth::Exporter;
use crate::cell::{
    self, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, CMD_VPADDING, Cell, CellRef, HEADER_LEN,
};
use crate::cgo::{TAG_LEN, Tag};
use crate::circuit::{CircuitKeys, EphemeralKey, Exchange};
use crate::codec::DecodeError;
use crate::content::{Checker, Content, Sampler};
use crate::ids::{CryptoKind, MeasurementId};
use crate::msg::{MeasCreate, MeasCreated, Msg, Role, Signed};

/// The circuit id of measurement circuits: an initiator's ids have the high bit set (tor-spec),
/// and one circuit a link needs no other.
pub const MEASUREMENT_CIRC_ID: u32 = 0x8000_0001;
/// How far around a cell its neighbours are looked for, to tell disorder from damage.
const NEAR_CELLS: u64 = 64;

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
        let message = Msg::Create(Signed::new(create, key, &exporter));
        let link = Self { measurement, exporter, ephemeral, secrets, crypto, check_probability };
        (link, control_cell(MEASUREMENT_CIRC_ID, &message))
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
    /// The first five bytes of every cell.
    header: [u8; HEADER_LEN],
    /// Cells written.
    sent: u64,
    /// Cells that came back.
    echoed: u64,
    /// Cells that have come back on all links that are counted together.
    echoed_in_all: u64,
    /// The tag of the echo in front of the next cell to check, once it has come.
    tag_before: Tag,
    /// Makes the content.
    content: Content,
    /// Draws the cells to check.
    sampler: Sampler,
    /// Regenerates what must come back.
    checker: Box<Checker>,
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
        let [a, b, c, d] = circ_id.to_be_bytes();
        Self {
            header: [a, b, c, d, CMD_MEAS_ECHO],
            sent: 0,
            echoed: 0,
            echoed_in_all: 0,
            tag_before: [0; TAG_LEN],
            content: Content::new(&secrets.content),
            sampler: Sampler::new(&secrets.sampling, check_probability),
            checker: Box::new(Checker::new(&secrets.content, &keys.passage())),
        }
    }

    /// Writes the next echo cell.
    #[inline]
    pub fn write(&mut self, cell: &mut Cell) {
        let (header, body) = cell.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&self.header);
        if let Ok(body) = <&mut cell::Body>::try_from(body) {
            self.content.fill(body);
        }
        self.sent += 1;
    }

    /// Notes how many cells have come back on all links that are counted together. The more they
    /// are, the smaller the part of them that is checked; whoever does not call this has as many
    /// of each link checked as if it were the only one.
    pub fn note_echoed_in_all(&mut self, cells: u64) {
        self.echoed_in_all = cells;
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
        let index = self.echoed;
        if index == self.sent {
            return Err(PeerViolation::MoreThanSent { sent: self.sent }.into());
        }
        if cell.circ_id.to_be_bytes() != self.header[..4] {
            return Err(PeerViolation::WrongCircuit(cell.circ_id).into());
        }
        self.echoed += 1;
        // One comparison finds the cell to check and the one in front of it.
        if self.echoed >= self.sampler.next() {
            return self.look_at(index, cell.body);
        }
        Ok(EchoEvent::Echo)
    }

    /// Checks the cell if it is to be checked, and keeps its tag if the next one is.
    #[cold]
    fn look_at(&mut self, index: u64, body: &[u8]) -> Result<EchoEvent, SessionFailure> {
        let Ok(body) = <&cell::Body>::try_from(body) else {
            return Err(PeerViolation::WrongContent { index }.into());
        };
        let mut event = EchoEvent::Echo;
        if index == self.sampler.next() {
            if self.checker.expected(index, &self.tag_before) != *body {
                return Err(self.explain(index, body).into());
            }
            self.sampler.advance(self.echoed_in_all);
            event = EchoEvent::Checked;
        }
        if self.echoed == self.sampler.next() {
            self.tag_before.copy_from_slice(&body[..TAG_LEN]);
        }
        Ok(event)
    }

    /// Says what is wrong with a body that came in the place of cell `place`.
    fn explain(&mut self, place: u64, body: &cell::Body) -> PeerViolation {
        let near = place.saturating_sub(NEAR_CELLS)..=place.saturating_add(NEAR_CELLS);
        near.into_iter()
            .find(|&index| index != place && self.checker.is_echo_of(index, body))
            .map_or(PeerViolation::WrongContent { index: place }, |index| {
                PeerViolation::OutOfOrder { index, place }
            })
    }

    /// Bytes of memory the link holds on to.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Checker>()
    }

    /// Cells written.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Cells that came back.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.echoed
    }
}

/// Takes a cell that is no echo.
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

/// Puts a message that always fits into its cell.
pub(super) fn control_cell(circ_id: u32, message: &Msg) -> Cell {
    let body = message.encode().expect("only MEAS_PARAMS can be too long, and it is not sent so");
    cell::fixed_cell(circ_id, CMD_MEASUREMENT, &body).expect("a body is as long as a body")
}
