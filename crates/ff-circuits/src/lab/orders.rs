//! Tests the order of selections: the difference of each from the previous one, with a 99 %
//! interval.
//!
//! Consecutive selections accept mostly the same circuits. So the bootstrap draws circuits, each
//! with the decisions of all selections, and the interval is that of the difference: intervals of
//! the two values would be far wider. With several hosts, each host's circuits are drawn
//! separately, and a value is the mean over hosts, as in NavigaTor's tables.
//!
//! Limits: it shows the variation between circuits of the same network, not between networks. The
//! decisions on a circuit are kept, although other circuits in the window would have changed the
//! timeout slightly.

use ff_report::stats;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use crate::replay::Decisions;

/// The number of resamples: five are outside of the interval at each end.
const DRAWS: usize = 1000;
/// The part outside of an interval at each end, in percent. Twelve differences are judged in a run,
/// so with 2.5 every fourth run would report one by chance.
const TAIL: f64 = 0.5;
/// The least number of values in a selection for an interval: the 90th percentile needs some values
/// above it.
const LEAST_VALUES: usize = 100;

/// The difference of a selection from the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its value minus the previous one.
    pub difference: f64,
    /// The lower bound of the 99 % interval.
    pub low: f64,
    /// The upper bound of the 99 % interval.
    pub high: f64,
}

impl Step {
    /// Whether the selection's value is greater than the previous one; none if the interval
    /// contains 0.
    #[must_use]
    pub fn rises(&self) -> Option<bool> {
        if self.low > 0.0 {
            return Some(true);
        }
        (self.high < 0.0).then_some(false)
    }
}

/// A host's circuits that have a value, with the selections that accept them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostValues {
    /// The values in ascending order.
    sorted: Vec<f64>,
    /// For each selection, whether it accepts each value.
    accepted: Vec<Vec<bool>>,
}

impl HostValues {
    /// From all circuits' values, and each selection's decisions on the circuits.
    #[must_use]
    pub fn of(values: &[Option<f64>], decisions: &[Decisions]) -> Self {
        let value = |(at, value): (usize, &Option<f64>)| Some(((*value)?, at));
        let mut all: Vec<(f64, usize)> = values.iter().enumerate().filter_map(value).collect();
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        let accepts = |decisions: &Decisions| {
            let accepts = |at: usize| decisions.get(at).copied().flatten() == Some(true);
            all.iter().map(|(_, at)| accepts(*at)).collect()
        };
        let accepted = decisions.iter().map(accepts).collect();
        Self { sorted: all.into_iter().map(|(value, _)| value).collect(), accepted }
    }

    /// The percentile of the values that a selection accepts, with these counts of each value,
    /// linear between ranks.
    #[expect(clippy::cast_precision_loss, reason = "circuits lie far below 2^53")]
    fn percentile(&self, counts: &[u32], selection: usize, percentile: f64) -> Option<f64> {
        let accepted = self.accepted.get(selection)?;
        let values = self.sorted.iter().zip(counts).zip(accepted).filter(|(_, is)| **is);
        let values = values.map(|((value, count), _)| (*value, u64::from(*count)));
        let all: u64 = values.clone().map(|(_, count)| count).sum();
        let rank = percentile / 100.0 * all.checked_sub(1)? as f64;
        let (mut before, mut low) = (0, None);
        for (value, count) in values {
            before += count;
            if low.is_none() && before as f64 > rank.floor() {
                low = Some(value);
            }
            if let Some(low) = low.filter(|_| before as f64 > rank.ceil()) {
                return Some(low + (value - low) * rank.fract());
            }
        }
        low
    }
}

/// The difference of a percentile between each selection of these hosts and the previous one; none
/// if one of them accepts fewer than 100 values.
#[must_use]
pub fn steps(hosts: &[HostValues], percentile: f64, seed: u64) -> Vec<Option<Step>> {
    let selections = hosts.first().map_or(0, |host| host.accepted.len());
    let found = |counts: &[Vec<u32>]| -> Vec<Option<f64>> {
        (0..selections).map(|at| mean(hosts, counts, at, percentile)).collect()
    };
    let ones: Vec<Vec<u32>> = hosts.iter().map(|host| vec![1; host.sorted.len()]).collect();
    let once = differences(&found(&ones));
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut drawn: Vec<Vec<f64>> = vec![Vec::with_capacity(DRAWS); once.len()];
    for _ in 0..DRAWS {
        let counts: Vec<_> = ones.iter().map(|all| draw(all.len(), &mut rng)).collect();
        for (all, one) in drawn.iter_mut().zip(differences(&found(&counts))) {
            all.extend(one);
        }
    }
    let is_enough: Vec<bool> =
        (0..selections).map(|at| values(hosts, at) >= LEAST_VALUES).collect();
    let step = |((difference, drawn), is_enough): ((Option<f64>, Vec<f64>), &[bool])| {
        let difference = difference.filter(|_| is_enough.iter().all(|is| *is))?;
        let sorted = stats::sorted(drawn);
        let at = |percent| stats::percentile(&sorted, percent);
        Some(Step { difference, low: at(TAIL)?, high: at(100.0 - TAIL)? })
    };
    once.into_iter().zip(drawn).zip(is_enough.windows(2)).map(step).collect()
}

