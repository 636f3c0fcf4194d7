//! E3 over days: the gain of relays that choose the days on which they are measured, by the real
//! rule ([`ff_plan::publish::days`]).
//!
//! A relay is fast in a share q of the measurements, independently, and a tenth as fast in the
//! others. Each coordinator measures it once a day, at a time of its own. Authorities vote every
//! day, and the low median counts. A number counts as fast if it is more than half of the relay's
//! fast rate.

use ff_plan::publish::days::{Bounds, Day, MEMORY_DAYS, number};
use ff_proto::units::BytesPerSec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::chance::at_least;
use super::{Attack, Basis, Point, System};

/// The relay's rate when it is fast.
const FAST: BytesPerSec = BytesPerSec::from_mbit(100);
/// The relay's rate when it is slow.
const SLOW: BytesPerSec = BytesPerSec::from_mbit(10);
/// Simulated days for each coordinator.
const DAYS: u32 = 3000;
/// A rise by more than 4 times must last before it is published.
const BOUNDS: Bounds = Bounds { first: None, rise: Some(4.0), arrived: None };

/// How a relay treats measurements in which it would be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// It accepts every measurement.
    Patient,
    Refusing,
    /// It is always fast, but offline on the days on which others would be slow.
    Honest,
}

/// The number of each day for a relay that is fast with probability q.
fn numbers(q: f64, policy: Policy, random: &mut ChaCha12Rng) -> Vec<BytesPerSec> {
    let memory = usize::try_from(MEMORY_DAYS).unwrap_or(usize::MAX);
    let mut days = Vec::new();
    let day = |_| {
        days.push(match (random.random_bool(q), policy) {
            (true, _) => Day::Value(FAST),
            (false, Policy::Patient) => Day::Value(SLOW),
            (false, _) => Day::Blank(None),
        });
        let known = &days[days.len().saturating_sub(memory)..];
        number(known, BOUNDS).map_or_else(BytesPerSec::default, |number| number.rate)
    };
    let all: Vec<_> = (0..DAYS).map(day).collect();
    all.into_iter().skip(memory).collect()
}

/// The low median of the coordinators' numbers on each day.
fn medians(coordinators: u8, q: f64, policy: Policy, seed: u64) -> Vec<BytesPerSec> {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ q.to_bits() ^ u64::from(coordinators));
    let of_each: Vec<_> = (0..coordinators).map(|_| numbers(q, policy, &mut random)).collect();
    let days = of_each.first().map_or(0, Vec::len);
    let median = |day: usize| {
        let mut votes: Vec<_> = of_each.iter().map(|numbers| numbers[day]).collect();
        votes.sort_unstable();
        votes[(votes.len() - 1) / 2]
    };
    (0..days).map(median).collect()
}

/// The share of days on which the median is fast.
#[expect(clippy::cast_precision_loss, reason = "days are few")]
fn fast(coordinators: u8, q: f64, policy: Policy, seed: u64) -> f64 {
    let medians = medians(coordinators, q, policy, seed);
    let fast = medians.iter().filter(|median| median.get() > FAST.get() / 2).count();
    fast as f64 / medians.len() as f64
}

/// The number of fast votes for a fast low median.
fn enough(coordinators: u8) -> u32 {
    u32::from(coordinators) / 2 + 1
}

/// E3: a relay that refuses measurements when it is slow.
#[must_use]
pub fn refusing(seed: u64) -> Attack {
    let mut points = Vec::new();
    for coordinators in 1..=9 {
        for q in [0.1, 0.21, 0.3, 0.4, 0.5] {
            // Fast twice in a row.
            let formula = at_least(coordinators.into(), q * q, enough(coordinators));
            for (curve, policy) in [("patient", Policy::Patient), ("refusing", Policy::Refusing)] {
                let ours = fast(coordinators, q, policy, seed);
                let point = Point::new(format!("{curve}, n = {coordinators}"), q, ours);
                points.push(if policy == Policy::Patient {
                    point.beside(formula).of_trials(DAYS / 4)
                } else {
                    point
                });
            }
        }
    }
    Attack {
        id: "E3",
        name: "refusing on slow days",
        system: System::FlashFlow,
        formula: "sum over k>n/2 of Pr[B(n,q²)=k]",
        unit: "share of days published as fast",
        paper: None,
        ours: super::at(&points, "refusing, n = 1", 0.3, None),
        interval: Some([0.0, super::at(&points, "patient, n = 1", 0.3, None) + 0.02]),
        basis: Basis::RealCode,
        axis: "q",
        points,
        note: format!(
            "n = 1, q = 0.3; {DAYS} days; a tenfold rise counts once two consecutive days show it"
        ),
    }
}

