#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`network::Network`], [`analysis::engine::Engine`], [`store::place::Store`], [`ledger::Ledger`], [`output::Folder`].

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
