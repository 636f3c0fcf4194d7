//! Values to fit with their frequencies, and bounds of values that were given up.

use std::cmp::Ordering;

/// Values, some of which are only known to be above a bound (right-censored).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Known values in ascending order, with their frequencies.
    seen: Vec<(f64, f64)>,
    /// Bounds of values that were given up, in ascending order, with their frequencies.
    beyond: Vec<(f64, f64)>,
    /// The number of known values.
    count: f64,
}

/// The largest part of the values that may be equal to the least one if a distribution is fitted.
const HEAP: f64 = 0.2;
/// The approximate number of values of a thinned sample.
const THIN: usize = 4096;

impl Sample {
    /// From known values and bounds of unknown ones; numbers that are negative or not finite are
    /// left out.
    #[must_use]
    pub fn new(seen: &[f64], beyond: &[f64]) -> Self {
        let seen = counted(seen);
        let count = seen.iter().map(|(_, times)| times).sum();
        Self { seen, beyond: counted(beyond), count }
    }

    /// The same with further bounds, each of which counts as this part of a value.
    #[must_use]
    pub fn and_beyond(mut self, bounds: &[f64], part: f64) -> Self {
        let more = counted(bounds).into_iter().map(|(bound, times)| (bound, times * part));
        self.beyond.extend(more.filter(|(_, times)| *times > 0.0));
        self.beyond.sort_by(|one, other| one.0.total_cmp(&other.0));
        self.beyond.dedup_by(|next, last| {
            let is_same = next.0.total_cmp(&last.0).is_eq();
            last.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        self
    }

    /// The values in ascending order, with their frequencies.
    #[must_use]
    pub fn seen(&self) -> &[(f64, f64)] {
        &self.seen
    }

    /// The bounds in ascending order, with the number of values above each.
    #[must_use]
    pub fn beyond(&self) -> &[(f64, f64)] {
        &self.beyond
    }

    /// The number of known values.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.count
    }

    /// The least value.
    #[must_use]
    pub fn least(&self) -> Option<f64> {
        self.seen.first().map(|(value, _)| *value)
    }

    /// The greatest value.
    #[must_use]
    pub fn greatest(&self) -> Option<f64> {
        self.seen.last().map(|(value, _)| *value)
    }

    /// The least value that at least half of the values do not exceed.
    #[must_use]
    pub fn middle(&self) -> Option<f64> {
        let mut before = 0.0;
        let half = self.count / 2.0;
        let is_it = |(_, times): &&(f64, f64)| {
            before += times;
            before >= half
        };
        self.seen.iter().find(is_it).map(|(value, _)| *value)
    }

    /// Whether a distribution can be fitted: at least three values differ, and at most a fifth of
    /// all are equal to the least one, which is not so if most congestion delays are 0. The
    /// likelihood of a distribution with a lower end at such a cluster is unbounded, whatever the
    /// other values are.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        let all = self.count + self.beyond.iter().map(|(_, times)| times).sum::<f64>();
        self.seen.len() >= 3 && !is_heap(self.seen[0].1, all)
    }

    /// The unit of values in fits: the median, or the mean if half of the values are 0. None if all
    /// are 0.
    #[must_use]
    pub fn unit(&self) -> Option<f64> {
        let is_unit = |value: &f64| value.is_finite() && *value > 0.0;
        let mean = self.seen.iter().map(|(value, times)| value * times / self.count).sum();
        self.middle().filter(is_unit).or(Some(mean).filter(is_unit))
    }

    /// All values multiplied by a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let scaled = |all: &[(f64, f64)]| all.iter().map(|(x, n)| (x * factor, *n)).collect();
        Self { seen: scaled(&self.seen), beyond: scaled(&self.beyond), count: self.count }
    }

    /// A smaller sample in which neighbours are replaced by their mean; the least value is kept.
    #[must_use]
    pub fn thinned(&self) -> Self {
        let seen = thinned(&self.seen);
        Self { seen, beyond: thinned(&self.beyond), count: self.count }
    }

    /// Whether thinning changes anything.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.seen.len() + self.beyond.len() > THIN
    }

    /// The first three L-moments of the known values (Hosking's l1, l2, l3).
    #[must_use]
    pub fn l_moments(&self) -> [f64; 3] {
        let (n, mut before) = (self.count, 0.0);
        let mut b = [0.0; 3];
        for &(value, times) in &self.seen {
            // Equal values all have the middle one's rank.
            let rank = before + (times - 1.0) / 2.0;
            b[0] += times * value / n;
            b[1] += times * value * rank / (n - 1.0).max(1.0) / n;
            b[2] += times * value * rank * (rank - 1.0) / ((n - 1.0) * (n - 2.0)).max(1.0) / n;
            before += times;
        }
        [b[0], 2.0 * b[1] - b[0], 6.0 * b[2] - 6.0 * b[1] + b[0]]
    }
}

