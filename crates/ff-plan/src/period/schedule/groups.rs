//! Groups of relays measured together, in the order in which they are placed.

use std::borrow::Borrow;
use std::cmp::Reverse;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;

use super::ScheduleRules;
use crate::period::queue::Waiting;
use crate::period::{ScheduledRelay, Team, demand, group, guess};

/// Relays that are measured at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The relays' indices in the list.
    pub members: Vec<u32>,
    /// The demand of each member.
    pub demands: Vec<BytesPerSec>,
    /// Whether its members have estimates.
    pub age: Age,
}

impl Group {
    /// The sum of the members' demands.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.demands.iter().copied().sum::<BytesPerSec>().get()
    }

    /// The group in the form of the queue.
    pub(super) fn waiting(&self, relays: &[ScheduledRelay]) -> Waiting {
        let members = self.members.iter().map(|&member| &relays[member as usize]);
        Waiting {
            first: self.members.first().copied().unwrap_or_default(),
            demand: self.demand(),
            addresses: members.flat_map(|relay| relay.addresses.iter().copied()).collect(),
        }
    }
}

/// Whether a group's relays have estimates, in the order in which groups are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// All have estimates.
    Old,
    /// Some have estimates.
    Mixed,
    /// None has an estimate.
    New,
}

impl Age {
    /// The age of a group with this number of new relays.
    fn of(new: usize, members: usize) -> Self {
        match new {
            0 => Self::Old,
            new if new < members => Self::Mixed,
            _ => Self::New,
        }
    }
}

/// A relay that needs more capacity than it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The relay's index in the list.
    pub relay: u32,
    /// f·z0: its demand.
    pub needs: BytesPerSec,
    /// The capacity with which it is measured; 0 if it is not measured.
    pub given: BytesPerSec,
}

/// The groups in the order in which they are placed, and the relays that cannot be measured with
/// their demand.
#[derive(Clone, Debug, Default)]
pub(in crate::period) struct Grouped {
    /// The groups.
    pub(in crate::period) groups: Vec<Group>,
    /// Relays that need more than any team has.
    pub(in crate::period) too_fast: Vec<Shortage>,
    /// Relays on addresses that together need more than any team has.
    pub(in crate::period) capped: Vec<Shortage>,
}

impl Grouped {
    /// Groups these relays.
    pub(in crate::period) fn of<R: Borrow<ScheduledRelay>>(
        relays: &[R],
        rules: &ScheduleRules,
    ) -> Self {
        let most = most(rules);
        let needs: Vec<_> = relays.iter().map(|relay| need(relay.borrow(), rules)).collect();
        let mut all = Self::default();
        for members in group::together(relays) {
            all.join(members, &needs, relays, most);
        }
        all.too_fast.sort_unstable_by_key(|shortage| shortage.relay);
        all.capped.sort_unstable_by_key(|shortage| shortage.relay);
        // Groups with new members come last: otherwise an operator who adds new relays to an old
        // one would get room before the others' old relays.
        all.groups.sort_by_cached_key(|group| {
            let old = (Reverse(group.demand()), least(&group.members, relays));
            (group.age, (group.age != Age::New).then_some(old))
        });
        all
    }

    /// Adds these relays, which must be measured together, as far as a team has enough for them.
    pub(in crate::period) fn join<R: Borrow<ScheduledRelay>>(
        &mut self,
        mut members: Vec<usize>,
        needs: &[BytesPerSec],
        relays: &[R],
        most: BytesPerSec,
    ) {
        members.retain(|&index| {
            let (relay, given) = (number(index), BytesPerSec::new(0));
            let is_too_fast = needs[index] > most;
            if is_too_fast {
                self.too_fast.push(Shortage { relay, needs: needs[index], given });
            }
            !is_too_fast
        });
        if sum(&members, needs) <= u128::from(most.get()) {
            return self.push(members, needs, relays, most);
        }
        for part in divide(&members, needs, relays, most) {
            self.push(part, needs, relays, most);
        }
    }

    /// Adds a group, if it has members.
    fn push<R: Borrow<ScheduledRelay>>(
        &mut self,
        members: Vec<usize>,
        demands: &[BytesPerSec],
        relays: &[R],
        most: BytesPerSec,
    ) {
        if members.is_empty() {
            return;
        }
        let new =
            members.iter().filter(|&&index| relays[index].borrow().estimate.is_none()).count();
        let age = Age::of(new, members.len());
        let needs: Vec<_> = members.iter().map(|&index| demands[index]).collect();
        let members: Vec<_> = members.into_iter().map(number).collect();
        let given = capped(&needs, most);
        if let Some(given) = &given {
            let all = members.iter().zip(&needs).zip(given);
            self.capped.extend(all.map(|((&relay, &needs), &given)| Shortage {
                relay,
                needs,
                given,
            }));
        }
        self.groups.push(Group { members, demands: given.unwrap_or(needs), age });
    }
}

/// The capacity of the greatest team.
pub(in crate::period) fn most(rules: &ScheduleRules) -> BytesPerSec {
    rules.teams.iter().map(Team::capacity).max().unwrap_or_default()
}

/// f·z0 of a relay.
pub(in crate::period) fn need(relay: &ScheduledRelay, rules: &ScheduleRules) -> BytesPerSec {
    demand(guess(relay, rules.new_guess), &rules.params)
}

/// An index as a number.
pub(in crate::period) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(super::NOWHERE)
}

/// The least fingerprint, which names a group.
pub(in crate::period) fn least<R: Borrow<ScheduledRelay>>(
    members: &[u32],
    relays: &[R],
) -> Fingerprint {
    members
        .iter()
        .map(|&member| relays[member as usize].borrow().fingerprint)
        .min()
        .unwrap_or_default()
}

/// The sum of these relays' demands.
fn sum(members: &[usize], demands: &[BytesPerSec]) -> u128 {
    members.iter().map(|&index| u128::from(demands[index].get())).sum()
}

/// The capacity of each relay when the sum of demands exceeds the total: in proportion to its
/// demand.
pub(in crate::period) fn capped(
    needs: &[BytesPerSec],
    most: BytesPerSec,
) -> Option<Vec<BytesPerSec>> {
    let needed: u128 = needs.iter().map(|need| u128::from(need.get())).sum();
    let most = u128::from(most.get());
    let part = |need: &BytesPerSec| u128::from(need.get()) * most / needed;
    let given = |need| BytesPerSec::new(u64::try_from(part(need)).unwrap_or(u64::MAX));
    (needed > most).then(|| needs.iter().map(given).collect())
}

/// Divides relays that no team can measure at once into parts, each of as many hosts as fit. A host
/// that is too much alone stays whole: each of its relays could show the host's whole capacity.
fn divide<R: Borrow<ScheduledRelay>>(
    members: &[usize],
    demands: &[BytesPerSec],
    relays: &[R],
    most: BytesPerSec,
) -> Vec<Vec<usize>> {
    let those: Vec<&ScheduledRelay> = members.iter().map(|&index| relays[index].borrow()).collect();
    let (mut parts, mut left): (Vec<Vec<usize>>, u128) = (Vec::new(), 0);
    for host in group::by_address(&those) {
        let host: Vec<usize> = host.into_iter().map(|place| members[place]).collect();
        let needed = sum(&host, demands);
        match parts.last_mut() {
            Some(part) if needed <= left => {
                part.extend(host);
                left -= needed;
            }
            _ => {
                parts.push(host);
                left = u128::from(most.get()).saturating_sub(needed);
            }
        }
    }
    parts
}
