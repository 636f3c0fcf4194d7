//! Clients, circuits and streams as flows through a network of relays (paper §7).
//!
//! ```text
//!   Network, weights ─▶ path   who goes through whom
//!   tmodel-*.json ────▶ tmodel what circuits ask for, and when
//!                        └──▶ sim ◀── fill   who gets how much of a relay
//!                              ├──▶ first and last bytes, timeouts, throughput, utilisation
//!                              └──▶ closed  TorFlow and sbws: new weights from what relays carried
//! ```

pub mod closed;
pub mod fill;
pub mod path;
pub mod sim;
pub mod tmodel;
pub mod trial;
