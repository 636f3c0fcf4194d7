#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`session::target::Target`], [`session::measurer::EchoLink`],
//! [`session::coordinator::CoordinatorLink`] and [`aggregate::estimate()`].

pub mod addresses;
pub mod aggregate;
pub mod auth;
pub mod cell;
pub mod cgo;
pub mod circuit;
pub mod codec;
pub mod content;
pub mod failure;
pub mod ids;
pub mod keystream;
pub mod msg;
#[cfg(feature = "onion")]
pub mod onion;
pub mod params;
pub mod rate;
pub mod session;
#[cfg(feature = "tor-cell")]
pub mod torcell;
pub mod units;
