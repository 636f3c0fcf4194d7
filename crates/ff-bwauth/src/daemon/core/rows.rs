//! A period's timetable as rows of the store's plan.

use ff_proto::units::BytesPerSec;

use crate::daemon::course::Course;
use crate::period::Fingerprint;
use crate::period::timetable::{Event, NoRetry, Retry, Task};
use crate::store::{Kind, ToPlan};

impl Course {
    /// The rows of the plan for our team, as the period begins.
    pub(super) fn rows(&self) -> Vec<ToPlan> {
        let schedule = self.timetable.schedule();
        let groups = 0..schedule.groups().len();
        let placed = groups.filter_map(|group| Some((group, schedule.slot(group, self.team)?)));
        placed.flat_map(|(group, slot)| self.rows_of(group, slot)).collect()
    }

    /// The rows of a group.
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

    /// Lets an event happen, and returns the rows that it adds to our plan.
    pub(super) fn take(&mut self, event: Event) -> Vec<ToPlan> {
        let before = self.timetable.schedule().groups().len();
        match event {
            Event::Retry { team, measured, now_slot, grants_used } => {
                let again = self.timetable.retry(team, &measured, now_slot, grants_used);
                self.rows_again(measured.first().map(|(relay, _)| relay), again)
            }
            Event::PutOff { team, relay, behind } => {
                let later = self.timetable.put_off(team, relay, behind);
                self.rows_again(Some(&relay), later)
            }
            Event::Vanish { relay, from_slot } => {
                self.timetable.vanish(&relay, from_slot);
                Vec::new()
            }
            Event::Add { relays, from_slot } => {
                self.add(relays, from_slot);
                let groups = before..self.timetable.schedule().groups().len();
                let slot = |group| self.timetable.schedule().slot(group, self.team);
                let placed: Vec<_> =
                    groups.filter_map(|group| Some((group, slot(group)?))).collect();
                placed.into_iter().flat_map(|(group, slot)| self.rows_of(group, slot)).collect()
            }
        }
    }

    /// The rows of relays that are measured again or later.
    fn rows_again(
        &self,
        relay: Option<&Fingerprint>,
        again: Result<Retry, NoRetry>,
    ) -> Vec<ToPlan> {
        let retry = match again {
            Ok(retry) => retry,
            Err(reason) => {
                tracing::info!(relay = relay.map(hex::encode_upper), "not again: {reason}");
                return Vec::new();
            }
        };
        let relays = self.timetable.relays();
        let row = |task: &Task| ToPlan {
            fingerprint: relays[task.relay as usize].fingerprint,
            slot: retry.slot,
            kind: Kind::Retry,
            group: u32::MAX,
            demand: task.demand,
        };
        retry.tasks.iter().map(row).collect()
    }
}
