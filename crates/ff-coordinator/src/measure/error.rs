//! Why a measurement fails, and which kind of failure that is.

use ff_measurer::PartFailure;
use ff_measurer::link::LinkError;
use ff_measurer::link::control::ControlError;
use ff_measurer::transit::TransitError;
use ff_plan::outcome::Failure;
use ff_proto::failure::{FailureKind, Fault};
use ff_proto::ids::Ed25519Id;
use ff_proto::msg::ErrCode;
use ff_proto::params::ParamError;
use ff_proto::session::coordinator::BadRequest;
use ff_proto::session::{PeerViolation, SessionFailure};

use crate::samples::MissingSample;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    /// The link to the target did not open.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Another relay answered: its RSA identity is not the expected one.
    #[error(
        "the relay has the fingerprint {found}, and not {expected}; check the address and \
         the fingerprint"
    )]
    WrongFingerprint {
        /// The expected value, in hexadecimal.
        expected: String,
        /// The value that the link shows.
        found: String,
    },
    /// The link broke.
    #[error("the link to the relay broke")]
    Control(#[from] ControlError),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionFailure),
    /// The relay closed the link instead of answering, as Arti relays do on an unknown cell.
    #[error(
        "the relay closed the link on the measurement request: it does not support FlashFlow, \
         or it is shutting down"
    )]
    ClosedOnRequest,
    /// A measurer failed.
    #[error("measurer {name} failed")]
    Measurer {
        /// Its name.
        name: String,
        /// Its key.
        id: Ed25519Id,
        /// How.
        source: PartFailure,
    },
    /// A second is not whole.
    #[error(transparent)]
    Missing(#[from] MissingSample),
    /// The relay answered and did not echo.
    #[error("the relay echoed nothing in most seconds")]
    NoEcho,
    /// The measurers did not run, so that nothing can have come back.
    #[error("the measurers were stopped for most of the time")]
    TeamStopped,
    /// Cells could not be sent through the relay's circuits.
    #[error("cells could not be sent through the relay")]
    Transit(#[from] TransitError),
    /// Circuits were open, and nothing came through.
    #[error("nothing came through the relay in most seconds")]
    NothingCameThrough,
    /// A parameter is out of its bounds.
    #[error("the plan cannot be carried out")]
    Params(#[from] ParamError),
    /// The team does not fit into a request.
    #[error("the team is too large")]
    Request(#[from] BadRequest),
}

impl From<PeerViolation> for MeasureError {
    fn from(violation: PeerViolation) -> Self {
        Self::Session(violation.into())
    }
}

impl MeasureError {
    /// Whether the relay has refused because another measurement goes on.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Session(SessionFailure::Refused(error)) if error.code == ErrCode::BUSY)
    }

    /// Its kind.
    pub(super) fn kind(&self) -> FailureKind {
        match self {
            Self::Link(error) => error.kind(),
            Self::WrongFingerprint { .. } => FailureKind::WrongIdentity,
            Self::Control(_) => FailureKind::CoordinatorLinkLost,
            Self::ClosedOnRequest => FailureKind::NotSupported,
            Self::Session(failure) => failure.kind(),
            Self::Measurer { source, .. } => source.kind,
            Self::Missing(_) => FailureKind::MissingSample,
            Self::NoEcho | Self::NothingCameThrough => FailureKind::NoEcho,
            Self::Transit(error) => transit_kind(error),
            Self::TeamStopped => FailureKind::MeasurerFailed,
            Self::Params(_) | Self::Request(_) => FailureKind::BadPlan,
        }
    }

    /// The code that the relay gave for it, if it gave one.
    fn relay_code(&self) -> Option<ErrCode> {
        match self {
            Self::Session(failure) => failure.relay_code(),
            Self::Measurer { source, .. } => source.relay_code,
            _ => None,
        }
    }

    /// The measurer on whose word alone the fault is the relay's, or the path's to it.
    pub(super) fn accuser(&self) -> Option<Ed25519Id> {
        match (self, self.kind().fault()) {
            (Self::Measurer { .. }, Fault::Coordinator) => None,
            (Self::Measurer { id, .. }, _) => Some(*id),
            _ => None,
        }
    }

    /// Whether the coordinator's link may know better what has happened.
    pub(super) fn may_be_a_consequence(&self) -> bool {
        matches!(self, Self::Measurer { .. })
            && !matches!(self.kind().fault(), Fault::Violation | Fault::Coordinator)
    }
}

impl From<MeasureError> for Failure {
    /// Its message holds the error and all its causes.
    fn from(error: MeasureError) -> Self {
        let (kind, relay_code) = (error.kind(), error.relay_code());
        Self { kind, relay_code, message: format!("{:#}", anyhow::Error::from(error)) }
    }
}

/// The kind of a failure of cells in transit.
fn transit_kind(error: &TransitError) -> FailureKind {
    match error {
        TransitError::Order(_) => FailureKind::BadPlan,
        TransitError::Link(error) => error.kind(),
        TransitError::Control(_) => FailureKind::LinksLost,
        TransitError::Timeout(_) => FailureKind::Timeout,
        TransitError::Circuit { .. } | TransitError::Elsewhere { .. } => FailureKind::CircuitFailed,
        TransitError::NothingArrived(_) => FailureKind::NoEcho,
        TransitError::Measurer(error) => error.kind(),
        _ => FailureKind::MeasurerFailed,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use ff_measurer::link::Stage;
    use ff_measurer::{LinkFailure, MeasurerError};
    use ff_proto::codec::DecodeError;
    use ff_proto::msg::MeasErr;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn messages_name_every_cause_once_and_keep_the_relays_code() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 9001));
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let malformed = PeerViolation::Malformed(DecodeError::UnknownCommand(9));
        let refused = || SessionFailure::Refused(MeasErr::new(ErrCode(65535), "no"));
        let lost = LinkFailure::Open(LinkError::Unreachable { peer, source: reset() });
        let lost = MeasurerError::TooFewLinks { opened: 1, asked: 4, source: Box::new(lost) };
        let cases: [(MeasureError, &str, Option<u16>, &[&str]); 6] = [
            (
                ControlError::Io { peer, source: reset() }.into(),
                "coordinator_link_lost",
                None,
                &["the link to the relay broke", "connection reset"],
            ),
            (
                malformed.into(),
                "malformed_message",
                None,
                &["broke the protocol", "does not decode", "command 9"],
            ),
            (refused().into(), "refused", Some(65535), &["refused", "code 65535"]),
            (
                MeasureError::Measurer {
                    name: "1".to_owned(),
                    id: Ed25519Id([1; 32]),
                    source: MeasurerError::from(refused()).into(),
                },
                "refused",
                Some(65535),
                &["measurer 1 failed", "code 65535"],
            ),
            (
                MeasureError::Measurer {
                    name: "0".to_owned(),
                    id: Ed25519Id([0; 32]),
                    source: lost.into(),
                },
                "too_few_links",
                None,
                &["only 1 of 4 links", "cannot be reached", "connection reset"],
            ),
            (MissingSample { second: 3 }.into(), "missing_sample", None, &["second 3"]),
        ];
        for (error, code, relay_code, parts) in cases {
            let accuser = match &error {
                MeasureError::Measurer { id, .. } => Some(*id),
                _ => None,
            };
            assert_eq!(error.accuser(), accuser, "{code}");
            let failure = Failure::from(error);
            assert_eq!((failure.code(), failure.relay_code.map(|code| code.0)), (code, relay_code));
            for part in parts {
                let times = failure.message.to_lowercase().matches(part).count();
                assert_eq!(times, 1, "{part:?} in {:?}", failure.message);
            }
        }
    }

    #[test]
    fn what_this_machine_is_short_of_is_not_the_relays_doing() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 9001));
        let no_socket = |errno: Errno, opened| {
            let link = LinkError::Io { peer, stage: Stage::Tcp, source: errno.into() };
            let source = Box::new(LinkFailure::Open(link));
            let source = MeasurerError::TooFewLinks { opened, asked: 160, source };
            let (name, id) = ("0".to_owned(), Ed25519Id([0; 32]));
            let error = MeasureError::Measurer { name, id, source: source.into() };
            let is_ours = error.kind() == FailureKind::MeasurerFailed;
            assert_eq!(error.accuser(), (!is_ours).then_some(id));
            error.kind()
        };
        for opened in [0, 79] {
            let kind = no_socket(Errno::MFILE, opened);
            assert_eq!((kind, kind.fault()), (FailureKind::MeasurerFailed, Fault::Coordinator));
        }
        assert_eq!(no_socket(Errno::CONNRESET, 0), FailureKind::LinkFailed);
        assert_eq!(no_socket(Errno::CONNRESET, 79), FailureKind::TooFewLinks);
        let setup = LinkError::Setup { peer, detail: "no clock".to_owned() };
        assert_eq!(MeasureError::from(setup).kind(), FailureKind::MeasurerFailed);
    }
}
