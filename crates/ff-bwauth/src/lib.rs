//! The coordinator.

pub mod outcome;
