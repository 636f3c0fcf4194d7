//! E3 and E4: relays that are fast, or attacked, in a share of the slots only (paper §5), by the
//! real schedule.
//!
//! Each trial is a period with a seed of its own. Coordinators' slots come from the schedule, each
//! slot is good with probability q, and the result of a measurement in a good or a bad slot comes
//! from the aggregation. Authorities publish the low median of their votes (dir-spec 3.8.2), so bad
//! results of half of them make the median bad.
//!
//! A relay may also refuse in a bad slot. [`Draw`] decides what it gets for that; "free" curves
//! show what it would get if a refusal did not count.

use ff_base::identity::Fingerprint;
use ff_plan::period::schedule::{Schedule, ScheduleRules};
use ff_plan::period::timetable::Timetable;
use ff_plan::period::{FIRST_GUESS, ScheduledRelay, Team};
use ff_proto::aggregate::Draw;
use ff_proto::failure::FailureKind;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::chance::{at_least, share, three_deviations};
use super::sample::{name, old, teams};
use super::{Attack, Basis, Point, System};

/// Simulated periods.
const TRIALS: u32 = 4000;
/// Slots of these periods, which are two hours long.
const SLOTS: u32 = 240;
/// The number of relays besides the relay in question.
const OTHERS: u32 = 20;
/// The relay's rate in good slots.
const FAST: BytesPerSec = BytesPerSec::from_mbit(100);
/// The relay's rate in bad slots.
const SLOW: BytesPerSec = BytesPerSec::from_mbit(10);

/// How a relay treats bad slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// It accepts every measurement.
    Patient,
    /// It refuses in a bad slot, and the refusal counts.
    Refusing,
    /// It refuses in a bad slot, and the refusal does not count.
    RefusingFreely,
}

/// The periods that are simulated repeatedly.
struct Periods {
    /// The relays, the one in question first.
    relays: Vec<ScheduledRelay>,
    teams: Vec<Team>,
    params: Params,
    /// The results of a good and of a bad slot.
    values: [Draw; 2],
}

impl Periods {
    /// Periods with this number of coordinators.
    fn new(coordinators: u8) -> Self {
        let params = Params::PAPER;
        let value = |rate: BytesPerSec| {
            let seconds = super::lies::honest(&[rate.get(); 30]);
            params.estimator.estimate(&seconds, params.ratio).map_or(Draw::Blank, Draw::Value)
        };
        let others = (1..=OTHERS).map(|n| old(n, Some(BytesPerSec::from_mbit(u64::from(n) * 10))));
        let relays = std::iter::once(old(0, Some(FAST))).chain(others).collect();
        Self { relays, teams: teams(coordinators), params, values: [value(SLOW), value(FAST)] }
    }

    fn rules(&self, random: &mut ChaCha12Rng) -> ScheduleRules {
        ScheduleRules {
            teams: self.teams.clone(),
            slots: SLOTS,
            seed: random.random(),
            new_guess: FIRST_GUESS,
            params: self.params,
        }
    }

    /// Each coordinator's result for the relay in a period; each slot is good with probability q.
    fn draws(&self, q: f64, policy: Policy, random: &mut ChaCha12Rng) -> Vec<Draw> {
        let rules = self.rules(random);
        if policy == Policy::Patient {
            let schedule = Schedule::new(&self.relays, rules);
            let good = good_slots(q, random);
            let group = schedule.groups().iter().position(|group| group.members.contains(&0));
            let slot = |team| schedule.slot(group?, team);
            return (0..self.teams.len()).map(|team| self.value(slot(team), &good)).collect();
        }
        let mut timetable = Timetable::new(self.relays.clone(), rules);
        let good = good_slots(q, random);
        let draw = |team| self.with_second_draw(&mut timetable, team, &good, policy);
        (0..self.teams.len()).map(draw).collect()
    }

    /// The result for a relay that refuses in a bad slot.
    fn with_second_draw(
        &self,
        timetable: &mut Timetable,
        team: usize,
        good: &[bool],
        policy: Policy,
    ) -> Draw {
        let relay: Fingerprint = name(0);
        let first =
            (0..SLOTS).find(|&slot| timetable.tasks(team, slot).iter().any(|task| task.relay == 0));
        let value = self.value(first, good);
        let Some(first) = first.filter(|_| value == self.values[0]) else { return value };
        let refused = Draw::of_failure(FailureKind::Refused, None);
        let again = timetable.retry(team, &[(relay, None)], first, 1).map(|again| again.slot).ok();
        let second = again.map_or(Draw::Void, |slot| self.value(Some(slot), good));
        match policy {
            Policy::RefusingFreely => second,
            _ => refused.lower(second),
        }
    }

    /// The result of a measurement in this slot; no value if there is no slot.
    fn value(&self, slot: Option<u32>, good: &[bool]) -> Draw {
        let is_good = slot.and_then(|slot| good.get(slot as usize));
        is_good.map_or(Draw::Blank, |&good| self.values[usize::from(good)])
    }

    /// The share of periods in which the relay is not published as fast.
    fn failures(&self, q: f64, policy: Policy, seed: u64) -> f64 {
        let salt = (self.teams.len() as u64) << 32 ^ q.to_bits();
        let mut random = ChaCha12Rng::seed_from_u64(seed ^ salt);
        share(TRIALS, |_| low_median(self.draws(q, policy, &mut random)) != self.values[1])
    }
}

