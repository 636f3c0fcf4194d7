#![doc = include_str!("../README.md")]

pub mod exchange;
mod remote;

pub use remote::RemoteMeasurer;
