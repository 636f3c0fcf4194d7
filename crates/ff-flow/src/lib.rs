#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`sim::run`], [`path::Paths`], [`tortoise::engine::simulate`].

pub mod fill;
pub mod parallel;
pub mod path;
pub mod sim;
pub mod tmodel;
pub mod tortoise;
pub mod transfers;
