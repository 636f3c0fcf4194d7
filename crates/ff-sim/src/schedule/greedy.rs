//! The shortest schedule: each slot gets the largest relays that still fit (paper §7).

use ff_plan::period::schedule::{Schedule, Shortage};
use ff_plan::period::{ScheduledRelay, Team};
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use super::{LeftOut, Setup, SetupError, Subjects};

/// The results of a greedy schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Greedy {
    /// The number of slots until every coordinator has measured all relays.
    pub slots: u32,
    /// The same in seconds.
    pub seconds: u64,
    /// The number of scheduled relays.
    pub relays: usize,
    /// Relays that were left out.
    #[serde(flatten)]
    pub left_out: LeftOut,
    /// Whether weights are used as capacities.
    pub from_weights: bool,
    /// The sum of the scheduled relays' capacities.
    pub total_bytes_per_sec: u64,
    /// The greatest capacity.
    pub largest_bytes_per_sec: u64,
    /// The number of sets of relays that are measured together.
    pub groups: usize,
    /// A lower bound of the number of slots for any schedule with sufficient allocations: Σ f·z0
    /// over a team's capacity, for the slowest team.
    pub least_slots: u64,
    /// Unused slots of the period; 0 if it is too short.
    pub spare_slots: u32,
    /// Slots missing in the period.
    pub missing_slots: u32,
    /// Relays that do not get the capacity that they need.
    pub unmeasurable: Vec<Unmeasurable>,
    /// Relays with slots after the end of the period.
    pub behind_period: Vec<Unmeasurable>,
    /// For each slot, the used part of the first team's capacity and the number of relays.
    #[serde(skip)]
    pub filled: Vec<(f64, usize)>,
}

/// A relay for which a team has too little capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmeasurable {
    /// The fingerprint, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// The index of the coordinator with too little capacity, in the order of identities; `None`
    /// for all coordinators.
    pub coordinator: Option<usize>,
    /// f·z0, the capacity needed for the relay.
    pub needs_bytes_per_sec: u64,
    /// The capacity with which it is measured, as one of the relays on a host that needs more than
    /// any team has; 0 if it is not measured.
    pub given_bytes_per_sec: u64,
}

/// Schedules these relays.
///
/// # Errors
/// [`SetupError`] if no schedule is possible.
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

/// The number of slots that the slowest team needs if each of them is full.
fn least_slots(schedule: &Schedule) -> u64 {
    let of_team = |(number, team): (usize, &Team)| {
        let is_measured = |&(group, _): &(usize, &_)| schedule.slot(group, number).is_some();
        let groups = schedule.groups().iter().enumerate().filter(is_measured);
        let needs: u128 = groups.map(|(_, group)| u128::from(group.demand())).sum();
        u64::try_from(needs.div_ceil(u128::from(team.capacity().get()).max(1))).unwrap_or(u64::MAX)
    };
    schedule.teams().iter().enumerate().map(of_team).max().unwrap_or(0)
}

/// A relay with too little capacity, with all coordinators or one of them.
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

/// Relays for which all teams or one team have too little capacity.
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

/// The used part of each slot of the first coordinator, and its number of relays.
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

/// Seconds as hours.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53")]
pub fn hours(seconds: u64) -> f64 {
    seconds as f64 / 3600.0
}
