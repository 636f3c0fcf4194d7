//! The whole Tor network on real data: how wrong capacities and weights are, how long a team needs, what an
//! attacker gains, and what becomes of clients when weights change.
//!
//! ```text
//!   archives ─▶ read ─▶ Network, series ─┬─▶ analysis  Eq. 1-7 of the paper
//!      │                                 ├─▶ weights   a consensus' bandwidth-weights
//!      └─▶ Skips: what was left out      ├─▶ schedule  ff-bwauth's own, replayed
//!                                        ├─▶ others    TorFlow, sbws, EigenSpeed, PeerFlow
//!                                        └─▶ flow      clients, circuits, max-min rates; Tortoise's limits (no input)
//! ```
//!
//! [`network::Network`] is what most of it works on. Decisions come from `ff_bwauth`'s pure modules and
//! estimates from `ff_proto`; here is no second copy of either. Nothing of it opens a socket.

pub mod analysis;
pub mod attack;
pub mod cli;
pub mod compare;
pub mod figure;
pub mod flow;
pub mod input;
pub mod ledger;
pub mod markup;
pub mod merge;
pub mod network;
pub mod others;
pub mod output;
pub mod progress;
pub mod python_json;
pub mod read;
pub mod report;
pub mod run;
pub mod schedule;
pub mod skipped;
pub mod source;
mod spare;
pub mod stats;
pub mod store;
pub mod teller;
pub mod weights;

mod ahead;
mod parallel;
mod workers;
