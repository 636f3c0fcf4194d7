//! A schedule during its period: relays join, leave and are measured again.
//!
//! Every coordinator applies the changes that follow from a consensus (relays that have joined or
//! left) in the same way, and so knows where the others measure new relays. A repetition is one
//! coordinator's own decision: it uses slots that its team reserves (the module `kept`), and needs
//! no consent. Slots of measurements that have begun with any coordinator stay. New groups that
//! have begun with none get other slots when relays join whose turn is earlier (the module
//! `queue`).
//!
//! A new relay on the address or in the family of one that is measured is measured with it if its
//! slot is still to come and has room; otherwise it waits for the next period, because alone it
//! would show the shared capacity again.
//!
//! All of this follows from the inputs and the [`Event`]s in their order, so these are what is
//! stored.
//!
//! Decisions: doc/decisions.md, "A timetable is stored as what happened".

mod again;
mod arrivals;

use std::collections::{BTreeMap, HashMap};

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;

pub use self::again::{NoRetry, Retry, TaskResult};
use super::kept::Kept;
use super::room::FirstFit;
use super::schedule::groups::{Age, Group, number};
use super::schedule::{Assignment, NOWHERE, Schedule, ScheduleRules};
use super::{ScheduledRelay, Team};

/// An event of a period.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// Relays have joined, see [`Timetable::add`].
    Add {
        /// The relays.
        relays: Vec<ScheduledRelay>,
        /// The first slot in which they may be measured.
        from_slot: u32,
    },
    /// The changes of the consensus that became valid at this time follow. Older ones are then
    /// ignored.
    Consensus {
        /// In seconds since 1970.
        valid_after: u64,
    },
    /// A relay has left, see [`Timetable::vanish`].
    Vanish {
        /// The relay.
        relay: Fingerprint,
        /// From this slot on it is not measured.
        from_slot: u32,
    },
    /// Relays must be measured again, see [`Timetable::retry`].
    Retry {
        /// The team.
        team: usize,
        /// The relays with their results, or failures.
        measured: Vec<TaskResult>,
        /// The slot must be after this one: the current slot, or the last one in which they grant
        /// nothing.
        now_slot: u32,
        /// The number of their grants that count then.
        grants_used: u32,
    },
    /// Relays must be measured later than planned, see [`Timetable::put_off`].
    PutOff {
        /// The team.
        team: usize,
        /// One of the relays.
        relay: Fingerprint,
        /// The slot must be after this one.
        behind: u32,
    },
    /// A part of a team is excluded, see [`Timetable::set_aside`].
    Aside {
        /// The team.
        team: usize,
        /// The excluded capacity.
        less: BytesPerSec,
    },
}

/// A measurement of one relay in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTask {
    /// The relay's number, see [`Timetable::relays`].
    pub relay: u32,
    /// The head of its group: tasks of a slot with the same head are repeated together.
    pub head: u32,
    /// z0: its expected capacity.
    pub guess: BytesPerSec,
    /// The capacity with which it is measured.
    pub demand: BytesPerSec,
}

/// The result of adding relays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The relays that were not known, in the order in which they were placed.
    pub relays: Vec<u32>,
    /// Those of them that wait for the next period, because they belong to relays that already have
    /// slots.
    pub waiting: Vec<u32>,
}

/// A schedule during its period.
#[derive(Clone, Debug)]
pub struct Timetable {
    /// The first measurement of each relay.
    schedule: Schedule,
    /// All relays of the period.
    relays: Vec<ScheduledRelay>,
    /// The number of each relay; if it joined again, the last one.
    numbers: HashMap<Fingerprint, u32>,
    /// The group of each relay, if it has one.
    group_of: Vec<u32>,
    /// The group with which each group is measured: usually itself.
    beside: Vec<u32>,
    /// The number of groups drawn when the period began; later groups got their slots from the
    /// queue.
    drawn: usize,
    /// The slot from which relays have left.
    gone: HashMap<u32, u32>,
    /// The earlier numbers of relays that have joined again.
    before: HashMap<u32, u32>,
    /// The capacity of each team left for new relays.
    first: Vec<FirstFit>,
    /// The capacity of each team left in each slot, including the reserved ones.
    left: Vec<Vec<u64>>,
    /// The repeated measurements.
    again: Vec<again::Again>,
    /// The excluded capacity of each team.
    aside: Vec<BytesPerSec>,
    /// The demand of measured relays that are too fast for a team.
    too_fast: BTreeMap<(usize, Fingerprint), BytesPerSec>,
}

