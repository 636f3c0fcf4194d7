//! Explains a failed connection between a coordinator and a measurer to the operators of both.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use ff_proto::ids::Ed25519Id;
use rustls::{AlertDescription, CertificateError, OtherError};

use super::wire::printable;
use crate::dial::DialError;
use crate::key::identity_text;

/// The error that a peer has shown an identity that may not connect, or is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown(pub(super) Ed25519Id);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the identity {} is not expected here", identity_text(&self.0))
    }
}

impl Error for Unknown {}

impl From<Unknown> for rustls::Error {
    /// An error that sends the peer the alert `certificate_unknown`.
    fn from(unknown: Unknown) -> Self {
        CertificateError::Other(OtherError(Arc::new(unknown))).into()
    }
}

/// Why a connection failed.
enum Cause {
    /// The peer has shown this identity, which is not expected here.
    Unknown(Ed25519Id),
    /// The peer does not accept our identity.
    TurnedAway,
    /// TLS failed for another reason.
    Tls(String),
    /// The name of the peer's host cannot be resolved.
    Unresolved(String),
    /// The peer closed the connection.
    Closed,
    /// Another error of the operating system.
    System,
}

impl Cause {
    /// The cause of an error.
    fn of(error: &io::Error) -> Self {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let inner = error.get_ref();
        let dial = inner.and_then(|inner| inner.downcast_ref::<DialError>());
        if let Some(DialError::Lookup { error, .. }) = dial {
            return Self::Unresolved(printable(&error.to_string()));
        }
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (tls, error.kind()) {
            (Some(rustls::Error::AlertReceived(alert)), _) if is_about_identity(*alert) => {
                Self::TurnedAway
            }
            (Some(tls), _) => {
                let unknown = unknown(tls).map(|unknown| Self::Unknown(unknown.0));
                unknown.unwrap_or_else(|| Self::Tls(printable(&tls.to_string())))
            }
            (None, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof) => {
                Self::Closed
            }
            (None, _) => Self::System,
        }
    }
}

/// Whether a peer refuses our identity by this alert: the one sent for [`Unknown`], or rustls's
/// own.
fn is_about_identity(alert: AlertDescription) -> bool {
    matches!(alert, AlertDescription::AccessDenied | AlertDescription::CertificateUnknown)
}

/// The unexpected identity, if a TLS error is about one.
fn unknown(error: &rustls::Error) -> Option<Unknown> {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return None;
    };
    other.0.downcast_ref::<Unknown>().copied()
}

/// Why a coordinator cannot connect to a measurer that should have the identity `expected`; `own`
/// is the coordinator's.
pub(super) fn for_coordinator(error: &io::Error, expected: &Ed25519Id, own: &Ed25519Id) -> String {
    let [expected, own] = [expected, own].map(identity_text);
    match (Cause::of(error), error.kind()) {
        (Cause::Unknown(found), _) => format!(
            "the host there has the identity {}, but the [[measurer]] table has {expected}: write there what `ff-measurer \
             init` prints on that host",
            identity_text(&found)
        ),
        (Cause::TurnedAway, _) => format!(
            "the identity {own} is in no [[coordinator]] table of that measurer: its operator has to add it"
        ),
        (Cause::Tls(what), _) => {
            format!("what listens there is not a measurer ({what}): is the port right?")
        }
        (Cause::Unresolved(why), _) => {
            format!("its name cannot be resolved: check it in the [[measurer]] table ({why})")
        }
        (Cause::Closed, _) => "it closed the connection: was it stopped or restarted?".to_owned(),
        (Cause::System, ErrorKind::ConnectionRefused) => {
            "connection refused: does ff-measurer run there, and is the port right?".to_owned()
        }
        (Cause::System, ErrorKind::TimedOut) => {
            "no answer: is the host up, and does a firewall drop packets to the port?".to_owned()
        }
        (Cause::System, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
            format!("this host has no route there ({error})")
        }
        (Cause::System, _) => printable(&error.to_string()),
    }
}

