//! The part of Tor's circuits for sending cells through a relay: the client's end, and that of the
//! next relay.
//!
//! ```text
//!   circuit::Building   ntor::NtorClient ─▶ CREATE2, CREATED2 ─▶ Hop ─▶ EXTEND2, EXTENDED2 ─▶ Passage × 2
//!   the next relay      ntor::NtorServer ─▶ the same CREATE2 and CREATED2, through the relay between
//!   inside::Inside      CREATE_FAST ─▶ Hop ─▶ EXTEND2 ─▶ Passage, in a relay's own process
//! ```
//!
//! When a circuit has been extended, the relay has handled one cell for itself in each direction
//! and forwards all others; its encryption of those is a [`Passage`](crate::circuit::Passage).
//!
//! Decisions: doc/decisions.md, "Handshakes of our own for transit".

pub mod circuit;
pub mod extend;
mod hop;
pub mod inside;
pub mod ntor;
