//! The three state machines: bytes and the time in, cells and events out.
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
use crate::codec::DecodeError;
use crate::failure::FailureKind;
use crate::msg::{ErrCode, MeasErr};

/// What a peer did against the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerViolation {
    /// A checked cell came back with other bytes than it must have.
    #[error("cell {index} arrived with wrong content: forged or damaged")]
    WrongContent {
        /// Which cell of the circuit, from 0.
        index: u64,
    },
    /// A checked cell came back with the bytes that another cell must have.
    #[error("cell {index} arrived in the place of cell {place}: lost, repeated or swapped cells")]
    OutOfOrder {
        /// Which cell of the circuit it is, from 0.
        index: u64,
        /// Which one was due.
        place: u64,
    },
    /// More cells came back than were sent.
    #[error("more cells arrived than the {sent} that were sent")]
    MoreThanSent {
        /// How many had been sent.
        sent: u64,
    },
    /// A cell on a circuit that does not exist.
    #[error("a cell arrived on circuit {0:#010x}, which was never opened")]
    WrongCircuit(u32),
    /// A cell that has no place on the link.
    #[error("a cell with command {0} has no place on a measurement link")]
    UnexpectedCommand(u8),
    /// A control message that does not belong here or now.
    #[error("{0} does not belong here")]
    UnexpectedMessage(&'static str),
    /// The target derived other keys.
    #[error("the target's key confirmation is wrong")]
    BadConfirmation,
    /// The target named another measurement, or granted more than was asked for.
    #[error("the target's grant does not answer the request: {0}")]
    BadGrant(&'static str),
    /// A report for the wrong second.
    #[error("a report for second {got} arrived when second {expected} was due")]
    ReportOutOfOrder {
        /// The second it is for.
        got: u16,
        /// The second that was due.
        expected: u16,
    },
    /// A report that came before its second could be over.
    #[error("the report for second {second} arrived {early:?} before that could be over")]
    ReportTooEarly {
        /// The second it is for.
        second: u16,
        /// How much too early.
        early: Duration,
    },
    /// More background than the relay was allowed.
    #[error(
        "it reported {reported_bytes} bytes of background{} when {possible_bytes} were possible",
        second_text(*.second)
    )]
    ImpossibleReport {
        /// The second it is for; `None` when it is the sum of all of them.
        second: Option<u16>,
        /// The reported bytes.
        reported_bytes: u64,
        /// What could have been.
        possible_bytes: u64,
    },
    /// A control message that does not decode.
    #[error("a control message does not decode")]
    Malformed(#[from] DecodeError),
}

/// The words for a second, or for all of them.
fn second_text(second: Option<u16>) -> String {
    second.map_or_else(|| " in all".to_owned(), |second| format!(" in second {second}"))
}

impl PeerViolation {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::WrongContent { .. } => FailureKind::WrongContent,
            Self::OutOfOrder { .. } => FailureKind::OutOfOrder,
            Self::MoreThanSent { .. } => FailureKind::MoreThanSent,
            Self::WrongCircuit(_) => FailureKind::WrongCircuit,
            Self::UnexpectedCommand(_) => FailureKind::UnexpectedCommand,
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

/// Why a session with a target ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFailure {
    /// The relay answered the probe but not the request.
    #[error(
        "the relay does not support FlashFlow: it answered an ordinary circuit and not the measurement request"
    )]
    NotSupported,
    /// The relay said no, and why.
    #[error("the relay refused: {} ({})", .0.text, .0.code)]
    Refused(MeasErr),
    /// The relay gave the measurement up when it had granted it, and why.
    #[error("the relay gave the measurement up: {} ({})", .0.text, .0.code)]
    Aborted(MeasErr),
    /// The relay said that the measurement was over when it was not.
    #[error("the relay ended the measurement before its last report")]
    EndedEarly,
    /// The relay broke the protocol.
    #[error("the relay broke the protocol")]
    Violation(#[from] PeerViolation),
    /// Something due did not come.
    #[error("the relay did not send {0} in time")]
    Timeout(&'static str),
}

impl SessionFailure {
    /// Its kind.
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

    /// The stable name of its kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// The code that the relay gave for it, if it gave one.
    #[must_use]
    pub fn relay_code(&self) -> Option<ErrCode> {
        match self {
            Self::Refused(error) | Self::Aborted(error) => Some(error.code),
            _ => None,
        }
    }
}
