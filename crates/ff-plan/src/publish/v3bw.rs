//! The bandwidth file that a directory authority votes with (`V3BandwidthsFile`).
//!
//! [`BandwidthFile::from_outcomes`] chooses what may be published, [`BandwidthFile::new`] refuses
//! what an authority would refuse, `to_string()` renders it and [`crate::publish::shelf`] puts it
//! in place. Whatever follows from the relay lines (times, counts, `bw`, `vote`) is computed from
//! them when it is written, so that header and lines cannot disagree.
//!
//! The format is bandwidth-file-spec 1.5.0; the reader's rules are those of tor's `bwauth.c`. Keys
//! of our own begin with `ff_`. Relays of the consensus that were tried in vain have a line that
//! nobody votes with (`unmeasured=1 vote=0`) and `ff_reason` in it; it counts nowhere in the
//! header.
//!
//! The file is public. So it says nothing of a relay's clients: no background, and no time more
//! exact than the hour, whether of a measurement or of the file (with few relays the one tells the
//! other). The results files have the rest, for their owner.
//!
//! `node_id` is the RSA fingerprint that the relay's link has shown. The link's Ed25519 identity,
//! which is checked, does not vouch for it: a relay may show another's. Who knows the consensus's
//! compares it (`ff-bwauth measure --fingerprint`); authorities vote by `node_id` alone.

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
/// Share of the consensus's relays below which authorities must not vote with the file
/// (bandwidth-file-spec §2.2: torflow's and sbws's value).
pub const MIN_PERCENT_ELIGIBLE: u64 = 60;
/// Bytes of a kilobyte, as bandwidth files count.
pub(super) const KILOBYTE: u64 = 1000;

/// A bandwidth file that authorities will read.
#[derive(Clone, Debug, PartialEq)]
pub struct BandwidthFile {
    /// The header's own values.
    header: Header,
    /// The relays, never none; in order of their fingerprints.
    relays: Vec<RelayLine>,
    /// Relays without a number, of others than `relays`; in the same order.
    unmeasured: Vec<UnmeasuredLine>,
}

/// The part of the header that does not follow from the relay lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the software that made the file.
    pub software_version: String,
    /// When the file was made; the hour is written.
    pub file_created: Utc,
    /// Relays in the consensus; 0 when it is not known, and then nobody votes with the file.
    pub consensus_relays: u64,
    /// Counts of recent attempts, where known.
    pub recent: RecentCounts,
    /// How long measuring half of the network takes.
    pub time_to_report_half_network_secs: Option<u64>,
    /// What measured.
    pub generator: Generator,
}

/// What measured, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    /// When it was started, where that is known; the hour is written.
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
    /// Its nickname, where it is known.
    pub nickname: Option<String>,
    /// When the result was obtained; the hour is written.
    pub measured_at: Utc,
    /// The lowest draw of its day; each draw is the median second, bounded by the mean.
    pub estimate: BytesPerSec,
    /// The number, from this and the relay's other days.
    pub number: BytesPerSec,
    /// Whether it is the value of the day before, which confirms a great rise and is less.
    pub is_of_day_before: bool,
    /// Days since then that had no value.
    pub blank_days: u32,
    /// The greatest number that it had on days before the last one.
    pub most_before: Option<BytesPerSec>,
    /// The value in use instead of the estimate, if less than the estimate counts for now.
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
    /// Its nickname, where it is known.
    pub nickname: Option<String>,
    /// When the last attempt began; the hour is written.
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
    /// Its Ed25519 identity; not written: the line has that by which it was measured.
    pub ed_identity: Option<[u8; 32]>,
    /// bandwidth-avg of its descriptor. `bw` never exceeds it: it is how an operator limits a
    /// relay (`MaxAdvertisedBandwidth`). `bw` may exceed bandwidth-observed.
    pub bandwidth_avg: Option<BytesPerSec>,
    /// bandwidth-burst of its descriptor.
    pub bandwidth_burst: Option<BytesPerSec>,
    /// bandwidth-observed of its last descriptor.
    pub bandwidth_observed: Option<BytesPerSec>,
    /// Its bandwidth in the consensus.
    pub consensus_bandwidth: Option<BytesPerSec>,
    /// Whether the consensus calls that unmeasured.
    pub consensus_is_unmeasured: Option<bool>,
    /// In how many consensuses of the last days it was.
    pub in_recent_consensuses: Option<u64>,
    /// In how many schedules of the last days it was.
    pub in_recent_schedules: Option<u64>,
}

/// A relay's measurements in the last days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Begun.
    pub attempts: u64,
    /// With a publishable result.
    pub successes: u64,
    /// Failed.
    pub failures: u64,
    /// Publishable results that are too old; those are in none of the other counts.
    pub old: u64,
}

