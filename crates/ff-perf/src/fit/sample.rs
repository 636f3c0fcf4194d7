//! Values to fit: how often each was seen, and beyond what others were given up.

/// Values, some of which are only known to lie above a bound (right-censored).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Values that were seen, rising, and how often each was.
    seen: Vec<(f64, f64)>,
    /// Bounds above which a value lies that was not waited for, rising, and how many lie above each.
    beyond: Vec<(f64, f64)>,
    /// How many were seen.
    count: f64,
}

/// A thinned sample has about so many values.
const THIN: usize = 4096;

impl Sample {
    /// Of values that were seen and bounds of those that were not; what is not a finite number above 0 is left out.
    #[must_use]
    pub fn new(seen: &[f64], beyond: &[f64]) -> Self {
        let seen = counted(seen);
        let count = seen.iter().map(|(_, times)| times).sum();
        Self { seen, beyond: counted(beyond), count }
    }

    /// The values, rising, and how often each was seen.
    #[must_use]
    pub fn seen(&self) -> &[(f64, f64)] {
        &self.seen
    }

    /// The bounds, rising, and how many values lie above each.
    #[must_use]
    pub fn beyond(&self) -> &[(f64, f64)] {
        &self.beyond
    }

    /// How many values were seen.
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

    /// The least value of which at least half are no greater.
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

    /// All values times a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let scaled = |all: &[(f64, f64)]| all.iter().map(|(x, n)| (x * factor, *n)).collect();
        Self { seen: scaled(&self.seen), beyond: scaled(&self.beyond), count: self.count }
    }

    /// A sample of few values in which neighbours stand together at their mean; the least value stays what it is.
    #[must_use]
    pub fn thinned(&self) -> Self {
        let seen = thinned(&self.seen);
        Self { seen, beyond: thinned(&self.beyond), count: self.count }
    }

    /// Whether thinning leaves anything out.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.seen.len() + self.beyond.len() > THIN
    }

    /// Its first two moments of order statistics and the third (Hosking's l1, l2, l3), of what was seen.
    #[must_use]
    pub fn l_moments(&self) -> [f64; 3] {
        let (n, mut before) = (self.count, 0.0);
        let mut b = [0.0; 3];
        for &(value, times) in &self.seen {
            // Of equal values the middle one's rank stands for all.
            let rank = before + (times - 1.0) / 2.0;
            b[0] += times * value / n;
            b[1] += times * value * rank / (n - 1.0).max(1.0) / n;
            b[2] += times * value * rank * (rank - 1.0) / ((n - 1.0) * (n - 2.0)).max(1.0) / n;
            before += times;
        }
        [b[0], 2.0 * b[1] - b[0], 6.0 * b[2] - 6.0 * b[1] + b[0]]
    }
}

/// Values, rising, and how often each is there.
fn counted(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> =
        values.iter().copied().filter(|value| value.is_finite() && *value > 0.0).collect();
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

/// Fewer values: neighbours at their mean.
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
        let sample = Sample::new(&[3.0, 1.0, 3.0, f64::NAN, -1.0, 0.0, f64::INFINITY], &[5.0]);
        assert_eq!(sample.seen(), [(1.0, 1.0), (3.0, 2.0)]);
        assert_eq!((sample.count(), sample.middle()), (3.0, Some(3.0)));
        assert_eq!(sample.beyond(), [(5.0, 1.0)]);
        assert_eq!(Sample::new(&[], &[]).middle(), None);
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
