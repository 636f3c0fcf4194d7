//! EigenSpeed's weights (Snader and Borisov, IPTPS 2009, as described in the paper's §8): every
//! relay reports the speed of streams to every other one, and the weights are the eigenvector of
//! that matrix.
//!
//! ```text
//!   views ─▶ the lower view of each pair ─▶ v := M v / |M v|, starting with trusted relays
//!                │  first step: trusted relays' views of all relays, the ratings
//!                ├─ a change per step too far above the median relay's: the relay is excluded
//!                └─ a final weight too far above the rating: the relay is marked
//! ```
//!
//! The paper says that relays are marked for atypical changes or unusual final values of their
//! weights. Here these are a weight that grows by more than a factor in one step, and a final
//! weight more than a factor above the rating by trusted relays, both relative to the median relay.
//! Marked relays are excluded and get 1/n of the weight, as do relays without a rating.
//!
//! Limits: the paper does not publish the two thresholds. Here each of them marks a given share of
//! honest relays in a network without attackers ([`EigenSpeedRules::calibrated`]), so the fewer
//! trusted relays there are, the more a liar may grow. Matrices are dense: some thousand relays at
//! most.

/// The greatest number of relays in a matrix.
pub const MOST_RELAYS: usize = 4096;

/// The speeds of streams between relays as each relay reports them; 0 for pairs without streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Views {
    /// The number of relays.
    count: usize,
    /// One row per relay, with its views of all relays.
    speeds: Vec<f64>,
}

impl Views {
    /// Views of `count` relays without any streams; `None` if there are too many relays.
    #[must_use]
    pub fn new(count: usize) -> Option<Self> {
        (count <= MOST_RELAYS).then(|| Self { count, speeds: vec![0.0; count * count] })
    }

    /// The number of relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no relays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The speed that relay `of` reports for relay `to`.
    #[must_use]
    pub fn speed(&self, of: usize, to: usize) -> f64 {
        let is_there = of < self.count && to < self.count;
        if is_there { self.speeds[of * self.count + to] } else { 0.0 }
    }

    /// Sets the speed that relay `of` reports for relay `to`; invalid speeds are ignored.
    pub fn set(&mut self, of: usize, to: usize, speed: f64) {
        if of < self.count && to < self.count && of != to {
            self.speeds[of * self.count + to] = super::sane(speed);
        }
    }

    /// The matrix that is used: the lower view of each pair.
    fn believed(&self) -> Self {
        let mut believed = self.clone();
        for one in 0..self.count {
            for other in one + 1..self.count {
                let least = self.speed(one, other).min(self.speed(other, one));
                believed.speeds[one * self.count + other] = least;
                believed.speeds[other * self.count + one] = least;
            }
        }
        believed
    }

    /// A relay's views of all relays.
    fn row(&self, of: usize) -> &[f64] {
        self.speeds.get(of * self.count..(of + 1) * self.count).unwrap_or_default()
    }

    /// M v, divided by the sum of its entries, over relays that are not marked.
    fn step(&self, vector: &[f64], marked: &[bool]) -> Vec<f64> {
        let entry = |(of, marked): (usize, &bool)| {
            if *marked { 0.0 } else { dot(self.row(of), vector) }
        };
        let mut next: Vec<f64> = marked.iter().enumerate().map(entry).collect();
        normalise(&mut next);
        next
    }
}

/// The rules by which weights are computed and liars marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EigenSpeedRules {
    /// The greatest growth of a weight in one step, as a multiple of the median relay's.
    pub most_change: f64,
    /// The greatest growth of a final weight over the rating by trusted relays, as a multiple of
    /// the median relay's.
    pub most_growth: f64,
    /// The greatest number of steps.
    pub most_steps: usize,
}

impl EigenSpeedRules {
    /// Rules that mark no relay.
    pub const NONE: Self =
        Self { most_change: f64::INFINITY, most_growth: f64::INFINITY, most_steps: MOST_STEPS };
}

/// The result of EigenSpeed.
#[derive(Clone, Debug, PartialEq)]
pub struct EigenSpeedWeights {
    /// Each relay's share of total weight; their sum is 1.
    pub shares: Vec<f64>,
    /// Whether each relay was marked.
    pub marked: Vec<bool>,
    /// The number of steps.
    pub steps: usize,
    /// The factor by which the matrix stretches the weights in a step: its greatest eigenvalue,
    /// once the weights have converged.
    pub stretch: f64,
}

