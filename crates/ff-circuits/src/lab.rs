//! Experiments in private networks: the papers' measurements of the live network, repeated where
//! the truth is known.
//!
//! This is the part without a network: the paths to use, and the analysis of their downloads.

pub mod mobile;
pub mod orders;
pub mod strata;
pub mod tortoise;
pub mod verdicts;
