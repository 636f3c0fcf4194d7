//! The bandwidth file that a directory authority votes with (`V3BandwidthsFile`).
//!
//! [`BandwidthFile::from_outcomes`] chooses what may be published, [`BandwidthFile::new`] refuses
//! what an authority would refuse, `to_string()` renders the file and [`crate::publish::shelf`]
//! stores it. Values that follow from the relay lines (times, counts, `bw`, `vote`) are computed
//! from them when the file is rendered, so that header and lines cannot disagree.
//!
//! The format is bandwidth-file-spec 1.5.0; the reader's rules are those of tor's `bwauth.c`. Our
//! own keys begin with `ff_`. Relays of the consensus without a number have a line without a vote
//! (`unmeasured=1 vote=0`) and with the reason (`ff_reason`), which no count in the header
//! includes.
//!
//! The file is public. So it has nothing about a relay's clients: no background, and no times more
//! exact than the hour, neither of a measurement nor of the file (with few relays one reveals the
//! other). The results files have the rest, for their owner.
//!
//! `node_id` is the RSA fingerprint that the relay's link has shown. The link's checked Ed25519
//! identity does not prove it: a relay may show that of another. It can be compared with the
//! consensus's (`ff-bwauth measure --fingerprint`); authorities vote by `node_id` alone.

use core::num::NonZeroU32;
use std::collections::HashSet;

use ff_base::identity::Fingerprint;
use ff_base::utc::{OutOfRange, Utc};
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Ratio};

use crate::publish::together::GroupShare;

pub(crate) mod decision;
pub mod drawn;
pub(crate) mod draws;
pub(crate) mod hold;
pub(crate) mod month;
mod publication;
mod reason;
mod remembered;
mod render;
mod select;

pub use decision::{Decision, Standing};
pub use drawn::Drawn;
pub use hold::Held;
pub use month::Month;
pub use publication::{Publication, Scheduled};
pub use reason::{NoNumber, NotScheduled};
pub use select::Decisions;

/// The name of the file's software.
pub const SOFTWARE: &str = "flashflow";
/// The percentage of the consensus's relays below which authorities must not vote with the file
/// (bandwidth-file-spec §2.2; the same as torflow's and sbws's).
pub const MIN_PERCENT_ELIGIBLE: u64 = 60;
pub(super) const KILOBYTE: u64 = 1000;

/// A bandwidth file that authorities accept.
#[derive(Clone, Debug, PartialEq)]
pub struct BandwidthFile {
    /// The header's own values.
    header: Header,
    /// The relays, at least one, sorted by fingerprint.
    relays: Vec<RelayLine>,
    /// Other relays, without a number; sorted by fingerprint.
    unmeasured: Vec<UnmeasuredLine>,
}

/// The part of the header that does not follow from the relay lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the software that made the file.
    pub software_version: String,
    /// When the file was made; rounded to the hour in the file.
    pub file_created: Utc,
    /// Relays in the consensus; 0 if unknown, and then authorities do not vote with the file.
    pub consensus_relays: u64,
    /// Counts of recent attempts, as far as known.
    pub recent: RecentCounts,
    /// The time for measuring half of the network, in seconds.
    pub time_to_report_half_network_secs: Option<u64>,
    /// The program that measured.
    pub generator: Generator,
}

/// The program that measured, and the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    /// When it was started, if known; rounded to the hour in the file.
    pub started: Option<Utc>,
    /// Version of the tor whose consensus was used.
    pub tor_version: Option<String>,
    /// Nickname of the authority that votes with the file.
    pub dirauth_nickname: Option<String>,
}

/// Counts of attempts in the last days; unknown ones are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentCounts {
    /// Consensuses seen.
    pub consensus: Option<u64>,
    /// Schedules made.
    pub priority_list: Option<u64>,
    /// Relays in these schedules.
    pub priority_relay: Option<u64>,
    /// Measurements begun. Spec 1.5.0 dropped the key, but stem and other tools still read it.
    pub measurement_attempt: Option<u64>,
    /// Measurements that failed.
    pub measurement_failure: Option<u64>,
    /// Relays none of whose measurements gave a publishable result.
    pub excluded_error: Option<u64>,
    /// Relays whose publishable results are all too old.
    pub excluded_old: Option<u64>,
}

