//! Runs in private networks: what the papers measured in the live network, measured where the truth
//! is set.
//!
//! This is the part without a network: which paths are taken, and what is made of their downloads.

pub mod mobile;
pub mod orders;
pub mod strata;
pub mod tortoise;
pub mod verdicts;
