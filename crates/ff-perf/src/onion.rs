//! Onion services of a source: by Arti in this process, or by a tor.
//!
//! ```text
//!  clients ─▶ rendezvous circuits ─┬▶ Arti: arti::Streams ─────────────────▶ http::serve_to_all ─▶ source
//!                                  └▶ a tor (ADD_ONION) ─▶ loopback, TCP ──▶ http::serve_to_all ─▶ source
//! ```
//!
//! Both keep their keys in a folder that is given, so that the address stays, and end with what has
//! started them.

pub mod arti;
pub mod tor;

/// The port of the services: the web's, so that addresses need none.
pub const PORT: u16 = 80;
