//! Assigns relays to slots and measurers (FlashFlow, §4.3).
//!
//! Old relays come first, in descending order of demand: for each coordinator a random slot is
//! drawn from all that have room and in which no other coordinator measures them. New relays come
//! after them, each in the first slot with room, in the order of the module `queue`.

use std::borrow::Borrow;
use std::cmp::Reverse;

use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::allocate::{MeasurerShare, allocate};
use super::kept::Kept;
use super::queue::Served;
use super::room::{FirstFit, Rooms};
use super::seed::Draws;
use super::{ScheduledRelay, Team};

pub(super) mod groups;

pub use groups::{Age, Group, Shortage};
use groups::{Grouped, least};

/// The value for no slot.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The teams and rules of a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleRules {
    /// The coordinators with their teams, in any order.
    pub teams: Vec<Team>,
    /// The number of slots in the period.
    pub slots: u32,
    /// The seed of the period.
    pub seed: [u8; 32],
    /// z0 of new relays.
    pub new_guess: BytesPerSec,
    /// The parameters for f.
    pub params: Params,
}

/// A coordinator's measurement of a relay in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The relay's index in the list.
    pub relay: u32,
    /// The measurers' shares.
    pub shares: Vec<MeasurerShare>,
}

/// A period's schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The rules, with the teams sorted by their coordinators' identities.
    pub(super) rules: ScheduleRules,
    /// The groups, and the relays that cannot be measured with their demand.
    pub(super) grouped: Grouped,
    /// The slot of each group and team.
    pub(super) places: Vec<u32>,
}

impl Schedule {
    /// The schedule of these relays, each listed once. Their order matters only for new relays
    /// whose networks have got the same capacity.
    #[must_use]
    pub fn new(relays: &[ScheduledRelay], mut rules: ScheduleRules) -> Self {
        rules.teams.sort_by_key(|team| team.coordinator);
        let grouped = Grouped::of(relays, &rules);
        let groups = &grouped.groups;
        let capacities = rules.teams.iter().map(|team| team.capacity().get());
        let mut rooms: Vec<_> =
            capacities.map(|capacity| Rooms::new(rules.slots, capacity)).collect();
        let mut places = vec![NOWHERE; groups.len() * rules.teams.len()];
        if !rules.teams.is_empty() {
            let old = groups.iter().take_while(|group| group.age != Age::New);
            for (group, places) in old.zip(places.chunks_mut(rules.teams.len())) {
                draw(group, places, &mut rooms, relays, &rules);
            }
        }
        let (teams, slots) = (rules.teams.len(), rules.slots);
        let kept = |team| Kept::of(team, teams, slots);
        let rooms = rooms.into_iter().enumerate();
        let mut rooms: Vec<_> = rooms.map(|(team, room)| room.into_first_fit(kept(team))).collect();
        let drawn = groups.partition_point(|group| group.age != Age::New);
        let waiting: Vec<_> = groups[drawn..].iter().map(|group| group.waiting(relays)).collect();
        for index in Served::default().order(&waiting) {
            let begin = (drawn + index) * teams;
            let places = &mut places[begin..begin + teams];
            place_first(&vec![Some(waiting[index].demand); teams], places, &mut rooms, 0);
        }
        Self { rules, grouped, places }
    }

    /// The shortest schedule: each group in the first slot with room, the greatest demand first
    /// (FlashFlow, §7). It has as many slots as needed. Several coordinators may measure a relay in
    /// the same slot.
    #[must_use]
    pub fn greedy<R: Borrow<ScheduledRelay>>(relays: &[R], mut rules: ScheduleRules) -> Self {
        rules.teams.sort_by_key(|team| team.coordinator);
        let grouped = Grouped::of(relays, &rules);
        let groups = &grouped.groups;
        let demands: Vec<_> = groups.iter().map(|group| BytesPerSec::new(group.demand())).collect();
        let teams = rules.teams.len();
        let mut places = vec![NOWHERE; groups.len() * teams];
        rules.slots = 0;
        for (number, team) in rules.teams.iter().enumerate() {
            let (slots, count) = pack(&demands, team.capacity());
            for (place, slot) in places.iter_mut().skip(number).step_by(teams).zip(slots) {
                *place = slot.unwrap_or(NOWHERE);
            }
            rules.slots = rules.slots.max(count);
        }
        Self { rules, grouped, places }
    }

