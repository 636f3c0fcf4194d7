//! The failure kinds of errors.

use std::io;

use ff_proto::failure::FailureKind;
use rustix::io::Errno;

use super::{LinkFailure, MeasurerError};
use crate::link::{LinkError, Stage};

impl MeasurerError {
    /// The kind of this failure.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            // If no link opened, the kind is that of the links' error; so it is if this host lacked
            // a resource.
            Self::TooFewLinks { opened, source, .. } => match source.as_ref() {
                LinkFailure::Open(error) => match error.kind() {
                    kind if *opened == 0 || kind == FailureKind::MeasurerFailed => kind,
                    _ => FailureKind::TooFewLinks,
                },
                _ => FailureKind::TooFewLinks,
            },
            Self::LinksLost { source, .. } => match source.as_ref() {
                LinkFailure::Circuit(_) => FailureKind::CircuitFailed,
                _ => FailureKind::LinksLost,
            },
            Self::Session(failure) => failure.kind(),
            Self::Host { .. } => FailureKind::MeasurerFailed,
        }
    }
}

impl LinkError {
    /// The kind of this failure.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Refused { .. } => FailureKind::ConnectionRefused,
            Self::Unreachable { .. } => FailureKind::Unreachable,
            Self::ConnectTimeout { .. } | Self::HandshakeTimeout { .. } => FailureKind::Timeout,
            Self::NotTls { .. } => FailureKind::NotTls,
            Self::NotTor { .. } => FailureKind::NotTor,
            Self::WrongIdentity { .. } => FailureKind::WrongIdentity,
            Self::BadCertificates { .. } | Self::CertificatesExpired { .. } => {
                FailureKind::BadCertificates
            }
            Self::Setup { .. } => FailureKind::MeasurerFailed,
            Self::Io { stage: Stage::Tcp, source, .. } if is_ours(source) => {
                FailureKind::MeasurerFailed
            }
            Self::Io { .. }
            | Self::Closed { .. }
            | Self::Tls { .. }
            | Self::TorHandshake { .. } => FailureKind::LinkFailed,
        }
    }
}

/// Whether a socket could not be opened because this host lacks a resource, or forbids it.
fn is_ours(error: &io::Error) -> bool {
    const OURS: [Errno; 8] = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::ACCESS,
        Errno::PERM,
        Errno::AFNOSUPPORT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| OURS.contains(&errno))
}
