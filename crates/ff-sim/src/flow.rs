//! Clients, circuits and streams as flows through a network of relays (paper §7).
//!
//! ```text
//!   Network, weights ─▶ path   who goes through whom
//!   tmodel-*.json ────▶ tmodel what circuits ask for, and when
//!                        └──▶ sim ◀── fill   who gets how much of a relay
//!                              ├──▶ first and last bytes, timeouts, throughput, utilisation
//!                              └──▶ closed  TorFlow and sbws: new weights from what relays carried
//! ```
//!
//! `tortoise` is another simulation on the same shares: users that wait for their page before they
//! ask again, over links that guards limit.

pub mod closed;
pub mod fill;
pub mod path;
pub mod sim;
pub mod tmodel;
pub mod tortoise;
pub mod trial;
