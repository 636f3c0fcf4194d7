//! Readers of public archives. Unreadable input is left out, counted and listed
//! ([`ff_report::skipped`]).
//!
//! Decisions: doc/decisions.md, "Scanners of our own read archives".

pub mod archive;
pub mod consensus;
pub mod descriptor;
pub mod january;
pub mod relayinfo;
pub mod series;
pub mod shadow;
pub mod span;
pub mod table;