impl Timetable {
    /// The timetable of a period that begins with these relays, each listed once.
    #[must_use]
    pub fn new(relays: Vec<ScheduledRelay>, rules: ScheduleRules) -> Self {
        let schedule = Schedule::new(&relays, rules);
        let groups = schedule.groups();
        let mut group_of = vec![NOWHERE; relays.len()];
        for (group, members) in groups.iter().map(|group| &group.members).enumerate() {
            for &member in members {
                group_of[member as usize] = number(group);
            }
        }
        let teams = schedule.teams();
        let left: Vec<_> = (0..teams.len()).map(|team| left(&schedule, team)).collect();
        let kept = |team| Kept::of(team, teams.len(), schedule.slots());
        let rooms = left.iter().cloned().enumerate();
        Self {
            first: rooms.map(|(team, left)| FirstFit::without(left, kept(team))).collect(),
            numbers: (0..)
                .zip(&relays)
                .map(|(number, relay)| (relay.fingerprint, number))
                .collect(),
            beside: (0..groups.len()).map(number).collect(),
            drawn: groups.partition_point(|group| group.age != Age::New),
            gone: HashMap::new(),
            before: HashMap::new(),
            again: Vec::new(),
            too_fast: BTreeMap::new(),
            aside: vec![BytesPerSec::default(); teams.len()],
            left,
            group_of,
            relays,
            schedule,
        }
    }

    /// The same after these events: the timetable before a restart.
    #[must_use]
    pub fn restore(
        relays: Vec<ScheduledRelay>,
        rules: ScheduleRules,
        events: impl IntoIterator<Item = Event>,
    ) -> Self {
        let mut timetable = Self::new(relays, rules);
        for event in events {
            timetable.apply(event);
        }
        timetable
    }