/// E3: a relay that shows 40 times its rate, in the best order of the actions possible on a day.
#[must_use]
pub fn bursting() -> Attack {
    let times = |fast_days: usize| {
        let burst = BytesPerSec::new(SLOW.get() * 40);
        let orders = orders(fast_days, burst);
        let most = orders.iter().filter_map(|days| {
            let days = [&[Day::Value(SLOW)], &days[..]].concat();
            number(&days, BOUNDS).map(|number| number.rate)
        });
        let most = most.max().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
        let times = most.get() as f64 / SLOW.get() as f64;
        times
    };
    let points: Vec<_> = [(0, 1.0), (1, 1.0), (2, 40.0)]
        .map(|(days, formula)| {
            #[expect(clippy::cast_precision_loss, reason = "days are few")]
            let x = days as f64;
            Point::new("fast days in a row", x, times(days)).beside(formula)
        })
        .into();
    Attack {
        id: "E3",
        name: "40 times as much for some days, in any order",
        system: System::FlashFlow,
        formula: "1 until two consecutive days show it",
        unit: "times",
        paper: None,
        ours: super::at(&points, "fast days in a row", 1.0, None),
        interval: Some([1.0, 1.0]),
        basis: Basis::RealCode,
        axis: "greatest number of fast days in a row",
        points,
        note: "the best of all sequences of seven days, on each of which the relay is slow, refuses, or shows 40 times as much; \
               a day of absence does not count as a day"
            .to_owned(),
    }
}

/// All orders of seven days with at most `in_a_row` fast days in a row.
fn orders(in_a_row: usize, burst: BytesPerSec) -> Vec<Vec<Day>> {
    let choices = [Day::Value(SLOW), Day::Blank(None), Day::Value(burst)];
    let mut all = vec![Vec::new()];
    for _ in 0..7 {
        let longer = |days: Vec<Day>| {
            choices.map(|choice| {
                let mut days = days.clone();
                days.push(choice);
                days
            })
        };
        all = all.into_iter().flat_map(longer).collect();
        all.retain(|days| {
            days.len() <= in_a_row
                || days[days.len() - in_a_row - 1..].iter().any(|&day| day != choices[2])
        });
    }
    all
}

/// The loss of an honest relay that is offline on a tenth of the days.
#[must_use]
pub fn away(seed: u64) -> Attack {
    let mut points = Vec::new();
    for coordinators in [1, 3, 9] {
        for away in [0.02, 0.05, 0.1, 0.2] {
            let medians = medians(coordinators, 1.0 - away, Policy::Honest, seed);
            let sum: u64 = medians.iter().map(|median| median.get()).sum();
            #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
            let mean = sum as f64 / medians.len() as f64 / FAST.get() as f64;
            points.push(Point::new(format!("n = {coordinators}"), away, 1.0 - mean));
        }
    }
    Attack {
        id: "E3",
        name: "what days without a value cost an honest relay",
        system: System::FlashFlow,
        formula: "-",
        unit: "share of its number lost",
        paper: None,
        ours: super::at(&points, "n = 1", 0.1, None),
        interval: Some([0.0, 0.05]),
        basis: Basis::RealCode,
        axis: "share of days without a value",
        points,
        note: "n = 1, a tenth of the days".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusing_gains_nothing_and_an_honest_relay_loses_little() {
        for seed in [1, 2, 3] {
            let attack = refusing(seed);
            for coordinators in 1..=9 {
                let curve = |name: &str| format!("{name}, n = {coordinators}");
                let (patient, refusing) = (curve("patient"), curve("refusing"));
                for (patient, refusing) in attack.curve(&patient).zip(attack.curve(&refusing)) {
                    println!(
                        "seed {seed}, {}, q = {}: {} and {}",
                        patient.curve, patient.x, patient.ours, refusing.ours
                    );
                    assert_ne!(patient.agrees(), Some(false), "{patient:?}");
                    assert!(refusing.ours <= patient.ours + 0.02, "{refusing:?}");
                }
            }
            let away = away(seed);
            println!("{:?}", away.points);
            assert!(away.ours <= 0.05, "{}", away.ours);
        }
    }

    #[test]
    fn a_burst_counts_after_two_days_and_not_sooner_in_any_order() {
        let attack = bursting();
        println!("{:?}", attack.points);
        assert!(attack.points.iter().all(|point| point.agrees() == Some(true)));
    }
}
