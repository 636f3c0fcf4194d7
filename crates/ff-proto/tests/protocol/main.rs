//! Tests of the protocol: its sessions with each other, its cells as read by Arti, and vectors of a
//! second implementation.

mod decode_props;
#[cfg(feature = "onion")]
mod onion_props;
#[cfg(all(feature = "tor-cell", feature = "onion"))]
mod onion_torcell;
mod sampling;
mod sessions;
#[cfg(feature = "tor-cell")]
mod torcell;
mod vectors;
