//! The draw of an attempt, as a store keeps it.

use std::net::{IpAddr, SocketAddr};

use ff_base::identity::Fingerprint;
use ff_proto::aggregate::Draw;
use ff_proto::units::BytesPerSec;

use super::draws::{draw, limited};
use crate::outcome::Outcome;
use crate::period::group::host;

/// How a relay's attempt counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The relay's Ed25519 identity.
    pub ed_identity: [u8; 32],
    /// The RSA fingerprint that its link has shown.
    pub fingerprint: Option<Fingerprint>,
    /// The relay's address, without the port.
    pub host: Option<IpAddr>,
    /// When it began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// How it counted as a draw.
    pub draw: Draw,
    /// The rate that the path limited, if the attempt was to be repeated and so is not a draw.
    pub limited: Option<BytesPerSec>,
    /// Whether it was conclusive.
    pub concludes: bool,
    /// Whether the relay was measured soon after it had joined, at a time that it could choose.
    pub at_arrival: bool,
}

impl Drawn {
    /// The draw of an outcome, which does not show how its time was chosen; a store has that.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        Self {
            ed_identity: outcome.target.ed_identity,
            fingerprint: outcome.target.rsa_fingerprint,
            host: host_of(&outcome.target.address),
            started_unix_secs: outcome.started_unix_secs,
            draw: draw(outcome),
            limited: limited(outcome),
            concludes: outcome.publishable().is_some(),
            at_arrival: false,
        }
    }
}

/// The host of `host:port`.
pub fn host_of(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().ok().map(|address| host(address.ip()))
}
