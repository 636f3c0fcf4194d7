//! FlashFlow's wire protocol, sans-IO state machines and estimation arithmetic.
//!
//! Bytes and the time go in; cells, events and an estimate come out. There is no socket, no clock
//! and no random number generator in this crate: the host brings them.
//!
//! ```text
//!   bytes of a link ─▶ cell ─▶ msg ─▶ session::{coordinator, measurer, target} ─▶ cells, events
//!                        └─ MEAS_ECHO ─▶ circuit::EchoCircuit (target)
//!                                     ─▶ session::measurer::EchoLink (measurer)
//!   per-second counts ─▶ aggregate::estimate ─▶ aggregate::judge
//!   cells in transit ─▶ session::cells::{Source, Drain}, over circuits of onion::circuit (feature `onion`)
//! ```
//!
//! The central types are [`session::target::Target`], [`session::measurer::EchoLink`] and
//! [`session::coordinator::CoordinatorLink`]. `PROTOCOL.md` beside this crate specifies what they
//! speak.

pub mod addresses;
pub mod aggregate;
pub mod auth;
pub mod cell;
pub mod cgo;
pub mod circuit;
pub mod codec;
pub mod content;
pub mod failure;
pub mod ids;
pub mod keystream;
pub mod msg;
#[cfg(feature = "onion")]
pub mod onion;
pub mod params;
pub mod rate;
pub mod session;
#[cfg(feature = "tor-cell")]
pub mod torcell;
pub mod units;
