#![doc = include_str!("../README.md")]

pub mod analysis;
pub mod anonymity;
pub mod bound;
pub mod buckets;
pub mod capacities;
#[cfg(test)]
mod chance;
pub mod check;
pub mod congestion;
pub mod downloads;
pub mod fit;
pub mod guards;
pub mod interval;
pub mod lab;
pub mod micros;
pub mod network;
pub mod onionperf;
pub mod pairs;
pub mod paths;
pub mod rank;
pub mod read;
pub mod record;
pub mod replay;
pub mod traffic;
