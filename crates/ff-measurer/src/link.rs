//! Links: Tor's TLS connections to relays, opened for measuring.
//!
//! [`handshake::open`] connects to a relay, does TLS and Tor's link handshake, checks that the
//! relay is the expected one, and returns a [`Link`]: a plain non-blocking socket and the two
//! directions of TLS's record layer. After that no other layer is between the cells and the socket:
//!
//! ```text
//!            handshake::open                             after it
//!   TargetAddr -> tcp -> TLS -> Tor handshake -> Link -+-> hot path: Sealer, Opener, TcpStream
//!                     (rustls)   (tor-proto)           |   on a pinned thread, in place
//!                     tls.rs     gate.rs               +-> ControlLink: cells in, cells out,
//!                     stream.rs  handshake.rs              on tokio
//! ```
//!
//! A sink accepts links as relays do ([`accept()`]), with a [`LinkIdentity`] of its own.
//!
//! The measurer uses the parts of a [`Link`] directly; the coordinator, which exchanges a few cells
//! a second, wraps it in a [`control::ControlLink`].
//!
//! Limits: TLS 1.3 only, link protocols 4 and 5 only, and no key updates (see [`record`]).

mod accept;
pub mod control;
mod gate;
pub mod handshake;
mod identity;
pub mod record;
mod stream;
mod tls;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use zeroize::Zeroizing;

use crate::tcp;

pub use ff_proto::auth::{EXPORTER_LABEL, EXPORTER_LEN};

pub use accept::accept;
pub use handshake::{LinkOptions, TargetAddr, open};
pub use identity::{IdentityError, LinkIdentity};
pub use tls::client_config;
pub(crate) use tls::server_config;

/// An open link: to a relay whose identity has been checked, or accepted from any peer.
///
/// Dropping it closes the socket. To read from it, first take `leftover_plaintext`, then decrypt
/// `leftover_ciphertext`, then read from `tcp`.
pub struct Link {
    /// The socket, non-blocking, with TCP_NODELAY set.
    pub tcp: TcpStream,
    /// Address of the relay.
    pub peer: SocketAddr,
    /// Encrypts sent records.
    pub sealer: record::Sealer,
    /// Decrypts received records.
    pub opener: record::Opener,
    /// A secret known only to the two ends of this TLS connection; see [`EXPORTER_LABEL`].
    pub exporter: Zeroizing<[u8; EXPORTER_LEN]>,
    /// Bytes read from the socket and not yet decrypted; may end within a record.
    pub leftover_ciphertext: Vec<u8>,
    /// Decrypted bytes that came after the relay's NETINFO cell.
    pub leftover_plaintext: Vec<u8>,
    /// The relay's Ed25519 identity, which it has proven; `None` on an accepted link.
    pub ed_identity: Option<Ed25519Identity>,
    /// The relay's RSA identity, which the Ed25519 identity does not prove; `None` on an accepted
    /// link.
    pub rsa_identity: Option<RsaIdentity>,
    /// The cipher suite of the TLS connection.
    pub suite: record::Suite,
    /// The Tor link protocol, 4 or 5.
    pub link_protocol: Option<u16>,
}

impl Link {
    /// The shortest round trip of a TCP segment so far; `None` if the kernel does not report it.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let (local, peer) = self.ends().ok()?;
        tcp::round_trip(local, peer)
    }

    /// Its local and its remote address.
    pub(crate) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.tcp.local_addr()?, self.tcp.peer_addr()?))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.peer)
            .field("ed_identity", &self.ed_identity)
            .field("suite", &self.suite)
            .field("link_protocol", &self.link_protocol)
            .finish_non_exhaustive()
    }
}

/// The stage of a link's setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Connecting.
    Tcp,
    /// The TLS handshake.
    Tls,
    /// Tor's link handshake.
    Tor,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP connection",
            Self::Tls => "TLS handshake",
            Self::Tor => "Tor link handshake",
        })
    }
}

