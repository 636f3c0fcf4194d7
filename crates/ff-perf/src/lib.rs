//! What Tor's clients see of a network: how long circuits take, how good they are, which selection of paths would
//! serve users better and what it would take from their anonymity.
//!
//! [`record::Circuit`] is what is known of one measured circuit: one JSON line. Everything else writes those or
//! reads them.
//!
//! ```text
//!  circuits run: network, path ─▶ schedule::Scheduler ─▶ course ─▶ probe::measure × circuits ─▶ store::Store
//!                                 (which, when; no IO)              └─▶ client::Client: Arti, or a tor process
//!  circuits serve: the same without an end ─▶ store::shelf (store::rotation: which file), figures: /metrics
//!  downloads run: the same course, one download a circuit ◀─ source: bytes that a seed makes (pattern)
//!  downloads run --arms: arms, which take turns with clients and paths of their own
//!  downloads serve: sizes by mix, at most a month's budget; downloads plan: plan, by what traffic computes
//!  circuits analyze: read ─▶ fit, replay, rank, anonymity, buckets ─▶ analysis ─▶ tables, figures, JSON
//!  downloads analyze: read::downloads ─▶ downloads::DownloadReport ─▶ tables of Tor Metrics and OnionPerf, figures, a page
//!  bound: capacities ─▶ bound; paths: network ─▶ paths::pool ─▶ paths; lab: ff-lab's networks ─▶ both of the above
//! ```

pub mod analysis;
pub mod anonymity;
pub mod arms;
pub mod bound;
pub mod buckets;
pub mod budget;
pub mod capacities;
#[cfg(test)]
mod chance;
pub mod check;
pub mod cli;
pub mod client;
pub mod congestion;
pub mod course;
pub mod download;
pub mod downloads;
pub mod figures;
pub mod fit;
pub mod guards;
pub mod interface;
pub mod interval;
pub mod lab;
pub mod mix;
pub mod network;
pub mod onionperf;
pub mod pairs;
pub mod path;
pub mod paths;
pub mod pattern;
pub mod plan;
pub mod probe;
pub mod rank;
pub mod read;
pub mod record;
pub mod replay;
pub mod run;
pub mod schedule;
pub mod series;
pub mod signals;
pub mod source;
pub mod store;
pub mod target;
pub mod traffic;
