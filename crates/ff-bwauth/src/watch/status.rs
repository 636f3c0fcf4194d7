//! The daemon's status as one value, for the page, the metrics and `ff-bwauth status`.

use ff_plan::period::carried::Carried;
use ff_plan::publish::Shift;
use ff_proto::units::BytesPerSec;
use ff_store::{Coverage, Measured};
use serde::{Deserialize, Serialize};

/// A second of a running measurement.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SecondShown {
    /// The number of the second, from 0.
    pub second: u16,
    /// Echoed bytes in this second.
    pub measurement_bytes: u64,
    /// Background bytes counted in this second; `None` when the relay has not reported them.
    pub background_bytes: Option<u64>,
}

/// The daemon's status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The coordinator's identity, in base64.
    pub coordinator: String,
    /// Nickname of the authority that votes with its files, if the config names it.
    #[serde(default)]
    pub authority: Option<String>,
    /// The time of this status, in seconds since 1970.
    pub now_unix_secs: u64,
    /// When the daemon started.
    pub started_unix_secs: u64,
    /// The end of its first whole period, until which the coordinator is too young to judge; `None`
    /// afterwards.
    #[serde(default)]
    pub young_until_unix_secs: Option<u64>,
    /// Until when no measurement starts because the clock has jumped; `None` otherwise.
    #[serde(default)]
    pub quiet_until_unix_secs: Option<u64>,
    /// The current period.
    pub period: Option<PeriodStatus>,
    /// The running measurements.
    pub running: Vec<RunningStatus>,
    /// The team.
    pub team: Vec<MemberStatus>,
    /// The network's documents.
    pub network: NetworkStatus,
    /// The last bandwidth file.
    pub published: Option<PublishedStatus>,
    /// Measurements that this process has finished.
    pub finished: u64,
    /// Of these, the failed ones by code.
    pub failed: Vec<(String, u64)>,
    /// Results that could not be stored yet.
    pub unsaved: u64,
    /// Why the store fails, if it does.
    #[serde(default)]
    pub store_error: Option<String>,
    /// The disks that the coordinator writes to.
    #[serde(default)]
    pub disks: Vec<DiskStatus>,
    /// The current problems, by cause.
    pub problems: Vec<Problem>,
}

/// The current period.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeriodStatus {
    /// Its number.
    pub number: u64,
    /// When it began.
    pub start_unix_secs: u64,
    /// When it ends.
    pub end_unix_secs: u64,
    /// The length of a slot.
    pub slot_secs: u32,
    /// How many slots it has.
    pub slots: u32,
    /// The slot that is running.
    pub now_slot: u32,
    /// A digest that coordinators with the same schedule share.
    pub schedule_digest: String,
    /// When the consensus that it was planned with became valid.
    pub consensus_valid_after_unix_secs: u64,
    /// The last slot with a planned measurement, if any.
    pub last_planned_slot: Option<u32>,
    /// When the plan is expected to be finished.
    pub done_unix_secs: Option<u64>,
    /// Coverage so far.
    pub coverage: Coverage,
    /// The coverage of the previous period, if there was one.
    #[serde(default)]
    pub before: Option<Coverage>,
    /// Relays that need more than the team has.
    pub too_fast: u64,
    /// The first of these relays.
    pub too_fast_relays: Vec<TooFast>,
}

/// A relay that needs more than the team has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TooFast {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// The capacity that it needs.
    pub needs_bytes_per_sec: u64,
}

/// A running measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunningStatus {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its nickname.
    pub nickname: String,
    /// The slot.
    pub slot: u32,
    /// When it began.
    pub started_unix_secs: u64,
    /// Length of the measurement in seconds.
    pub of_secs: u16,
    /// The expected capacity of the relay.
    pub guess_bytes_per_sec: u64,
    /// Its seconds so far.
    pub seconds: Vec<SecondShown>,
}

/// A measurer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// The measurer's address.
    pub address: String,
    /// Its identity, in base64.
    pub identity: String,
    /// The configured capacity of its network.
    pub stated_bytes_per_sec: u64,
    /// Whether it answered the last time.
    pub is_up: bool,
    /// When it was last asked, in seconds since 1970.
    #[serde(default)]
    pub described_unix_secs: Option<u64>,
    /// The version of its program.
    pub version: Option<String>,
    /// The cores that it uses.
    pub cores: Option<u32>,
    /// How far its clock is ahead, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Its kernel's congestion control.
    pub congestion_control: Option<String>,
    /// Networks with relays that dispute what it has counted, in this period or the one before, and
    /// agree with other measurers.
    pub disputes: u64,
    /// Networks with relays that were measured with it, in this period or the one before, and agree
    /// with a measurer.
    #[serde(default)]
    pub words: u64,
    /// Whether it is excluded for that reason: no relay is measured with it.
    #[serde(default)]
    pub is_aside: bool,
    /// Why it does not respond, if it does not.
    pub error: Option<String>,
    /// The measured capacity of its network, if it was measured.
    #[serde(default)]
    pub measured: Option<MeasuredStatus>,
    /// Why the last exchange did not measure it, if so.
    #[serde(default)]
    pub not_measured: Option<String>,
}

impl MemberStatus {
    /// a_i: its usable capacity, in bytes a second.
    #[must_use]
    pub fn capacity_bytes_per_sec(&self) -> u64 {
        let carried = self.measured.as_ref().map(MeasuredStatus::carried);
        Carried::capacity(carried.as_ref(), BytesPerSec::new(self.stated_bytes_per_sec)).get()
    }
}

