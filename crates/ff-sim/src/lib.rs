#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`network::Network`], [`analysis::engine::Engine`], [`store::place::ArchiveStore`],
//! [`ledger::Ledger`].

pub mod analysis;
pub mod attack;
pub mod cli;
pub mod compare;
pub mod figure;
pub mod flow;
pub mod ledger;
pub mod merge;
pub mod network;
pub mod others;
pub mod read;
pub mod run;
pub mod schedule;
pub mod source;
mod spare;
pub mod store;
pub mod weights;

mod parallel;