/// Why a measurer with this identity refuses a connection.
pub(super) fn for_measurer(error: &io::Error, own: &Ed25519Id) -> String {
    match Cause::of(error) {
        Cause::Unknown(found) => format!(
            "identity {} is in no [[coordinator]] table of this measurer: add it if that coordinator may give work",
            identity_text(&found)
        ),
        Cause::TurnedAway => format!(
            "it expects another identity here than {}: its operator has to write this one into the [[measurer]] table",
            identity_text(own)
        ),
        Cause::Tls(what) => format!("it is not a coordinator ({what})"),
        Cause::Closed => "it closed the connection before it proved its identity".to_owned(),
        Cause::Unresolved(why) => why,
        Cause::System => printable(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rustls::{InvalidMessage, PeerIncompatible};

    use super::*;

    /// Three identities: the expected one, that of the peer that connects, and another.
    const IDS: [Ed25519Id; 3] = [Ed25519Id([1; 32]), Ed25519Id([2; 32]), Ed25519Id([3; 32])];

    /// An error of TLS, as tokio-rustls returns it.
    fn tls(error: impl Into<rustls::Error>) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, error.into())
    }

    /// An error of dialling whose addresses failed with these kinds of errors.
    fn failed(kinds: [ErrorKind; 2]) -> io::Error {
        let address = SocketAddr::from(([192, 0, 2, 1], 1));
        let errors = kinds.map(|kind| (address, io::Error::from(kind)));
        DialError::Connect(errors.into()).into()
    }

    #[test]
    fn both_operators_read_their_own_sentence_and_which_identity_it_is_about() {
        let [expected, own, other] = IDS;
        let [e, o, x] = IDS.map(|id| identity_text(&id));
        let alert = |alert| tls(rustls::Error::AlertReceived(alert));
        let eof = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls";
        let eof = || io::Error::new(ErrorKind::UnexpectedEof, eof);
        let name = "failed to lookup address information: Name or service not known";
        for (error, coordinator, measurer) in [
            (
                tls(Unknown(other)),
                format!("{x}, but the [[measurer]] table has {e}"),
                format!("{x} is in no [[coord"),
            ),
            (
                alert(AlertDescription::AccessDenied),
                format!("{o} is in no [[coord"),
                format!("here than {e}"),
            ),
            (
                alert(AlertDescription::CertificateUnknown),
                format!("{o} is in no [[coord"),
                format!("here than {e}"),
            ),
            (
                alert(AlertDescription::HandshakeFailure),
                "not a measurer (".into(),
                "not a coordinator (".into(),
            ),
            (
                tls(InvalidMessage::InvalidContentType),
                "is the port right?".into(),
                "not a coordinator (".into(),
            ),
            (
                tls(PeerIncompatible::Tls12NotOffered),
                "not a measurer (".into(),
                "not a coordinator (".into(),
            ),
            (eof(), "stopped or restarted?".into(), "before it proved".into()),
            (
                ErrorKind::ConnectionReset.into(),
                "stopped or restarted?".into(),
                "before it proved".into(),
            ),
            (
                ErrorKind::BrokenPipe.into(),
                "stopped or restarted?".into(),
                "before it proved".into(),
            ),
            (
                ErrorKind::ConnectionRefused.into(),
                "does ff-measurer run there".into(),
                "refused".into(),
            ),
            (ErrorKind::TimedOut.into(), "no answer: is the host up".into(), "timed out".into()),
            (ErrorKind::NetworkUnreachable.into(), "no route there (".into(), "unreachable".into()),
            (
                DialError::Lookup { address: "m1:9230".into(), error: io::Error::other(name) }
                    .into(),
                "its name cannot be resolved".into(),
                name.into(),
            ),
            (
                failed([ErrorKind::ConnectionRefused; 2]),
                "does ff-measurer run there".into(),
                "cannot connect to 192.0.2.1:1: ".into(),
            ),
            (
                failed([ErrorKind::ConnectionRefused, ErrorKind::TimedOut]),
                "cannot connect to 192.0.2.1:1: connection refused; 192.0.2.1:1: timed out".into(),
                "cannot connect to 192.0.2.1:1: ".into(),
            ),
            (io::Error::other("a\u{1b}[31m"), "a?[31m".into(), "a?[31m".into()),
        ] {
            let said = for_coordinator(&error, &expected, &own);
            assert!(said.contains(&coordinator), "{said}, not {coordinator}");
            let told = for_measurer(&error, &expected);
            assert!(told.contains(&measurer), "{told}, not {measurer}");
            for text in [said, told] {
                let is_plain = !text.contains("docs.rs") && !text.contains("Application");
                assert!(is_plain && !text.contains('\n'), "{text}");
            }
        }
    }
}
