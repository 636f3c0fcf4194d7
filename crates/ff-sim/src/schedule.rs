//! Schedules of a team for a network (paper §4.3, §7), by the coordinator's own code.
//!
//! ```text
//!   Network ─▶ scaling ─▶ subjects ─┬─▶ greedy   all relays as early as possible
//!                                   ├─▶ replay   a period slot by slot ─▶ outcome
//!   Setup: teams, slot, period, m ──┤     ▲ errors, links of hosts, new relays hour by hour
//!                                   └─▶ what_if  other teams, other parameters
//! ```
//!
//! The slots of relays, their allocations, the verdict on an estimate and the repetition of
//! inconclusive measurements are decided by `ff_plan::period` and `ff_proto`, the code of
//! coordinators. Only the network is simulated: relays' true capacities ([`Subject`]) and errors of
//! measurements ([`errors::Errors`]).

pub mod arrivals;
pub mod errors;
pub mod greedy;
pub mod link;
pub mod newcomers;
pub mod outcome;
pub mod replay;
pub mod scaling;
pub mod units;
pub mod what_if;

use std::borrow::Borrow;
use std::collections::BTreeSet;

use ff_archives::network::{CapacitySource, Network};
use ff_plan::period::schedule::ScheduleRules;
use ff_plan::period::{Measurer, ScheduledRelay, Team, guess_for_new};
use ff_proto::params::{PERIOD_SECS, ParamError, Params};
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use self::scaling::ScaleError;

/// A relay that ran for a smaller share of the source's interval is not scheduled.
pub const LEAST_RUNNING: f64 = 0.5;
/// The greatest number of slots in all coordinators' periods: a month of seconds has 2.7 million.
pub const MOST_SLOTS: u64 = 3_000_000;
/// The greatest number of coordinators; Tor has ten authorities.
pub const MOST_TEAMS: usize = 100;

/// Coordinators with their teams and rules.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The team of each coordinator.
    pub teams: Vec<Team>,
    /// The length of a slot, in seconds.
    pub slot_secs: u32,
    /// The length of a period, in seconds.
    pub period_secs: u64,
    /// Parameters m, ε1 and ε2.
    pub params: Params,
    /// Random seed of slots.
    pub seed: [u8; 32],
    /// z0 of new relays; `None` for the coordinators' choice, which depends on the known estimates.
    pub new_guess: Option<BytesPerSec>,
}

/// An invalid setup.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// There are no measurers, or too many.
    #[error("{0} coordinators: there must be 1 to {MOST_TEAMS}")]
    Teams(usize),
    /// The period has no slots, or too many.
    #[error("a period of {period_secs} s has no slots of {slot_secs} s, or too many")]
    Slots {
        /// The length of the period, in seconds.
        period_secs: u64,
        /// The length of a slot, in seconds.
        slot_secs: u32,
    },
    /// A parameter is out of bounds.
    #[error(transparent)]
    Params(#[from] ParamError),
}

impl Setup {
    /// One coordinator with this team, and the paper's values: slots of 30 s, a period of a day.
    #[must_use]
    pub fn new(measurers: Vec<Measurer>) -> Self {
        let params = Params::PAPER;
        Self {
            teams: vec![Team { coordinator: [1; 32], measurers }],
            slot_secs: params.duration_secs.into(),
            period_secs: PERIOD_SECS,
            params,
            seed: [0; 32],
            new_guess: None,
        }
    }

    /// The same with `count` coordinators, each with a team like the first one's.
    #[must_use]
    pub fn with_coordinators(mut self, count: u8) -> Self {
        let first = self.teams.first().cloned();
        let measurers = first.map(|team| team.measurers).unwrap_or_default();
        let team = |id| Team { coordinator: [id; 32], measurers: measurers.clone() };
        self.teams = (1..=count).map(team).collect();
        self
    }

    /// The same with one coordinator for each of these teams.
    #[must_use]
    pub fn with_teams(mut self, teams: Vec<Vec<Measurer>>) -> Self {
        let team = |(id, measurers)| Team { coordinator: [id; 32], measurers };
        self.teams = (1..=u8::MAX).zip(teams).map(team).collect();
        self
    }

    /// The number of slots in the period.
    ///
    /// # Errors
    /// [`SetupError`] if no schedule is possible.
    pub fn slots(&self) -> Result<u32, SetupError> {
        self.params.validate()?;
        if !(1..=MOST_TEAMS).contains(&self.teams.len()) {
            return Err(SetupError::Teams(self.teams.len()));
        }
        let (period_secs, slot_secs) = (self.period_secs, self.slot_secs);
        let slots = period_secs.checked_div(slot_secs.into());
        let most = MOST_SLOTS / self.teams.len() as u64;
        let slots = slots.filter(|slots| (1..=most).contains(slots));
        let slots = slots.and_then(|slots| u32::try_from(slots).ok());
        slots.ok_or(SetupError::Slots { period_secs, slot_secs })
    }

