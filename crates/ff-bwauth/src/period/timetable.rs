//! A schedule while its period goes on: relays come, go and are measured again.
//!
//! What follows from a consensus (who has come, who has gone) every coordinator finds in the same way, and
//! so knows where the others measure what has come. Measuring again is one coordinator's own business: it
//! happens in slots that its team keeps for that (the module `kept`), so it needs nobody's consent.
//! What is once placed stays where it is.
//!
//! A new relay beside one that has a place, on its address or in its family, is measured with it if its slot
//! is still to come and has room, or else waits for the next period: measured by itself it would show
//! once more what the two share.
//!
//! All of it follows from the inputs and the [`Event`]s in their order, so these are what must be stored.

mod again;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ff_proto::units::BytesPerSec;

pub use self::again::{Measured, NoRetry, Retry};
use super::kept::Kept;
use super::room::FirstFit;
use super::schedule::groups::{Age, Group, most, need, number};
use super::schedule::{Assignment, NOWHERE, Rules, Schedule, place_first};
use super::seed::mixed;
use super::{Fingerprint, Relay, Team};

/// What happens during a period.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// Relays have come, see [`Timetable::add`].
    Add {
        /// These.
        relays: Vec<Relay>,
        /// They are measured in this slot at the earliest.
        from_slot: u32,
    },
    /// A relay has gone, see [`Timetable::vanish`].
    Vanish {
        /// This one.
        relay: Fingerprint,
        /// From this slot on it is not measured.
        from_slot: u32,
    },
    /// Relays are to be measured again, see [`Timetable::retry`].
    Retry {
        /// By this team.
        team: usize,
        /// These, which came to so much or failed.
        measured: Vec<Measured>,
        /// The slot that is running.
        now_slot: u32,
        /// Grants of theirs that the team has used.
        grants_used: u32,
    },
    /// Relays are to be measured later than planned, see [`Timetable::put_off`].
    PutOff {
        /// By this team.
        team: usize,
        /// One of them.
        relay: Fingerprint,
        /// Behind this slot.
        behind: u32,
    },
    /// A team has less than is stated, see [`Timetable::set_aside`].
    Aside {
        /// This one.
        team: usize,
        /// By so much.
        less: BytesPerSec,
    },
}

/// One relay's measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which relay, see [`Timetable::relays`].
    pub relay: u32,
    /// With whom: tasks of a slot that have the same number are measured again together.
    pub head: u32,
    /// z0: what it is taken for.
    pub guess: BytesPerSec,
    /// What it is measured with.
    pub demand: BytesPerSec,
}

/// What became of relays that have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Those that were not known, in the order in which they were placed.
    pub relays: Vec<u32>,
    /// Those of them that wait for the next period, because they belong to others that have places.
    pub waiting: Vec<u32>,
}

/// A schedule while its period goes on.
#[derive(Clone, Debug)]
pub struct Timetable {
    /// Who is measured where for the first time.
    schedule: Schedule,
    /// All relays that have been there.
    relays: Vec<Relay>,
    /// Where each stands among them; if it has come again, the last time.
    numbers: HashMap<Fingerprint, u32>,
    /// The group of each of them, or nowhere.
    group_of: Vec<u32>,
    /// Beside which group each group is measured: in general itself.
    beside: Vec<u32>,
    /// From which slot relays are gone.
    gone: HashMap<u32, u32>,
    /// What relays that have come again were before.
    before: HashMap<u32, u32>,
    /// What each team has left for new relays.
    first: Vec<FirstFit>,
    /// What each team has left in each slot; true for those that it keeps.
    left: Vec<Vec<u64>>,
    /// What is measured again.
    again: Vec<again::Again>,
    /// What of each team's capacity is set aside.
    aside: Vec<BytesPerSec>,
    /// What relays would need that were measured and are too fast for a team.
    too_fast: BTreeMap<(usize, Fingerprint), BytesPerSec>,
}

