//! The coordinator that runs for months.
//!
//! ```text
//!            ┌──────────────── select: the next Action ────────────────┐
//!  clock ────┤ Tick      Documents      Described      Second, Finished│◀── tasks: network, team, measure
//!            └───────────────────────────┬─────────────────────────────┘
//!                                        ▼
//!                    Core::apply(action, now), synchronous ──▶ Store (SQLite)
//!                                        │
//!                                        ▼ Effects
//!                 Refresh      Describe      Measure      Publish      End
//! ```
//!
//! All that is decided is decided in [`Core::apply`], which has no clock and no socket; its tests
//! make the actions up. What it decides is in the store before it is done, so whoever starts again
//! behind a crash goes on where the last one was.

pub mod config;
pub mod core;
pub mod course;
mod drive;
mod exchange;
mod network;
pub mod plan;
mod publish;
pub mod request;
pub mod running;
pub mod status;
pub mod view;

pub use self::core::{Action, Core, Effect};
pub use self::drive::{Daemon, Handle, identity, page};
