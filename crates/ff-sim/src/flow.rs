//! Clients, circuits and streams as flows through a network of relays (paper §7).
//!
//! ```text
//!   Network, weights ─▶ path   the relays of each circuit
//!   tmodel-*.json ────▶ tmodel the bytes that circuits request, and when
//!                        └──▶ sim ◀── fill   how flows share relays
//!                              ├──▶ first and last bytes, timeouts, throughput, utilisation
//!                              └──▶ closed  TorFlow and sbws: new weights from relays' traffic
//! ```
//!
//! `tortoise` is another simulation with the same sharing of relays: users wait for a page before
//! they request the next one, over links that guards limit.

pub mod closed;
pub mod fill;
pub mod path;
pub mod sim;
pub mod tmodel;
pub mod tortoise;
pub mod trial;
