//! The daemon's status as one value, for the page, the metrics and `ff-bwauth status`.

use ff_store::{Coverage, StoreError};

use super::core::{Core, Member};
use super::running::RunningMeasurement;
use super::written::Written;
use crate::watch::problems;

pub use crate::watch::status::{
    DiskStatus, MeasuredStatus, MemberStatus, NetworkStatus, PeriodStatus, PublishedStatus,
    RunningStatus, SecondShown, Status, TooFast,
};

/// The number of too fast relays whose fingerprints are shown.
const TOO_FAST: usize = 20;

impl Core {
    /// The current status. Called once a second, so only changed parts are counted again. If the
    /// store cannot be read, the period is that of the last status.
    pub fn status(&mut self, now: u64) -> Status {
        let period = match self.period_status(now) {
            // A failed store can end the course; the last known period is shown then.
            Ok(None) if self.store_error.is_some() => self.last_period.clone(),
            Ok(period) => period,
            Err(error) => {
                self.store_fails("so the last known period is shown", error, now);
                self.last_period.clone()
            }
        };
        self.last_period.clone_from(&period);
        let mut status = self.facts(now, period);
        status.problems = self.problems.renew(problems::found(&status), now);
        status
    }

    /// The status without problems.
    fn facts(&self, now: u64, period: Option<PeriodStatus>) -> Status {
        let view = self.views.last();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            coordinator: ff_measurer::key::identity_text(&ff_proto::ids::Ed25519Id(self.common.me)),
            authority: None,
            now_unix_secs: now,
            started_unix_secs: self.started,
            young_until_unix_secs: Some(self.young_until(now)).filter(|until| now < *until),
            quiet_until_unix_secs: Some(self.quiet_until).filter(|until| now < *until),
            period,
            running: self.running.values().map(RunningStatus::from).collect(),
            team: (0..self.team.len()).map(|member| self.member_status(member)).collect(),
            network: NetworkStatus {
                valid_after_unix_secs: view.map(|view| view.valid_after),
                relays: view.map_or(0, |view| view.len() as u64),
                described: view.map_or(0, |view| view.described.len() as u64),
                error: self.refresh_error.clone(),
            },
            published: self.published_status(),
            finished: self.finished,
            failed: self.failed.iter().map(|(&code, &count)| (code.to_owned(), count)).collect(),
            unsaved: self.unsaved.len() as u64,
            store_error: self.store_error.clone(),
            disks: self.disks.clone(),
            problems: Vec::new(),
        }
    }

    /// Notes the free space of the disks.
    pub fn set_disks(&mut self, disks: Vec<DiskStatus>) {
        self.disks = disks;
    }

    /// Sets the bandwidth file that the previous process wrote.
    #[must_use]
    pub(super) fn with_published(mut self, last: Option<Written>) -> Self {
        self.published = last;
        self
    }

    /// When the first whole period ends, in seconds since 1970: the one after the period in which
    /// the coordinator started.
    fn young_until(&self, now: u64) -> u64 {
        let first = self.first_period.unwrap_or_else(|| self.common.number(now));
        first.saturating_add(2).saturating_mul(self.common.length_secs.into())
    }

    /// The last bandwidth file, and why the last attempt wrote none.
    fn published_status(&self) -> Option<PublishedStatus> {
        if self.published.is_none() && self.not_written.is_none() {
            return None;
        }
        let file = self.published.clone().unwrap_or_default();
        let not_written = self.not_written.as_ref();
        Some(PublishedStatus {
            path: self.published.as_ref().map(|file| file.path.clone()),
            relays: file.relays,
            consensus_relays: file.consensus_relays,
            is_voted: file.is_voted,
            unix_secs: self.published.as_ref().map(|file| file.unix_secs),
            every_secs: self.rhythm.publish_secs,
            since_last: file.since_last,
            from_consensus: file.from_consensus,
            refused: not_written.map(|one| one.reason.clone()),
            is_too_few: not_written.is_some_and(|one| one.is_too_few),
        })
    }

    /// The coverage of the previous period, if it is known; counted once.
    fn period_before(&mut self, number: u64) -> Result<Option<Coverage>, StoreError> {
        let coverage = match self.before.take() {
            Some((of, known)) if of == number => known,
            _ => self.store.coverage(number.saturating_sub(1))?,
        };
        self.before = Some((number, coverage.clone()));
        Ok(Some(coverage).filter(|coverage| coverage.relays > 0))
    }

    /// The status of a member of the team.
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

    /// The status of the period.
    fn period_status(&mut self, now: u64) -> Result<Option<PeriodStatus>, StoreError> {
        let Some(number) = self.course.as_ref().map(|course| course.number) else {
            return Ok(None);
        };
        let before = self.period_before(number)?;
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
            now_slot: now_slot.min(self.common.slots().saturating_sub(1)),
            schedule_digest: hex::encode(course.digest()),
            consensus_valid_after_unix_secs: course.valid_after,
            last_planned_slot,
            done_unix_secs: last_planned_slot.map(|slot| course.slot_start(slot + 1)),
            coverage,
            before,
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

impl From<&RunningMeasurement> for RunningStatus {
    fn from(running: &RunningMeasurement) -> Self {
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
