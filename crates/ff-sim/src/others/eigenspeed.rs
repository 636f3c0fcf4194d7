//! EigenSpeed's weights (Snader and Borisov, IPTPS 2009, as the paper's §8 describes it): every
//! relay says how fast streams to every other one were, and the weights are the eigenvector of that
//! matrix.
//!
//! ```text
//!   views ─▶ of both views of a pair the lesser ─▶ v := M v / |M v|, from trusted relays alone
//!                      │  first step: what trusted relays say of all, the ratings
//!                      ├─ change in a step, against the median relay: too much, and a relay is taken out
//!                      └─ in the end: too much more than the rating, and it is marked
//! ```
//!
//! The paper says that relays are marked for atypical changes or unusual final values of their
//! weights. Here that is a weight that grows by more than a factor in one step, and one that is in
//! the end more than a factor above what trusted relays rated it, each against the median relay.
//! What is marked is taken out and gets 1/n of the weight, as does what nobody has rated.
//!
//! Limits: the two thresholds are not published in the paper. Here they are set so that a share of
//! honest relays that is given is marked by each in a network without attackers
//! ([`EigenSpeedRules::calibrated`]), so the fewer trusted relays rate them, the more a liar may
//! grow. Matrices are dense: some thousand relays at most.

/// The most relays of a matrix.
pub const MOST_RELAYS: usize = 4096;

/// How fast streams between relays were, as each saw it; 0 where there were none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Views {
    /// How many relays.
    count: usize,
    /// Row by row what a relay says of others.
    speeds: Vec<f64>,
}

impl Views {
    /// The state for `count` relays before any observation; `None` if they are too many.
    #[must_use]
    pub fn new(count: usize) -> Option<Self> {
        (count <= MOST_RELAYS).then(|| Self { count, speeds: vec![0.0; count * count] })
    }

    /// How many relays there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What a relay says of another.
    #[must_use]
    pub fn speed(&self, of: usize, to: usize) -> f64 {
        let is_there = of < self.count && to < self.count;
        if is_there { self.speeds[of * self.count + to] } else { 0.0 }
    }

    /// Lets a relay report a speed of another; a value that is not a speed is ignored.
    pub fn set(&mut self, of: usize, to: usize, speed: f64) {
        if of < self.count && to < self.count && of != to {
            self.speeds[of * self.count + to] = super::sane(speed);
        }
    }

    /// The matrix that is believed: of both views of a pair the lesser.
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

    /// What a relay says of all.
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

/// How weights are found and liars marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EigenSpeedRules {
    /// A weight may become this number of times as great in one step, compared with the median
    /// relay.
    pub most_change: f64,
    /// In the end it may be this number of times the weight that trusted relays rated, compared
    /// with the median relay.
    pub most_growth: f64,
    /// Steps at most.
    pub most_steps: usize,
}

impl EigenSpeedRules {
    /// Those by which nobody is marked.
    pub const NONE: Self =
        Self { most_change: f64::INFINITY, most_growth: f64::INFINITY, most_steps: MOST_STEPS };
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct EigenSpeedWeights {
    /// Each relay's share; all of them are 1.
    pub shares: Vec<f64>,
    /// The relays that were marked.
    pub marked: Vec<bool>,
    /// Steps that it took.
    pub steps: usize,
    /// By how much the matrix stretches the weights in a step: its greatest eigenvalue, once they
    /// have settled.
    pub stretch: f64,
}

impl EigenSpeedRules {
    /// The strictest rules that mark no more than this share of honest relays, by each of the two
    /// thresholds.
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

/// Steps after which the weights stand, settled or not.
pub const MOST_STEPS: usize = 100;

/// Weights have settled when all of them together change by less than this part.
const SETTLED: f64 = 1e-6;

/// The weights of relays by these views, found from trusted ones.
#[must_use]
pub fn weights(views: &Views, trusted: &[usize], rules: &EigenSpeedRules) -> EigenSpeedWeights {
    let mut run = Run::of(views, trusted, rules);
    run.mark_grown(rules);
    run.shares()
}

/// A computation.
struct Run {
    /// The matrix.
    believed: Views,
    /// What trusted relays say of all: the first step.
    ratings: Vec<f64>,
    /// The weights so far.
    vector: Vec<f64>,
    marked: Vec<bool>,
    /// The relays that are trusted, and never marked.
    trusted: Vec<bool>,
    /// By how much each weight has grown in one step at most, against the median relay.
    changes: Vec<f64>,
    /// Steps so far.
    steps: usize,
}

impl Run {
    /// Finds the eigenvector.
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

    /// Does a step, and takes out whose weight has changed too much. Returns whether another one
    /// would change anything.
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

    /// Marks whose weight is in the end too far above its rating.
    fn mark_grown(&mut self, rules: &EigenSpeedRules) {
        let growths = against_median(&self.vector, &self.ratings);
        for (index, growth) in growths.into_iter().enumerate() {
            let is_grown = growth.is_some_and(|growth| growth > rules.most_growth);
            self.marked[index] |= is_grown && !self.trusted[index];
        }
    }

    /// The shares: 1/n for who is marked or was not rated, and of the rest what the vector says.
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

/// How many times what they were these are, against the median of that; `None` for what was
/// nothing.
fn against_median(new: &[f64], old: &[f64]) -> Vec<Option<f64>> {
    let ratio = |(new, old): (&f64, &f64)| (*old > 0.0).then(|| new / old);
    let ratios: Vec<Option<f64>> = new.iter().zip(old).map(ratio).collect();
    let median = ff_report::stats::median(ratios.iter().copied().flatten().collect());
    let median = median.filter(|median| *median > 0.0).unwrap_or(1.0);
    ratios.into_iter().map(|ratio| ratio.map(|ratio| ratio / median)).collect()
}

/// The sum of products.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Divides by the sum, if there is one.
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

    /// Relays whose streams are as fast as the product of two numbers.
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
        // Saying much of others changes nothing, and neither does being told much of by one.
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
