//! Which relays are measured in which slot, by whom (paper §4.3).
//!
//! Old relays come first, those with the greatest demand in front: for each coordinator a slot is drawn
//! among all that have room and in which no other coordinator measures them. New ones come behind, each in
//! the first slot with room.

use std::cmp::Reverse;

use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::allocate::{Share, allocate};
use super::room::{FirstFit, Rooms};
use super::seed::Draws;
use super::{Fingerprint, Relay, Team, demand, group, guess};

/// Stands for no slot.
const NOWHERE: u32 = u32::MAX;

/// Whose schedule, and by which rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The coordinators with their teams. Their order does not matter.
    pub teams: Vec<Team>,
    /// Slots in the period.
    pub slots: u32,
    /// The seed of the period.
    pub seed: [u8; 32],
    /// z0 of new relays.
    pub new_guess: BytesPerSec,
    /// For f.
    pub params: Params,
}

/// Relays that are measured at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which relays of the list.
    pub members: Vec<u32>,
    /// What each of them needs.
    pub demands: Vec<BytesPerSec>,
    /// Which of them have an estimate.
    pub age: Age,
}

/// Whether a group's relays have estimates, in the order in which groups are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// All have.
    Old,
    /// Some have.
    Mixed,
    /// None has.
    New,
}

impl Age {
    /// That of a group with so many new relays.
    fn of(new: usize, members: usize) -> Self {
        match new {
            0 => Self::Old,
            new if new < members => Self::Mixed,
            _ => Self::New,
        }
    }
}

impl Group {
    /// What all of them need.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.demands.iter().copied().sum::<BytesPerSec>().get()
    }
}

/// What one coordinator measures in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which relay of the list.
    pub relay: u32,
    /// With what.
    pub shares: Vec<Share>,
}

/// A period's schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// By which rules; the teams by their coordinators' identities.
    rules: Rules,
    /// What is measured together.
    groups: Vec<Group>,
    /// A slot for each group and team.
    places: Vec<u32>,
    /// Relays that need more than any team has, by their place in the list.
    too_fast: Vec<u32>,
}

impl Schedule {
    /// The schedule of these relays, each listed once. In which order they are listed matters only for
    /// new ones: first come, first served.
    #[must_use]
    pub fn new(relays: &[Relay], mut rules: Rules) -> Self {
        rules.teams.sort_by_key(|team| team.coordinator);
        let (groups, too_fast) = make_groups(relays, &rules);
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
        let mut rooms: Vec<_> = rooms.into_iter().map(Rooms::into_first_fit).collect();
        if !rules.teams.is_empty() {
            let all = groups.iter().zip(places.chunks_mut(rules.teams.len()));
            for (group, places) in all.filter(|(group, _)| group.age == Age::New) {
                place_first(group, places, &mut rooms);
            }
        }
        Self { rules, groups, places, too_fast }
    }

    /// The schedule that is over soonest: each group in the first slot with room, the greatest first
    /// (paper §7). It has as many slots as that takes. Coordinators may meet at a relay.
    #[must_use]
    pub fn greedy(relays: &[Relay], mut rules: Rules) -> Self {
        rules.teams.sort_by_key(|team| team.coordinator);
        let (groups, too_fast) = make_groups(relays, &rules);
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
        Self { rules, groups, places, too_fast }
    }

    /// The teams, in the order of their numbers here.
    #[must_use]
    pub fn teams(&self) -> &[Team] {
        &self.rules.teams
    }

    /// What is measured together.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.rules.slots
    }

    /// Relays that some team has no room for, by their place in the list, as often as teams have none.
    pub fn without_room(&self) -> impl Iterator<Item = u32> {
        let groups = 0..self.groups.len() * self.rules.teams.len();
        let without = groups.filter(|&place| self.places[place] == NOWHERE);
        without
            .flat_map(|place| self.groups[place / self.rules.teams.len()].members.iter().copied())
    }

    /// The slot in which a team measures a group; `None` where there is no room.
    #[must_use]
    pub fn slot(&self, group: usize, team: usize) -> Option<u32> {
        let place = self.places.get(group * self.rules.teams.len() + team);
        place.copied().filter(|&slot| slot != NOWHERE)
    }

    /// Relays that need more than any team has, by their place in the list.
    #[must_use]
    pub fn too_fast(&self) -> &[u32] {
        &self.too_fast
    }

    /// For each slot the groups that a team measures in it, in the order in which they were placed.
    #[must_use]
    pub fn by_slot(&self, team: usize) -> Vec<Vec<usize>> {
        let mut slots = vec![Vec::new(); self.rules.slots as usize];
        for group in 0..self.groups.len() {
            if let Some(slot) = self.slot(group, team) {
                slots[slot as usize].push(group);
            }
        }
        slots
    }

    /// What a team's measurers do in a slot with these groups.
    #[must_use]
    pub fn assignments(&self, team: usize, groups: &[usize]) -> Vec<Assignment> {
        let measurers = self.rules.teams.get(team).map(|team| team.measurers.as_slice());
        let mut left: Vec<_> =
            measurers.unwrap_or_default().iter().map(|measurer| measurer.capacity).collect();
        let groups = groups.iter().filter_map(|&group| self.groups.get(group));
        groups
            .flat_map(|group| group.members.iter().zip(&group.demands))
            .filter_map(|(&relay, &demand)| {
                Some(Assignment { relay, shares: allocate(&mut left, demand)? })
            })
            .collect()
    }
}

