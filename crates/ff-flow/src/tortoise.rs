//! Tortoise: guards limit each client's link, and clients that run a relay are exempt (Moore,
//! Wacek, Sherr: Slow and Steady Wins the Race With Tortoise, ACSAC 2011).
//!
//! ```text
//!   users ─▶ world ─▶ engine ─▶ outcome ─▶ cells ─▶ claims: T1 to T30
//!   (requests)  (relays,  (rates by                 (all cells and seeds,
//!                clients)  max-min shares)           one fitted capacity)
//! ```
//!
//! A flow model: users request a page, wait until they have it, think, and request the next one;
//! rates are [`MaxMin`](super::fill::MaxMin) shares of relays and of client links, and a [`bucket`]
//! caps each client's link to the first relay. One number is fitted: the total capacity of the
//! dedicated relays, so that the mean client in a network without limits has 41 KB/s.
//!
//! Limits: no queues, windows or losses, so the only latency is a fixed time to the first byte; a
//! bucket passes bytes evenly, whereas tor 0.2.1 refilled it once per second; so a limit never
//! slows a client with a fair share below it.
//!
//! [`today`] has another network for the same engine: relays of May 2024, two guards and conflux
//! legs for each client, and pages of 2025.

pub mod between;
pub mod bucket;
pub mod cells;
pub mod claims;
pub mod engine;
pub mod experiment;
pub mod figure;
pub mod outcome;
pub mod rules;
pub mod tables;
pub mod today;
pub mod users;
pub mod world;

/// Bytes of a KB here: the paper does not say whether it means 1,000 or 1,024.
pub const KB: f64 = 1_000.0;
/// The share of a link's bytes that belongs to streams: 498 of 514 in each cell, and headers of TLS
/// and TCP (measured with tor 0.4.9).
pub const PAYLOAD: f64 = 0.93;
