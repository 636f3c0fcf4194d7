//! Repeated measurements.

use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;

use super::{SlotTask, Timetable, is_new, take};
use crate::period::group::network;
use crate::period::queue::parts;
use crate::period::schedule::groups::{capped, least};
use crate::period::seed::Draws;
use crate::period::{GRANTS, demand, next_guess, next_guess_within};

/// The counter of the first draw for repetitions; lower ones are for the first measurement.
const FIRST_DRAW: u32 = 1 << 31;
/// New relays of a network are measured again if the waiting repetitions of that network need at
/// most one part in [`SHARE`] of the free room. So n networks that want as much as possible leave 1
/// / (1 + n / 4) of it to others.
const SHARE: u128 = 4;

/// The slot and the tasks of a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The slot.
    pub slot: u32,
    /// The tasks: all relays that were measured together.
    pub tasks: Vec<SlotTask>,
}

/// A relay and z, the result of its measurement; `None` if that failed and the relay was not the
/// cause.
pub type TaskResult = (Fingerprint, Option<BytesPerSec>);

/// Why relays are not measured again in this period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRetry {
    /// The relays have not been measured by this team, or do not belong together.
    #[error("these relays have no common measurement by this team")]
    NotMeasured,
    /// The relays grant no more measurements.
    #[error("the relay has granted this coordinator all {GRANTS} measurements of the period")]
    NoGrant,
    /// The whole team was used already.
    #[error("the relay is too fast for this team: it would take {needs}")]
    TooFast {
        /// The required capacity.
        needs: BytesPerSec,
    },
    /// No remaining slot has room.
    #[error("no slot that is left has room for {needs}")]
    NoRoom {
        /// The required capacity in a slot.
        needs: BytesPerSec,
    },
    /// Other new relays of its network wait for a repetition, and the remaining room is for other
    /// networks.
    #[error(
        "new relays of its network (/24, of IPv6 /48) wait for {waiting} already, more than their share of the slots"
    )]
    NoShare {
        /// The demand of the waiting relays.
        waiting: BytesPerSec,
    },
}

impl NoRetry {
    /// All codes, with their meaning for relays.
    const CODES: [(&str, &str); 5] = [
        ("not_measured", "they have no common measurement by this team"),
        ("no_grant", "they have granted this coordinator all measurements of the period"),
        ("too_fast", "they are too fast for this team"),
        ("no_room", "no slot that is left has room"),
        ("no_share", "new relays of their networks wait for more than their share of the slots"),
    ];

    /// The name for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotMeasured => "not_measured",
            Self::NoGrant => "no_grant",
            Self::TooFast { .. } => "too_fast",
            Self::NoRoom { .. } => "no_room",
            Self::NoShare { .. } => "no_share",
        }
    }

    /// The meaning of a code; `None` for an unknown code.
    #[must_use]
    pub fn meaning(code: &str) -> Option<&'static str> {
        Self::CODES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning)
    }
}

/// A repeated measurement.
#[derive(Clone, Debug)]
pub(super) struct Again {
    /// The head of the group with which it is measured.
    pub(super) head: u32,
    /// The networks of its new relays.
    networks: Vec<IpAddr>,
    /// The team.
    team: usize,
    /// The slot.
    slot: u32,
    /// The tasks.
    tasks: Vec<SlotTask>,
}

impl Timetable {
    /// Measures relays again whose measurements by this team had these inconclusive results or
    /// failed, with all relays that were measured together with them, because they may share
    /// capacity. Capacities that are not known to be too low stay. The slot is drawn from the
    /// team's reserved slots after `now_slot` with room, except those in which any coordinator
    /// measures these relays.
    ///
    /// # Errors
    /// [`NoRetry`] has the reason.
    pub fn retry(
        &mut self,
        team: usize,
        measured: &[TaskResult],
        now_slot: u32,
        grants_used: u32,
    ) -> Result<Retry, NoRetry> {
        let (head, mut tasks) = self.last(team, measured).ok_or(NoRetry::NotMeasured)?;
        self.raise(team, &mut tasks, measured)?;
        if grants_used >= GRANTS {
            return Err(NoRetry::NoGrant);
        }
        self.place_again(team, head, tasks, now_slot)
    }

    /// The relays that [`retry`](Self::retry) measures again: all that were measured together with
    /// these. None if these do not belong together.
    #[must_use]
    pub fn again_with(&self, team: usize, measured: &[TaskResult]) -> Vec<Fingerprint> {
        let (_, tasks) = self.last(team, measured).unwrap_or_default();
        tasks.iter().map(|task| self.relays[task.relay as usize].fingerprint).collect()
    }