/// How a relay was measured; written under keys that begin with `ff_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurementFacts {
    /// The verdict's name.
    pub verdict: &'static str,
    /// Seconds measured.
    pub duration_secs: u64,
    /// The background ratio counted with.
    pub ratio: Ratio,
    /// The cipher of the measurement circuits.
    pub crypto: Option<CryptoKind>,
    /// Cells whose content was checked.
    pub cells_checked: u64,
    /// Links opened.
    pub sockets: u64,
}

/// Why something is not a bandwidth file an authority would read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFile {
    /// No relay has a result; an empty file is never written.
    #[error("no relay has a result that may be published")]
    NothingToPublish,
    /// A value that would break its line.
    #[error("{key} is {value:?}, but must be printable ASCII without spaces")]
    Value {
        /// Of which key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A nickname no relay can have.
    #[error("{0:?} is not a nickname: 1 to 19 letters and digits")]
    Nickname(String),
    /// Two lines for one relay.
    #[error("relay {0} is listed twice")]
    DuplicateRelay(String),
    /// A result from after the file was made.
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
    /// A time that cannot be written.
    #[error(transparent)]
    Time(#[from] OutOfRange),
}

impl BandwidthFile {
    /// A file of these relays.
    ///
    /// # Errors
    /// [`InvalidFile`] naming the first thing an authority, or another reader, would stumble over.
    pub fn new(header: Header, mut relays: Vec<RelayLine>) -> Result<Self, InvalidFile> {
        header.validate()?;
        let newest = relays.iter().map(|relay| relay.measured_at).max();
        let newest = newest.ok_or(InvalidFile::NothingToPublish)?;
        let created = header.file_created;
        if newest > created {
            return Err(InvalidFile::FromTheFuture { result: newest, created });
        }
        // Authorities see the hour that is written.
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

    /// Relays without a number, in order of their fingerprints.
    #[must_use]
    pub fn unmeasured(&self) -> &[UnmeasuredLine] {
        &self.unmeasured
    }

    /// The relays, in order of their fingerprints.
    #[must_use]
    pub fn relays(&self) -> &[RelayLine] {
        &self.relays
    }

    /// Whether too few relays are listed for authorities to vote with it.
    #[must_use]
    pub fn is_under_minimum(&self) -> bool {
        is_under_minimum(self.eligible(), self.header.consensus_relays)
    }

    /// Relays listed.
    fn eligible(&self) -> u64 {
        self.relays.len() as u64
    }

    /// Relays that have to be listed.
    fn minimum_eligible(&self) -> u64 {
        minimum_eligible(self.header.consensus_relays)
    }
}

/// The least number of relays to be listed, of this many.
fn minimum_eligible(consensus_relays: u64) -> u64 {
    let percent = u128::from(consensus_relays) * u128::from(MIN_PERCENT_ELIGIBLE);
    u64::try_from(percent.div_ceil(100)).unwrap_or(u64::MAX)
}

/// Whether too few relays of this many are listed for authorities to vote with the file.
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

    /// The lines that are texts and may be missing.
    fn optional_texts(&self) -> [(&'static str, Option<&str>); 2] {
        [
            ("tor_version", self.generator.tor_version.as_deref()),
            ("dirauth_nickname", self.generator.dirauth_nickname.as_deref()),
        ]
    }
}

impl RelayLine {
    /// `bw`: what authorities vote for, in kilobytes per second.
    ///
    /// bandwidth-file-spec §2.3: at least 1, at most the descriptor's bandwidth-avg. tor keeps 32
    /// bits of it.
    #[must_use]
    pub fn bw_kilobytes(&self) -> NonZeroU32 {
        let counted = rounded_kilobytes(self.counted());
        let kilobytes = u32::try_from(self.limited(counted)).unwrap_or(u32::MAX);
        NonZeroU32::new(kilobytes).unwrap_or(NonZeroU32::MIN)
    }

    /// What it counts for before its operator's limit and rounding: its number, or its share of it.
    #[must_use]
    pub fn counted(&self) -> BytesPerSec {
        self.share.map_or(self.number, |share| BytesPerSec::new(share.bytes_per_sec))
    }

    /// Kilobytes a second, but no more than its operator allows.
    fn limited(&self, kilobytes: u64) -> u64 {
        kilobytes.min(self.directory.bandwidth_avg.map_or(u64::MAX, |avg| avg.get() / KILOBYTE))
    }

    /// Its fingerprint in hexadecimal.
    fn node_id(&self) -> String {
        hex::encode_upper(self.rsa_fingerprint)
    }

    /// Checks what a relay or a user chose.
    fn validate(&self) -> Result<(), InvalidFile> {
        match &self.nickname {
            Some(nickname) if !is_nickname(nickname) => {
                Err(InvalidFile::Nickname(nickname.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// A rate in kilobytes a second, rounded to the nearest; halves up.
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
