//! The effects of other teams, slots, periods and parameters (for operators of authorities).
//!
//! [`figures`] computes for a setup its duration, unused slots, relays that it cannot measure, and
//! traffic. [`what_if`] adds one more measurer to each coordinator in turn and compares.

use ff_plan::period::{Measurer, Team, demand, guess, guess_for_new};
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use super::greedy::{Greedy, greedy, hours};
use super::{LeftOut, Setup, SetupError, Subjects};

const DAY_SECS: f64 = 86_400.0;
/// Days per month, for traffic.
const MONTH_DAYS: f64 = 30.0;

/// The figures of a setup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The capacity of each coordinator's team, in Gbit/s.
    pub teams_gbit_per_sec: Vec<f64>,
    /// The number of slots in a period.
    pub period_slots: u32,
    /// The number of slots needed to measure all relays as early as possible.
    pub slots: u32,
    /// The same in hours.
    pub hours: f64,
    /// Unused slots in a period.
    pub spare_slots: u32,
    /// Slots missing in a period.
    pub missing_slots: u32,
    /// The fastest relay with a known capacity that every team can measure: team / f, in Mbit/s.
    pub largest_planned_mbit_per_sec: f64,
    /// The greatest estimate that can be conclusive with the full capacity of the smallest team: (1
    /// - ε1) team / m, in Mbit/s.
    pub largest_conclusive_mbit_per_sec: f64,
    /// z0 of a new relay, in Mbit/s.
    pub new_guess_mbit_per_sec: f64,
    /// New relays per day that fit into the unused slots, each measured once by every coordinator.
    pub new_relays_a_day: f64,
    /// Traffic from all coordinators' measurers to relays in 30 days, in TB; the same amount is
    /// returned.
    pub sent_tb_a_month: f64,
    /// The number of relays for which some coordinator has too little capacity.
    pub unmeasurable: usize,
    /// The capacity of these relays, in Gbit/s.
    pub unmeasurable_gbit_per_sec: f64,
}

/// An additional measurer with its effects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Addition {
    /// The index of its coordinator, in the order of the setup.
    pub coordinator: usize,
    /// The capacity of the measurer, in Gbit/s.
    pub gbit_per_sec: f64,
    /// The figures with it.
    pub then: Figures,
    /// The number of hours saved.
    pub hours_saved: f64,
    /// Hours saved per Gbit/s of the measurer.
    pub hours_saved_per_gbit: f64,
    /// The capacity of relays that all coordinators can measure only with it, in Gbit/s.
    pub gained_gbit_per_sec: f64,
}

/// A setup, and the effects of additional measurers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The number of relays to be measured.
    pub relays: usize,
    /// Relays that were left out.
    #[serde(flatten)]
    pub left_out: LeftOut,
    /// The present figures.
    pub now: Figures,
    /// Each measurer with each coordinator.
    pub additions: Vec<Addition>,
    /// The index of the most useful addition: that which makes most capacity measurable and, among
    /// equal ones, saves most hours per Gbit/s. `None` if none changes anything.
    pub best: Option<usize>,
}

/// The figures of a setup for these relays.
///
/// # Errors
/// [`SetupError`] if no schedule is possible.
pub fn figures(subjects: &Subjects, setup: &Setup) -> Result<Figures, SetupError> {
    let schedule = greedy(subjects, setup)?;
    let estimates = subjects.all.iter().filter_map(|one| one.relay.estimate).collect();
    let new_guess = setup.new_guess.unwrap_or_else(|| guess_for_new(estimates));
    let capacities = || setup.teams.iter().map(Team::capacity);
    let least = capacities().min().unwrap_or_default();
    let params = &setup.params;
    let periods_a_day = DAY_SECS / as_float(setup.period_secs);
    let in_slot = |team: BytesPerSec| team.get() / demand(new_guess, params).get().max(1);
    let new_in_period = capacities()
        .map(|team| u64::from(schedule.spare_slots).saturating_mul(in_slot(team)))
        .min();
    let (unmeasurable, lost) = unmeasurable(subjects, &schedule);
    Ok(Figures {
        teams_gbit_per_sec: capacities().map(gbit).collect(),
        period_slots: setup.slots()?,
        slots: schedule.slots,
        hours: hours(schedule.seconds),
        spare_slots: schedule.spare_slots,
        missing_slots: schedule.missing_slots,
        largest_planned_mbit_per_sec: least.scale(1.0 / params.excess_factor()).mbit(),
        largest_conclusive_mbit_per_sec: params.conclusive_below(least).mbit(),
        new_guess_mbit_per_sec: new_guess.mbit(),
        new_relays_a_day: as_float(new_in_period.unwrap_or(0)) * periods_a_day,
        sent_tb_a_month: sent_in_period(subjects, setup, new_guess) * periods_a_day * MONTH_DAYS
            / 1e12,
        unmeasurable,
        unmeasurable_gbit_per_sec: gbit(lost),
    })
}

