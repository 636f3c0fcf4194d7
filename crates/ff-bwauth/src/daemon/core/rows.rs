//! A period's timetable as rows of the store's plan.

use std::collections::BTreeMap;

use ff_base::identity::Fingerprint;
use ff_plan::period::timetable::{Event, NoRetry, Retry, SlotTask};
use ff_proto::units::BytesPerSec;
use ff_store::{Kind, ToPlan};

use crate::daemon::course::Course;

/// Changes of this team's plan after an event.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The rows to add.
    pub(super) rows: Vec<ToPlan>,
    /// Groups whose rows move, with their new slot, if they have one.
    pub(super) moved: BTreeMap<u32, Option<u32>>,
    /// Why relays are not measured again or later, if so.
    pub(super) refused: Option<NoRetry>,
}

impl From<Vec<ToPlan>> for Taken {
    fn from(rows: Vec<ToPlan>) -> Self {
        Self { rows, ..Self::default() }
    }
}

impl Course {
    /// The head of the group with which our team measures a relay in a slot.
    pub(super) fn head_in(&self, relay: &Fingerprint, slot: u32) -> Option<u32> {
        let relays = self.timetable.relays();
        let tasks = self.timetable.tasks(self.team, slot);
        let is_it = |task: &&SlotTask| relays[task.relay as usize].fingerprint == *relay;
        tasks.iter().find(is_it).map(|task| task.head)
    }

    /// The rows of the plan for our team, as the period begins.
    pub(super) fn rows(&self) -> Vec<ToPlan> {
        let schedule = self.timetable.schedule();
        let groups = 0..schedule.groups().len();
        let placed = groups.filter_map(|group| Some((group, schedule.slot(group, self.team)?)));
        placed.flat_map(|(group, slot)| self.rows_of(group, slot)).collect()
    }

    /// The slot in which our team measures each group for the first time.
    fn slots(&self) -> Vec<Option<u32>> {
        let schedule = self.timetable.schedule();
        (0..schedule.groups().len()).map(|group| schedule.slot(group, self.team)).collect()
    }

    /// The changes of our plan between earlier and present slots of groups.
    fn moved(&self, before: &[Option<u32>]) -> Taken {
        let mut taken = Taken::default();
        for (group, slot) in self.slots().into_iter().enumerate() {
            let was = before.get(group).copied().flatten();
            if was.is_none() {
                taken.rows.extend(slot.into_iter().flat_map(|slot| self.rows_of(group, slot)));
            } else if was != slot {
                taken.moved.insert(u32::try_from(group).unwrap_or(u32::MAX), slot);
            }
        }
        taken
    }

    fn rows_of(&self, group: usize, slot: u32) -> Vec<ToPlan> {
        let members = &self.timetable.schedule().groups()[group];
        let relays = self.timetable.relays();
        let row = |(&relay, &demand): (&u32, &BytesPerSec)| {
            let relay = &relays[relay as usize];
            let kind = if relay.estimate.is_some() { Kind::Old } else { Kind::New };
            let group = u32::try_from(group).unwrap_or(u32::MAX);
            ToPlan { fingerprint: relay.fingerprint, slot, kind, group, demand }
        };
        members.members.iter().zip(&members.demands).map(row).collect()
    }

    /// Applies an event to the timetable and returns the changes of our plan.
    pub(super) fn take(&mut self, event: Event) -> Taken {
        match event {
            Event::Retry { team, measured, now_slot, grants_used } => {
                let again = self.timetable.retry(team, &measured, now_slot, grants_used);
                self.rows_again(again)
            }
            Event::PutOff { team, relay, behind } => {
                let later = self.timetable.put_off(team, relay, behind);
                self.rows_again(later)
            }
            Event::Vanish { relay, from_slot } => {
                self.timetable.vanish(&relay, from_slot);
                Taken::default()
            }
            Event::Consensus { valid_after } => {
                self.noted = self.noted.max(valid_after);
                Taken::default()
            }
            Event::Aside { team, less } => {
                self.timetable.set_aside(team, less);
                Taken::default()
            }
            Event::Add { relays, from_slot } => {
                let before = self.slots();
                self.add(relays, from_slot);
                self.moved(&before)
            }
        }
    }

    /// The rows of relays that are measured again or later.
    fn rows_again(&self, again: Result<Retry, NoRetry>) -> Taken {
        let retry = match again {
            Ok(retry) => retry,
            Err(reason) => return Taken { refused: Some(reason), ..Taken::default() },
        };
        let relays = self.timetable.relays();
        let row = |task: &SlotTask| ToPlan {
            fingerprint: relays[task.relay as usize].fingerprint,
            slot: retry.slot,
            kind: Kind::Retry,
            group: u32::MAX,
            demand: task.demand,
        };
        retry.tasks.iter().map(row).collect::<Vec<_>>().into()
    }
}
