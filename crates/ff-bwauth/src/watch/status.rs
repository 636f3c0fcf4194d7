//! What the daemon says of itself, as one value: the page, the figures and `ff-bwauth status` show
//! it.

use ff_plan::period::carried::Carried;
use ff_plan::publish::Shift;
use ff_proto::units::BytesPerSec;
use ff_store::{Coverage, Measured};
use serde::{Deserialize, Serialize};

/// A second of a running measurement.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SecondShown {
    /// From 0.
    pub second: u16,
    /// Echoed bytes in it.
    pub measurement_bytes: u64,
    /// Background bytes counted in it; `None` when the relay has not reported it.
    pub background_bytes: Option<u64>,
}

/// How the daemon is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// The coordinator's identity, in base64.
    pub coordinator: String,
    /// Nickname of the authority that votes with its files, if the config names it.
    #[serde(default)]
    pub authority: Option<String>,
    /// When this was so, in seconds since 1970.
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
    /// The period under way.
    pub period: Option<PeriodStatus>,
    /// What is being measured.
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

/// The period under way.
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
    /// A number that coordinators with the same schedule have in common.
    pub schedule_digest: String,
    /// When the consensus that it was planned with became valid.
    pub consensus_valid_after_unix_secs: u64,
    /// The last slot of the plan that has something left, if any.
    pub last_planned_slot: Option<u32>,
    /// When the plan is done, if all goes well.
    pub done_unix_secs: Option<u64>,
    /// How far it is.
    pub coverage: Coverage,
    /// The coverage of the previous period, if there was one.
    #[serde(default)]
    pub before: Option<Coverage>,
    /// Relays that need more than the team has.
    pub too_fast: u64,
    /// The first of them.
    pub too_fast_relays: Vec<TooFast>,
}

/// A relay that needs more than the team has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TooFast {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// What it needs.
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
    /// How many seconds it is to have.
    pub of_secs: u16,
    /// What the relay is taken for.
    pub guess_bytes_per_sec: u64,
    /// Its seconds so far.
    pub seconds: Vec<SecondShown>,
}

/// A measurer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Its identity, in base64.
    pub identity: String,
    /// What its operator says that it carries.
    pub stated_bytes_per_sec: u64,
    /// Whether it answered the last time.
    pub is_up: bool,
    /// When it was last asked, in seconds since 1970.
    #[serde(default)]
    pub described_unix_secs: Option<u64>,
    /// Of its program.
    pub version: Option<String>,
    /// The cores that it uses.
    pub cores: Option<u32>,
    /// How far its clock is ahead, in milliseconds.
    pub clock_ahead_millis: i64,
    /// How its kernel controls congestion.
    pub congestion_control: Option<String>,
    /// Groups of relays that dispute what it has counted, in this period or the one before, and
    /// agree with other measurers.
    pub disputes: u64,
    /// Groups of relays that were measured with it, in this period or the one before, and agree
    /// with a measurer.
    #[serde(default)]
    pub words: u64,
    /// Whether it is set aside because of that: nothing is measured with it.
    #[serde(default)]
    pub is_aside: bool,
    /// Why it is not there.
    pub error: Option<String>,
    /// What its network was measured to carry, if it was.
    #[serde(default)]
    pub measured: Option<MeasuredStatus>,
    /// Why it was not measured when that was last tried.
    #[serde(default)]
    pub not_measured: Option<String>,
}

impl MemberStatus {
    /// a_i: what it counts for, in bytes a second.
    #[must_use]
    pub fn capacity_bytes_per_sec(&self) -> u64 {
        let carried = self.measured.as_ref().map(MeasuredStatus::carried);
        Carried::capacity(carried.as_ref(), BytesPerSec::new(self.stated_bytes_per_sec)).get()
    }
}

/// What a measurer's network was measured to carry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredStatus {
    /// The lesser of what it sent and received, in the median second.
    pub bytes_per_sec: u64,
    /// What it sent, as far as it arrived, in the median second.
    pub sent_bytes_per_sec: u64,
    /// What it received, in the median second.
    pub received_bytes_per_sec: u64,
    /// The most that could have come of it.
    pub tested_bytes_per_sec: u64,
    /// Of all that was sent to it and by it, so much did not arrive, in thousandths.
    pub loss_permille: u16,
    /// Where it was then.
    pub address: String,
    /// When, in seconds since 1970.
    pub unix_secs: u64,
}

impl MeasuredStatus {
    /// The same as what is computed with.
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
    /// Relays in it.
    pub relays: u64,
    /// Of these, how many have a descriptor.
    pub described: u64,
    /// Why there is no newer one.
    pub error: Option<String>,
}

/// A disk that the coordinator writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// What the coordinator writes there.
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
    /// How many relays have a number in it.
    pub relays: u64,
    /// How many relays the consensus had.
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
    /// A measurer is set aside, because relays dispute it.
    MeasurerAside,
    /// A measurer's network carries less than is stated.
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

    /// Its name, as in JSON and figures.
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