/// The line of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayLine {
    /// SHA-1 fingerprint of its RSA identity, as its link has shown it.
    pub rsa_fingerprint: [u8; 20],
    /// Its Ed25519 identity.
    pub ed_identity: [u8; 32],
    /// Its nickname, if known.
    pub nickname: Option<String>,
    /// When the result was obtained; rounded to the hour in the file.
    pub measured_at: Utc,
    /// The lowest draw of its day; each draw is the median second, limited by the mean.
    pub estimate: BytesPerSec,
    /// The number, from this day and the relay's other days.
    pub number: BytesPerSec,
    /// Whether the value of the day before is used, which confirms a great rise and is lower.
    pub is_of_day_before: bool,
    /// Days without a value since then.
    pub blank_days: u32,
    /// The largest number that it had on days before the last one.
    pub most_before: Option<BytesPerSec>,
    /// The value that is used instead of the estimate, if less than the estimate counts for now.
    pub held: Option<Held>,
    /// The number's share among relays on the same machine, if any.
    pub share: Option<GroupShare>,
    /// The mean second.
    pub mean: BytesPerSec,
    /// Median round-trip time in milliseconds.
    pub round_trip_ms: Option<u64>,
    /// The directory documents' data about the relay.
    pub directory: DirectoryFacts,
    /// Its measurements in the last days.
    pub counts: RelayCounts,
    /// How it was measured.
    pub measurement: MeasurementFacts,
}

/// The line of a relay without a number, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmeasuredLine {
    /// SHA-1 fingerprint of its RSA identity.
    pub rsa_fingerprint: Fingerprint,
    /// Its Ed25519 identity.
    pub ed_identity: [u8; 32],
    /// Its nickname, if known.
    pub nickname: Option<String>,
    /// When the last attempt began; rounded to the hour in the file.
    pub tried_at: Utc,
    /// Its measurements in the last days.
    pub counts: RelayCounts,
    /// [`NoNumber::code`].
    pub reason: &'static str,
}

/// The directory documents' data about a relay; unknown values are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryFacts {
    /// Whether it is in the consensus; not written.
    pub is_listed: bool,
    /// Its Ed25519 identity; not written, because the line has the one with which it was measured.
    pub ed_identity: Option<[u8; 32]>,
    /// bandwidth-avg of its descriptor, the limit of `bw`: with it an operator limits a relay
    /// (`MaxAdvertisedBandwidth`). `bw` may exceed bandwidth-observed.
    pub bandwidth_avg: Option<BytesPerSec>,
    /// bandwidth-burst of its descriptor.
    pub bandwidth_burst: Option<BytesPerSec>,
    /// bandwidth-observed of its last descriptor.
    pub bandwidth_observed: Option<BytesPerSec>,
    /// Its bandwidth in the consensus.
    pub consensus_bandwidth: Option<BytesPerSec>,
    /// Whether the consensus marks that as unmeasured.
    pub consensus_is_unmeasured: Option<bool>,
    /// The number of consensuses of the last days that list it.
    pub in_recent_consensuses: Option<u64>,
    /// The number of schedules of the last days that have it.
    pub in_recent_schedules: Option<u64>,
}

/// A relay's measurements in the last days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Attempts begun.
    pub attempts: u64,
    /// Attempts with a publishable result.
    pub successes: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Publishable results that are too old, which the other counts do not include.
    pub old: u64,
}

/// How a relay was measured; written under keys that begin with `ff_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurementFacts {
    /// The verdict's name.
    pub verdict: &'static str,
    /// Seconds measured.
    pub duration_secs: u64,
    /// The background ratio used.
    pub ratio: Ratio,
    /// The cipher of the measurement circuits.
    pub crypto: Option<CryptoKind>,
    /// Cells whose content was checked.
    pub cells_checked: u64,
    /// Links opened.
    pub sockets: u64,
}

/// Why authorities would not accept a bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFile {
    /// No relay has a result; a file without relays is never written.
    #[error("no relay has a usable result")]
    NothingToPublish,
    /// A value that would break its line.
    #[error("{key} is {value:?}, but must be printable ASCII without spaces")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// An invalid nickname.
    #[error("{0:?} is not a nickname: 1 to 19 letters and digits")]
    Nickname(String),
    /// There are two lines for one relay.
    #[error("relay {0} is listed twice")]
    DuplicateRelay(String),
    /// A result is newer than the file.
    #[error("a result is from {result}, after the file was made ({created})")]
    FromTheFuture {
        /// Time of the result.
        result: Utc,
        /// Time of the file.
        created: Utc,
    },
    /// No result is new enough.
    #[error("the newest result is from {0}; authorities refuse a file older than three days")]
    Stale(Utc),
    /// A time is out of range.
    #[error(transparent)]
    Time(#[from] OutOfRange),
}

