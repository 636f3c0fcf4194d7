//! What becomes of results: files for the relay's owner, and the one that authorities vote with.

#[cfg(feature = "measure")]
pub mod report;
pub mod results;
pub mod v3bw;