/// Whether the least of these values is too frequent for a fit; none of them may be NaN.
#[must_use]
pub(crate) fn has_heap(values: &[f64]) -> bool {
    let count = |(least, times): (f64, f64), value: &f64| match value.total_cmp(&least) {
        Ordering::Less => (*value, 1.0),
        Ordering::Equal => (least, times + 1.0),
        Ordering::Greater => (least, times),
    };
    let (_, times) = values.iter().fold((f64::INFINITY, 0.0), count);
    is_heap(times, values.len() as f64)
}

/// Whether the least value is too frequent: `times` of `all`.
fn is_heap(times: f64, all: f64) -> bool {
    times > 1.0 && times > HEAP * all
}

/// Values in ascending order with their frequencies.
fn counted(values: &[f64]) -> Vec<(f64, f64)> {
    // The sum of -0 and 0 is 0.
    let mut sorted: Vec<f64> = values
        .iter()
        .filter(|value| value.is_finite() && **value >= 0.0)
        .map(|value| value + 0.0)
        .collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut all: Vec<(f64, f64)> = Vec::new();
    for value in sorted {
        match all.last_mut() {
            Some((last, times)) if last.total_cmp(&value).is_eq() => *times += 1.0,
            _ => all.push((value, 1.0)),
        }
    }
    all
}

/// Fewer values: neighbours are replaced by their mean.
fn thinned(all: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some((first, rest)), true) = (all.split_first(), all.len() > THIN) else {
        return all.to_vec();
    };
    let mean = |some: &[(f64, f64)]| {
        let times: f64 = some.iter().map(|(_, times)| times).sum();
        (some.iter().map(|(value, times)| value * times).sum::<f64>() / times, times)
    };
    let parts = rest.chunks(rest.len().div_ceil(THIN)).map(mean);
    std::iter::once(*first).chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_stand_together_and_odd_ones_are_left_out() {
        let sample = Sample::new(&[3.0, 1.0, 3.0, f64::NAN, -1.0, f64::INFINITY], &[5.0]);
        assert_eq!(sample.seen(), [(1.0, 1.0), (3.0, 2.0)]);
        assert_eq!((sample.count(), sample.middle()), (3.0, Some(3.0)));
        assert_eq!(sample.beyond(), [(5.0, 1.0)]);
        assert_eq!(Sample::new(&[], &[]).middle(), None);
    }

    #[test]
    fn bounds_may_count_as_parts_of_values() {
        let sample = Sample::new(&[1.0], &[5.0, 7.0]).and_beyond(&[6.0, 5.0, 5.0, f64::NAN], 0.25);
        assert_eq!(sample.beyond(), [(5.0, 1.5), (6.0, 0.25), (7.0, 1.0)]);
        let whole = Sample::new(&[1.0], &[5.0]);
        assert_eq!(whole.clone().and_beyond(&[6.0], 0.0), whole);
        assert_eq!(whole.and_beyond(&[6.0], 1.0), Sample::new(&[1.0], &[5.0, 6.0]));
    }

    #[test]
    fn a_time_of_0_is_a_value() {
        let sample = Sample::new(&[0.0, 3.0, -0.0, 0.0, 2.0], &[]);
        assert_eq!(sample.seen(), [(0.0, 3.0), (2.0, 1.0), (3.0, 1.0)]);
        assert_eq!((sample.middle(), sample.unit()), (Some(0.0), Some(1.0)));
        assert_eq!(Sample::new(&[0.0; 5], &[]).unit(), None);
        assert_eq!(Sample::new(&[0.0, 2.0, 3.0], &[]).unit(), Some(2.0));
    }

    #[test]
    fn a_heap_of_least_values_is_not_fitted() {
        let values: Vec<f64> = (0..100).map(|k| f64::from((k - 20_i32).max(0))).collect();
        for (from, is_spread) in [(0, false), (1, false), (2, true)] {
            let some = &values[from..];
            let found = (Sample::new(some, &[]).is_spread(), has_heap(some));
            assert_eq!(found, (is_spread, !is_spread), "{from}");
        }
        assert!(Sample::new(&values, &[9.0; 50]).is_spread(), "a seventh of all");
        assert!(Sample::new(&[1.0, 2.0, 3.0], &[]).is_spread());
    }

    #[test]
    fn a_thinned_sample_keeps_count_and_mean() {
        let values: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let thin = Sample::new(&values, &[]).thinned();
        assert!(thin.seen().len() <= THIN + 1 && thin.least() == Some(1.0));
        let [mean, ..] = thin.l_moments();
        assert!((mean - 50_000.5).abs() < 1e-6 && (thin.count() - 1e5).abs() < 1e-9, "{mean}");
    }
}
