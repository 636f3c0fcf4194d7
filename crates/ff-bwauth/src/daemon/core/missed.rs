//! Makes up for slots that passed before the coordinator could begin them, and for repetitions that
//! were not decided.
//!
//! ```text
//!   a slot passed: down, busy with an exchange, without a consensus, after a jump of the clock
//!        └─▶ each due group moves to a reserved slot, or is left out with the reason
//!   measured before the last end, repetition not decided
//!        └─▶ decided now
//! ```

use std::collections::{BTreeMap, HashMap};

use ff_base::identity::Fingerprint;
use ff_plan::period::timetable::{Event, TaskResult};
use ff_store::{PlanId, Planned, Seconds, StoreError};

use super::Core;
use super::finish::{Begun, Together, add_all, again, are_apart, begun};

/// Rows of the plan moved in one step, which bounds the size of a transaction.
const AT_ONCE: u32 = 16;
/// The reason for rows of a slot that passed.
const WENT_BY: &str = "its slot passed before the coordinator could begin it";

/// Why a row of the plan is not carried out that the schedule does not have, as after a restart
/// with other teams.
pub(super) const UNPLANNED: &str = "the schedule has no measurement of it in this slot any more";

/// The last slot in which it was decided whether a relay is measured again.
pub(super) type Decided = HashMap<Fingerprint, u32>;

/// The decisions in these events.
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
    /// Decides whether to repeat measurements that the last process finished or that ended with it,
    /// where it had not decided.
    pub(super) fn decide_again(&mut self, decided: &Decided, now: u64) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let (number, span) = (course.number, course.start..now.saturating_add(1));
        let mut last = HashMap::<Fingerprint, (u32, Option<TaskResult>, Option<Begun>)>::new();
        self.store.attempts(span, Seconds::Without, |attempt| {
            let slot = attempt.slot.filter(|(period, _)| *period == number).map(|(_, slot)| slot);
            if let Some(slot) = slot {
                let (relay, outcome) = (attempt.fingerprint, &attempt.outcome);
                let z = again(outcome).map(|z| (relay, z));
                last.insert(relay, (slot, z, begun(relay, outcome)));
            }
            Ok::<_, StoreError>(())
        })?;
        let mut groups = BTreeMap::<Together, (Vec<TaskResult>, Vec<Begun>)>::new();
        for (relay, (slot, measured, begun)) in last {
            let is_open = decided.get(&relay).is_none_or(|decided| *decided < slot);
            let head = course.head_in(&relay, slot).filter(|_| is_open);
            let Some(head) = head else { continue };
            let (again, all) = groups.entry((number, slot, head)).or_default();
            again.extend(measured);
            all.extend(begun);
        }
        // Measurements of this process are decided when the whole group has ended.
        for one in self.running.values() {
            groups.remove(&one.together());
        }
        for (together, (mut group, all)) in groups {
            if are_apart(&all) {
                add_all(&mut group, &all);
            }
            if !group.is_empty() {
                self.again.entry(together).or_insert(group);
            }
        }
        self.decide(now)
    }

    /// Moves some rows of slots that passed; the next call moves more.
    pub(super) fn move_missed(&mut self, now: u64) -> Result<(), StoreError> {
        if !self.has_missed {
            return Ok(());
        }
        let Some(course) = &self.course else { return Ok(()) };
        let (number, team) = (course.number, course.team);
        let behind = course.slot_at(now).max(course.next_slot.saturating_sub(1));
        let missed = self.store.pending_before(number, course.next_slot, AT_ONCE)?;
        if missed.is_empty() {
            self.has_missed = false;
            return Ok(());
        }
        let mut groups = BTreeMap::<(u32, Option<u32>), Vec<&Planned>>::new();
        for row in &missed {
            let slot = row.what.slot;
            groups
                .entry((slot, course.head_in(&row.what.fingerprint, slot)))
                .or_default()
                .push(row);
        }
        for ((slot, head), rows) in groups {
            let Some(course) = &self.course else { return Ok(()) };
            let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
            let relay = rows[0].what.fingerprint;
            let placed = course.timetable.last_slot(team, &relay).filter(|placed| *placed > slot);
            match (head, placed) {
                (None, _) => {
                    for row in rows {
                        let reason = self.why_unreachable(&row.what.fingerprint);
                        self.leave_out(&[row.id], reason.unwrap_or(UNPLANNED))?;
                    }
                }
                // The group is measured again in any case.
                (_, Some(placed)) => {
                    self.leave_out(&ids, &format!("{WENT_BY}; it is measured in slot {placed}"))?
                }
                (_, None) => self.put_off_group(relay, behind, &ids, WENT_BY)?,
            }
        }
        tracing::warn!(
            period = number,
            relays = missed.len(),
            "slots went by in which these were due; they are measured later where there is room"
        );
        Ok(())
    }

    /// Moves a relay's group to a later slot, which replaces these rows of the plan.
    pub(super) fn put_off_group(
        &mut self,
        relay: Fingerprint,
        behind: u32,
        rows: &[PlanId],
        reason: &str,
    ) -> Result<(), StoreError> {
        let Some(team) = self.course.as_ref().map(|course| course.team) else { return Ok(()) };
        let event = Event::PutOff { team, relay, behind };
        self.note_instead(event, rows, |taken| match (taken.rows.first(), &taken.refused) {
            (Some(row), _) => format!("{reason}; it waits for slot {}", row.slot),
            (None, Some(refused)) => format!("{reason}; {refused}"),
            (None, None) => format!("{reason}; no later slot has room"),
        })
        .map(drop)
    }

    /// Drops these rows of the plan.
    pub(super) fn leave_out(&mut self, rows: &[PlanId], reason: &str) -> Result<(), StoreError> {
        self.coverage = None;
        rows.iter().try_for_each(|row| self.store.leave_out(*row, reason))
    }
}
