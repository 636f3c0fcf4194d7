//! What happens when a measurement is over.

use ff_proto::aggregate::Verdict;
use ff_proto::failure::{FailureKind, Fault};
use ff_proto::units::BytesPerSec;

use super::Core;
use super::rows::Taken;
use crate::outcome::Outcome;
use crate::period::timetable::{Event, Measured};
use crate::store::{AttemptId, Kind, StoreError, ToPlan};

impl Core {
    /// Stores what came of a measurement, and has it measured again if that is called for.
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
        let known = self.paths.note(running.fingerprint, running.period, &mut outcome);
        if let Err(error) = self.store.put_path(&running.fingerprint, &known) {
            self.tell(now, format!("what is known of a relay's path is kept in memory: {error}"));
        }
        let key = (running.slot, running.head);
        if let Some(z) = again(&outcome) {
            self.again.entry(key).or_default().push((running.fingerprint, z));
        }
        self.hear(running.fingerprint, &running.measurers, &mut outcome, now);
        self.unsaved.push_back((attempt, outcome));
        self.save_unsaved(now);
        let is_last = self.running.values().all(|other| (other.slot, other.head) != key);
        let relays = if is_last { self.again.remove(&key) } else { None };
        if let Some(relays) = relays
            && let Err(error) = self.measure_again(running.period, &relays, now)
        {
            self.tell(now, format!("the store fails, so nothing is measured again: {error}"));
        }
    }

    /// Stores what could not be stored before, the oldest first.
    pub(super) fn save_unsaved(&mut self, now: u64) {
        while let Some((attempt, outcome)) = self.unsaved.front() {
            self.coverage = None;
            match self.store.finish_attempt(*attempt, outcome, now) {
                // It was finished already, before a store that failed said so.
                Ok(()) | Err(StoreError::NotBegun(_)) => _ = self.unsaved.pop_front(),
                Err(error) => {
                    self.tell(
                        now,
                        format!("results cannot be stored and are kept in memory: {error}"),
                    );
                    return;
                }
            }
        }
    }

    /// Has relays that were measured together measured again, if the period has room and they have grants
    /// left.
    pub(super) fn measure_again(
        &mut self,
        period: u64,
        relays: &[Measured],
        now: u64,
    ) -> Result<(), StoreError> {
        let course = self.course.as_ref().filter(|course| course.number == period);
        let Some(course) = course else { return Ok(()) };
        let since = now.saturating_sub(u64::from(self.common.length_secs));
        let mut used = 0;
        for (relay, _) in relays {
            used = used.max(self.store.grants_used(relay, since)?.len());
        }
        let event = Event::Retry {
            team: course.team,
            measured: relays.to_vec(),
            now_slot: course.slot_at(now),
            grants_used: u32::try_from(used).unwrap_or(u32::MAX),
        };
        let taken = self.note(event)?;
        let Some(reason) = taken.refused else { return Ok(()) };
        let Some(course) = &self.course else { return Ok(()) };
        let slot = course.slot_at(now);
        for (relay, _) in relays {
            let row = ToPlan {
                fingerprint: *relay,
                slot,
                kind: Kind::Retry,
                group: u32::MAX,
                demand: BytesPerSec::default(),
            };
            self.store.add_left_out(
                period,
                &row,
                &format!("it is not measured again: {reason}"),
            )?;
        }
        self.coverage = None;
        let text = format!("relays are not measured again in this period: {reason}");
        self.tell(now, text);
        Ok(())
    }

    /// Notes durably what has happened in the period, and what follows for our plan; returns that.
    pub(super) fn note(&mut self, event: Event) -> Result<Taken, StoreError> {
        let Some(course) = &mut self.course else { return Ok(Taken::default()) };
        let (number, text) = (course.number, serde_json::to_string(&event).unwrap_or_default());
        let taken = course.take(event);
        self.coverage = None;
        let noted = self.store.add_event_with_plan(number, &text, &taken.rows);
        if noted.is_err() {
            // It has not happened: the period is taken up again as the store has it.
            self.course = None;
        }
        noted.map(|()| taken)
    }
}

/// Whether a relay is to be measured again after this, and what it came to if that was no failure of ours: only
/// then it needs more (paper §4.2).
pub(super) fn again(outcome: &Outcome) -> Option<Option<BytesPerSec>> {
    let nothing = Some(None);
    match &outcome.result {
        Ok(Verdict::NeedsMoreCapacity) => Some(outcome.estimate),
        Ok(Verdict::MeasurerLimited) => nothing,
        Ok(Verdict::PathLimited) if !outcome.draw.counts() => nothing,
        Ok(_) => None,
        // What the relay has decided stands; to ask again would give it a second draw.
        Err(failure) => match failure.kind.fault() {
            Fault::Coordinator | Fault::Unclear => nothing,
            Fault::Relay | Fault::Violation => None,
        },
    }
}
