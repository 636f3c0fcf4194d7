//! What the daemon says of itself, as one value: the page, the figures and `ff-bwauth status` show it.

use ff_proto::units::BytesPerSec;
use serde::{Deserialize, Serialize};

use super::core::{Core, Publication};
use crate::period::Fingerprint;
use crate::store::{Coverage, StoreError};

/// A measurement that is going on.
#[derive(Clone, Debug)]
pub struct Running {
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its nickname.
    pub nickname: String,
    /// The period.
    pub period: u64,
    /// The slot.
    pub slot: u32,
    /// Of those that are measured with it, the one that they are known by.
    pub head: u32,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// How many seconds it is to have.
    pub of_secs: u16,
    /// What the relay is taken for.
    pub guess: BytesPerSec,
    /// Its seconds so far.
    pub seconds: Vec<SecondShown>,
}

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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// The coordinator's identity, in base64.
    pub coordinator: String,
    /// When this was so, in seconds since 1970.
    pub now_unix_secs: u64,
    /// When the daemon started.
    pub started_unix_secs: u64,
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
    /// What the operator should know, the newest last.
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
    /// Of its program.
    pub version: Option<String>,
    /// The cores that it uses.
    pub cores: Option<u32>,
    /// How far its clock is ahead, in milliseconds.
    pub clock_ahead_millis: i64,
    /// How its kernel controls congestion.
    pub congestion_control: Option<String>,
    /// How often relays have counted less than it.
    pub disputes: u64,
    /// Why it is not there.
    pub error: Option<String>,
}

/// The network's documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// The last bandwidth file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishedStatus {
    /// Its path.
    pub path: Option<String>,
    /// How many relays are in it.
    pub relays: u64,
    /// When it was written.
    pub unix_secs: Option<u64>,
    /// Why the last one was not written.
    pub refused: Option<String>,
}

/// Something that the operator should know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// When it was noticed.
    pub unix_secs: u64,
    /// A sentence.
    pub text: String,
}

impl Core {
    /// How it is now.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn status(&self, now: u64) -> Result<Status, StoreError> {
        let view = self.views.last();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            coordinator: ff_measurer::key::identity_text(&ff_proto::ids::Ed25519Id(self.common.me)),
            now_unix_secs: now,
            started_unix_secs: self.started,
            period: self.period_status(now)?,
            running: self.running.values().map(RunningStatus::from).collect(),
            team: self.team.iter().map(MemberStatus::from).collect(),
            network: NetworkStatus {
                valid_after_unix_secs: view.map(|view| view.valid_after),
                relays: view.map_or(0, |view| view.len() as u64),
                described: view.map_or(0, |view| view.described.len() as u64),
                error: self.refresh_error.clone(),
            },
            published: self.published.as_ref().map(PublishedStatus::from),
            finished: self.finished,
            failed: self.failed.iter().map(|(&code, &count)| (code.to_owned(), count)).collect(),
            unsaved: self.unsaved.len() as u64,
            problems: self
                .problems
                .iter()
                .map(|(unix_secs, text)| Problem { unix_secs: *unix_secs, text: text.clone() })
                .collect(),
        })
    }

    /// How the period is.
    fn period_status(&self, now: u64) -> Result<Option<PeriodStatus>, StoreError> {
        let Some(course) = &self.course else { return Ok(None) };
        let pending = self.store.pending(course.number)?;
        let now_slot = course.slot_at(now);
        let ahead = pending.iter().map(|row| row.what.slot).filter(|&slot| slot >= now_slot);
        let last_planned_slot = ahead.max();
        Ok(Some(PeriodStatus {
            number: course.number,
            start_unix_secs: course.start,
            end_unix_secs: course.start + u64::from(self.common.length_secs),
            slot_secs: self.common.slot_secs,
            slots: self.common.slots(),
            now_slot,
            schedule_digest: hex::encode(course.digest()),
            consensus_valid_after_unix_secs: course.valid_after,
            last_planned_slot,
            done_unix_secs: last_planned_slot.map(|slot| course.slot_start(slot + 1)),
            coverage: self.store.coverage(course.number)?,
        }))
    }
}

impl From<&Running> for RunningStatus {
    fn from(running: &Running) -> Self {
        Self {
            fingerprint: hex::encode_upper(running.fingerprint),
            nickname: running.nickname.clone(),
            slot: running.slot,
            started_unix_secs: running.started,
            of_secs: running.of_secs,
            guess_bytes_per_sec: running.guess.get(),
            seconds: running.seconds.clone(),
        }
    }
}

impl From<&super::core::Member> for MemberStatus {
    fn from(member: &super::core::Member) -> Self {
        let capability = member.capability.as_deref();
        Self {
            name: member.measurer.name().to_owned(),
            address: member.address.clone(),
            identity: ff_measurer::key::identity_text(&member.measurer.id()),
            stated_bytes_per_sec: member.stated.get(),
            is_up: capability.is_some() && member.error.is_none(),
            version: capability.map(|capability| capability.version.clone()),
            cores: capability.map(|capability| capability.cores),
            clock_ahead_millis: member.clock_ahead_millis,
            congestion_control: capability.map(|one| one.congestion_control.clone()),
            disputes: member.disputes,
            error: member.error.clone(),
        }
    }
}

impl From<&Result<Publication, String>> for PublishedStatus {
    fn from(published: &Result<Publication, String>) -> Self {
        match published {
            Ok(file) => Self {
                path: Some(file.path.clone()),
                relays: file.relays,
                unix_secs: Some(file.unix_secs),
                refused: None,
            },
            Err(reason) => {
                Self { path: None, relays: 0, unix_secs: None, refused: Some(reason.clone()) }
            }
        }
    }
}
