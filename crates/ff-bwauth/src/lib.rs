#![doc = include_str!("../README.md")]

pub mod cli;
pub mod daemon;
mod demo;
pub mod run;
mod secret;
pub mod watch;
