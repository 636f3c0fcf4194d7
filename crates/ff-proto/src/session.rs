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

pub mod coordinator;
pub mod measurer;
pub mod target;

use crate::codec::DecodeError;
use crate::msg::MeasErr;

/// What a peer did against the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerViolation {
    /// A checked cell came back with other bytes than it must have.
    #[error("echo cell {index} came back with wrong content: forged or damaged")]
    WrongContent {
        /// Which cell of the circuit, from 0.
        index: u64,
    },
    /// A checked cell came back with the bytes that another cell must have.
    #[error(
        "echo cell {index} came back in the place of cell {place}: lost, repeated or swapped cells"
    )]
    OutOfOrder {
        /// Which cell of the circuit it is, from 0.
        index: u64,
        /// Which one was due.
        place: u64,
    },
    /// More cells came back than were sent.
    #[error("the target returned more echo cells than the {sent} it was sent")]
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
    /// A control message that does not decode.
    #[error("a control message does not decode: {0}")]
    Malformed(#[from] DecodeError),
}

impl PeerViolation {
    /// A stable name for logs and JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::WrongContent { .. } => "wrong_content",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::MoreThanSent { .. } => "more_cells_than_sent",
            Self::WrongCircuit(_) => "wrong_circuit",
            Self::UnexpectedCommand(_) => "unexpected_command",
            Self::UnexpectedMessage(_) => "unexpected_message",
            Self::BadConfirmation => "bad_confirmation",
            Self::BadGrant(_) => "bad_grant",
            Self::ReportOutOfOrder { .. } => "report_out_of_order",
            Self::Malformed(_) => "malformed_message",
        }
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
    #[error("the relay refused: {} ({})", .0.text, .0.code.name())]
    Refused(MeasErr),
    /// The relay broke the protocol.
    #[error("the relay broke the protocol: {0}")]
    Violation(#[from] PeerViolation),
    /// Something due did not come.
    #[error("the relay did not send {0} in time")]
    Timeout(&'static str),
}

impl SessionFailure {
    /// A stable name for logs and JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::Refused(_) => "refused",
            Self::Violation(violation) => violation.code(),
            Self::Timeout(_) => "timeout",
        }
    }
}