    /// Moves a relay's measurement to a slot after this one, instead of the last slot planned by
    /// this team, with all relays to be measured together with it.
    ///
    /// # Errors
    /// [`NoRetry`] has the reason.
    pub fn put_off(
        &mut self,
        team: usize,
        relay: Fingerprint,
        behind: u32,
    ) -> Result<Retry, NoRetry> {
        let (head, tasks) = self.last(team, &[(relay, None)]).ok_or(NoRetry::NotMeasured)?;
        self.place_again(team, head, tasks, behind)
    }

    /// Excludes measurers of this capacity from a team: repeated or postponed measurements get a
    /// slot in which the others have room.
    pub fn set_aside(&mut self, team: usize, less: BytesPerSec) {
        if let Some(aside) = self.aside.get_mut(team) {
            *aside = less;
        }
    }

    /// The excluded capacity of a team.
    #[must_use]
    pub fn aside(&self, team: usize) -> BytesPerSec {
        self.aside.get(team).copied().unwrap_or_default()
    }

    /// The slot of this team's last measurement of a relay.
    #[must_use]
    pub fn last_slot(&self, team: usize, relay: &Fingerprint) -> Option<u32> {
        let group = *self.group_of.get(*self.numbers.get(relay)? as usize)?;
        let head = *self.beside.get(group as usize)?;
        let of_these = |again: &&Again| again.team == team && again.head == head;
        let again = self.again.iter().rev().find(of_these).map(|again| again.slot);
        again.or_else(|| self.schedule.slot(group as usize, team))
    }

    /// Finds a reserved slot of the team after this one.
    fn place_again(
        &mut self,
        team: usize,
        head: u32,
        tasks: Vec<SlotTask>,
        behind: u32,
    ) -> Result<Retry, NoRetry> {
        let needed = tasks.iter().map(|task| task.demand).sum::<BytesPerSec>();
        let taken = self.slots_of(head, team);
        let is_new = is_new(&self.schedule.groups()[head as usize]);
        let (left, less) = (&self.left[team], self.aside[team].get());
        let has_room = |slot: &u32| {
            left.get(*slot as usize).is_some_and(|&left| left.saturating_sub(less) >= needed.get())
        };
        let open: Vec<u32> = self
            .kept(team)
            .behind(behind, is_new)
            .filter(|slot| !taken.contains(slot) && has_room(slot))
            .collect();
        if open.is_empty() {
            return Err(NoRetry::NoRoom { needs: needed });
        }
        let room =
            open.iter().map(|&slot| left[slot as usize].saturating_sub(less)).map(u128::from);
        let networks = if is_new { self.networks(&tasks) } else { Vec::new() };
        let waiting = self.most_waiting(team, &networks, behind);
        if u128::from(waiting.get()) * SHARE > room.sum() {
            return Err(NoRetry::NoShare { waiting });
        }
        let slot = open[self.draws(head, team).below(open.len())];
        take(&mut self.left[team], slot, needed.get());
        self.again.push(Again { head, networks, team, slot, tasks: tasks.clone() });
        Ok(Retry { slot, tasks })
    }

    /// The networks of relays that are measured together.
    fn networks(&self, tasks: &[SlotTask]) -> Vec<IpAddr> {
        let relays = tasks.iter().map(|task| &self.relays[task.relay as usize]);
        let addresses: Vec<_> = relays.flat_map(|relay| relay.addresses.iter().copied()).collect();
        parts(&addresses, network)
    }

    /// The greatest demand of any of these networks: the sum of its measurements that a team will
    /// repeat after a slot.
    fn most_waiting(&self, team: usize, networks: &[IpAddr], behind: u32) -> BytesPerSec {
        let of_network = |network: &IpAddr| {
            let these = self.again.iter().filter(|again| {
                again.team == team && again.slot > behind && again.networks.contains(network)
            });
            these.flat_map(|again| &again.tasks).map(|task| task.demand).sum()
        };
        networks.iter().map(of_network).max().unwrap_or_default()
    }

    /// The measurements that a team repeats in a slot.
    pub(super) fn again_in(&self, team: usize, slot: u32) -> impl Iterator<Item = SlotTask> {
        let these = self.again.iter().filter(move |again| again.team == team && again.slot == slot);
        these.flat_map(|again| again.tasks.iter().copied())
    }