    /// Applies an event again, and ignores its result.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Add { relays, from_slot } => _ = self.add(relays, from_slot),
            Event::Vanish { relay, from_slot } => self.vanish(&relay, from_slot),
            Event::Consensus { .. } => {}
            Event::Retry { team, measured, now_slot, grants_used } => {
                _ = self.retry(team, &measured, now_slot, grants_used);
            }
            Event::PutOff { team, relay, behind } => _ = self.put_off(team, relay, behind),
            Event::Aside { team, less } => self.set_aside(team, less),
        }
    }

    /// Notes that a relay has left: from this slot on it is not measured, and its room is free.
    pub fn vanish(&mut self, relay: &Fingerprint, from_slot: u32) {
        let Some(&relay) = self.numbers.get(relay) else { return };
        if self.gone.contains_key(&relay) {
            return;
        }
        self.gone.insert(relay, from_slot);
        let group = self.group_of[relay as usize] as usize;
        for team in 0..self.teams().len() {
            let slot = self.schedule.slot(group, team).filter(|&slot| slot >= from_slot);
            let members = self.schedule.groups().get(group).map(|group| &group.members);
            let place = members.and_then(|all| all.iter().position(|&member| member == relay));
            if let Some((slot, place)) = slot.zip(place) {
                let demand = self.schedule.groups()[group].demands[place].get();
                self.give(team, slot, demand);
            }
        }
        self.vanish_again(relay, from_slot);
    }

    /// Whether a relay is known and has not left.
    #[must_use]
    pub fn is_expected(&self, relay: &Fingerprint) -> bool {
        self.numbers.get(relay).is_some_and(|number| !self.gone.contains_key(number))
    }

    /// The teams, sorted by their coordinators' identities.
    #[must_use]
    pub fn teams(&self) -> &[Team] {
        self.schedule.teams()
    }

    /// All relays of the period, by number; a relay that left and joined again has several.
    #[must_use]
    pub fn relays(&self) -> &[ScheduledRelay] {
        &self.relays
    }

    /// Relays that need more than this team has, with their demand: those that need more than any
    /// team has, those that only another team measures, and those that measurements showed to be so
    /// fast.
    pub fn too_fast(&self, team: usize) -> impl Iterator<Item = (Fingerprint, BytesPerSec)> {
        let planned = self.schedule.too_fast().iter().copied();
        let planned = planned.chain(self.schedule.too_much_for(team));
        let planned =
            planned.map(|short| (self.relays[short.relay as usize].fingerprint, short.needs));
        let measured = self.too_fast.iter().filter(move |((of, _), _)| *of == team);
        planned.chain(measured.map(|((_, relay), needs)| (*relay, *needs)))
    }

    /// The schedule; relays that have joined are at the end of its list.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The tasks of a team in a slot, in the order in which measurers are allocated.
    #[must_use]
    pub fn tasks(&self, team: usize, slot: u32) -> Vec<SlotTask> {
        let groups = (0..self.schedule.groups().len())
            .filter(|&group| self.schedule.slot(group, team) == Some(slot));
        let mut tasks: Vec<SlotTask> = groups.flat_map(|group| self.tasks_of(group)).collect();
        tasks.retain(|task| !self.is_gone(task.relay, slot));
        tasks.extend(self.again_in(team, slot));
        tasks
    }

    /// The same with each measurer's share.
    #[must_use]
    pub fn assignments(&self, team: usize, slot: u32) -> Vec<Assignment> {
        let tasks = self.tasks(team, slot);
        self.schedule.assign(team, tasks.into_iter().map(|task| (task.relay, task.demand)))
    }

    /// The tasks of a group's first measurement.
    fn tasks_of(&self, group: usize) -> impl Iterator<Item = SlotTask> {
        let Group { members, demands, .. } = &self.schedule.groups()[group];
        let head = self.beside[group];
        members.iter().zip(demands).map(move |(&relay, &demand)| {
            let guess = super::guess(&self.relays[relay as usize], self.schedule.rules.new_guess);
            SlotTask { relay, head, guess, demand }
        })
    }

    /// Whether a relay has left before this slot.
    fn is_gone(&self, relay: u32, slot: u32) -> bool {
        self.gone.get(&relay).is_some_and(|&from| from <= slot)
    }

    /// Returns capacity to a slot.
    fn give(&mut self, team: usize, slot: u32, demand: u64) {
        if let Some(left) = self.left[team].get_mut(slot as usize) {
            *left = left.saturating_add(demand);
        }
        if !self.kept(team).has(slot) {
            self.first[team].give(slot, demand);
        }
    }

    /// The slots that a team reserves.
    fn kept(&self, team: usize) -> Kept {
        Kept::of(team, self.teams().len(), self.schedule.slots())
    }
}

/// Takes capacity from a slot.
fn take(left: &mut [u64], slot: u32, demand: u64) {
    if let Some(left) = left.get_mut(slot as usize) {
        *left = left.saturating_sub(demand);
    }
}

/// The capacity of a team that a schedule leaves in each slot.
fn left(schedule: &Schedule, team: usize) -> Vec<u64> {
    let mut all = vec![schedule.teams()[team].capacity().get(); schedule.slots() as usize];
    for (group, members) in schedule.groups().iter().enumerate() {
        if let Some(slot) = schedule.slot(group, team) {
            take(&mut all, slot, members.demand());
        }
    }
    all
}

/// Whether a group has a relay without an estimate.
fn is_new(group: &Group) -> bool {
    group.age != Age::Old
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
#[cfg(test)]
mod whole_period;
