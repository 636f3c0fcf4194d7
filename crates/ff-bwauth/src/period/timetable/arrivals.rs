//! Relays that come during the period.
//!
//! ```text
//!   come ─┬─ belong to nobody who is here ───────────────▶ a group of their own ─┐
//!         ├─ belong to a group that waits for its slots ─▶ part of it ───────────┼─▶ queue ─▶ first slots with room
//!         │                       groups that wait, without their slots ─────────┘
//!         ├─ belong to a group that is measured ─────────▶ measured with it, if its slot is to come and has room
//!         └─ belong to several ──────────────────────────▶ the next period
//! ```
//!
//! A group waits for its slots as long as no coordinator has measured it: until its first slot begins, its slots may move
//! when others come whose turn is before its own. From then on none of them moves, so nobody who measures it again
//! meets another coordinator.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ff_proto::units::BytesPerSec;

use super::{Added, Timetable, take};
use crate::period::Relay;
use crate::period::group::together;
use crate::period::queue::{Served, Waiting};
use crate::period::schedule::groups::{most, need, number};
use crate::period::schedule::{NOWHERE, place_first};
use crate::period::seed::mixed;

/// Groups by the one that they are measured with, which is in general itself.
type ByHead = BTreeMap<u32, Vec<usize>>;

impl Timetable {
    /// Adds relays of a later consensus. Those that are known and have not gone are left out. They have come at the same
    /// time, so it is the seed that puts them in order.
    pub fn add(&mut self, relays: Vec<Relay>, from_slot: u32) -> Added {
        let begin = self.relays.len();
        self.admit(relays);
        if self.relays.len() == begin {
            return Added::default();
        }
        let needs: Vec<_> =
            self.relays.iter().map(|relay| need(relay, &self.schedule.rules)).collect();
        let mut queue = self.take_back(from_slot);
        let mut waiting = Vec::new();
        for (new, heads) in self.sets_of_new(begin) {
            match heads.as_slice() {
                [] => queue.extend(self.found(new, &needs)),
                [head] if queue.contains(head) => {
                    waiting.extend(self.join_waiting(*head, new, &needs));
                }
                [head] => {
                    let mut new = new;
                    new.retain(|&member| !self.place_beside(*head, member, &needs, from_slot));
                    waiting.extend(new.into_iter().map(number));
                }
                _ => waiting.extend(new.into_iter().map(number)),
            }
        }
        self.place(&queue, from_slot);
        Added { relays: (begin..self.relays.len()).map(number).collect(), waiting }
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

    /// Relays from this number on in sets that belong together, each with the heads of the groups here that it belongs to.
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

    /// Beside which groups these relays are measured that have groups and have not gone.
    fn heads(&self, relays: &[usize]) -> Vec<u32> {
        let here = relays.iter().filter(|&&relay| !self.gone.contains_key(&number(relay)));
        let groups = here.map(|&relay| self.group_of[relay]).filter(|&group| group != NOWHERE);
        let heads: BTreeSet<u32> = groups.map(|group| self.beside[group as usize]).collect();
        heads.into_iter().collect()
    }

    /// Groups that were not drawn when the period began, by their heads.
    fn queued(&self) -> ByHead {
        let mut queued = ByHead::new();
        for group in self.drawn..self.beside.len() {
            queued.entry(self.beside[group]).or_default().push(group);
        }
        queued.retain(|&head, _| head as usize >= self.drawn);
        queued
    }

    /// Takes the slots of all groups back that have begun nowhere, and returns their heads.
    fn take_back(&mut self, from_slot: u32) -> BTreeSet<u32> {
        let again: HashSet<u32> = self.again.iter().map(|again| again.head).collect();
        let mut queue = BTreeSet::new();
        for (head, groups) in self.queued() {
            if again.contains(&head) || !self.can_wait(&groups, from_slot) {
                continue;
            }
            let demand = self.waiting(&groups).demand;
            for team in 0..self.teams().len() {
                if let Some(slot) = self.schedule.slot(head as usize, team) {
                    self.give(team, slot, demand);
                }
            }
            self.set_places(&groups, &vec![NOWHERE; self.teams().len()]);
            queue.insert(head);
        }
        queue
    }

    /// Whether groups that are measured together have begun nowhere before this slot, and not all of their relays have gone.
    fn can_wait(&self, groups: &[usize], from_slot: u32) -> bool {
        let has_begun = groups.iter().any(|&group| {
            let mut slots =
                (0..self.teams().len()).filter_map(|team| self.schedule.slot(group, team));
            slots.any(|slot| slot < from_slot)
        });
        let mut gone = self.members(groups).map(|(relay, _)| self.gone.get(&relay));
        let mut is_here = false;
        // Room of a relay that goes later is not free before.
        let are_clear = gone.all(|gone| {
            is_here |= gone.is_none();
            gone.is_none_or(|&from| from <= from_slot)
        });
        !has_begun && are_clear && is_here
    }

    /// Relays of groups, and what each is measured with.
    fn members(&self, groups: &[usize]) -> impl Iterator<Item = (u32, BytesPerSec)> {
        let groups = groups.iter().map(|&group| &self.schedule.groups()[group]);
        groups.flat_map(|group| group.members.iter().copied().zip(group.demands.iter().copied()))
    }

    /// What groups that are measured together wait for, or have been given: without relays that went before.
    fn waiting(&self, groups: &[usize]) -> Waiting {
        let mut waiting = Waiting { first: NOWHERE, demand: 0, addresses: Vec::new() };
        let teams = 0..self.teams().len();
        let head = groups.first().copied().unwrap_or_default();
        let first_slot = teams.filter_map(|team| self.schedule.slot(head, team)).min();
        let first_slot = first_slot.unwrap_or(NOWHERE);
        let here = self.members(groups).filter(|(relay, _)| !self.is_gone(*relay, first_slot));
        for (relay, demand) in here {
            waiting.first = waiting.first.min(relay);
            waiting.demand = waiting.demand.saturating_add(demand.get());
            waiting.addresses.extend(&self.relays[relay as usize].addresses);
        }
        waiting
    }

    /// Makes groups of relays that belong to no others.
    fn found(&mut self, members: Vec<usize>, needs: &[BytesPerSec]) -> Vec<u32> {
        let (begin, most) = (self.schedule.groups().len(), most(&self.schedule.rules));
        self.schedule.grouped.join(members, needs, &self.relays, most);
        let new = begin..self.schedule.groups().len();
        new.map(|group| {
            self.enter(group, number(group), vec![NOWHERE; self.teams().len()]);
            number(group)
        })
        .collect()
    }

    /// Has relays wait with a group that waits, as long as some team has enough for all. Returns those that are too many.
    fn join_waiting(&mut self, head: u32, new: Vec<usize>, needs: &[BytesPerSec]) -> Vec<u32> {
        let most = most(&self.schedule.rules);
        let groups = 0..self.beside.len();
        let together: Vec<_> = groups.filter(|&group| self.beside[group] == head).collect();
        let mut demand = self.waiting(&together).demand;
        let mut too_many = Vec::new();
        for relay in new {
            let with_it = demand.saturating_add(needs[relay].get());
            if needs[relay] <= most && with_it > most.get() {
                too_many.push(number(relay));
                continue;
            }
            let group = self.schedule.groups().len();
            self.schedule.grouped.join(vec![relay], needs, &self.relays, most);
            // One that is too fast for every team has no group.
            if group < self.schedule.groups().len() {
                demand = with_it;
                self.enter(group, head, vec![NOWHERE; self.teams().len()]);
            }
        }
        too_many
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

    /// Gives the groups of a queue slots from this one on, in the order of their turns.
    fn place(&mut self, queue: &BTreeSet<u32>, from_slot: u32) {
        let (waiting, served): (ByHead, ByHead) =
            self.queued().into_iter().partition(|(head, _)| queue.contains(head));
        let mut given = Served::default();
        for groups in served.values() {
            given.add(&self.waiting(groups));
        }
        let groups: Vec<_> = waiting.into_values().collect();
        let turns: Vec<_> = groups.iter().map(|groups| self.waiting(groups)).collect();
        for index in given.order(&turns) {
            self.place_together(&groups[index], turns[index].demand, from_slot);
        }
    }

    /// Gives groups that are measured together the first slots with room.
    fn place_together(&mut self, groups: &[usize], demand: u64, from_slot: u32) {
        let mut places = vec![NOWHERE; self.teams().len()];
        place_first(demand, &mut places, &mut self.first, from_slot);
        let here: Vec<u32> = self.members(groups).map(|(relay, _)| relay).collect();
        for (team, place) in places.iter_mut().enumerate().filter(|(_, slot)| **slot != NOWHERE) {
            if here.iter().any(|&member| self.was_measured(member, team)) {
                self.first[team].give(*place, demand);
                *place = NOWHERE;
            } else {
                take(&mut self.left[team], *place, demand);
            }
        }
        self.set_places(groups, &places);
    }

    /// Notes where groups are measured.
    fn set_places(&mut self, groups: &[usize], places: &[u32]) {
        for &group in groups {
            let begin = group * places.len();
            self.schedule.places[begin..begin + places.len()].copy_from_slice(places);
        }
    }

    /// Notes a new group, and where it is measured.
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
}
