//! The status of a running coordinator, and explanations of its numbers.
//!
//! ```text
//!   daemon ─▶ status::Status, once a second ─┬─▶ page: overview, team, events; /status.json
//!                with what problems finds    │
//!                                            └─▶ figures: /metrics
//!   store, read only ─▶ page::pool ──────────┬─▶ page: slots, capacities, failures, relays
//!   consensus, last bandwidth file ──────────┴─▶ explain::Explanation ─▶ page, `ff-bwauth explain`
//!   /status.json ─▶ client ─▶ summary ─▶ `ff-bwauth status`     config, this host ─▶ doctor
//!   config, store ─▶ measurers ─▶ `ff-bwauth measurers`
//! ```
//!
//! Read-only: the page has no button, and the store is opened for reading.

mod chart;
pub mod client;
pub mod doctor;
pub mod documents;
pub mod explain;
mod figures;
#[cfg(test)]
mod made_up;
pub mod meaning;
pub mod measurers;
pub mod page;
pub mod problems;
pub(crate) mod search;
pub mod status;
pub mod summary;
mod text;