/// The number of values that a selection accepts.
fn values(hosts: &[HostValues], selection: usize) -> usize {
    let of_host = |host: &HostValues| host.accepted[selection].iter().filter(|is| **is).count();
    hosts.iter().map(of_host).sum()
}

/// A selection's value: the mean over hosts that have one.
fn mean(
    hosts: &[HostValues],
    counts: &[Vec<u32>],
    selection: usize,
    percentile: f64,
) -> Option<f64> {
    let of_host =
        |(host, counts): (&HostValues, &Vec<u32>)| host.percentile(counts, selection, percentile);
    let found: Vec<f64> = hosts.iter().zip(counts).filter_map(of_host).collect();
    stats::mean(&found)
}

/// Each number minus the previous one.
fn differences(all: &[Option<f64>]) -> Vec<Option<f64>> {
    all.windows(2).map(|pair| Some(pair[1]? - pair[0]?)).collect()
}

/// The number of times each circuit is drawn in a resample.
fn draw(circuits: usize, rng: &mut ChaCha12Rng) -> Vec<u32> {
    let mut counts = vec![0; circuits];
    for _ in 0..circuits {
        counts[rng.random_range(0..circuits)] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chance;

    proptest! {
        #[test]
        fn a_percentile_is_that_of_values_as_often_as_they_are_drawn(
            all in proptest::collection::vec((0.0..100.0, 0_u32..4, any::<bool>()), 0..30), percent in 0.0..=100.0,
        ) {
            let mut all = all;
            all.sort_by(|one, other| f64::total_cmp(&one.0, &other.0));
            let values: Vec<_> = all.iter().map(|(value, ..)| Some(*value)).collect();
            let host = HostValues::of(&values, &[all.iter().map(|(.., is)| Some(*is)).collect()]);
            let counts: Vec<u32> = all.iter().map(|(_, count, _)| *count).collect();
            let expanded = all.iter().filter(|(.., is)| *is);
            let expanded = expanded.flat_map(|(value, count, _)| vec![*value; *count as usize]);
            let expected = stats::percentile(&stats::sorted(expanded.collect()), percent);
            match (host.percentile(&counts, 0, percent), expected) {
                (Some(found), Some(expected)) => prop_assert!((found - expected).abs() < 1e-9),
                (found, expected) => prop_assert_eq!(found, expected),
            }
        }
    }

    #[test]
    fn a_step_that_is_there_is_seen_and_one_that_is_not_is_not() {
        // The second selection leaves out the slowest half; the third leaves out one circuit in ten
        // at random.
        let values: Vec<_> = (0..1000_u32).map(|at| Some(f64::from(at * 37 % 1000))).collect();
        let fast: Decisions = values.iter().map(|value| Some(*value >= Some(500.0))).collect();
        let some = fast.iter().enumerate().map(|(at, is)| is.filter(|_| at % 10 != 3)).collect();
        let all = vec![Some(true); 1000];
        let host = HostValues::of(&values, &[all, fast, some]);
        let [Some(first), Some(second)] = steps(std::slice::from_ref(&host), 50.0, 1)[..] else {
            panic!("two")
        };
        assert!((first.difference - 250.0).abs() < 1e-9, "{first:?}");
        assert!(first.low > 200.0 && first.high < 300.0, "{first:?}");
        assert!(second.low < 0.0 && second.high > 0.0, "{second:?}");
        assert!(second.high - second.low < 30.0, "most circuits are in both: {second:?}");
        assert_eq!([first.rises(), second.rises()], [Some(true), None]);
        // Two equal hosts: the mean is the same, and more certain.
        let [Some(both), _] = steps(&[host.clone(), host], 50.0, 1)[..] else { panic!("two") };
        assert!((both.difference - 250.0).abs() < 1e-9, "{both:?}");
        assert!(both.high - both.low < first.high - first.low, "{both:?}");
    }

    #[test]
    fn an_interval_holds_the_true_difference_as_often_as_it_says() {
        // 100 times two selections of 300 circuits that differ only by chance.
        let mut rng = chance::generator();
        let mut wrong = 0;
        for _ in 0..100 {
            let values: Vec<_> = (0..300).map(|_| Some(rng.random_range(0.0..1.0))).collect();
            let one: Decisions = (0..300).map(|_| Some(rng.random_bool(0.8))).collect();
            let other: Decisions = (0..300).map(|_| Some(rng.random_bool(0.5))).collect();
            let found = steps(&[HostValues::of(&values, &[one, other])], 50.0, rng.random());
            wrong += usize::from(found[0].expect("enough").rises().is_some());
        }
        // One is expected; more than eight have a probability of one in a million.
        assert!(wrong <= 8, "{wrong}");
    }

    #[test]
    fn few_values_are_no_step() {
        let values: Vec<_> = (0..150).map(|at| Some(f64::from(at))).collect();
        let all: Decisions = vec![Some(true); 150];
        let few: Decisions = (0..150).map(|at| Some(at < 99)).collect();
        let found =
            steps(&[HostValues::of(&values, &[all.clone(), all.clone(), few.clone()])], 50.0, 1);
        assert_eq!((found[0].map(|step| step.rises()), found[1]), (Some(None), None));
        assert_eq!(steps(&[], 50.0, 1), []);
        assert_eq!(steps(&[HostValues::of(&[None; 9], &[all, few])], 50.0, 1), [None]);
    }
}
