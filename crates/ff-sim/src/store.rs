//! A store: archives as Parquet, a partition for each table and month.
//!
//! ```text
//!   a folder of archives ─▶ plan: Unit (a kind of documents, a month)
//!                             └─▶ ingest ─▶ fill ─▶ partition ─▶ part.parquet, part.parquet
//!                                                └─▶ manifest, as the last file
//!   stores of several machines ─▶ merge ─▶ a store
//!   store ─▶ history ─▶ hours: who was listed, with what weight, and what it advertised
//!         ├─▶ hour ─▶ Network
//!         └─▶ newcomers: who is listed for the first time, hour by hour
//! ```
//!
//! [`place::ArchiveStore`] is the folder. A partition is written to another name and renamed, and
//! its manifest comes last, so a partition with a manifest is whole, and one without is made again.
//! A lock keeps two runs from one month. The manifest names the files that were read, with their
//! hashes: as long as these are the same, there is nothing to do.
//!
//! This is not a query engine: `doc/sim-store.md` says what the columns mean and what reads them.

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
