//! FlashFlow's coordinator: measures relays and publishes what they can forward.
//!
//! ```text
//!   cli ─▶ run ─▶ measure ─▶ Outcome
//!                               │
//!   screen, results (JSON lines), report (HTML), v3bw ◀─ deliver
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
//! Without features it computes: `period`, `network`, `outcome`, `publish`. With `measure` come a measurement by measurers
//! in this process, and what is printed and written of it; nothing of a relay, and little of Arti, is in that. `remote` adds
//! measurers on other hosts, `live` the network's documents by Arti's directory client (`network::live`), `store` what is
//! kept, `http` what answers the operator's browser and Prometheus, `pages` man pages of programs. `command`, on by
//! default, is all of it and the program: `run`, `daemon`, and the demo of a network with relays made of Arti's crates.

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
#[cfg(feature = "pages")]
pub mod pages;
#[cfg(feature = "store")]
mod percent;
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
pub use ff_measurer::console::fail;
#[cfg(feature = "measure")]
pub use ff_measurer::init_logging;
