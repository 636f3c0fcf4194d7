//! Relays that join during the period.
//!
//! ```text
//!   come ─┬─ belong to nobody who is here ───────────────▶ a group of their own ─┐
//!         ├─ belong to a group that waits for its slots ─▶ part of it ───────────┼─▶ queue ─▶ first slots with room
//!         │                       groups that wait, without their slots ─────────┘
//!         ├─ belong to a group that is measured ─────────▶ measured with it, if its slot is to come and has room
//!         ├─ belong to several ──────────────────────────▶ the next period
//!         └─ come again, measured by all teams ──────────▶ the next period
//! ```
//!
//! A group waits for its slots as long as no coordinator has measured it: until its first slot
//! begins, its slots may move when relays join whose turn is earlier. After that none of them
//! moves, so a coordinator that repeats a measurement never meets another one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::slice;

use ff_proto::units::BytesPerSec;

use super::{Added, Timetable, take};
use crate::period::ScheduledRelay;
use crate::period::group::together;
use crate::period::queue::{Served, Waiting};
use crate::period::schedule::groups::{most, need, number};
use crate::period::schedule::{NOWHERE, place_first};
use crate::period::seed::mixed;

/// Groups that are measured together and were not drawn when the period began.
struct Unit {
    /// The groups.
    groups: Vec<usize>,
    /// Their entry in the queue.
    waiting: Waiting,
    /// Whether they wait.
    is_waiting: bool,
}

/// Units by their heads, computed once for all relays that join together.
type Units = BTreeMap<u32, Unit>;

impl Timetable {
    /// Adds relays of a later consensus, except those that are known and have not left. They join
    /// at the same time, so the seed determines their order.
    pub fn add(&mut self, relays: Vec<ScheduledRelay>, from_slot: u32) -> Added {
        let begin = self.relays.len();
        self.admit(relays);
        if self.relays.len() == begin {
            return Added::default();
        }
        let needs: Vec<_> =
            self.relays.iter().map(|relay| need(relay, &self.schedule.rules)).collect();
        let mut units = self.take_back(from_slot);
        let mut waiting = Vec::new();
        for (new, heads) in self.sets_of_new(begin) {
            let (done, new): (Vec<_>, Vec<_>) =
                new.into_iter().partition(|&relay| self.is_done(number(relay)));
            waiting.extend(done.into_iter().map(number));
            waiting.extend(match heads[..] {
                [] => self.found(&mut units, new, &needs),
                [head] => match units.get_mut(&head) {
                    Some(unit) if unit.is_waiting => self.join_waiting(head, unit, new, &needs),
                    unit => self.place_beside(head, unit, new, &needs, from_slot),
                },
                _ => new.into_iter().map(number).collect(),
            });
        }
        self.place(&units, from_slot);
        Added { relays: (begin..self.relays.len()).map(number).collect(), waiting }
    }

