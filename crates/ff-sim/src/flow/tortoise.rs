//! Tortoise: what clients of Tor get if guards limit each client's link, and clients that run a
//! relay are exempt (Moore, Wacek, Sherr: Slow and Steady Wins the Race With Tortoise, ACSAC 2011).
//!
//! ```text
//!   users ─▶ world ─▶ engine ─▶ Outcome ─▶ cells ─▶ ledger::tortoise    T1 to T30
//!   (who asks,  (relays,  (who gets how much,        (all cells and seeds,
//!    how much)   clients)  by max-min shares)         one fitted capacity)
//! ```
//!
//! A flow model: users ask for a page, wait until they have it, think, and ask again; rates are
//! [`MaxMin`](super::fill::MaxMin) shares of relays and of client links, and a [`bucket`] caps each
//! client's link to the first relay. One number is fitted: what the dedicated relays carry
//! together, so that the mean client of a network without limits has 41 KB/s.
//!
//! Limits: no queues, no windows and no losses, so nothing of latency but a fixed time to the first
//! byte; a bucket lets bytes flow evenly, where tor 0.2.1 refilled it once a second; a limit
//! therefore takes nothing from a client whose fair share lies below it.
//!
//! [`today`] has another network for the same engine: relays of May 2024, two guards and conflux
//! legs for each client, and pages of 2025.

pub mod between;
pub mod bucket;
pub mod cells;
pub mod engine;
pub mod experiment;
pub mod outcome;
pub mod rules;
pub mod today;
pub mod users;
pub mod world;

/// Bytes of a KB here: the paper does not say whether it means 1,000 or 1,024.
pub const KB: f64 = 1_000.0;
/// The part of a link's bytes that belongs to streams: 498 of 514 in each cell, and headers of TLS
/// and TCP (measured with tor 0.4.9).
pub const PAYLOAD: f64 = 0.93;
