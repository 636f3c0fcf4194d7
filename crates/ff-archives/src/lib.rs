#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`network::Network`], [`source::network`], [`store::place::ArchiveStore`].

pub mod joined;
pub mod network;
pub mod read;
pub mod reading;
pub mod source;
pub mod spare;
pub mod store;
pub mod weights;
