//! What a period is owed: slots that went by while nobody was here, and repetitions that were not decided.
//!
//! ```text
//!   a slot went by: down, busy with an exchange, without a consensus, behind a jump of the clock
//!        └─▶ each group that was due is moved to a slot that the team keeps, or left out, with the reason
//!   measured before the last end, and whether it is measured again was not decided
//!        └─▶ decided now
//! ```

use std::collections::{BTreeMap, HashMap};

use super::Core;
use super::finish::again;
use crate::period::Fingerprint;
use crate::period::timetable::{Event, Measured};
use crate::store::{Seconds, StoreError};

/// So many rows of the plan are moved in one step, which takes a fraction of a second.
const AT_ONCE: u32 = 64;

/// The last slot in which it was decided whether a relay is measured again.
pub(super) type Decided = HashMap<Fingerprint, u32>;

/// What these events have decided.
pub(super) fn decided(events: &[Event], team: usize) -> Decided {
    let mut decided = Decided::new();
    for event in events {
        let Event::Retry { team: of, measured, now_slot, .. } = event else { continue };
        for (relay, _) in measured.iter().filter(|_| *of == team) {
            let last = decided.entry(*relay).or_default();
            *last = (*last).max(*now_slot);
        }
    }
    decided
}

impl Core {
    /// Has relays measured again whose measurement the last process has finished, or that were interrupted with it, if that
    /// is called for and was not decided.
    pub(super) fn decide_again(&mut self, decided: &Decided, now: u64) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let (number, span) = (course.number, course.start..now.saturating_add(1));
        let mut last = HashMap::<Fingerprint, (u32, Option<Measured>)>::new();
        self.store.attempts(span, Seconds::Without, |attempt| {
            let slot = attempt.slot.filter(|(period, _)| *period == number).map(|(_, slot)| slot);
            if let Some(slot) = slot {
                let z = again(&attempt.outcome).map(|z| (attempt.fingerprint, z));
                last.insert(attempt.fingerprint, (slot, z));
            }
            Ok::<_, StoreError>(())
        })?;
        let mut groups = BTreeMap::<(u32, u32), Vec<Measured>>::new();
        for (relay, (slot, measured)) in last {
            let is_open = decided.get(&relay).is_none_or(|decided| *decided < slot);
            let head = course.head_in(&relay, slot).filter(|_| is_open);
            if let Some((head, measured)) = head.zip(measured) {
                groups.entry((slot, head)).or_default().push(measured);
            }
        }
        groups.into_values().try_for_each(|group| self.measure_again(number, &group, now))
    }

    /// Moves some of what was due in slots that went by.
    pub(super) fn move_missed(&mut self, now: u64) -> Result<(), StoreError> {
        let Some(course) = self.course.as_ref().filter(|_| self.has_missed) else { return Ok(()) };
        let (number, team) = (course.number, course.team);
        let behind = course.slot_at(now).max(course.next_slot.saturating_sub(1));
        let missed = self.store.pending_before(number, course.next_slot, AT_ONCE)?;
        if missed.is_empty() {
            self.has_missed = false;
            return Ok(());
        }
        self.coverage = None;
        let mut moved = BTreeMap::<(u32, u32), String>::new();
        for row in &missed {
            let Some(course) = &self.course else { return Ok(()) };
            let (relay, slot) = (row.what.fingerprint, row.what.slot);
            let key = course.head_in(&relay, slot).map(|head| (slot, head));
            let then = match key.and_then(|key| moved.get(&key)) {
                Some(then) => then.clone(),
                None => {
                    let placed = course.timetable.last_slot(team, &relay);
                    let then = match placed.filter(|placed| *placed > slot) {
                        // Its group is measured again anyway.
                        Some(placed) => format!("it is measured in slot {placed}"),
                        None => self.put_off_one(relay, behind)?,
                    };
                    if let Some(key) = key {
                        moved.insert(key, then.clone());
                    }
                    then
                }
            };
            let reason = format!("its slot went by, and nobody was there to begin it; {then}");
            self.store.leave_out(row.id, &reason)?;
        }
        tracing::warn!(
            period = number,
            relays = missed.len(),
            "slots went by in which these were due; they are measured later where there is room"
        );
        Ok(())
    }

    /// Has a relay, with all that is measured together with it, measured behind this slot; says what came of it.
    pub(super) fn put_off_one(
        &mut self,
        relay: Fingerprint,
        behind: u32,
    ) -> Result<String, StoreError> {
        let Some(team) = self.course.as_ref().map(|course| course.team) else {
            return Ok(String::new());
        };
        let taken = self.note(Event::PutOff { team, relay, behind })?;
        Ok(match (taken.rows.first(), taken.refused) {
            (Some(row), _) => format!("it waits for slot {}", row.slot),
            (None, Some(reason)) => reason.to_string(),
            (None, None) => "no slot behind that has room".to_owned(),
        })
    }
}
