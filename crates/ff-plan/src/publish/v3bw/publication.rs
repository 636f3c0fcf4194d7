//! The inputs of a bandwidth file other than measurements.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use ff_base::identity::Fingerprint;

use super::month::Month;
use super::reason::NotScheduled;
use super::{DirectoryFacts, RecentCounts};

/// The inputs of a bandwidth file other than the outcomes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// Now, in seconds since 1970.
    pub now_unix_secs: u64,
    /// The age above which a result is not used.
    pub max_age_secs: u64,
    /// The length of a period in seconds, whose attempts are draws together; `None` for the
    /// protocol's day.
    pub period_secs: Option<u64>,
    /// When the measuring program was started, in seconds since 1970, if known.
    pub generator_started_unix_secs: Option<u64>,
    /// Relays in the consensus; 0 if unknown, and then authorities do not vote with the file.
    pub consensus_relays: u64,
    /// When the consensus became valid, in seconds since 1970. If it is known, `directory` has all
    /// its relays, and no others are published.
    pub consensus_valid_after_unix_secs: Option<u64>,
    /// The directory documents' data about the relays, by RSA fingerprint.
    pub directory: BTreeMap<Fingerprint, DirectoryFacts>,
    /// The nicknames in the consensus, which take precedence over those in results.
    pub nicknames: HashMap<Fingerprint, String>,
    /// Relays that share capacity: those that are or were on one address.
    pub groups: Vec<Vec<Fingerprint>>,
    /// Relays to be measured at once in a period, by its schedule.
    pub scheduled: Vec<Scheduled>,
    /// Relays that the schedule has no slot for.
    pub not_scheduled: BTreeMap<Fingerprint, NotScheduled>,
    /// The days of all relays within a month; `None` if only the outcomes are known.
    pub month: Option<Arc<Month>>,
    /// Counts of recent attempts that the outcomes do not show.
    pub recent: RecentCounts,
    /// The numbers that authorities vote with now, in kilobytes a second; empty without a file.
    pub previous: BTreeMap<Fingerprint, u64>,
    /// A rise by more than this factor has to last for two days; `None` if any counts at once.
    pub hold_above: Option<f64>,
    /// Version of the tor whose consensus was used.
    pub tor_version: Option<String>,
    /// Nickname of the authority that votes with the file.
    pub dirauth_nickname: Option<String>,
}

/// Relays that were to be measured at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When their period began and ended, in seconds since 1970.
    pub period_unix_secs: Range<u64>,
    /// The relays.
    pub members: Vec<Fingerprint>,
}

impl Publication {
    /// Whether the consensus allows publishing a relay.
    pub(super) fn has(&self, fingerprint: &Fingerprint) -> bool {
        self.consensus_valid_after_unix_secs.is_none()
            || self.directory.get(fingerprint).is_some_and(|facts| facts.is_listed)
    }

    /// Whether the relay with this fingerprint has another Ed25519 identity in the documents.
    pub(super) fn is_other(&self, fingerprint: &Fingerprint, ed_identity: &[u8; 32]) -> bool {
        let known = self.directory.get(fingerprint).and_then(|facts| facts.ed_identity);
        known.is_some_and(|known| known != *ed_identity)
    }
}