    /// Adds unknown relays to the list, in their order.
    fn admit(&mut self, relays: Vec<ScheduledRelay>) {
        let mut listed = HashSet::new();
        let mut new: Vec<ScheduledRelay> = relays
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

    /// Sets of relays from this number on that belong together, each with the heads of the existing
    /// groups to which it belongs.
    fn sets_of_new(&self, begin: usize) -> Vec<(Vec<usize>, Vec<u32>)> {
        let mut sets: Vec<_> = together(&self.relays)
            .into_iter()
            .filter(|set| set.last().is_some_and(|&last| last >= begin))
            .map(|set| {
                let new = set.partition_point(|&member| member < begin);
                (set[new..].to_vec(), self.heads(&set[..new]))
            })
            .collect();
        sets.sort_unstable_by_key(|(new, _)| new.first().copied());
        sets
    }

    /// The heads of the groups of those of these relays that have a group and have not left.
    fn heads(&self, relays: &[usize]) -> Vec<u32> {
        let here = relays.iter().filter(|&&relay| !self.gone.contains_key(&number(relay)));
        let groups = here.map(|&relay| self.group_of[relay]).filter(|&group| group != NOWHERE);
        let heads: BTreeSet<u32> = groups.map(|group| self.beside[group as usize]).collect();
        heads.into_iter().collect()
    }

    /// Takes back the slots of all groups that have not begun with any coordinator.
    fn take_back(&mut self, from_slot: u32) -> Units {
        let mut by_head = BTreeMap::<u32, Vec<usize>>::new();
        for group in self.drawn..self.beside.len() {
            by_head.entry(self.beside[group]).or_default().push(group);
        }
        by_head.retain(|&head, _| head as usize >= self.drawn);
        let unit = |(head, groups): (u32, Vec<usize>)| {
            let is_waiting = self.can_wait(&groups, from_slot);
            let waiting = self.waiting(&groups);
            if is_waiting {
                self.clear_places(&groups);
            }
            (head, Unit { groups, waiting, is_waiting })
        };
        by_head.into_iter().map(unit).collect()
    }

    /// Returns the room of groups that have not begun with any coordinator.
    fn clear_places(&mut self, groups: &[usize]) {
        let teams = self.teams().len();
        for &group in groups {
            let here = self.members(slice::from_ref(&group));
            let here = here.filter(|(relay, _)| !self.gone.contains_key(relay));
            let demand: BytesPerSec = here.map(|(_, demand)| demand).sum();
            for team in 0..teams {
                if let Some(slot) = self.schedule.slot(group, team) {
                    self.give(team, slot, demand.get());
                    self.schedule.places[group * teams + team] = NOWHERE;
                }
            }
        }
    }

    /// Whether groups that are measured together have not begun with any coordinator before this
    /// slot, and have relays that have not left.
    fn can_wait(&self, groups: &[usize], from_slot: u32) -> bool {
        let has_begun = groups.iter().any(|&group| {
            let mut slots =
                (0..self.teams().len()).filter_map(|team| self.schedule.slot(group, team));
            slots.any(|slot| slot < from_slot)
        });
        let mut gone = self.members(groups).map(|(relay, _)| self.gone.get(&relay));
        let mut is_here = false;
        // The room of a relay that leaves later is not free before.
        let are_clear = gone.all(|gone| {
            is_here |= gone.is_none();
            gone.is_none_or(|&from| from <= from_slot)
        });
        !has_begun && are_clear && is_here
    }

    /// The relays of groups, with their demands.
    fn members(&self, groups: &[usize]) -> impl Iterator<Item = (u32, BytesPerSec)> {
        let groups = groups.iter().map(|&group| &self.schedule.groups()[group]);
        groups.flat_map(|group| group.members.iter().copied().zip(group.demands.iter().copied()))
    }

    /// The queue entry of groups that are measured together, without relays that have left.
    fn waiting(&self, groups: &[usize]) -> Waiting {
        let mut waiting = Waiting { first: NOWHERE, demand: 0, addresses: Vec::new() };
        let teams = 0..self.teams().len();
        let first_slot = teams.filter_map(|team| self.slot_of(groups, team)).min();
        let first_slot = first_slot.unwrap_or(NOWHERE);
        let here = self.members(groups).filter(|(relay, _)| !self.is_gone(*relay, first_slot));
        for (relay, demand) in here {
            waiting.join(relay, demand.get(), &self.relays[relay as usize].addresses);
        }
        waiting
    }

    /// The slot in which a team measures groups that are measured together; none for a group that
    /// it measured earlier.
    fn slot_of(&self, groups: &[usize], team: usize) -> Option<u32> {
        groups.iter().find_map(|&group| self.schedule.slot(group, team))
    }

    /// Makes groups of relays that belong to no existing group. Returns those that wait for the
    /// next period.
    fn found(&mut self, units: &mut Units, relays: Vec<usize>, needs: &[BytesPerSec]) -> Vec<u32> {
        // A relay that some team has measured is a group of its own, because that team measures
        // only the others.
        let (mut again, mut new): (Vec<_>, Vec<_>) =
            relays.into_iter().partition(|&relay| self.was_measured_by_any(number(relay)));
        if new.is_empty() && !again.is_empty() {
            new.push(again.remove(0));
        }
        let begin = self.schedule.groups().len();
        let most = most(&self.schedule.rules);
        self.schedule.grouped.join(new, needs, &self.relays, most);
        let end = self.schedule.groups().len();
        for group in begin..end {
            let head = number(group);
            self.enter(group, head, vec![NOWHERE; self.teams().len()]);
            let (groups, waiting) = (vec![group], self.waiting(&[group]));
            units.insert(head, Unit { groups, waiting, is_waiting: true });
        }
        let head = number(begin);
        match units.get_mut(&head) {
            Some(unit) if end == begin + 1 => self.join_waiting(head, unit, again, needs),
            _ => again.into_iter().map(number).collect(),
        }
    }

    /// Adds relays to a waiting group, as long as some team has enough for all. Returns those that
    /// are too many.
    fn join_waiting(
        &mut self,
        head: u32,
        unit: &mut Unit,
        new: Vec<usize>,
        needs: &[BytesPerSec],
    ) -> Vec<u32> {
        let most = most(&self.schedule.rules);
        let mut too_many = Vec::new();
        for relay in new {
            let with_it = unit.waiting.demand.saturating_add(needs[relay].get());
            if needs[relay] <= most && with_it > most.get() {
                too_many.push(number(relay));
                continue;
            }
            let group = self.schedule.groups().len();
            self.schedule.grouped.join(vec![relay], needs, &self.relays, most);
            // A relay that is too fast for every team has no group.
            if group < self.schedule.groups().len() {
                self.enter(group, head, vec![NOWHERE; self.teams().len()]);
                self.join_unit(unit, group);
            }
        }
        too_many
    }

    /// Adds a new group to those with which it is measured.
    fn join_unit(&self, unit: &mut Unit, group: usize) {
        unit.groups.push(group);
        for (relay, demand) in self.members(&[group]) {
            unit.waiting.join(relay, demand.get(), &self.relays[relay as usize].addresses);
        }
    }

    /// Places relays in a group's slot if that is still to come and has room. Returns those that
    /// could not be placed.
    fn place_beside(
        &mut self,
        head: u32,
        mut unit: Option<&mut Unit>,
        mut new: Vec<usize>,
        needs: &[BytesPerSec],
        from_slot: u32,
    ) -> Vec<u32> {
        let of_head = [head as usize];
        let groups = unit.as_ref().map_or(&of_head[..], |unit| &unit.groups[..]);
        let slots = (0..self.teams().len()).map(|team| self.slot_of(groups, team));
        let slots: Vec<_> = slots.map(|slot| slot.filter(|&slot| slot >= from_slot)).collect();
        let most = most(&self.schedule.rules);
        new.retain(|&relay| {
            let group = self.schedule.groups().len();
            self.schedule.grouped.join(vec![relay], needs, &self.relays, most);
            let Some(demand) = self.schedule.groups().get(group).map(|group| group.demand()) else {
                return false;
            };
            let mut places = vec![NOWHERE; slots.len()];
            for (team, (place, slot)) in places.iter_mut().zip(&slots).enumerate() {
                let with_room = slot.filter(|&slot| self.first[team].left(slot) >= demand);
                if let Some(slot) = with_room.filter(|_| !self.was_measured(number(relay), team)) {
                    self.first[team].take(slot, demand);
                    take(&mut self.left[team], slot, demand);
                    *place = slot;
                }
            }
            let has_place = places.iter().any(|&slot| slot != NOWHERE);
            self.enter(group, head, places);
            if let Some(unit) = &mut unit {
                self.join_unit(unit, group);
            }
            !has_place
        });
        new.into_iter().map(number).collect()
    }

    /// Gives waiting groups slots from this one on, in the order of the queue.
    fn place(&mut self, units: &Units, from_slot: u32) {
        let (waiting, served): (Vec<_>, Vec<_>) = units.values().partition(|unit| unit.is_waiting);
        let mut given = Served::default();
        for unit in served {
            given.add(&unit.waiting);
        }
        let turns: Vec<_> = waiting.iter().map(|unit| &unit.waiting).collect();
        for index in given.order(&turns) {
            self.place_together(&waiting[index].groups, from_slot);
        }
    }

    /// Gives groups that are measured together the first slots with room: each team for those that
    /// it has not measured.
    fn place_together(&mut self, groups: &[usize], from_slot: u32) {
        let teams = self.teams().len();
        let is_open =
            |relay, team| !self.gone.contains_key(&relay) && !self.was_measured(relay, team);
        let demand = |team| {
            let open = self.members(groups).filter(|(relay, _)| is_open(*relay, team));
            open.map(|(_, demand)| demand.get()).reduce(u64::saturating_add)
        };
        let demands: Vec<_> = (0..teams).map(demand).collect();
        let mut places = vec![NOWHERE; teams];
        place_first(&demands, &mut places, &mut self.first, from_slot);
        for (team, &slot) in places.iter().enumerate().filter(|(_, slot)| **slot != NOWHERE) {
            take(&mut self.left[team], slot, demands[team].unwrap_or_default());
            for &group in groups {
                // No relay in a group of several was measured before.
                let first = self.schedule.groups()[group].members[0];
                if !self.was_measured(first, team) {
                    self.schedule.places[group * teams + team] = slot;
                }
            }
        }
    }

    /// Adds a new group with its slots.
    fn enter(&mut self, group: usize, head: u32, places: Vec<u32>) {
        for &member in &self.schedule.groups()[group].members {
            self.group_of[member as usize] = number(group);
        }
        self.beside.push(head);
        self.schedule.places.extend(places);
    }

    /// Whether every team had measured a relay before it left and joined again.
    fn is_done(&self, relay: u32) -> bool {
        self.before.contains_key(&relay)
            && (0..self.teams().len()).all(|team| self.was_measured(relay, team))
    }

    /// Whether any team had measured a relay before it left and joined again.
    fn was_measured_by_any(&self, relay: u32) -> bool {
        (0..self.teams().len()).any(|team| self.was_measured(relay, team))
    }

    /// Whether a team had measured a relay before it left and joined again.
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
}