/// Compares a setup with those that have one more measurer.
///
/// # Errors
/// [`SetupError`] if no schedule is possible.
pub fn what_if(
    subjects: &Subjects,
    setup: &Setup,
    more: &[BytesPerSec],
) -> Result<WhatIf, SetupError> {
    let now = figures(subjects, setup)?;
    let mut additions = Vec::new();
    for coordinator in 0..setup.teams.len() {
        for &capacity in more {
            let mut other = setup.clone();
            let name = "one more".to_owned();
            other.teams[coordinator].measurers.push(Measurer { name, capacity });
            let then = figures(subjects, &other)?;
            let hours_saved = now.hours - then.hours;
            let gbit_per_sec = gbit(capacity);
            additions.push(Addition {
                coordinator,
                gbit_per_sec,
                hours_saved,
                hours_saved_per_gbit: if gbit_per_sec > 0.0 {
                    hours_saved / gbit_per_sec
                } else {
                    0.0
                },
                gained_gbit_per_sec: now.unmeasurable_gbit_per_sec - then.unmeasurable_gbit_per_sec,
                then,
            });
        }
    }
    let best = best(&additions);
    let (relays, left_out) = (subjects.all.len(), subjects.left_out.clone());
    Ok(WhatIf { relays, left_out, now, additions, best })
}

/// The index of the most useful addition; the first of equal ones.
fn best(additions: &[Addition]) -> Option<usize> {
    let worth = |one: &Addition| (one.gained_gbit_per_sec, one.hours_saved_per_gbit);
    let changes = |one: &Addition| one.gained_gbit_per_sec > 0.0 || one.hours_saved > 0.0;
    let those = additions.iter().enumerate().filter(|(_, one)| changes(one));
    let greatest = those.rev().max_by(|(_, one), (_, other)| {
        let ((a, b), (c, d)) = (worth(one), worth(other));
        a.total_cmp(&c).then(b.total_cmp(&d))
    });
    greatest.map(|(index, _)| index)
}

