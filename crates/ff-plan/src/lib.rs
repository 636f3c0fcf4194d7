#![doc = include_str!("../README.md")]

pub mod outcome;
pub mod period;
pub mod publish;
