//! What the daemon says of itself, as one value: the page, the figures and `ff-bwauth status` show it.

use super::core::{Core, Member, Written};
use super::running::Running;
use crate::store::StoreError;

pub use crate::watch::status::{
    MeasuredStatus, MemberStatus, NetworkStatus, PeriodStatus, Problem, PublishedStatus,
    RunningStatus, SecondShown, Status, TooFast,
};

/// Relays that are too fast of which the fingerprints are shown.
const TOO_FAST: usize = 20;

impl Core {
    /// How it is now. Only what has changed is counted anew: it is asked for once a second.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn status(&mut self, now: u64) -> Result<Status, StoreError> {
        let period = self.period_status(now)?;
        let view = self.views.last();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            coordinator: ff_measurer::key::identity_text(&ff_proto::ids::Ed25519Id(self.common.me)),
            now_unix_secs: now,
            started_unix_secs: self.started,
            period,
            running: self.running.values().map(RunningStatus::from).collect(),
            team: (0..self.team.len()).map(|member| self.member_status(member)).collect(),
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

    /// How a member of the team is.
    fn member_status(&self, member: usize) -> MemberStatus {
        let status = MemberStatus::from(&self.team[member]);
        match self.heard.standings.get(member) {
            Some(one) => MemberStatus {
                disputes: one.disputes,
                words: one.words,
                is_aside: one.is_aside,
                ..status
            },
            None => status,
        }
    }

    /// How the period is.
    fn period_status(&mut self, now: u64) -> Result<Option<PeriodStatus>, StoreError> {
        let Some(course) = &self.course else { return Ok(None) };
        let now_slot = course.slot_at(now);
        let last_planned_slot = self.store.last_pending_slot(course.number, now_slot)?;
        let coverage = match &self.coverage {
            Some(known) => known.clone(),
            None => self.store.coverage(course.number)?,
        };
        self.coverage = Some(coverage.clone());
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
            coverage,
            too_fast: course.timetable.too_fast(course.team).count() as u64,
            too_fast_relays: course
                .timetable
                .too_fast(course.team)
                .take(TOO_FAST)
                .map(|(relay, needs)| TooFast {
                    fingerprint: hex::encode_upper(relay),
                    needs_bytes_per_sec: needs.get(),
                })
                .collect(),
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

impl From<&Member> for MemberStatus {
    fn from(member: &Member) -> Self {
        let capability = member.capability.as_deref();
        Self {
            name: member.measurer.name().to_owned(),
            address: member.address.clone(),
            identity: ff_measurer::key::identity_text(&member.measurer.id()),
            stated_bytes_per_sec: member.stated.get(),
            is_up: capability.is_some() && member.error.is_none(),
            described_unix_secs: member.described,
            version: capability.map(|capability| capability.version.clone()),
            cores: capability.map(|capability| capability.cores),
            clock_ahead_millis: member.clock_ahead_millis,
            congestion_control: capability.map(|one| one.congestion_control.clone()),
            disputes: 0,
            words: 0,
            is_aside: false,
            error: member.error.clone(),
            measured: member.measured.as_ref().map(MeasuredStatus::from),
            not_measured: member.not_measured.clone(),
        }
    }
}

impl From<&Result<Written, String>> for PublishedStatus {
    fn from(published: &Result<Written, String>) -> Self {
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
