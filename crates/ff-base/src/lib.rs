#![doc = include_str!("../README.md")]

pub mod files;
pub mod identity;
pub mod owner;
pub mod text;
pub mod utc;
