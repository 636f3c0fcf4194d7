//! The relays that a network's documents are fetched from before it is known.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A directory authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// The authority's name in messages.
    pub name: String,
    /// The fingerprint of the key that its votes hang on, 40 hexadecimal digits: the `fingerprint`
    /// line of its `keys/authority_certificate`.
    pub v3ident: String,
    /// Its RSA fingerprint as a relay, 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its Ed25519 identity as a relay, 43 characters of base64.
    pub ed25519: String,
    /// Its ORPorts.
    pub orports: Vec<SocketAddr>,
}

/// A relay that is asked as long as there is no directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// Its RSA fingerprint, 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its Ed25519 identity, 43 characters of base64.
    pub ed25519: String,
    /// Its ORPorts.
    pub orports: Vec<SocketAddr>,
}