/// Why a link could not be opened. Every message names the peer and suggests a check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The connection was refused.
    #[error("{peer} refused the connection; is the relay running, and is this its ORPort?")]
    Refused {
        /// The address.
        peer: SocketAddr,
    },
    /// The address cannot be reached.
    #[error("{peer} cannot be reached; check this machine's network and routes")]
    Unreachable {
        /// The address.
        peer: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The TCP connection took too long.
    #[error(
        "{peer} did not accept a connection within {after:?}; is the relay up, \
             and does a firewall drop packets to its ORPort?"
    )]
    ConnectTimeout {
        /// The address.
        peer: SocketAddr,
        /// The time limit.
        after: Duration,
    },
    /// The socket failed.
    #[error("the connection to {peer} failed during the {stage}")]
    Io {
        /// The address.
        peer: SocketAddr,
        /// The stage of the link.
        stage: Stage,
        /// The system's error.
        source: io::Error,
    },
    /// The peer closed the connection.
    #[error(
        "{peer} closed the connection during the {stage}; a relay does that when it shuts \
             down or when its protection against denial of service sees too many connections \
             from this address"
    )]
    Closed {
        /// The address.
        peer: SocketAddr,
        /// The stage of the link.
        stage: Stage,
    },
    /// The peer accepts connections but does not answer.
    #[error(
        "{peer} did not complete the {stage} within {after:?}; is it an ORPort, \
             and is the relay overloaded?"
    )]
    HandshakeTimeout {
        /// The address.
        peer: SocketAddr,
        /// The stage of the link.
        stage: Stage,
        /// The time limit.
        after: Duration,
    },
    /// The peer does not speak TLS 1.3.
    #[error(
        "{peer} does not speak TLS 1.3 ({detail}); check that this is the relay's ORPort \
             and not its DirPort or another service"
    )]
    NotTls {
        /// The address.
        peer: SocketAddr,
        /// The peer's behaviour instead.
        detail: String,
    },
    /// The TLS handshake failed.
    #[error("the TLS handshake with {peer} failed; something on the way may be interfering")]
    Tls {
        /// The address.
        peer: SocketAddr,
        /// rustls's error.
        source: rustls::Error,
    },
    /// The peer speaks TLS, but not Tor over it.
    #[error("{peer} speaks TLS but is not a Tor relay ({detail}); check the address and port")]
    NotTor {
        /// The address.
        peer: SocketAddr,
        /// The peer's behaviour instead.
        detail: &'static str,
    },
    /// Tor's link handshake failed.
    #[error("the Tor link handshake with {peer} failed")]
    TorHandshake {
        /// The address.
        peer: SocketAddr,
        /// tor-proto's error.
        source: Box<tor_proto::Error>,
    },
    /// Another relay answered.
    #[error("{peer} is not the relay with the Ed25519 identity {expected}{}; \
             check the address, or whether the relay has a new identity", found_text(.found))]
    WrongIdentity {
        /// The address.
        peer: SocketAddr,
        /// The identity asked for.
        expected: Ed25519Identity,
        /// The identity that the peer claims, if any. It is not verified.
        found: Option<Ed25519Identity>,
    },
    /// The peer claims the expected identity but cannot prove that the connection is its own.
    #[error(
        "{peer} claims the expected identity but does not prove it; \
             somebody between here and the relay may be intercepting the connection"
    )]
    BadCertificates {
        /// The address.
        peer: SocketAddr,
        /// tor-proto's error.
        source: Box<tor_proto::Error>,
    },
    /// The relay's certificates are not valid now.
    #[error(
        "the certificates of {peer} are off by {expired_by:?}; \
             check the clock of this machine, then the relay's"
    )]
    CertificatesExpired {
        /// The address.
        peer: SocketAddr,
        /// The time since or until they are valid.
        expired_by: Duration,
    },
    /// An error of this host; never seen in practice.
    #[error("cannot set up a link to {peer}: {detail}")]
    Setup {
        /// The address.
        peer: SocketAddr,
        /// The error as text.
        detail: String,
    },
}

impl LinkError {
    /// An error of this host.
    fn setup(peer: SocketAddr, detail: impl ToString) -> Self {
        Self::Setup { peer, detail: detail.to_string() }
    }

    /// The address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        match *self {
            Self::Refused { peer }
            | Self::Unreachable { peer, .. }
            | Self::ConnectTimeout { peer, .. }
            | Self::Io { peer, .. }
            | Self::Closed { peer, .. }
            | Self::HandshakeTimeout { peer, .. }
            | Self::NotTls { peer, .. }
            | Self::Tls { peer, .. }
            | Self::NotTor { peer, .. }
            | Self::TorHandshake { peer, .. }
            | Self::WrongIdentity { peer, .. }
            | Self::BadCertificates { peer, .. }
            | Self::CertificatesExpired { peer, .. }
            | Self::Setup { peer, .. } => peer,
        }
    }
}

/// The part of [`LinkError::WrongIdentity`]'s message that names the peer's identity.
fn found_text(found: &Option<Ed25519Identity>) -> String {
    found.map_or_else(
        || " (it shows no Ed25519 identity at all)".into(),
        |found| format!(" (it claims to be {found})"),
    )
}
