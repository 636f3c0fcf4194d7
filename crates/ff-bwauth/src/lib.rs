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
//! ```text
//!   network (documents of the network) ─▶ period: groups, demands, slots, shares of measurers
//! ```
//!
//! The feature `demo`, on by default, is for the command: with it come `run`, `demo` and the relays
//! that the demo measures. With `measure` alone nothing of a relay, and little of Arti, is in the library.
//! With `live` comes `network::live`, which fetches the documents by Arti's directory client.
//! Without any it computes: `period`, `network`, `outcome`, `results`, `v3bw`.

#[cfg(feature = "measure")]
pub mod cli;
#[cfg(feature = "demo")]
mod demo;
mod files;
#[cfg(feature = "demo")]
pub mod host;
#[cfg(feature = "measure")]
pub mod key;
#[cfg(feature = "measure")]
pub mod measure;
pub mod network;
pub mod outcome;
pub mod period;
#[cfg(feature = "measure")]
mod progress;
#[cfg(feature = "measure")]
pub mod report;
pub mod results;
#[cfg(feature = "demo")]
pub mod run;
#[cfg(feature = "measure")]
mod samples;
#[cfg(feature = "demo")]
mod screen;
#[cfg(feature = "measure")]
pub mod team;
#[cfg(feature = "demo")]
mod tor;
pub mod utc;
pub mod v3bw;

pub use files::FileError;

/// Logs to standard error: warnings, with one `verbose` what happens, with two details.
/// `RUST_LOG` beats it.
#[cfg(feature = "measure")]
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
