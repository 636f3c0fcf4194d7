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
//! ```text
//!   period ─▶ store (plans, attempts, seconds: SQLite) ─▶ Outcome ─▶ v3bw, report, export
//! ```
//!
//! The feature `demo`, on by default, is for the command: with it come `run`, `demo` and the relays
//! that the demo measures. With `measure` alone nothing of a relay, and little of Arti, is in the library.
//! With `live` comes `network::live`, which fetches the documents by Arti's directory client. `store` adds what is
//! kept, `http` what answers the operator's browser and Prometheus. Without any it computes: `period`, `network`, `outcome`, `publish`.

#[cfg(feature = "command")]
pub mod cli;
#[cfg(feature = "measure")]
mod console;
#[cfg(feature = "command")]
pub mod daemon;
#[cfg(feature = "measure")]
pub mod deliver;
#[cfg(feature = "command")]
mod demo;
mod files;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "measure")]
pub mod measure;
pub mod network;
#[cfg(feature = "measure")]
pub mod options;
pub mod outcome;
pub mod period;
#[cfg(feature = "measure")]
mod progress;
pub mod publish;
#[cfg(feature = "command")]
pub mod run;
#[cfg(feature = "measure")]
mod samples;
#[cfg(feature = "measure")]
pub mod screen;
#[cfg(feature = "command")]
mod secret;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "measure")]
pub mod team;
pub mod utc;
#[cfg(feature = "watch")]
pub mod watch;

pub use files::FileError;

#[cfg(feature = "measure")]
pub use ff_measurer::init_logging;