    /// Removes a relay that has left from repetitions from this slot on.
    pub(super) fn vanish_again(&mut self, relay: u32, from_slot: u32) {
        for again in self.again.iter_mut().filter(|again| again.slot >= from_slot) {
            let place = again.tasks.iter().position(|task| task.relay == relay);
            if let Some(task) = place.map(|place| again.tasks.remove(place))
                && let Some(left) = self.left[again.team].get_mut(again.slot as usize)
            {
                *left = left.saturating_add(task.demand.get());
            }
        }
    }

    /// The group with which these relays are measured, and the tasks of this team's last
    /// measurement of it.
    fn last(&self, team: usize, measured: &[TaskResult]) -> Option<(u32, Vec<SlotTask>)> {
        let (relay, _) = measured.first()?;
        let group = *self.group_of.get(*self.numbers.get(relay)? as usize)?;
        let head = *self.beside.get(group as usize)?;
        let mut earlier = self.again.iter().rev();
        let again = earlier.find(|again| again.team == team && again.head == head);
        let slot = again.map(|again| again.slot).or(self.schedule.slot(group as usize, team))?;
        let mut tasks = again.map(|again| again.tasks.clone()).unwrap_or_default();
        if again.is_none() {
            let groups = (0..self.beside.len()).filter(|&group| {
                self.beside[group] == head && self.schedule.slot(group, team) == Some(slot)
            });
            tasks.extend(groups.flat_map(|group| self.tasks_of(group)));
        }
        tasks.retain(|task| !self.gone.contains_key(&task.relay));
        let is_there = |relay: &Fingerprint| {
            tasks.iter().any(|task| self.relays[task.relay as usize].fingerprint == *relay)
        };
        measured.iter().all(|(relay, _)| is_there(relay)).then_some((head, tasks))
    }

    /// Raises guesses and demands of relays that were measured as faster than expected.
    fn raise(
        &mut self,
        team: usize,
        tasks: &mut [SlotTask],
        measured: &[TaskResult],
    ) -> Result<(), NoRetry> {
        let (params, most) = (self.schedule.rules.params, self.teams()[team].capacity());
        let had: BytesPerSec = tasks.iter().map(|task| task.demand).sum();
        // Parts of the capacity are rounded down.
        let had_all = had.get().saturating_add(tasks.len() as u64) >= most.get();
        let mut too_fast = None;
        for task in &mut *tasks {
            let relay = self.relays[task.relay as usize].fingerprint;
            // A failure does not show how fast the relay is.
            let Some(z) = measured.iter().find(|(one, _)| *one == relay).and_then(|(_, z)| *z)
            else {
                continue;
            };
            match next_guess_within(z, task.guess, most, &params).filter(|_| !had_all) {
                Some(guess) => task.guess = guess,
                None => {
                    let needs = demand(next_guess(z, task.guess), &params);
                    self.too_fast.insert((team, relay), needs);
                    too_fast = too_fast.or(Some(NoRetry::TooFast { needs }));
                }
            }
        }
        if let Some(too_fast) = too_fast {
            return Err(too_fast);
        }
        let needs: Vec<_> = tasks.iter().map(|task| demand(task.guess, &params)).collect();
        for (task, demand) in tasks.iter_mut().zip(capped(&needs, most).unwrap_or(needs)) {
            task.demand = demand;
        }
        Ok(())
    }

    /// The slots in which any coordinator measures the relays of this group, as far as is known
    /// here.
    fn slots_of(&self, head: u32, team: usize) -> Vec<u32> {
        let groups = (0..self.beside.len()).filter(|&group| self.beside[group] == head);
        let teams = 0..self.teams().len();
        let first = groups.flat_map(|group| {
            teams.clone().filter_map(move |team| self.schedule.slot(group, team))
        });
        let again = self.again.iter().filter(|again| again.head == head && again.team == team);
        first.chain(again.map(|again| again.slot)).collect()
    }

    /// Random numbers for repetitions of a group.
    fn draws(&self, head: u32, team: usize) -> Draws {
        let name = least(&self.schedule.groups()[head as usize].members, &self.relays);
        let of_these = |again: &&Again| again.head == head && again.team == team;
        let earlier = self.again.iter().filter(of_these).count();
        let counter = FIRST_DRAW.saturating_add(u32::try_from(earlier).unwrap_or(u32::MAX));
        let coordinator = &self.teams()[team].coordinator;
        Draws::new(&self.schedule.rules.seed, &name, coordinator).from(counter)
    }
}
