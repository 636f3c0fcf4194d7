//! The three state machines: they take bytes and times, and return cells and events.
//!
//! ```text
//!  coordinator link                target                       measurer link (s of them)
//!   MEAS_PARAMS  ───────────────▶  Idle
//!   (CREATE_FAST, the probe)        │ grant
//!   MEAS_PARAMS_OK ◀──────────────  Granted  ◀───────────────  MEAS_CREATE
//!                                   │        ───────────────▶  MEAS_CREATED
//!                                   │ first  ◀══ MEAS_ECHO ══
//!   MEAS_BG, one a second ◀───────  Running  ══ MEAS_ECHO ══▶  counted, sampled, checked
//!   MEAS_END     ◀──────────────▶  Idle     ───────────────▶  MEAS_END
//! ```

pub mod cells;
pub mod coordinator;
mod grants;
mod measurement;
pub mod measurer;
mod refusals;
pub mod target;

use core::time::Duration;

use crate::aggregate::ImpossibleReport;
use crate::cell::{CELL_LEN, CMD_PADDING, CMD_VPADDING, CellRef};
use crate::codec::DecodeError;
use crate::failure::FailureKind;
use crate::msg::{ErrCode, MeasErr};

/// The padding that a peer may send on a link, in bytes: 128 cells. tor pads an idle link once in
/// 1.5 s at most, and a measurement takes two minutes.
pub const MAX_PADDING_BYTES: usize = 128 * CELL_LEN;

/// Counts a link's padding. Without a bound, a peer could keep its reader busy for ever, or fill
/// the line with bytes that no share counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Padding {
    bytes: usize,
}

impl Padding {
    /// Counts a cell if it is padding; returns whether it is.
    pub(crate) fn take(&mut self, cell: &CellRef<'_>) -> Result<bool, PeerViolation> {
        if !matches!(cell.command, CMD_PADDING | CMD_VPADDING) {
            return Ok(false);
        }
        self.bytes += cell.wire_len;
        if self.bytes > MAX_PADDING_BYTES { Err(PeerViolation::MuchPadding) } else { Ok(true) }
    }
}

/// A violation of the protocol by a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerViolation {
    /// A checked cell came back with wrong bytes.
    #[error("cell {index} arrived with wrong content: forged or damaged")]
    WrongContent {
        /// The index of the cell in the circuit.
        index: u64,
    },
    /// A checked cell came back with the bytes of another cell.
    #[error("cell {index} arrived in the place of cell {place}: lost, repeated or swapped cells")]
    OutOfOrder {
        /// The index of the returned cell in the circuit.
        index: u64,
        /// The index of the expected cell.
        place: u64,
    },
    /// More cells came back than were sent.
    #[error("more cells arrived than the {sent} that were sent")]
    MoreThanSent {
        /// The number of cells that had been sent.
        sent: u64,
    },
    /// A cell on a circuit that does not exist.
    #[error("a cell arrived on circuit {0:#010x}, which was never opened")]
    WrongCircuit(u32),
    /// A cell that is not allowed on the link.
    #[error("a cell with command {0} has no place on a measurement link")]
    UnexpectedCommand(u8),
    /// More padding than any relay sends.
    #[error("more than {MAX_PADDING_BYTES} bytes of padding arrived on a link")]
    MuchPadding,
    /// A control message that is not allowed here or now.
    #[error("{0} does not belong here")]
    UnexpectedMessage(&'static str),
    /// The target derived other keys.
    #[error("the target's key confirmation is wrong")]
    BadConfirmation,
    /// The target named another measurement, or granted more than requested.
    #[error("the target's grant does not answer the request: {0}")]
    BadGrant(&'static str),
    /// A report for the wrong second.
    #[error("a report for second {got} arrived when second {expected} was due")]
    ReportOutOfOrder {
        /// The second of the report.
        got: u16,
        /// The expected second.
        expected: u16,
    },
    /// A report that came before its second could be over.
    #[error("the report for second {second} arrived {early:?} before that could be over")]
    ReportTooEarly {
        /// The second of the report.
        second: u16,
        /// The time by which it came too early.
        early: Duration,
    },
    /// More background than the relay was allowed.
    #[error(
        "it reported {reported_bytes} bytes of background{} when {possible_bytes} were possible",
        second_text(*.second)
    )]
    ImpossibleReport {
        /// The second; `None` for the sum of all seconds.
        second: Option<u16>,
        /// The reported bytes.
        reported_bytes: u64,
        /// The largest possible number of bytes.
        possible_bytes: u64,
    },
    /// A control message that cannot be decoded.
    #[error("a control message does not decode")]
    Malformed(#[from] DecodeError),
}

