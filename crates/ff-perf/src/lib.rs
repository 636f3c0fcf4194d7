#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`record::Circuit`], [`schedule::Scheduler`], [`client::Client`], [`downloads::DownloadReport`], [`bound::Capacities`].

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