impl EigenSpeedRules {
    /// The strictest rules of which neither threshold marks more than this share of honest relays.
    #[must_use]
    pub fn calibrated(honest: &Views, trusted: &[usize], share: f64) -> Self {
        let run = Run::of(honest, trusted, &Self::NONE);
        let at = |values: Vec<f64>| {
            let sorted = ff_report::stats::sorted(values);
            ff_report::stats::percentile(&sorted, 100.0 * (1.0 - share)).unwrap_or(f64::INFINITY)
        };
        let growths = against_median(&run.vector, &run.ratings).into_iter().flatten().collect();
        Self { most_change: at(run.changes), most_growth: at(growths), ..Self::NONE }
    }
}

/// The number of steps after which weights are final, converged or not.
pub const MOST_STEPS: usize = 100;

/// Weights have converged if the sum of their absolute changes is at most this.
const SETTLED: f64 = 1e-6;

/// The weights of relays by these views, computed from trusted relays.
#[must_use]
pub fn weights(views: &Views, trusted: &[usize], rules: &EigenSpeedRules) -> EigenSpeedWeights {
    let mut run = Run::of(views, trusted, rules);
    run.mark_grown(rules);
    run.shares()
}

/// A computation of weights.
struct Run {
    /// The matrix that is used.
    believed: Views,
    /// The ratings by trusted relays, which are the first step.
    ratings: Vec<f64>,
    /// The weights so far.
    vector: Vec<f64>,
    marked: Vec<bool>,
    /// The trusted relays, which are never marked.
    trusted: Vec<bool>,
    /// The greatest growth of each weight in one step, relative to the median relay.
    changes: Vec<f64>,
    /// The number of steps so far.
    steps: usize,
}

impl Run {
    /// Computes the eigenvector.
    fn of(views: &Views, trusted: &[usize], rules: &EigenSpeedRules) -> Self {
        let count = views.len();
        let mut is_trusted = vec![false; count];
        for &index in trusted.iter().filter(|&&index| index < count) {
            is_trusted[index] = true;
        }
        let mut start: Vec<f64> = is_trusted.iter().map(|&is| f64::from(u8::from(is))).collect();
        normalise(&mut start);
        let (believed, marked) = (views.believed(), vec![false; count]);
        let ratings = believed.step(&start, &marked);
        let vector = ratings.clone();
        let changes = vec![0.0; count];
        let mut run =
            Self { believed, ratings, vector, marked, trusted: is_trusted, changes, steps: 1 };
        while run.steps < rules.most_steps.min(MOST_STEPS) && run.advance(rules) {}
        run
    }

    /// Performs a step, and excludes relays with too great a change. Returns whether another step
    /// is needed.
    fn advance(&mut self, rules: &EigenSpeedRules) -> bool {
        let next = self.believed.step(&self.vector, &self.marked);
        let moved: f64 = next.iter().zip(&self.vector).map(|(new, old)| (new - old).abs()).sum();
        let changes = against_median(&next, &self.vector);
        self.vector = next;
        self.steps += 1;
        let mut found = false;
        for (index, change) in changes.into_iter().enumerate() {
            let change = change.unwrap_or(0.0);
            self.changes[index] = self.changes[index].max(change);
            if change > rules.most_change && !self.trusted[index] && !self.marked[index] {
                (self.marked[index], self.vector[index], found) = (true, 0.0, true);
            }
        }
        found || moved > SETTLED
    }

    /// Marks relays with final weights too far above their ratings.
    fn mark_grown(&mut self, rules: &EigenSpeedRules) {
        let growths = against_median(&self.vector, &self.ratings);
        for (index, growth) in growths.into_iter().enumerate() {
            let is_grown = growth.is_some_and(|growth| growth > rules.most_growth);
            self.marked[index] |= is_grown && !self.trusted[index];
        }
    }

    /// The shares: 1/n for relays that are marked or have no rating; the others divide the rest by
    /// the vector.
    fn shares(self) -> EigenSpeedWeights {
        let is_known = |index: usize| self.trusted[index] || self.ratings[index] > 0.0;
        let is_out = |index: usize| self.marked[index] || !is_known(index);
        let count = self.believed.len();
        let rows = (0..count).map(|of| dot(self.believed.row(of), &self.vector));
        let stretch: f64 = rows.sum();
        let out = (0..count).filter(|&index| is_out(index)).count();
        #[expect(clippy::cast_precision_loss, reason = "there are some thousand relays")]
        let (each, rest) = (1.0 / count.max(1) as f64, 1.0 - out as f64 / count.max(1) as f64);
        let mut inside: Vec<f64> =
            (0..count).map(|index| if is_out(index) { 0.0 } else { self.vector[index] }).collect();
        if inside.iter().sum::<f64>() <= 0.0 {
            return EigenSpeedWeights {
                shares: vec![each; count],
                marked: self.marked,
                steps: self.steps,
                stretch,
            };
        }
        normalise(&mut inside);
        let share =
            |(index, inside): (usize, f64)| if is_out(index) { each } else { inside * rest };
        let shares = inside.into_iter().enumerate().map(share).collect();
        EigenSpeedWeights { shares, marked: self.marked, steps: self.steps, stretch }
    }
}