fn good_slots(q: f64, random: &mut ChaCha12Rng) -> Vec<bool> {
    (0..SLOTS).map(|_| random.random_bool(q.clamp(0.0, 1.0))).collect()
}

/// dir-spec 3.8.2: the lower middle one of an even number of votes. A coordinator without a value
/// does not vote.
fn low_median(mut draws: Vec<Draw>) -> Draw {
    draws.sort_by_key(|draw| draw.value().unwrap_or_default());
    let middle = draws.len().saturating_sub(1) / 2;
    draws.get(middle).copied().unwrap_or(Draw::Void)
}

/// Σ_{k ≥ n/2} Pr[B(n, p) = k].
fn half_of(coordinators: u8, p: f64) -> f64 {
    let n = u32::from(coordinators);
    at_least(n, p, n.div_ceil(2))
}

fn around(formula: f64) -> Option<[f64; 2]> {
    let wide = three_deviations(formula, TRIALS);
    Some([formula - wide, formula + wide])
}

/// E3: a relay that has its capacity in a share q of the slots.
#[must_use]
pub fn part_time(seed: u64) -> Attack {
    let mut points = Vec::new();
    for coordinators in [1, 2, 3, 5, 6, 9] {
        let periods = Periods::new(coordinators);
        for q in [0.1, 0.25, 0.293, 0.4, 0.5, 0.75] {
            let ours = periods.failures(q, Policy::Patient, seed);
            let point = Point::new(format!("n = {coordinators}"), q, ours);
            points.push(point.beside(half_of(coordinators, 1.0 - q)).of_trials(TRIALS));
        }
    }
    Attack {
        id: "E3",
        name: "capacity in a share of the slots",
        system: System::FlashFlow,
        formula: "sum over k>=n/2 of Pr[B(n,1-q)=k]",
        unit: "probability of failing",
        paper: Some(half_of(3, 0.75)),
        ours: super::at(&points, "n = 3", 0.25, None),
        interval: around(half_of(3, 0.75)),
        basis: Basis::RealCode,
        axis: "q",
        points,
        note: format!("n = 3, q = 0.25; {TRIALS} periods of the real schedule, one seed each"),
    }
}

/// E3 with second draws: a relay refuses in bad slots.
#[must_use]
pub fn second_draws(seed: u64) -> Attack {
    // 1 - (1-q)² is one half.
    let enough = 1.0 - 0.5_f64.sqrt();
    let periods = Periods::new(3);
    let mut points = Vec::new();
    for q in [0.1, 0.2, enough, 0.4, 0.5] {
        let curves = [
            ("a refusal counts", Policy::Refusing, 1.0 - q),
            ("a refusal is free", Policy::RefusingFreely, (1.0 - q).powi(2)),
        ];
        for (curve, policy, bad) in curves {
            let ours = periods.failures(q, policy, seed);
            points.push(Point::new(curve, q, ours).beside(half_of(3, bad)).of_trials(TRIALS));
        }
    }
    // One coordinator and several, at that q. From about seven on, the few relays without a second
    // slot shift the free curve by more than chance does.
    for coordinators in [1, 5] {
        let periods = Periods::new(coordinators);
        let curves = [
            (format!("a refusal counts, n = {coordinators}"), Policy::Refusing, 1.0 - enough),
            (format!("a refusal is free, n = {coordinators}"), Policy::RefusingFreely, 0.5),
        ];
        for (curve, policy, bad) in curves {
            let ours = periods.failures(enough, policy, seed);
            let formula = half_of(coordinators, bad);
            points.push(Point::new(curve, enough, ours).beside(formula).of_trials(TRIALS));
        }
    }
    let formula = half_of(3, 1.0 - enough);
    Attack {
        id: "E3",
        name: "capacity in a share of the slots, refusing in others",
        system: System::FlashFlow,
        formula: "sum over k>=n/2 of Pr[B(n,b)=k], b = 1-q, or (1-q)^2 if a refusal is free",
        unit: "probability of failing",
        paper: None,
        ours: super::at(&points, "a refusal counts", enough, None),
        interval: around(formula),
        basis: Basis::RealCode,
        axis: "q",
        points,
        note: format!(
            "n = 3, and other n at q = {enough:.3}; if a refusal were free, that q would give a probability of one half, as q = 1/2 \
             does otherwise; a relay in one of the last slots has no second one, which moves the free curve by about 0.01"
        ),
    }
}

/// E4: others fill a relay's link in a share of the slots.
#[must_use]
pub fn denial_of_service(seed: u64) -> Attack {
    let mut points = Vec::new();
    for coordinators in [3, 5, 9] {
        let periods = Periods::new(coordinators);
        for denied in [0.1, 0.25, 0.5, 0.75, 0.9] {
            let ours = periods.failures(1.0 - denied, Policy::Patient, seed);
            let point = Point::new(format!("n = {coordinators}"), denied, ours);
            points.push(point.beside(half_of(coordinators, denied)).of_trials(TRIALS));
        }
    }
    Attack {
        id: "E4",
        name: "denial of service in a share of the slots",
        system: System::FlashFlow,
        formula: "sum over k>=n/2 of Pr[B(n,d)=k]",
        unit: "probability of harm",
        paper: None,
        ours: super::at(&points, "n = 3", 0.25, None),
        interval: around(half_of(3, 0.25)),
        basis: Basis::RealCode,
        axis: "share of slots with an attack",
        points,
        note: "n = 3, a quarter of the slots; an even chance needs half of them".to_owned(),
    }
}