impl Timetable {
    /// That of a period which begins with these relays, each listed once.
    #[must_use]
    pub fn new(relays: Vec<Relay>, rules: Rules) -> Self {
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

    /// The same after all that has happened: the timetable as it was before a restart.
    #[must_use]
    pub fn restore(
        relays: Vec<Relay>,
        rules: Rules,
        events: impl IntoIterator<Item = Event>,
    ) -> Self {
        let mut timetable = Self::new(relays, rules);
        for event in events {
            timetable.apply(event);
        }
        timetable
    }

    /// Lets something happen again, whatever came of it.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Add { relays, from_slot } => _ = self.add(relays, from_slot),
            Event::Vanish { relay, from_slot } => self.vanish(&relay, from_slot),
            Event::Retry { team, measured, now_slot, grants_used } => {
                _ = self.retry(team, &measured, now_slot, grants_used);
            }
            Event::PutOff { team, relay, behind } => _ = self.put_off(team, relay, behind),
            Event::Aside { team, less } => self.set_aside(team, less),
        }
    }

    /// Adds relays of a later consensus, each in the first slots with room from this one on. Those that are
    /// known and have not gone are left out. They have come at the same time, so it is the seed that puts
    /// them in order.
    pub fn add(&mut self, relays: Vec<Relay>, from_slot: u32) -> Added {
        let begin = self.relays.len();
        self.admit(relays);
        if self.relays.len() == begin {
            return Added::default();
        }
        let needs: Vec<_> =
            self.relays.iter().map(|relay| need(relay, &self.schedule.rules)).collect();
        let mut sets: Vec<_> = super::group::together(&self.relays)
            .into_iter()
            .filter(|set| set.last().is_some_and(|&last| last >= begin))
            .map(|set| {
                let new = set.partition_point(|&member| member < begin);
                (set[new..].to_vec(), self.heads(&set[..new]))
            })
            .collect();
        sets.sort_unstable_by_key(|(new, _)| new.first().copied());
        let mut waiting = Vec::new();
        for (new, heads) in sets {
            match heads.as_slice() {
                [] => self.place(new, &needs, from_slot),
                [head] => {
                    for member in new {
                        if !self.place_beside(*head, member, &needs, from_slot) {
                            waiting.push(number(member));
                        }
                    }
                }
                _ => waiting.extend(new.into_iter().map(number)),
            }
        }
        Added { relays: (begin..self.relays.len()).map(number).collect(), waiting }
    }

    /// A relay has gone: from this slot on it is not measured, and its room is free for others.
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

    /// Whether a relay is known and has not gone.
    #[must_use]
    pub fn is_expected(&self, relay: &Fingerprint) -> bool {
        self.numbers.get(relay).is_some_and(|number| !self.gone.contains_key(number))
    }

    /// The teams, in the order of their numbers here.
    #[must_use]
    pub fn teams(&self) -> &[Team] {
        self.schedule.teams()
    }

    /// All relays that have been there, by their numbers; who went and came again has several.
    #[must_use]
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Relays that need more than this team has, and how much: those that need more than any has, those that only
    /// another team measures, then those that were found so when they were measured.
    pub fn too_fast(&self, team: usize) -> impl Iterator<Item = (Fingerprint, BytesPerSec)> {
        let planned = self.schedule.too_fast().iter().copied();
        let planned = planned.chain(self.schedule.too_much_for(team));
        let planned =
            planned.map(|short| (self.relays[short.relay as usize].fingerprint, short.needs));
        let measured = self.too_fast.iter().filter(move |((of, _), _)| *of == team);
        planned.chain(measured.map(|((_, relay), needs)| (*relay, *needs)))
    }

    /// Its schedule, in which relays that have come stand behind the others.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What a team measures in a slot, in the order in which its measurers are given out.
    #[must_use]
    pub fn tasks(&self, team: usize, slot: u32) -> Vec<Task> {
        let groups = (0..self.schedule.groups().len())
            .filter(|&group| self.schedule.slot(group, team) == Some(slot));
        let mut tasks: Vec<Task> = groups.flat_map(|group| self.tasks_of(group)).collect();
        tasks.retain(|task| !self.is_gone(task.relay, slot));
        tasks.extend(self.again_in(team, slot));
        tasks
    }

    /// The same with what each measurer does.
    #[must_use]
    pub fn assignments(&self, team: usize, slot: u32) -> Vec<Assignment> {
        let tasks = self.tasks(team, slot);
        self.schedule.assign(team, tasks.into_iter().map(|task| (task.relay, task.demand)))
    }

    /// What a group is measured with for the first time.
    fn tasks_of(&self, group: usize) -> impl Iterator<Item = Task> {
        let Group { members, demands, .. } = &self.schedule.groups()[group];
        let head = self.beside[group];
        members.iter().zip(demands).map(move |(&relay, &demand)| {
            let guess = super::guess(&self.relays[relay as usize], self.schedule.rules.new_guess);
            Task { relay, head, guess, demand }
        })
    }

    /// Whether a relay has gone before this slot.
    fn is_gone(&self, relay: u32, slot: u32) -> bool {
        self.gone.get(&relay).is_some_and(|&from| from <= slot)
    }

    /// Takes relays in that are not there, in their order.
    fn admit(&mut self, relays: Vec<Relay>) {
        let mut listed = HashSet::new();
        let mut new: Vec<Relay> = relays
            .into_iter()
            .filter(|relay| {
                let known = self.numbers.get(&relay.fingerprint);
                known.is_none_or(|number| self.gone.contains_key(number))
                    && listed.insert(relay.fingerprint)
            })
            .collect();
        new.sort_by_cached_key(|relay| mixed(&self.schedule.rules.seed, &relay.fingerprint));
        for relay in new {
            let number = number(self.relays.len());
            if let Some(before) = self.numbers.insert(relay.fingerprint, number) {
                self.before.insert(number, before);
            }
            self.group_of.push(NOWHERE);
            self.relays.push(relay);
        }
    }

    /// Beside which groups these relays are measured that have places and have not gone.
    fn heads(&self, relays: &[usize]) -> Vec<u32> {
        let here = relays.iter().filter(|&&relay| !self.gone.contains_key(&number(relay)));
        let groups = here.map(|&relay| self.group_of[relay]).filter(|&group| group != NOWHERE);
        let heads: BTreeSet<u32> = groups.map(|group| self.beside[group as usize]).collect();
        heads.into_iter().collect()
    }

    /// Places relays that belong to no others.
    fn place(&mut self, members: Vec<usize>, needs: &[BytesPerSec], from_slot: u32) {
        let (begin, most) = (self.schedule.groups().len(), most(&self.schedule.rules));
        self.schedule.grouped.join(members, needs, &self.relays, most);
        for group in begin..self.schedule.groups().len() {
            let members = self.schedule.groups()[group].members.clone();
            let mut places = vec![NOWHERE; self.teams().len()];
            place_first(&self.schedule.groups()[group], &mut places, &mut self.first, from_slot);
            let demand = self.schedule.groups()[group].demand();
            for (team, place) in places.iter_mut().enumerate().filter(|(_, slot)| **slot != NOWHERE)
            {
                if members.iter().any(|&member| self.was_measured(member, team)) {
                    self.first[team].give(*place, demand);
                    *place = NOWHERE;
                } else {
                    take(&mut self.left[team], *place, demand);
                }
            }
            self.enter(group, number(group), places);
        }
    }

    /// Places a relay beside a group, where that one's slot is still to come and has room. Returns whether
    /// there was such a slot.
    fn place_beside(
        &mut self,
        head: u32,
        relay: usize,
        needs: &[BytesPerSec],
        from_slot: u32,
    ) -> bool {
        let begin = self.schedule.groups().len();
        let most = most(&self.schedule.rules);
        self.schedule.grouped.join(vec![relay], needs, &self.relays, most);
        let Some(group) = self.schedule.groups().get(begin) else { return true };
        let demand = group.demand();
        let mut places = vec![NOWHERE; self.teams().len()];
        for (team, place) in places.iter_mut().enumerate() {
            let slot = self.schedule.slot(head as usize, team).filter(|&slot| slot >= from_slot);
            let with_room = slot.filter(|&slot| self.first[team].left(slot) >= demand);
            if let Some(slot) = with_room.filter(|_| !self.was_measured(number(relay), team)) {
                self.first[team].take(slot, demand);
                take(&mut self.left[team], slot, demand);
                *place = slot;
            }
        }
        let has_place = places.iter().any(|&slot| slot != NOWHERE);
        self.enter(begin, head, places);
        has_place
    }

    /// Notes where a new group is measured.
    fn enter(&mut self, group: usize, head: u32, places: Vec<u32>) {
        for &member in &self.schedule.groups()[group].members {
            self.group_of[member as usize] = number(group);
        }
        self.beside.push(head);
        self.schedule.places.extend(places);
    }

    /// Whether a team had measured a relay before it went and came again.
    fn was_measured(&self, relay: u32, team: usize) -> bool {
        let mut relay = relay;
        while let Some(&before) = self.before.get(&relay) {
            relay = before;
            let slot = self.schedule.slot(self.group_of[relay as usize] as usize, team);
            if slot.is_some_and(|slot| !self.is_gone(relay, slot)) {
                return true;
            }
        }
        false
    }

    /// Gives room of a slot back.
    fn give(&mut self, team: usize, slot: u32, demand: u64) {
        if let Some(left) = self.left[team].get_mut(slot as usize) {
            *left = left.saturating_add(demand);
        }
        if !self.kept(team).has(slot) {
            self.first[team].give(slot, demand);
        }
    }

    /// The slots that a team keeps.
    fn kept(&self, team: usize) -> Kept {
        Kept::of(team, self.teams().len(), self.schedule.slots())
    }
}

/// Takes this much of a slot.
fn take(left: &mut [u64], slot: u32, demand: u64) {
    if let Some(left) = left.get_mut(slot as usize) {
        *left = left.saturating_sub(demand);
    }
}

/// What a schedule leaves of a team in each slot.
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