impl BandwidthFile {
    /// Makes a file of these relays.
    ///
    /// # Errors
    /// [`InvalidFile`] with the first error for an authority or another reader.
    pub fn new(header: Header, mut relays: Vec<RelayLine>) -> Result<Self, InvalidFile> {
        header.validate()?;
        let newest = relays.iter().map(|relay| relay.measured_at).max();
        let newest = newest.ok_or(InvalidFile::NothingToPublish)?;
        let created = header.file_created;
        if newest > created {
            return Err(InvalidFile::FromTheFuture { result: newest, created });
        }
        // Authorities see the rounded hour.
        if created.unix_secs() - newest.hour().unix_secs() > MAX_FILE_AGE_SECS {
            return Err(InvalidFile::Stale(newest));
        }
        let (mut fingerprints, mut identities) = (HashSet::new(), HashSet::new());
        for relay in &relays {
            relay.validate()?;
            let is_new = fingerprints.insert(relay.rsa_fingerprint);
            if !(identities.insert(relay.ed_identity) && is_new) {
                return Err(InvalidFile::DuplicateRelay(relay.node_id()));
            }
        }
        relays.sort_by_key(|relay| relay.rsa_fingerprint);
        Ok(Self { header, relays, unmeasured: Vec::new() })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Relays without a number, sorted by fingerprint.
    #[must_use]
    pub fn unmeasured(&self) -> &[UnmeasuredLine] {
        &self.unmeasured
    }

    /// The relays, sorted by fingerprint.
    #[must_use]
    pub fn relays(&self) -> &[RelayLine] {
        &self.relays
    }

    /// Whether too few relays are listed for authorities to vote with it.
    #[must_use]
    pub fn is_under_minimum(&self) -> bool {
        is_under_minimum(self.eligible(), self.header.consensus_relays)
    }

    /// The number of relays in the file that are listed in the consensus.
    fn eligible(&self) -> u64 {
        self.relays.len() as u64
    }

    /// The least number of listed relays.
    fn minimum_eligible(&self) -> u64 {
        minimum_eligible(self.header.consensus_relays)
    }
}

/// The least number of listed relays for a consensus of this size.
fn minimum_eligible(consensus_relays: u64) -> u64 {
    let percent = u128::from(consensus_relays) * u128::from(MIN_PERCENT_ELIGIBLE);
    u64::try_from(percent.div_ceil(100)).unwrap_or(u64::MAX)
}

/// Whether too few relays are listed for authorities to vote with the file.
fn is_under_minimum(listed: u64, consensus_relays: u64) -> bool {
    consensus_relays == 0 || listed < minimum_eligible(consensus_relays)
}

impl Header {
    /// Checks every text.
    fn validate(&self) -> Result<(), InvalidFile> {
        let required = ("software_version", Some(self.software_version.as_str()));
        for (key, value) in self.optional_texts().into_iter().chain([required]) {
            match value {
                Some(value) if !is_value(value) => {
                    return Err(InvalidFile::Value { key, value: value.to_owned() });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The header's optional texts.
    fn optional_texts(&self) -> [(&'static str, Option<&str>); 2] {
        [
            ("tor_version", self.generator.tor_version.as_deref()),
            ("dirauth_nickname", self.generator.dirauth_nickname.as_deref()),
        ]
    }
}

impl RelayLine {
    /// `bw`: the number that authorities vote with, in kilobytes per second.
    ///
    /// bandwidth-file-spec §2.3: at least 1, at most the descriptor's bandwidth-avg. tor stores it
    /// in 32 bits.
    #[must_use]
    pub fn bw_kilobytes(&self) -> NonZeroU32 {
        let counted = rounded_kilobytes(self.counted());
        let kilobytes = u32::try_from(self.limited(counted)).unwrap_or(u32::MAX);
        NonZeroU32::new(kilobytes).unwrap_or(NonZeroU32::MIN)
    }

    /// The value before its operator's limit and rounding: its number, or its share of the group.
    #[must_use]
    pub fn counted(&self) -> BytesPerSec {
        self.share.map_or(self.number, |share| BytesPerSec::new(share.bytes_per_sec))
    }

    /// A number of kilobytes a second, limited to what its operator allows.
    fn limited(&self, kilobytes: u64) -> u64 {
        kilobytes.min(self.directory.bandwidth_avg.map_or(u64::MAX, |avg| avg.get() / KILOBYTE))
    }

    /// Its fingerprint in hexadecimal digits.
    fn node_id(&self) -> String {
        hex::encode_upper(self.rsa_fingerprint)
    }

    /// Checks texts that a relay or a user has chosen.
    fn validate(&self) -> Result<(), InvalidFile> {
        match &self.nickname {
            Some(nickname) if !is_nickname(nickname) => {
                Err(InvalidFile::Nickname(nickname.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// A rate in kilobytes a second, rounded to the nearest integer; halves are rounded up.
pub(crate) fn rounded_kilobytes(rate: BytesPerSec) -> u64 {
    rate.get().saturating_add(KILOBYTE / 2) / KILOBYTE
}

/// bandwidth-file-spec §2.1: a `Value` is one or more printing ASCII characters, no space.
fn is_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// dir-spec §1.3: a nickname is 1 to 19 ASCII letters and digits.
fn is_nickname(text: &str) -> bool {
    (1..=19).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