    /// The capacity of the largest team.
    #[must_use]
    pub fn greatest_team(&self) -> BytesPerSec {
        self.teams.iter().map(Team::capacity).max().unwrap_or_default()
    }

    /// The schedule's rules for these relays.
    fn rules<R: Borrow<ScheduledRelay>>(&self, slots: u32, relays: &[R]) -> ScheduleRules {
        let estimates = relays.iter().filter_map(|relay| relay.borrow().estimate).collect();
        ScheduleRules {
            teams: self.teams.clone(),
            slots,
            seed: self.seed,
            new_guess: self.new_guess.unwrap_or_else(|| guess_for_new(estimates)),
            params: self.params,
        }
    }
}

/// A relay to be measured, with its true capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The relay as coordinators know it.
    pub relay: ScheduledRelay,
    /// The true capacity, which measurements without errors would give.
    pub truth: BytesPerSec,
}

/// The relays of a network that can be scheduled.
#[derive(Clone, Debug, Default)]
pub struct Subjects {
    /// Relays with a capacity, which is also their estimate.
    pub all: Vec<Subject>,
    /// Relays that are not scheduled.
    pub left_out: LeftOut,
    /// Whether weights are used as capacities.
    pub from_weights: bool,
}

/// Relays of a network that are not scheduled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeftOut {
    /// The number of relays without a capacity.
    pub without_capacity: usize,
    /// Their share of the network's weight, from 0 to 1.
    pub without_capacity_weight_share: f64,
    /// The number of relays that ran for too short a time ([`LEAST_RUNNING`]).
    pub seldom_running: usize,
    /// Their share of the network's weight, from 0 to 1.
    pub seldom_running_weight_share: f64,
}

impl Subjects {
    /// The relays of a network, each in a group of its own or (`grouped`) with those on its
    /// addresses and in its family. All count as measured before, as in §7, including those that
    /// the consensus marks as unmeasured.
    #[must_use]
    pub fn of(network: &Network, grouped: bool) -> Self {
        let from_weights = network.capacities == CapacitySource::Weights;
        let mut subjects = Self { from_weights, ..Self::default() };
        let (mut seen, mut left_out) = (BTreeSet::new(), LeftOut::default());
        let all_weight = network.total_weight();
        let share = |weight: f64| if all_weight > 0.0 { weight / all_weight } else { 0.0 };
        for one in &network.relays {
            if one.running < LEAST_RUNNING {
                left_out.seldom_running += 1;
                left_out.seldom_running_weight_share += share(one.weight);
                continue;
            }
            let by_weight = from_weights.then(|| BytesPerSec::new(1000).scale(one.weight));
            let Some(truth) = one.usable().or(by_weight) else {
                left_out.without_capacity += 1;
                left_out.without_capacity_weight_share += share(one.weight);
                continue;
            };
            if !seen.insert(one.fingerprint) {
                continue;
            }
            let (fingerprint, estimate) = (one.fingerprint, Some(truth));
            let mut relay = ScheduledRelay { fingerprint, estimate, ..ScheduledRelay::default() };
            if grouped {
                relay.addresses.clone_from(&one.addresses);
                relay.family.clone_from(&one.family);
                relay.family_ids.clone_from(&one.family_ids);
            }
            subjects.all.push(Subject { relay, truth });
        }
        Self { left_out, ..subjects }
    }

    /// The sum of the capacities.
    #[must_use]
    pub fn total(&self) -> BytesPerSec {
        self.all.iter().map(|subject| subject.truth).sum()
    }

    /// The greatest capacity.
    #[must_use]
    pub fn largest(&self) -> BytesPerSec {
        self.all.iter().map(|subject| subject.truth).max().unwrap_or_default()
    }

    /// Scales capacities to this total, each at most `most` (see [`scaling`]).
    ///
    /// # Errors
    /// [`ScaleError`] if that is impossible.
    pub fn scale(
        &mut self,
        total: Option<BytesPerSec>,
        most: Option<BytesPerSec>,
    ) -> Result<(), ScaleError> {
        let before: Vec<_> = self.all.iter().map(|subject| subject.truth).collect();
        self.set(&scaling::scale(&before, total, most)?);
        Ok(())
    }

    /// Sets the capacities, in order, and the estimates to the same values.
    pub fn set(&mut self, capacities: &[BytesPerSec]) {
        for (subject, &capacity) in self.all.iter_mut().zip(capacities) {
            subject.truth = capacity;
            subject.relay.estimate = Some(capacity);
        }
    }
}
