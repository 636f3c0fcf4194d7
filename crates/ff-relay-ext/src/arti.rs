//! The embedding for Arti relays.
//!
//! - [`embedding`]: [`Embedding`](embedding::Embedding), all that another Arti relay needs, and how
//!   to use it; its configuration is a [`Section`](section::Section).
//! - [`tls`]: [`MeasuringTls`](tls::MeasuringTls) puts the extension on every link a relay
//!   accepts.
//! - [`provider`]: [`MeasuringProvider`](provider::MeasuringProvider) sends echoed cells through
//!   the relay's own circuits.
//! - [`relay`]: [`Relay`](relay::Relay), a small relay of ours made of Arti's crates, because
//!   `arti-relay` itself is a program and not a library.
//! - [`host`]: [`RelayHost`](host::RelayHost), such a relay in a thread of its own.
//! - [`keys`]: [`RelayKeys`](keys::RelayKeys), a new identity for it.
//! - [`background`]: [`Background`](background::Background), a client that loads it like ordinary
//!   users.

pub mod background;
pub mod descriptor;
pub mod embedding;
pub mod extension;
pub mod host;
pub mod keys;
pub mod link;
pub mod next_hop;
pub mod provider;
pub mod relay;
pub mod section;
pub mod tls;

pub mod accepted;
mod consensus;
mod gate;
mod greeting;
mod handshakes;
mod held;
mod ingress;
mod inner_link;
mod limit;
pub mod opened;
mod outbox;
mod params;
mod through;

/// The number of bytes that a read or a write has moved, once it could move some.
type Moved = std::task::Poll<std::io::Result<usize>>;

/// Installs rustls's default cryptography if the process has not chosen one.
pub(crate) fn install_crypto_provider() {
    // An error means that there is one already, and any will do.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