/// A second, or all of them, in words.
fn second_text(second: Option<u16>) -> String {
    second.map_or_else(|| " in all".to_owned(), |second| format!(" in second {second}"))
}

impl PeerViolation {
    /// The violation's kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::WrongContent { .. } => FailureKind::WrongContent,
            Self::OutOfOrder { .. } => FailureKind::OutOfOrder,
            Self::MoreThanSent { .. } => FailureKind::MoreThanSent,
            Self::WrongCircuit(_) => FailureKind::WrongCircuit,
            Self::UnexpectedCommand(_) | Self::MuchPadding => FailureKind::UnexpectedCommand,
            Self::UnexpectedMessage(_) => FailureKind::UnexpectedMessage,
            Self::BadConfirmation => FailureKind::BadConfirmation,
            Self::BadGrant(_) => FailureKind::BadGrant,
            Self::ReportOutOfOrder { .. } => FailureKind::ReportOutOfOrder,
            Self::ReportTooEarly { .. } => FailureKind::ReportTooEarly,
            Self::ImpossibleReport { .. } => FailureKind::ImpossibleReport,
            Self::Malformed(_) => FailureKind::MalformedMessage,
        }
    }
}

impl From<ImpossibleReport> for PeerViolation {
    fn from(found: ImpossibleReport) -> Self {
        let ImpossibleReport { second, reported_bytes, possible_bytes } = found;
        Self::ImpossibleReport { second, reported_bytes, possible_bytes }
    }
}

/// Why a session with a target ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFailure {
    /// The relay answered the probe but not the request.
    #[error(
        "the relay does not support FlashFlow: it answered an ordinary circuit and not the measurement request"
    )]
    NotSupported,
    /// The relay refused, with the reason.
    #[error("the relay refused: {} ({})", .0.text, .0.code)]
    Refused(MeasErr),
    /// The relay ended the granted measurement, with the reason.
    #[error("the relay gave the measurement up: {} ({})", .0.text, .0.code)]
    Aborted(MeasErr),
    /// The relay reported the end of the measurement too early.
    #[error("the relay ended the measurement before its last report")]
    EndedEarly,
    /// The relay broke the protocol.
    #[error("the relay broke the protocol")]
    Violation(#[from] PeerViolation),
    /// An expected message did not arrive in time.
    #[error("the relay did not send {0} in time")]
    Timeout(&'static str),
}

impl SessionFailure {
    /// The failure's kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::NotSupported => FailureKind::NotSupported,
            Self::Refused(error) if error.code == ErrCode::NO_COMMON_CRYPTO => {
                FailureKind::CipherDenied
            }
            Self::Refused(_) => FailureKind::Refused,
            Self::Aborted(_) => FailureKind::RelayAborted,
            Self::EndedEarly => FailureKind::EndedEarly,
            Self::Violation(violation) => violation.kind(),
            Self::Timeout(_) => FailureKind::Timeout,
        }
    }

    /// The stable name of the kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// The relay's error code, if it gave one.
    #[must_use]
    pub fn relay_code(&self) -> Option<ErrCode> {
        match self {
            Self::Refused(error) | Self::Aborted(error) => Some(error.code),
            _ => None,
        }
    }
}
