//! What a bandwidth file is made with beside what was measured.

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
    /// The length of a period in seconds, within which attempts are draws of one; `None` for the
    /// protocol's day.
    pub period_secs: Option<u64>,
    /// When the program that measures was started, in seconds since 1970, where it is known.
    pub generator_started_unix_secs: Option<u64>,
    /// Relays in the consensus; 0 when it is not known, and then nobody votes with the file.
    pub consensus_relays: u64,
    /// When the consensus became valid. If it is known, `directory` has all relays of it, and no
    /// other is published.
    pub consensus_valid_after_unix_secs: Option<u64>,
    /// The directory documents' data about the relays, by RSA fingerprint.
    pub directory: BTreeMap<Fingerprint, DirectoryFacts>,
    /// The nicknames of the consensus; they go before what results say.
    pub nicknames: HashMap<Fingerprint, String>,
    /// Relays that share what is measured: those that are or were on one address.
    pub groups: Vec<Vec<Fingerprint>>,
    /// Relays to be measured at once in a period, by their schedule.
    pub scheduled: Vec<Scheduled>,
    /// Relays that the schedule has no place for.
    pub not_scheduled: BTreeMap<Fingerprint, NotScheduled>,
    /// The days of all relays within a month; `None` where the outcomes are all that is known.
    pub month: Option<Arc<Month>>,
    /// Counts of recent attempts that the outcomes do not show.
    pub recent: RecentCounts,
    /// The numbers that authorities vote for now, in kilobytes a second; empty without a file.
    pub previous: BTreeMap<Fingerprint, u64>,
    /// A rise by more than this factor has to last for two days; `None` if any is believed at once.
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
    /// Whether a relay may be published as far as the consensus goes.
    pub(super) fn has(&self, fingerprint: &Fingerprint) -> bool {
        self.consensus_valid_after_unix_secs.is_none()
            || self.directory.get(fingerprint).is_some_and(|facts| facts.is_listed)
    }

    /// Whether the documents say that the relay with this fingerprint has another Ed25519 identity.
    pub(super) fn is_other(&self, fingerprint: &Fingerprint, ed_identity: &[u8; 32]) -> bool {
        let known = self.directory.get(fingerprint).and_then(|facts| facts.ed_identity);
        known.is_some_and(|known| known != *ed_identity)
    }
}
