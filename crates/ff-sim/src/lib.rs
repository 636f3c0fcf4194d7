#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`analysis::engine::Engine`], [`ledger::figures`].

pub mod analysis;
pub mod attack;
pub mod cli;
pub mod compare;
pub mod figure;
pub mod ledger;
pub mod others;
pub mod run;
pub mod schedule;
pub mod trial;
