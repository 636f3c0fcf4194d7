#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`target::RelayTarget`], [`options`], [`memory`], [`background`] and [`ingress`].

#[cfg(feature = "arti")]
pub mod arti;
pub mod background;
#[cfg(feature = "ffi")]
pub mod ffi;
pub mod ingress;
pub mod memory;
pub mod options;
pub mod target;