/// Draws a slot for an old group and each team.
fn draw(group: &Group, places: &mut [u32], rooms: &mut [Rooms], relays: &[Relay], rules: &Rules) {
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

/// Gives a new group the first slots with room, a different one for each team.
fn place_first(group: &Group, places: &mut [u32], rooms: &mut [FirstFit]) {
    let demand = group.demand().max(1);
    for (team, room) in rooms.iter_mut().enumerate() {
        let mut slot = room.first(0, demand);
        while let Some(taken) = slot.filter(|slot| places.contains(slot)) {
            slot = room.first(taken + 1, demand);
        }
        if let Some(slot) = slot {
            places[team] = slot;
            room.take(slot, demand);
        }
    }
}

/// The least fingerprint, by which a group is known.
fn least(members: &[u32], relays: &[Relay]) -> Fingerprint {
    members.iter().map(|&member| relays[member as usize].fingerprint).min().unwrap_or_default()
}

/// What is measured together, in the order in which it is placed; and which relays alone are too fast for
/// every team.
fn make_groups(relays: &[Relay], rules: &Rules) -> (Vec<Group>, Vec<u32>) {
    let most = rules.teams.iter().map(Team::capacity).max().unwrap_or_default();
    let demands: Vec<BytesPerSec> =
        relays.iter().map(|relay| demand(guess(relay, rules.new_guess), &rules.params)).collect();
    let number = |index: usize| u32::try_from(index).unwrap_or(NOWHERE);
    let is_too_fast = |index: &usize| demands[*index] > most;
    let too_fast = (0..relays.len()).filter(is_too_fast).map(number).collect();
    let mut groups = Vec::new();
    for mut members in group::together(relays) {
        members.retain(|index| !is_too_fast(index));
        let parts = if sum(&members, &demands) > most {
            divide(&members, &demands, relays, most)
        } else {
            vec![members]
        };
        groups.extend(parts.into_iter().filter(|members| !members.is_empty()).map(|members| {
            let new = members.iter().filter(|&&index| relays[index].estimate.is_none()).count();
            Group {
                age: Age::of(new, members.len()),
                demands: capped(&members, &demands, most),
                members: members.into_iter().map(number).collect(),
            }
        }));
    }
    // Those with new members come behind: else whoever adds such to an old relay would get room before the
    // others' old ones.
    groups.sort_by_cached_key(|group| {
        let old = (Reverse(group.demand()), least(&group.members, relays));
        (group.age, (group.age != Age::New).then_some(old))
    });
    (groups, too_fast)
}

/// What these relays need together.
fn sum(members: &[usize], demands: &[BytesPerSec]) -> BytesPerSec {
    members.iter().map(|&index| demands[index]).sum()
}

/// What each of these relays gets: what it needs, or of all that there is as large a part as it needs of
/// what all of them do.
fn capped(members: &[usize], demands: &[BytesPerSec], most: BytesPerSec) -> Vec<BytesPerSec> {
    let needed = sum(members, demands);
    let part = |demand: BytesPerSec| {
        let part =
            u128::from(demand.get()) * u128::from(most.get()) / u128::from(needed.get().max(1));
        BytesPerSec::new(u64::try_from(part).unwrap_or(u64::MAX))
    };
    let each = members.iter().map(|&index| demands[index]);
    if needed <= most { each.collect() } else { each.map(part).collect() }
}

/// Divides relays that no team can measure at once by hosts, as many of which as fit make a part. A host that
/// is too much by itself stays whole: its relays could each show all of it.
fn divide(
    members: &[usize],
    demands: &[BytesPerSec],
    relays: &[Relay],
    most: BytesPerSec,
) -> Vec<Vec<usize>> {
    let those: Vec<Relay> = members.iter().map(|&index| relays[index].clone()).collect();
    let (mut parts, mut left): (Vec<Vec<usize>>, u64) = (Vec::new(), 0);
    for host in group::by_address(&those) {
        let host: Vec<usize> = host.into_iter().map(|place| members[place]).collect();
        let needed = sum(&host, demands).get();
        match parts.last_mut() {
            Some(part) if needed <= left => {
                part.extend(host);
                left -= needed;
            }
            _ => {
                parts.push(host);
                left = most.get().saturating_sub(needed);
            }
        }
    }
    parts
}

/// Packs demands into as few slots as it can by putting each, the greatest first, into the first slot
/// with room (first fit decreasing): how fast a team could measure all (paper §7). Returns a slot for
/// each, `None` for what is greater than the capacity, and how many slots there are.
#[must_use]
pub fn pack(demands: &[BytesPerSec], capacity: BytesPerSec) -> (Vec<Option<u32>>, u32) {
    let capacity = capacity.get();
    let fitting = || demands.iter().map(|demand| demand.get()).filter(|&one| one <= capacity);
    let total: u128 = fitting().map(u128::from).sum();
    // All but one slot are more than half full.
    let most = (2 * total / u128::from(capacity.max(1))).min(fitting().count() as u128) + 1;
    let mut room = FirstFit::new(&vec![capacity; usize::try_from(most).unwrap_or(0)]);
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|&index| Reverse(demands[index]));
    let (mut slots, mut count) = (vec![None; demands.len()], 0);
    for index in order {
        let demand = demands[index].get();
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
