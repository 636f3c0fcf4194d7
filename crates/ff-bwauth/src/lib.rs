//! FlashFlow's coordinator: measures relays and publishes what they can forward.
//!
//! ```text
//!   cli ─▶ run ─▶ demo (its own relay and clients, or a tor) ─▶ measure ─▶ Outcome
//!             └─────────────────────────────────────────────▶ measure ─┘    │
//!            screen, results (JSON lines), report (HTML), v3bw ◀────────────┘
//! ```
//!
//! The central types are [`measure::Plan`] and [`outcome::Outcome`].
//!
//! The feature `demo`, on by default, is for the command: with it come `run`, `demo` and the relays
//! that the demo measures. Without it nothing of a relay, and little of Arti, is in the library.

pub mod cli;
#[cfg(feature = "demo")]
mod demo;
mod files;
#[cfg(feature = "demo")]
pub mod host;
pub mod key;
pub mod measure;
pub mod outcome;
mod progress;
pub mod report;
pub mod results;
#[cfg(feature = "demo")]
pub mod run;
mod samples;
#[cfg(feature = "demo")]
mod screen;
pub mod team;
#[cfg(feature = "demo")]
mod tor;
pub mod utc;
pub mod v3bw;

pub use files::FileError;

/// Logs to standard error: warnings, with one `verbose` what happens, with two details.
/// `RUST_LOG` beats it.
pub fn init_logging(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