/// The growth of each value relative to the median growth; `None` for values that were 0.
fn against_median(new: &[f64], old: &[f64]) -> Vec<Option<f64>> {
    let ratio = |(new, old): (&f64, &f64)| (*old > 0.0).then(|| new / old);
    let ratios: Vec<Option<f64>> = new.iter().zip(old).map(ratio).collect();
    let median = ff_report::stats::median(ratios.iter().copied().flatten().collect());
    let median = median.filter(|median| *median > 0.0).unwrap_or(1.0);
    ratios.into_iter().map(|ratio| ratio.map(|ratio| ratio / median)).collect()
}

/// The scalar product.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Divides by the sum, unless it is 0.
fn normalise(vector: &mut [f64]) {
    let sum: f64 = vector.iter().sum();
    if sum > 0.0 {
        vector.iter_mut().for_each(|entry| *entry /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No limits.
    const FREE: EigenSpeedRules = EigenSpeedRules::NONE;

    /// Views in which the speed between two relays is the product of their numbers.
    fn product(of: &[f64]) -> Views {
        let mut views = Views::new(of.len()).expect("few");
        for (one, a) in of.iter().enumerate() {
            for (other, b) in of.iter().enumerate() {
                views.set(one, other, a * b);
            }
        }
        views
    }

    #[test]
    fn the_weights_are_the_eigenvector_whoever_is_trusted() {
        // 200 steps in Python; the eigenvalue is 7.643 299.
        let views = product(&[1.0, 2.0, 3.0]);
        let expected = [0.247_361_867, 0.367_253_742, 0.385_384_391];
        for trusted in [&[0][..], &[1, 2], &[0, 1, 2]] {
            let found = weights(&views, trusted, &FREE);
            for (share, expected) in found.shares.iter().zip(expected) {
                assert!((share - expected).abs() < 1e-5, "{found:?}");
            }
        }
    }

    #[test]
    fn of_both_views_the_lesser_is_believed() {
        let mut views = product(&[1.0, 1.0, 1.0, 1.0]);
        // Neither reporting high speeds of others nor one other's high report changes a weight.
        let before = weights(&views, &[0, 1], &FREE);
        (0..3).for_each(|other| views.set(3, other, 1e9));
        assert_eq!(weights(&views, &[0, 1], &FREE), before);
    }

    #[test]
    fn a_clique_takes_all_unless_growth_is_bounded() {
        let mut views = product(&[1.0; 20]);
        views.set(18, 19, 1e6);
        views.set(19, 18, 1e6);
        let free = weights(&views, &[0, 1, 2, 3], &FREE);
        assert!(free.shares[18] + free.shares[19] > 0.99, "{:?}", free.shares);
        for rules in [
            EigenSpeedRules { most_growth: 2.0, ..FREE },
            EigenSpeedRules { most_change: 2.0, ..FREE },
        ] {
            let bounded = weights(&views, &[0, 1, 2, 3], &rules);
            let marked: Vec<_> = (0..20).filter(|&index| bounded.marked[index]).collect();
            assert_eq!(marked, [18, 19]);
            assert!((bounded.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!((bounded.shares[18] - 0.05).abs() < 1e-9);
        }
    }

    #[test]
    fn whom_nobody_has_rated_gets_a_part_like_any() {
        let mut views = Views::new(5).expect("few");
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            views.set(one, other, 4.0);
            views.set(other, one, 4.0);
        }
        let found = weights(&views, &[0, 1], &FREE);
        assert!((found.shares[4] - 0.2).abs() < 1e-9 && (found.shares[3] - 0.2).abs() < 1e-9);
    }

    #[test]
    fn odd_views_make_shares_all_the_same() {
        assert_eq!(Views::new(MOST_RELAYS + 1), None);
        let mut views = Views::new(3).expect("few");
        views.set(0, 1, f64::NAN);
        views.set(1, 0, f64::INFINITY);
        views.set(7, 9, 1.0);
        views.set(1, 1, 5.0);
        for trusted in [&[][..], &[0], &[99]] {
            let found = weights(&views, trusted, &FREE);
            assert!((found.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        let none = Views::new(0).expect("few");
        assert!(none.is_empty() && weights(&none, &[], &FREE).shares.is_empty());
    }
}