/// The number of relays that do not get the capacity that they need, and their total capacity.
fn unmeasurable(subjects: &Subjects, schedule: &Greedy) -> (usize, BytesPerSec) {
    let mut names: Vec<&str> =
        schedule.unmeasurable.iter().map(|one| one.fingerprint.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let is_one = |name: String| names.binary_search(&name.as_str()).is_ok();
    let those = subjects.all.iter().filter(|one| is_one(hex::encode_upper(one.relay.fingerprint)));
    (names.len(), those.map(|one| one.truth).sum())
}

/// Bytes that all measurers send in a period, if each coordinator measures each relay once, except
/// those too fast for its team.
fn sent_in_period(subjects: &Subjects, setup: &Setup, new_guess: BytesPerSec) -> f64 {
    let mut bytes = 0_u128;
    for team in &setup.teams {
        let most = team.capacity();
        for one in &subjects.all {
            let given = demand(guess(&one.relay, new_guess), &setup.params);
            if given <= most {
                bytes += u128::from(one.truth.min(given).get());
            }
        }
    }
    let secs = u128::from(setup.slot_secs);
    as_float(u64::try_from(bytes * secs).unwrap_or(u64::MAX))
}

/// A rate in Gbit/s.
fn gbit(rate: BytesPerSec) -> f64 {
    rate.mbit() / 1000.0
}

/// An integer as a float.
#[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53")]
const fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use ff_plan::period::ScheduledRelay;

    use super::*;
    use crate::schedule::Subject;
    use crate::schedule::units::team;

    /// Relays: for each pair, a number of relays with this capacity in Mbit/s.
    fn subjects(all: &[(u16, u64)]) -> Subjects {
        let mut subjects = Subjects::default();
        for (index, &(count, mbit)) in all.iter().enumerate() {
            for number in 0..count {
                let mut fingerprint = [0; 20];
                fingerprint[0] = u8::try_from(index).expect("few");
                fingerprint[1..3].copy_from_slice(&number.to_be_bytes());
                let truth = BytesPerSec::from_mbit(mbit);
                let relay = ScheduledRelay {
                    fingerprint,
                    estimate: Some(truth),
                    ..ScheduledRelay::default()
                };
                subjects.all.push(Subject { relay, truth });
            }
        }
        subjects
    }

    fn is_close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-3
    }

    #[test]
    fn figures_are_those_of_a_reckoning_by_hand() {
        // 600 relays of 100 Mbit/s: ten allocations of 295.3125 Mbit/s in a slot of 3 Gbit/s.
        let subjects = subjects(&[(600, 100)]);
        let setup = Setup::new(team("1G,1G,1G").expect("a team"));
        let found = figures(&subjects, &setup).expect("figures");
        assert_eq!((found.slots, found.spare_slots, found.missing_slots), (60, 2820, 0));
        assert!(is_close(found.hours, 0.5), "{found:?}");
        assert!(is_close(found.largest_planned_mbit_per_sec, 1015.873), "{found:?}");
        assert!(is_close(found.largest_conclusive_mbit_per_sec, 1066.667), "{found:?}");
        assert!(is_close(found.new_relays_a_day, 28_200.0), "{found:?}");
        // 600 · 12.5 MB/s · 30 s · 30 days.
        assert!(is_close(found.sent_tb_a_month, 6.75), "{found:?}");
        let half = Setup { slot_secs: 15, period_secs: 43_200, ..setup };
        let found = figures(&subjects, &half).expect("figures");
        assert_eq!((found.slots, found.spare_slots), (60, 2820));
        assert!(is_close(found.hours, 0.25) && is_close(found.new_relays_a_day, 56_400.0));
        assert!(is_close(found.sent_tb_a_month, 6.75), "half as long, and twice a day");
    }

    #[test]
    fn a_measurer_is_worth_most_where_relays_are_too_fast() {
        let subjects = subjects(&[(100, 100), (1, 2000)]);
        let mut setup = Setup::new(team("2G,4G").expect("a team")).with_coordinators(2);
        setup.teams[0].measurers = team("3G").expect("a team");
        let rates =
            ["1G", "3G"].map(|text| crate::schedule::units::bits_per_sec(text).expect("a rate"));
        let found = what_if(&subjects, &setup, &rates).expect("figures");
        assert_eq!((found.now.unmeasurable, found.additions.len()), (1, 4));
        assert!(is_close(found.now.unmeasurable_gbit_per_sec, 2.0));
        let best = &found.additions[found.best.expect("one")];
        assert_eq!(best.coordinator, 0, "the other has enough for it");
        assert!(is_close(best.gbit_per_sec, 3.0) && is_close(best.gained_gbit_per_sec, 2.0));
        assert_eq!(best.then.unmeasurable, 0);
    }

    #[test]
    fn what_cannot_be_is_an_error_and_nothing_is_too_odd() {
        let setup = Setup::new(team("1G").expect("a team"));
        let none = Subjects::default();
        let found = what_if(&none, &setup, &[BytesPerSec::new(0)]).expect("figures");
        assert_eq!((found.now.slots, found.best), (0, None));
        for (slot_secs, period_secs) in [(0, 86_400), (30, 0), (30, 29), (1, u64::MAX)] {
            let setup = Setup { slot_secs, period_secs, ..setup.clone() };
            assert!(matches!(figures(&none, &setup), Err(SetupError::Slots { .. })));
        }
        let nobody = Setup { teams: vec![], ..setup.clone() };
        assert_eq!(figures(&none, &nobody), Err(SetupError::Teams(0)));
        let mut odd = setup.clone();
        odd.params.multiplier = f64::NAN;
        assert!(matches!(figures(&none, &odd), Err(SetupError::Params(_))));
        let broke = Team { coordinator: [1; 32], measurers: vec![] };
        let broke = Setup { teams: vec![broke], ..setup };
        let found = figures(&subjects(&[(3, u64::MAX)]), &broke).expect("figures");
        assert_eq!((found.slots, found.unmeasurable), (0, 3));
    }
}
