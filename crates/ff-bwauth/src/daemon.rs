//! The daemon: a coordinator that measures a network continuously.
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
//! [`Core::apply`] makes all decisions, without a clock or a socket; its tests feed it actions. A
//! decision is in the store before it is carried out, so a coordinator that restarts after a crash
//! continues where the last one ended.

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
