#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`schedule::Scheduler`], [`client::Client`], [`course::Course`], [`source::Source`].

pub mod arms;
pub mod budget;
pub mod cli;
pub mod client;
pub mod clocks;
pub mod course;
pub mod download;
pub mod figures;
pub mod interface;
pub mod mix;
pub mod onion;
pub mod path;
pub mod pattern;
pub mod plan;
pub mod probe;
mod request;
pub mod run;
pub mod schedule;
pub mod series;
pub mod signals;
pub mod sizes;
pub mod source;
pub mod store;
pub mod target;
