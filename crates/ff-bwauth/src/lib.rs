#![doc = include_str!("../README.md")]

pub mod cli;
pub mod config;
pub mod daemon;
mod demo;
pub mod run;
mod secret;
pub mod watch;
