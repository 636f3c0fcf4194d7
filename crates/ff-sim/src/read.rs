//! Readers of public archives. What cannot be read is left out, counted and listed ([`crate::skipped`]).

pub mod consensus;
pub mod relayinfo;
pub mod series;
pub mod shadow;