/// The measured capacity of a measurer's network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredStatus {
    /// The lower of the sent and received rates, in the median second.
    pub bytes_per_sec: u64,
    /// The rate that it sent and that arrived, in the median second.
    pub sent_bytes_per_sec: u64,
    /// The rate that it received, in the median second.
    pub received_bytes_per_sec: u64,
    /// The highest rate that the exchange could have shown.
    pub tested_bytes_per_sec: u64,
    /// Loss of the traffic to and from it, in thousandths.
    pub loss_permille: u16,
    /// Its address at that time.
    pub address: String,
    /// Time of the exchange, in seconds since 1970.
    pub unix_secs: u64,
}

impl MeasuredStatus {
    /// The same values as a [`Carried`].
    fn carried(&self) -> Carried {
        Carried {
            rate: BytesPerSec::new(self.bytes_per_sec),
            sent: BytesPerSec::new(self.sent_bytes_per_sec),
            received: BytesPerSec::new(self.received_bytes_per_sec),
            tested: BytesPerSec::new(self.tested_bytes_per_sec),
            loss_permille: self.loss_permille,
        }
    }
}

impl From<&Measured> for MeasuredStatus {
    fn from(measured: &Measured) -> Self {
        let Carried { rate, sent, received, tested, loss_permille } = measured.carried;
        Self {
            bytes_per_sec: rate.get(),
            sent_bytes_per_sec: sent.get(),
            received_bytes_per_sec: received.get(),
            tested_bytes_per_sec: tested.get(),
            loss_permille,
            address: measured.address.clone(),
            unix_secs: measured.unix_secs,
        }
    }
}

/// The network's documents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// When the last consensus became valid.
    pub valid_after_unix_secs: Option<u64>,
    /// Relays in the consensus.
    pub relays: u64,
    /// Of these, the number with a descriptor.
    pub described: u64,
    /// Why the last fetch of documents failed, if it did.
    pub error: Option<String>,
}

/// A disk that the coordinator writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The coordinator's use of the disk.
    pub of: String,
    /// The directory.
    pub dir: String,
    /// Free space for the coordinator's user, in bytes.
    pub available_bytes: u64,
}

/// The last bandwidth file, and why the last attempt wrote none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PublishedStatus {
    /// Its path; `None` if no file has been written yet.
    pub path: Option<String>,
    /// Relays with a number in the file.
    pub relays: u64,
    /// Relays in the consensus.
    #[serde(default)]
    pub consensus_relays: u64,
    /// Whether authorities vote with it; they do not if its lines have `vote=0`.
    #[serde(default)]
    pub is_voted: bool,
    /// When it was written, in seconds since 1970.
    pub unix_secs: Option<u64>,
    /// How often one is written, in seconds.
    #[serde(default)]
    pub every_secs: u64,
    /// The change of weights from the previous file, if authorities voted with it.
    #[serde(default)]
    pub since_last: Option<Shift>,
    /// The change of weights from the consensus.
    #[serde(default)]
    pub from_consensus: Option<Shift>,
    /// Why the last attempt wrote none.
    pub refused: Option<String>,
    /// Whether the only reason is that too few relays have a number, as in a first period.
    #[serde(default)]
    pub is_too_few: bool,
}

/// The cause of a problem. Each subject has at most one problem with a cause at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The coordinator does not renew its status.
    Hangs,
    /// The store cannot be read or written.
    Store,
    /// Results wait in memory because they cannot be stored.
    Unsaved,
    /// A disk is full, or nearly.
    Disk,
    /// A clock is wrong, or has jumped.
    Clock,
    /// There is no recent consensus.
    Consensus,
    /// A period is over and no new one has begun.
    Period,
    /// No relay could be measured.
    NothingMeasured,
    /// A greater share of relays fails than in the period before.
    FailuresRisen,
    /// A measurer does not respond.
    MeasurerDown,
    /// A measurer is excluded, because relays dispute it.
    MeasurerAside,
    /// A measurer's network carries less than the configured capacity.
    MeasurerSlow,
    /// No new bandwidth file was written.
    FileRefused,
    /// The bandwidth file is old.
    FileOld,
    /// Authorities do not vote with the file, although enough relays take part.
    FileNotVoted,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 15] = [
        Self::Hangs,
        Self::Store,
        Self::Unsaved,
        Self::Disk,
        Self::Clock,
        Self::Consensus,
        Self::Period,
        Self::NothingMeasured,
        Self::FailuresRisen,
        Self::MeasurerDown,
        Self::MeasurerAside,
        Self::MeasurerSlow,
        Self::FileRefused,
        Self::FileOld,
        Self::FileNotVoted,
    ];

    /// The name, as in JSON and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hangs => "hangs",
            Self::Store => "store",
            Self::Unsaved => "unsaved",
            Self::Disk => "disk",
            Self::Clock => "clock",
            Self::Consensus => "consensus",
            Self::Period => "period",
            Self::NothingMeasured => "nothing_measured",
            Self::FailuresRisen => "failures_risen",
            Self::MeasurerDown => "measurer_down",
            Self::MeasurerAside => "measurer_aside",
            Self::MeasurerSlow => "measurer_slow",
            Self::FileRefused => "file_refused",
            Self::FileOld => "file_old",
            Self::FileNotVoted => "file_not_voted",
        }
    }
}

/// A problem that needs the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its cause.
    pub cause: Cause,
    /// Its subject if there can be several, as a measurer's name; otherwise empty.
    pub of: String,
    /// When it began, in seconds since 1970.
    pub since_unix_secs: u64,
    /// A sentence.
    pub text: String,
}
