//! A store: archives as Parquet, with a partition for each table and month.
//!
//! ```text
//!   a folder of archives ─▶ plan: Unit (a kind of documents, a month)
//!                             └─▶ ingest ─▶ fill ─▶ partition ─▶ part.parquet, part.parquet
//!                                                └─▶ manifest, as the last file
//!   stores of several machines ─▶ merge ─▶ a store
//!   store ─▶ history ─▶ hours: listed relays, their weights and advertised bandwidths
//!         ├─▶ hour ─▶ Network
//!         └─▶ newcomers: relays listed for the first time, hour by hour
//! ```
//!
//! [`place::ArchiveStore`] is the folder. A partition is written under another name and renamed,
//! and its manifest is written last, so a partition with a manifest is complete, and one without is
//! written again. A lock prevents two runs from writing the same month. The manifest names the
//! source files with their hashes: if these are unchanged, the month is not read again.
//!
//! This is not a query engine: `doc/sim-store.md` describes the columns and programs that can read
//! them.

pub mod gaps;
pub mod history;
pub mod hour;
pub mod hours;
pub mod ingest;
pub mod manifest;
pub mod merge;
pub mod month;
pub mod newcomers;
pub mod place;
pub mod plan;
pub mod schema;

mod batch;
mod chunk;
mod described;
mod error;
mod fill;
mod listed;
mod load;
mod partition;

pub use self::error::ArchiveStoreError;
