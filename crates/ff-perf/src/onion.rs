//! Onion services of a source, run by Arti in this process or by a tor.
//!
//! ```text
//!  clients ─▶ rendezvous circuits ─┬▶ Arti: arti::Streams ─────────▶ http::serve_to_all ─▶ source
//!                                  └▶ tor (ADD_ONION) ─▶ loopback ─▶ http::serve_to_all ─▶ source
//! ```
//!
//! Both keep their keys in a given folder, so that the address stays, and end with the program that
//! started them.

pub mod arti;
pub mod tor;

/// Port of the services: HTTP's default, so that URLs need none.
pub const PORT: u16 = 80;