    /// The teams, sorted by their coordinators' identities.
    #[must_use]
    pub fn teams(&self) -> &[Team] {
        &self.rules.teams
    }

    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.grouped.groups
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.rules.slots
    }

    /// Relays for which a team has no room, by index in the list, once for each such team.
    pub fn without_room(&self) -> impl Iterator<Item = u32> {
        let groups = 0..self.grouped.groups.len() * self.rules.teams.len();
        let without = groups.filter(|&place| self.places[place] == NOWHERE);
        without.flat_map(|place| {
            self.grouped.groups[place / self.rules.teams.len()].members.iter().copied()
        })
    }

    /// Relays for which this team has no room in any slot although its capacity would be enough, by
    /// index in the list.
    pub fn without_room_of(&self, team: usize) -> impl Iterator<Item = u32> {
        self.without_place(team, |demand, capacity| demand <= capacity)
            .flat_map(|group| group.members.iter().copied())
    }

    /// Relays of groups that need more than this team has, but not more than the greatest team:
    /// only others measure them.
    pub fn too_much_for(&self, team: usize) -> impl Iterator<Item = Shortage> {
        self.without_place(team, |demand, capacity| demand > capacity).flat_map(|group| {
            let given = BytesPerSec::new(0);
            let all = group.members.iter().zip(&group.demands);
            all.map(move |(&relay, &needs)| Shortage { relay, needs, given })
        })
    }

    /// Groups without a slot of this team, selected by their demand and its capacity.
    fn without_place(
        &self,
        team: usize,
        is_such: impl Fn(u64, u64) -> bool,
    ) -> impl Iterator<Item = &Group> {
        let capacity = self.rules.teams.get(team).map(|team| team.capacity().get());
        let groups = self.grouped.groups.iter().enumerate();
        let without = groups.filter(move |&(group, _)| self.slot(group, team).is_none());
        without
            .map(|(_, group)| group)
            .filter(move |group| capacity.is_some_and(|capacity| is_such(group.demand(), capacity)))
    }

    /// The slot in which a team measures a group; `None` without room.
    #[must_use]
    pub fn slot(&self, group: usize, team: usize) -> Option<u32> {
        let teams = self.rules.teams.len();
        let place = (team < teams).then(|| self.places.get(group * teams + team)).flatten();
        place.copied().filter(|&slot| slot != NOWHERE)
    }

    /// Relays that need more than any team has.
    #[must_use]
    pub fn too_fast(&self) -> &[Shortage] {
        &self.grouped.too_fast
    }

    /// Relays that are measured with less than they need, because the relays on their addresses
    /// together need more than any team has.
    #[must_use]
    pub fn capped(&self) -> &[Shortage] {
        &self.grouped.capped
    }

    /// For each slot the groups that a team measures in it, in the order in which they were placed.
    #[must_use]
    pub fn by_slot(&self, team: usize) -> Vec<Vec<usize>> {
        let mut slots = vec![Vec::new(); self.rules.slots as usize];
        for group in 0..self.grouped.groups.len() {
            if let Some(slot) = self.slot(group, team) {
                slots[slot as usize].push(group);
            }
        }
        slots
    }

    /// The shares of a team's measurers in a slot with these groups.
    #[must_use]
    pub fn assignments(&self, team: usize, groups: &[usize]) -> Vec<Assignment> {
        let groups = groups.iter().filter_map(|&group| self.grouped.groups.get(group));
        let tasks = groups.flat_map(|group| group.members.iter().zip(&group.demands));
        self.assign(team, tasks.map(|(&relay, &demand)| (relay, demand)))
    }

    /// The shares of a team's measurers for these relays with their demands at the same time.
    pub(super) fn assign(
        &self,
        team: usize,
        tasks: impl Iterator<Item = (u32, BytesPerSec)>,
    ) -> Vec<Assignment> {
        let measurers = self.rules.teams.get(team).map(|team| team.measurers.as_slice());
        let mut left: Vec<_> =
            measurers.unwrap_or_default().iter().map(|measurer| measurer.capacity).collect();
        tasks
            .filter_map(|(relay, demand)| {
                Some(Assignment { relay, shares: allocate(&mut left, demand)? })
            })
            .collect()
    }
}

/// Draws a slot for an old group and each team.
fn draw(
    group: &Group,
    places: &mut [u32],
    rooms: &mut [Rooms],
    relays: &[ScheduledRelay],
    rules: &ScheduleRules,
) {
    let demand = group.demand();
    let name = least(&group.members, relays);
    for (team, (room, coordinator)) in
        rooms.iter_mut().zip(rules.teams.iter().map(|team| &team.coordinator)).enumerate()
    {
        let mut draws = Draws::new(&rules.seed, &name, coordinator);
        if let Some(slot) = room.draw(demand, &places[..team], |count| draws.below(count)) {
            places[team] = slot;
            room.take(slot, demand);
        }
    }
}

/// Gives a group with these demands the first slots with room from this one on, a different slot
/// for each team. A team with demand 0 gets none.
pub(super) fn place_first(
    demands: &[Option<u64>],
    places: &mut [u32],
    rooms: &mut [FirstFit],
    from: u32,
) {
    for (team, (room, demand)) in rooms.iter_mut().zip(demands).enumerate() {
        let Some(demand) = demand.map(|demand| demand.max(1)) else { continue };
        let mut slot = room.first(from, demand);
        while let Some(taken) = slot.filter(|slot| places.contains(slot)) {
            slot = room.first(taken + 1, demand);
        }
        if let Some(slot) = slot {
            places[team] = slot;
            room.take(slot, demand);
        }
    }
}

/// Packs demands into few slots by putting each, the greatest first, into the first slot with room
/// (first fit decreasing): the shortest time in which a team could measure all (FlashFlow, §7).
/// Returns the slot of each, `None` for a demand above the capacity, and the number of slots.
#[must_use]
pub fn pack(demands: &[BytesPerSec], capacity: BytesPerSec) -> (Vec<Option<u32>>, u32) {
    let capacity = capacity.get();
    let fitting = || demands.iter().map(|demand| demand.get()).filter(|&one| one <= capacity);
    let total: u128 = fitting().map(u128::from).sum();
    // All slots but one are more than half full.
    let most = (2 * total / u128::from(capacity.max(1))).min(fitting().count() as u128) + 1;
    let mut room = FirstFit::new(&vec![capacity; usize::try_from(most).unwrap_or(0)]);
    let mut order: Vec<_> =
        demands.iter().enumerate().map(|(index, demand)| (Reverse(demand.get()), index)).collect();
    order.sort_unstable();
    let (mut slots, mut count) = (vec![None; demands.len()], 0);
    for (Reverse(demand), index) in order {
        if let Some(slot) = room.first(0, demand.max(1)) {
            room.take(slot, demand);
            slots[index] = Some(slot);
            count = count.max(slot + 1);
        }
    }
    (slots, count)
}

#[cfg(test)]
mod tests;
