//! The documents of one moment.

use std::sync::Arc;
use std::time::SystemTime;

use super::head::secs;

/// The network's documents of one moment, each verified.
///
/// The consensuses' signatures have been checked; descriptors and microdescriptors are those whose
/// digests the consensuses have. Copies share their texts.
#[derive(Clone, Debug)]
pub struct Documents {
    /// The consensus of the flavour ns, which has the digests of the descriptors.
    pub consensus: Arc<str>,
    /// The consensus of the flavour microdesc of the same time, which has the digests of the
    /// microdescriptors; not always to be had.
    pub microdesc_consensus: Option<Arc<str>>,
    /// Server descriptors, in the consensus' order.
    pub descriptors: Vec<Arc<str>>,
    /// Microdescriptors, in the consensus' order.
    pub microdescriptors: Vec<Arc<str>>,
    /// How many relays the consensus lists.
    pub relays: usize,
    /// When the consensus became valid, in seconds since 1970.
    pub valid_after_secs: u64,
    /// When there should be a newer one.
    pub fresh_until_secs: u64,
    /// When it ceases to be valid.
    pub valid_until_secs: u64,
    /// When it was fetched.
    pub fetched_at_secs: u64,
    /// The source of the consensus.
    pub from: String,
    /// Problems during the refresh, a sentence each; the documents are valid all the same.
    pub problems: Vec<String>,
}

impl Documents {
    /// How long ago the consensus became valid.
    #[must_use]
    pub fn age_secs(&self, now: SystemTime) -> u64 {
        secs(now).saturating_sub(self.valid_after_secs)
    }

    /// Whether there should be a newer one.
    #[must_use]
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        secs(now) < self.fresh_until_secs
    }

    /// Whether it has ceased to be valid.
    #[must_use]
    pub fn is_stale(&self, now: SystemTime) -> bool {
        secs(now) >= self.valid_until_secs
    }

    /// Relays whose descriptors were not to be had.
    #[must_use]
    pub fn missing_descriptors(&self) -> usize {
        self.relays.saturating_sub(self.descriptors.len())
    }

    /// All descriptors as one text, as files have them.
    #[must_use]
    pub fn descriptors_text(&self) -> String {
        self.descriptors.concat()
    }

    /// All microdescriptors as one text.
    #[must_use]
    pub fn microdescriptors_text(&self) -> String {
        self.microdescriptors.concat()
    }
}
