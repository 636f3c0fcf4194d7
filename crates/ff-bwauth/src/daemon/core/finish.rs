//! Handles the end of a measurement.

use ff_base::identity::Fingerprint;
use ff_plan::outcome::Outcome;
use ff_plan::period::GRANTS;
use ff_plan::period::timetable::{Event, NoRetry, TaskResult};
use ff_plan::publish::together::SAME_START_MILLIS;
use ff_proto::aggregate::Verdict;
use ff_proto::failure::{FailureKind, Fault};
use ff_proto::units::BytesPerSec;
use ff_store::{AttemptId, Kind, PlanId, Planned, StoreError, ToPlan};

use super::Core;
use super::rows::Taken;
use crate::daemon::course::Course;
use crate::daemon::running::RunningMeasurement;

/// Why a new relay has lost its slot.
const NO_TURN: &str = "no slot has room after new relays of networks that have been given less";

/// Identifies relays that are measured at the same time because they may share a machine: period,
/// slot and head.
pub(super) type Together = (u64, u32, u32);

/// A relay, and when the counted seconds of its measurement began, in milliseconds since 1970.
pub(super) type Begun = (Fingerprint, u64);

/// A measurement that has ended.
#[derive(Debug)]
pub(in crate::daemon) struct Finished {
    /// Its row in the store.
    attempt: AttemptId,
    /// The relay.
    relay: Fingerprint,
    /// Its outcome.
    outcome: Box<Outcome>,
    /// Known properties of the path to the relay, as stored.
    known: String,
}

impl RunningMeasurement {
    /// The group in which it is measured.
    pub(super) fn together(&self) -> Together {
        (self.period, self.slot, self.head)
    }
}

impl Core {
    /// Stores the outcome of a measurement, and has it repeated if needed.
    pub(super) fn finish(&mut self, attempt: AttemptId, mut outcome: Box<Outcome>, now: u64) {
        let Some(running) = self.running.remove(&attempt) else { return };
        self.finished += 1;
        if let Err(failure) = &outcome.result {
            *self.failed.entry(failure.kind.code()).or_default() += 1;
            tracing::info!(relay = running.nickname, "failed: {}", failure.message);
            if failure.kind == FailureKind::MeasurerFailed {
                self.due.describe = now;
            }
        }
        let relay = running.fingerprint;
        let known = self.paths.note(relay, running.period, &mut outcome);
        if let Some(z) = again(&outcome) {
            self.again.entry(running.together()).or_default().push((relay, z));
        }
        self.note_begun(running.together(), begun(relay, &outcome));
        self.hear(relay, &running.measurers, &mut outcome);
        self.unsaved.push_back(Finished { attempt, relay, outcome, known });
        self.save_unsaved(now);
        if let Err(error) = self.decide(now) {
            self.store_fails("so nothing is measured again", error, now);
        }
    }

    /// Notes when the seconds of a measurement began. If the measurements of its group began too
    /// far apart to count together, the whole group is measured again.
    fn note_begun(&mut self, together: Together, begun: Option<Begun>) {
        self.begun.entry(together).or_default().extend(begun);
        if self.running.values().any(|one| one.together() == together) {
            return;
        }
        let all = self.begun.remove(&together).unwrap_or_default();
        if are_apart(&all) {
            add_all(self.again.entry(together).or_default(), &all);
        }
    }

