//! What happens when a measurement is over.

use ff_proto::aggregate::Verdict;
use ff_proto::failure::Fault;
use ff_proto::units::BytesPerSec;

use super::Core;
use crate::outcome::Outcome;
use crate::period::Fingerprint;
use crate::period::timetable::{Event, Measured};
use crate::store::{AttemptId, StoreError, ToPlan};

impl Core {
    /// Stores what came of a measurement, and has it measured again if that is called for.
    pub(super) fn finish(&mut self, attempt: AttemptId, mut outcome: Box<Outcome>, now: u64) {
        let Some(running) = self.running.remove(&attempt) else { return };
        self.finished += 1;
        if let Err(failure) = &outcome.result {
            *self.failed.entry(failure.kind.code()).or_default() += 1;
            tracing::info!(relay = running.nickname, "failed: {}", failure.message);
        }
        self.paths.note(running.fingerprint, running.period, &mut outcome);
        let key = (running.slot, running.head);
        if let Some(z) = again(&outcome) {
            self.again.entry(key).or_default().push((running.fingerprint, z));
        }
        self.note_disputes(&outcome, &running.fingerprint, now);
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

    /// Notes which measurers say more than the relay.
    fn note_disputes(&mut self, outcome: &Outcome, relay: &Fingerprint, now: u64) {
        for dispute in &outcome.disputes {
            let member = self.team.iter_mut().find(|one| one.measurer.id() == dispute.measurer_id);
            let Some(member) = member else { continue };
            member.disputed_by.insert(*relay, outcome.started_unix_secs);
            let text = format!("{}: {dispute}", member.measurer.name());
            self.tell(now, text);
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
    fn measure_again(
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
        self.note(event).map(drop)
    }

    /// Notes durably what has happened in the period, and what follows for our plan; returns that.
    pub(super) fn note(&mut self, event: Event) -> Result<Vec<ToPlan>, StoreError> {
        let Some(course) = &mut self.course else { return Ok(Vec::new()) };
        let text = serde_json::to_string(&event).unwrap_or_default();
        self.store.add_event(course.number, &text)?;
        let rows = course.take(event);
        self.coverage = None;
        self.store.add_to_plan(course.number, &rows)?;
        Ok(rows)
    }
}

/// Whether a relay is to be measured again after this, and what it came to if that was no failure of ours: only
/// then it needs more (paper §4.2).
fn again(outcome: &Outcome) -> Option<Option<BytesPerSec>> {
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
