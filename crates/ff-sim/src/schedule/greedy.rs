//! The schedule that is over soonest: each slot gets the largest relays that still fit (paper §7).

use ff_plan::period::schedule::{Schedule, Shortage};
use ff_plan::period::{ScheduledRelay, Team};
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use super::{LeftOut, Setup, SetupError, Subjects};

/// How long it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Greedy {
    /// Slots until all have been measured by every coordinator.
    pub slots: u32,
    /// The same in seconds.
    pub seconds: u64,
    /// Relays that were scheduled.
    pub relays: usize,
    /// Relays that were left out.
    #[serde(flatten)]
    pub left_out: LeftOut,
    /// Whether capacities are made from weights.
    pub from_weights: bool,
    /// The sum of the scheduled relays' capacities.
    pub total_bytes_per_sec: u64,
    /// The capacity of the fastest.
    pub largest_bytes_per_sec: u64,
    /// Sets of relays that are measured together.
    pub groups: usize,
    /// Σ f·z0 of what a team measures over its capacity, for the team that takes longest: no
    /// schedule is shorter that gives these relays what they need.
    pub least_slots: u64,
    /// Slots of the period that are left over; 0 if it is too short.
    pub spare_slots: u32,
    /// Slots that the period lacks.
    pub missing_slots: u32,
    /// Relays that are not measured with what they need.
    pub unmeasurable: Vec<Unmeasurable>,
    /// Relays whose slots lie after the end of the period.
    pub behind_period: Vec<Unmeasurable>,
    /// Of each slot, the part of the first team's capacity that its relays take, and how many they
    /// are.
    #[serde(skip)]
    pub filled: Vec<(f64, usize)>,
}

/// A relay for which a team has too little.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmeasurable {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// The coordinator that has too little, in the order of their identities; none if all have.
    pub coordinator: Option<usize>,
    /// f·z0: what a team would need for it.
    pub needs_bytes_per_sec: u64,
    /// What it is measured with, because it shares a host that needs more than any team has; 0 if
    /// it is not measured.
    pub given_bytes_per_sec: u64,
}

/// Schedules these relays.
///
/// # Errors
/// [`SetupError`] if a schedule is impossible.
pub fn greedy(subjects: &Subjects, setup: &Setup) -> Result<Greedy, SetupError> {
    let period_slots = setup.slots()?;
    let relays: Vec<&ScheduledRelay> = subjects.all.iter().map(|subject| &subject.relay).collect();
    let rules = setup.rules(period_slots, &relays);
    let schedule = Schedule::greedy(&relays, rules);
    let slots = schedule.slots();
    Ok(Greedy {
        slots,
        seconds: u64::from(slots) * u64::from(setup.slot_secs),
        relays: relays.len(),
        left_out: subjects.left_out.clone(),
        from_weights: subjects.from_weights,
        total_bytes_per_sec: subjects.total().get(),
        largest_bytes_per_sec: subjects.largest().get(),
        groups: schedule.groups().len(),
        least_slots: least_slots(&schedule),
        spare_slots: period_slots.saturating_sub(slots),
        missing_slots: slots.saturating_sub(period_slots),
        unmeasurable: unmeasurable(&schedule, &relays),
        behind_period: behind(&schedule, &relays, period_slots),
        filled: filled(&schedule),
    })
}

/// The slots that the team that takes longest needs if each of them is full.
fn least_slots(schedule: &Schedule) -> u64 {
    let of_team = |(number, team): (usize, &Team)| {
        let is_measured = |&(group, _): &(usize, &_)| schedule.slot(group, number).is_some();
        let groups = schedule.groups().iter().enumerate().filter(is_measured);
        let needs: u128 = groups.map(|(_, group)| u128::from(group.demand())).sum();
        u64::try_from(needs.div_ceil(u128::from(team.capacity().get()).max(1))).unwrap_or(u64::MAX)
    };
    schedule.teams().iter().enumerate().map(of_team).max().unwrap_or(0)
}

/// A relay that has too little, in general or with one coordinator.
fn unmeasured(
    short: &Shortage,
    coordinator: Option<usize>,
    relays: &[&ScheduledRelay],
) -> Unmeasurable {
    let relay = relays.get(short.relay as usize);
    Unmeasurable {
        fingerprint: relay.map(|relay| hex::encode_upper(relay.fingerprint)).unwrap_or_default(),
        coordinator,
        needs_bytes_per_sec: short.needs.get(),
        given_bytes_per_sec: short.given.get(),
    }
}

/// Relays for which all teams or one have too little.
fn unmeasurable(schedule: &Schedule, relays: &[&ScheduledRelay]) -> Vec<Unmeasurable> {
    let of_all = schedule.too_fast().iter().chain(schedule.capped()).map(|short| (*short, None));
    let of_one = (0..schedule.teams().len())
        .flat_map(|team| schedule.too_much_for(team).map(move |short| (short, Some(team))));
    of_all.chain(of_one).map(|(short, team)| unmeasured(&short, team, relays)).collect()
}

/// Relays in slots after the first `slots`.
fn behind(schedule: &Schedule, relays: &[&ScheduledRelay], slots: u32) -> Vec<Unmeasurable> {
    let mut all = Vec::new();
    if schedule.slots() <= slots {
        return all;
    }
    for team in 0..schedule.teams().len() {
        let late = schedule.by_slot(team).into_iter().skip(slots as usize).flatten();
        for group in late.filter_map(|group| schedule.groups().get(group)) {
            for (&relay, &needs) in group.members.iter().zip(&group.demands) {
                let short = Shortage { relay, needs, given: BytesPerSec::new(0) };
                all.push(unmeasured(&short, Some(team), relays));
            }
        }
    }
    all
}

/// How full each slot of the first coordinator is, and with how many relays.
fn filled(schedule: &Schedule) -> Vec<(f64, usize)> {
    let Some(team) = schedule.teams().first().map(Team::capacity) else { return Vec::new() };
    let of_slot = |groups: Vec<usize>| {
        let groups = || groups.iter().filter_map(|&group| schedule.groups().get(group));
        let needs: BytesPerSec = groups().flat_map(|group| group.demands.iter().copied()).sum();
        let relays = groups().map(|group| group.members.len()).sum();
        (needs.mbit() / team.mbit().max(f64::MIN_POSITIVE), relays)
    };
    schedule.by_slot(0).into_iter().map(of_slot).collect()
}

/// Hours in a number of seconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53")]
pub fn hours(seconds: u64) -> f64 {
    seconds as f64 / 3600.0
}