    /// Once all measurements of a group have ended, has those relays measured again that need it. A
    /// decision that the store does not accept is retried with the next tick.
    pub(super) fn decide(&mut self, now: u64) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let period = course.number;
        self.again.retain(|together, _| together.0 == period);
        let is_over = |of: &&Together| self.running.values().all(|one| one.together() != **of);
        let over: Vec<Together> = self.again.keys().filter(is_over).copied().collect();
        for together in over {
            let relays = self.again.get(&together).cloned().unwrap_or_default();
            self.measure_again(period, &relays, now)?;
            self.again.remove(&together);
        }
        Ok(())
    }

    /// Stores results that could not be stored before, the oldest first.
    pub(super) fn save_unsaved(&mut self, now: u64) {
        while let Some(Finished { attempt, relay, outcome, known }) = self.unsaved.front() {
            self.coverage = None;
            match self.store.finish_attempt_on_path(*attempt, outcome, (relay, known), now) {
                // A failing store had already finished it.
                Ok(()) | Err(StoreError::NotBegun(_)) => _ = self.unsaved.pop_front(),
                Err(error) => return self.store_fails("so results stay in memory", error, now),
            }
        }
    }

    /// Has relays of a group measured again, if the period has room and they have grants left.
    pub(super) fn measure_again(
        &mut self,
        period: u64,
        relays: &[TaskResult],
        now: u64,
    ) -> Result<(), StoreError> {
        let course = self.course.as_ref().filter(|course| course.number == period);
        let Some(course) = course else { return Ok(()) };
        let (now_slot, grants_used) = self.when_granted(course, relays, now)?;
        let event =
            Event::Retry { team: course.team, measured: relays.to_vec(), now_slot, grants_used };
        let slot = course.slot_at(now);
        let Some(reason) = self.note(event)?.refused else { return Ok(()) };
        let waited = now_slot > slot;
        let reason = match reason {
            // Earlier slots may have room, but the relays would not grant a measurement.
            NoRetry::NoRoom { .. } if waited => NoRetry::NoGrant,
            reason => reason,
        };
        let row = |(relay, _): &TaskResult| ToPlan {
            fingerprint: *relay,
            slot,
            kind: Kind::Retry,
            group: u32::MAX,
            demand: BytesPerSec::default(),
        };
        let rows: Vec<_> = relays.iter().map(row).collect();
        let text = format!("it is not measured again: {reason}");
        self.store.add_refused(period, &rows, &text, reason.code())?;
        self.coverage = None;
        tracing::warn!(relay = hex::encode_upper(relays[0].0), relays = relays.len(), "{text}");
        Ok(())
    }

    /// The slot after which these relays and their group grant a measurement, and how many of their
    /// grants count then. Their older grant may be from the period before, and lapse within this
    /// one.
    fn when_granted(
        &self,
        course: &Course,
        relays: &[TaskResult],
        now: u64,
    ) -> Result<(u32, u32), StoreError> {
        let mut behind = now;
        let mut used = 0;
        for relay in course.timetable.again_with(course.team, relays) {
            behind = behind.max(self.grants_nothing_until(&relay, now)?.unwrap_or(now));
            used = used.max(self.grants_used(&relay, now)?.len());
        }
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        let behind = course.slot_at(behind);
        let slots = self.common.slots();
        Ok(if behind + 1 < slots && used >= GRANTS {
            (behind, GRANTS - 1)
        } else {
            (course.slot_at(now), used)
        })
    }

    /// Stores an event of the period durably, applies it to the plan, and returns the changes.
    pub(super) fn note(&mut self, event: Event) -> Result<Taken, StoreError> {
        self.note_instead(event, &[], |_| String::new())
    }

    /// As [`Core::note`], and drops these rows of the plan for a reason that depends on the
    /// changes.
    pub(super) fn note_instead(
        &mut self,
        event: Event,
        rows: &[PlanId],
        reason: impl FnOnce(&Taken) -> String,
    ) -> Result<Taken, StoreError> {
        let Some(course) = &mut self.course else { return Ok(Taken::default()) };
        let (number, text) = (course.number, serde_json::to_string(&event).unwrap_or_default());
        let taken = course.take(event);
        self.coverage = None;
        let reason = reason(&taken);
        let noted =
            self.moved_rows(number, &taken).and_then(|Moved { rows: moved, without_slot }| {
                let (left_out, reason) = match without_slot.is_empty() {
                    true => (rows, reason.as_str()),
                    false => (without_slot.as_slice(), NO_TURN),
                };
                self.store.change_plan(number, &text, &taken.rows, &moved, (left_out, reason))
            });
        if noted.is_err() {
            // The event is not stored: the period is loaded again from the store.
            self.course = None;
        }
        noted.map(|()| taken)
    }

    /// The rows of the plan of groups that an event has moved.
    fn moved_rows(&self, period: u64, taken: &Taken) -> Result<Moved, StoreError> {
        let mut found = Moved::default();
        if taken.moved.is_empty() {
            return Ok(found);
        }
        for Planned { id, what, .. } in self.store.pending(period)? {
            match taken.moved.get(&what.group).filter(|_| what.kind != Kind::Retry) {
                Some(Some(slot)) => found.rows.push((id, *slot)),
                Some(None) => found.without_slot.push(id),
                None => {}
            }
        }
        Ok(found)
    }
}

/// When the counted seconds of a measurement began, if it has a result.
pub(super) fn begun(relay: Fingerprint, outcome: &Outcome) -> Option<Begun> {
    outcome.counted_unix_millis.filter(|_| outcome.result.is_ok()).map(|at| (relay, at))
}

/// Whether measurements of a group began too far apart to count together.
pub(super) fn are_apart(all: &[Begun]) -> bool {
    let times = || all.iter().map(|(_, at)| *at);
    let ends = times().min().zip(times().max());
    ends.is_some_and(|(first, last)| last - first > SAME_START_MILLIS)
}

/// Adds all of these to the relays to measure again, as if they had no result.
pub(super) fn add_all(again: &mut Vec<TaskResult>, all: &[Begun]) {
    for (relay, _) in all {
        if !again.iter().any(|(known, _)| known == relay) {
            again.push((*relay, None));
        }
    }
}

/// Rows of the plan that an event moves.
#[derive(Debug, Default)]
struct Moved {
    /// Rows that move, with their new slot.
    rows: Vec<(PlanId, u32)>,
    /// Rows that have no slot now.
    without_slot: Vec<PlanId>,
}

/// Whether a relay is to be measured again after this outcome, and its estimate unless one of our
/// hosts failed: only then it needs more capacity (FlashFlow, §4.2).
pub(super) fn again(outcome: &Outcome) -> Option<Option<BytesPerSec>> {
    let nothing = Some(None);
    match &outcome.result {
        Ok(Verdict::NeedsMoreCapacity) => Some(outcome.estimate),
        Ok(Verdict::MeasurerLimited) => nothing,
        Ok(Verdict::PathLimited) if !outcome.draw.counts() => nothing,
        Ok(_) => None,
        // The relay's decision stands; another request would give it a second draw.
        Err(failure) => match failure.kind.fault() {
            Fault::Coordinator | Fault::Unclear => nothing,
            Fault::Relay | Fault::Violation => None,
        },
    }
}
