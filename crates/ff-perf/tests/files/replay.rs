//! Selections compared with a direct implementation of NavigaTor's algorithm 2 and section 7.6,
//! which sorts and fits the window again for every circuit.

use ff_circuits::fit::estimator::Estimate;
use ff_circuits::fit::gev::Gev;
use ff_circuits::fit::sample::Sample;
use ff_circuits::read::Seen;
use ff_circuits::replay::{Measure, Timeout, accepted, best_of_three, timeouts};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

/// Circuits with these values of all measures.
fn circuits(values: &[Option<f64>]) -> Vec<Seen> {
    let seen = |ms: &Option<f64>| Seen {
        build_ms: *ms,
        rtt_ms: *ms,
        congestion_ms: *ms,
        ..Seen::default()
    };
    values.iter().map(seen).collect()
}

/// Timeout of each circuit: `of` the last values, including the circuit's own.
fn plain(
    values: &[Option<f64>],
    length: usize,
    of: impl Fn(&[f64]) -> Option<f64>,
) -> Vec<Option<f64>> {
    let mut all = Vec::new();
    let judge = |value: &Option<f64>| {
        all.push((*value)?);
        of(all.last_chunk_of(length)?)
    };
    values.iter().map(judge).collect()
}

/// Last elements of a list.
trait Last {
    /// `None` if there are fewer.
    fn last_chunk_of(&self, count: usize) -> Option<&[f64]>;
}

impl Last for Vec<f64> {
    fn last_chunk_of(&self, count: usize) -> Option<&[f64]> {
        self.get(self.len().checked_sub(count)?..)
    }
}

/// Quantile of values, interpolated linearly between ranks (numpy's default).
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * (sorted.len() - 1) as f64;
    let low = (0..sorted.len()).rfind(|rank| *rank as f64 <= at).expect("a value");
    let high = sorted.get(low + 1).unwrap_or(&sorted[low]);
    sorted[low] + (high - sorted[low]) * at.fract()
}

/// Whether all are equal except for rounding.
fn same(one: &[Option<f64>], other: &[Option<f64>]) -> bool {
    let near = |(one, other): (&Option<f64>, &Option<f64>)| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * other.abs().max(1.0),
        (one, other) => one.is_none() && other.is_none(),
    };
    one.len() == other.len() && one.iter().zip(other).all(near)
}

/// Values, some missing and many equal.
fn some_values() -> impl Strategy<Value = Vec<Option<f64>>> {
    let value =
        prop_oneof![1 => Just(None), 5 => (1..60_u32).prop_map(|ms| Some(f64::from(ms) * 7.5))];
    proptest::collection::vec(value, 0..160)
}

proptest! {
    #[test]
    fn percentiles_are_those_of_sorting(
        values in some_values(), length in 3..40_usize, asked in 0.01..0.99_f64, measure in 0..3_usize,
    ) {
        let (all, measure) = (circuits(&values), Measure::ALL[measure]);
        let all: Vec<&Seen> = all.iter().collect();
        let found = timeouts(&all, measure, &[asked], Timeout::Percentile, length).remove(0);
        let expected = plain(&values, length, |last| Some(quantile(last, asked)));
        prop_assert!(same(&found, &expected), "{found:?} {expected:?}");
        let judged = accepted(&all, measure, &found);
        for ((is, value), timeout) in judged.iter().zip(&values).zip(&found) {
            prop_assert_eq!(*is, value.zip(*timeout).map(|(value, timeout)| value <= timeout));
        }
    }

    #[test]
    fn tors_timeouts_are_those_of_the_last_values(values in some_values(), length in 100..120_usize) {
        let all = circuits(&values);
        let all: Vec<&Seen> = all.iter().collect();
        let found = timeouts(&all, Measure::Build, &[0.8], Timeout::Tor, length).remove(0);
        let expected = plain(&values, length, |last| Some(Estimate::of(last)?.timeout_ms(0.8)));
        prop_assert!(same(&found, &expected), "{found:?} {expected:?}");
    }

    #[test]
    fn of_each_three_with_a_value_the_least_is_accepted(values in some_values()) {
        let all = circuits(&values);
        let found = best_of_three(&all.iter().collect::<Vec<_>>());
        let there: Vec<usize> = (0..values.len()).filter(|place| values[*place].is_some()).collect();
        let mut expected = vec![None; values.len()];
        for set in there.chunks(3).filter(|set| set.len() == 3) {
            let least = set.iter().map(|place| values[*place].expect("there")).fold(f64::INFINITY, f64::min);
            let first = set.iter().find(|place| values[**place] == Some(least));
            set.iter().for_each(|place| expected[*place] = Some(Some(place) == first));
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn timeouts_of_the_moving_fit_are_those_of_fits_from_nothing() {
    let mut rng = ChaCha12Rng::seed_from_u64(15);
    let mut values: Vec<Option<f64>> = Vec::new();
    for count in 0..700_u32 {
        // The network changes in the middle.
        let mu = if count < 350 { 300.0 } else { 420.0 };
        let gev = Gev { xi: 0.2, mu, sigma: 80.0 };
        values.push((count % 11 > 0).then(|| gev.quantile(rng.random_range(1e-6..1.0))));
    }
    let all = circuits(&values);
    let all: Vec<&Seen> = all.iter().collect();
    let found = timeouts(&all, Measure::Rtt, &[0.8, 0.5], Timeout::Gev, 200);
    for (asked, found) in [0.8, 0.5].into_iter().zip(found) {
        let expected =
            plain(&values, 200, |last| Some(Gev::fit(&Sample::new(last, &[]))?.quantile(asked)));
        let mut compared = 0;
        for (place, pair) in found.iter().zip(&expected).enumerate() {
            let (Some(one), Some(other)) = pair else {
                assert_eq!(pair, (&None, &None), "{place}");
                continue;
            };
            assert!((one / other - 1.0).abs() < 1e-3, "{place}: {one} {other}");
            compared += 1;
        }
        assert!(compared > 400, "{compared}");
    }
}
