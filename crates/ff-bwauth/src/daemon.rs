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

pub mod core;
pub mod course;
mod drive;
mod exchange;
mod network;
pub mod plan;
mod publish;
pub mod request;
pub mod running;
mod setup;
pub mod status;
pub mod view;
pub mod written;

use anyhow::{Context as _, Result};
use tokio::runtime::{Builder, Runtime};

pub use self::core::{Action, Core, Effect};
pub use self::drive::{Daemon, Handle, page};
pub use self::setup::identity;

/// A runtime for the page: one thread.
///
/// # Errors
/// When the system has no thread or file descriptor left.
pub(crate) fn page_runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("page").enable_all().build();
    runtime.context("Failed to start a runtime for the page")
}

/// A runtime for coordinators. Arti's TLS then uses aws-lc-rs, unless the process has chosen
/// another library.
///
/// # Errors
/// When the system has no thread or file descriptor left.
pub(crate) fn runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    // An error means that the process has chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    runtime.context("Failed to start a runtime")
}
