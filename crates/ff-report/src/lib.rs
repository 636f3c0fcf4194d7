#![doc = include_str!("../README.md")]

pub mod ahead;
pub mod figure;
pub mod input;
pub mod ledger;
pub mod markup;
pub mod merge;
pub mod options;
pub mod output;
pub mod progress;
pub mod python_json;
pub mod report;
pub mod skipped;
pub mod stats;
pub mod teller;
pub mod workers;
