//! Random paths through relays of different capacities, by the slowest relay of a path.
//!
//! By formula 2 of the throughput bound, a path is as fast as its slowest relay. So the mean
//! throughput of random paths of one length is a sum over relays: the probability that this relay
//! is a path's slowest, times the mean throughput of such paths. A run measures as many paths of
//! each kind (a stratum) as it can, and weighs their throughput by the exact probabilities
//! (stratified sampling). These are for drawing without replacement, uniformly or by weight, and
//! are summed over all sets of relays, so there may be at most [`MOST_RELAYS`] relays.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

/// The largest number of relays; with more there would be more than 65,536 sets.
pub const MOST_RELAYS: usize = 16;

/// How the relays of a path are drawn, one after the other, without replacement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Selection {
    /// Uniformly.
    Uniform,
    /// By capacity.
    Weighted,
}

/// The relays of a path, as indices.
pub type Path = Vec<usize>;

/// Rate-limited relays, and the probabilities of their sets.
#[derive(Clone, Debug)]
pub struct Strata {
    /// Capacities, in any unit.
    capacities: Vec<f64>,
    /// The relays' indices, the fastest first.
    order: Vec<usize>,
}

/// Capacities that cannot be divided into strata.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StrataError {
    /// There are no relays, or too many.
    #[error("{0} relays: use 1 to {MOST_RELAYS}")]
    Relays(usize),
    /// A capacity is not valid.
    #[error("relay {0} has the capacity {1}: it must be greater than 0")]
    Capacity(usize, f64),
}

impl Strata {
    /// From the relays' capacities.
    ///
    /// # Errors
    /// If there are no relays or too many, or a capacity is not above 0.
    pub fn new(capacities: Vec<f64>) -> Result<Self, StrataError> {
        if !(1..=MOST_RELAYS).contains(&capacities.len()) {
            return Err(StrataError::Relays(capacities.len()));
        }
        let is_none = |capacity: &f64| !(capacity.is_finite() && *capacity > 0.0);
        if let Some(relay) = capacities.iter().position(is_none) {
            return Err(StrataError::Capacity(relay, capacities[relay]));
        }
        let mut order: Vec<usize> = (0..capacities.len()).collect();
        order.sort_by(|&one, &other| capacities[other].total_cmp(&capacities[one]));
        Ok(Self { capacities, order })
    }

    /// The relays in descending order of capacity.
    #[must_use]
    pub fn fastest_first(&self) -> &[usize] {
        &self.order
    }

    /// For each relay the probability that it is the slowest of a path of `length` relays; they add
    /// up to 1.
    ///
    /// Equally fast relays count as slower in the given order. For impossible lengths all
    /// probabilities are 0.
    #[must_use]
    pub fn chances(&self, length: usize, selection: Selection) -> Vec<f64> {
        let mut chances = vec![0.0; self.order.len()];
        for (set, chance) in self.sets(selection).into_iter().enumerate() {
            if set.count_ones() as usize == length && length > 0 {
                // Bit k of a set is the relay at index k of the order, so its highest bit is the
                // slowest relay.
                chances[self.order[set.ilog2() as usize]] += chance;
            }
        }
        chances
    }

    /// The mean capacity of the paths' slowest relays: B in Lemma 1 of the throughput bound, if
    /// paths are drawn uniformly.
    #[must_use]
    pub fn mean_of_slowest(&self, length: usize, selection: Selection) -> f64 {
        let chances = self.chances(length, selection);
        chances.iter().zip(&self.capacities).map(|(chance, capacity)| chance * capacity).sum()
    }

    /// A random path of `length` relays in random order whose slowest relay is `slowest`; none if
    /// there is none.
    ///
    /// The others are drawn uniformly, because a stratum is defined by its slowest relay only.
    pub fn path(&self, slowest: usize, length: usize, rng: &mut impl Rng) -> Option<Path> {
        let place = self.order.iter().position(|&relay| relay == slowest)?;
        let mut faster = self.order[..place].to_vec();
        let others = length.checked_sub(1).filter(|&others| others <= faster.len())?;
        faster.shuffle(rng);
        faster.truncate(others);
        faster.insert(rng.random_range(0..=others), slowest);
        Some(faster)
    }

    /// For each set of relays, by indices in the order, the probability that a path of its size
    /// consists of it.
    fn sets(&self, selection: Selection) -> Vec<f64> {
        let weights: Vec<f64> =
            self.order.iter().map(|&relay| self.weight(relay, selection)).collect();
        let total: f64 = weights.iter().sum();
        let mut sets = vec![0.0; 1 << weights.len()];
        let mut drawn = vec![0.0; sets.len()];
        sets[0] = 1.0;
        for set in 1..sets.len() {
            let lowest = set.trailing_zeros() as usize;
            drawn[set] = drawn[set & (set - 1)] + weights[lowest];
            let last = (0..weights.len()).filter(|place| set >> place & 1 == 1);
            sets[set] = last
                .map(|place| {
                    let before = set & !(1 << place);
                    sets[before] * weights[place] / (total - drawn[before])
                })
                .sum();
        }
        sets
    }

    /// The weight by which a relay is drawn.
    fn weight(&self, relay: usize, selection: Selection) -> f64 {
        match selection {
            Selection::Uniform => 1.0,
            Selection::Weighted => self.capacities[relay],
        }
    }
}

/// A mean over strata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean value.
    pub value: f64,
    /// Its standard error; none if a stratum has only one path.
    pub error: Option<f64>,
}

/// The mean over all paths, from the throughput of some paths of each stratum (one list for each
/// relay) and the strata's probabilities.
///
/// `None` if a stratum with a probability above 0 has no path.
#[must_use]
pub fn mean(chances: &[f64], carried: &[Vec<f64>]) -> Option<Mean> {
    let (mut value, mut variance) = (0.0, Some(0.0));
    for (&chance, carried) in chances.iter().zip(carried).filter(|(chance, _)| **chance > 0.0) {
        value += chance * ff_report::stats::mean(carried)?;
        let freedom = carried.len() as f64 - 1.0;
        let deviation = ff_report::stats::deviation(carried).filter(|_| freedom > 0.0);
        let own = deviation.map(|deviation| (chance * deviation).powi(2) / freedom);
        variance = variance.zip(own).map(|(variance, own)| variance + own);
    }
    Some(Mean { value, error: variance.map(f64::sqrt) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// Relays of ledger row Q3.
    fn six() -> Strata {
        Strata::new(vec![7.0, 10.0, 1.0, 4.0, 9.0, 4.0]).expect("strata")
    }

    #[test]
    fn uniform_paths_have_the_mean_of_lemma_1() {
        for (length, bound) in [(1, 35.0 / 6.0), (2, 56.0 / 15.0), (3, 2.65), (4, 2.0), (5, 1.5)] {
            let ours = six().mean_of_slowest(length, Selection::Uniform);
            assert!((ours - bound).abs() < 1e-12, "{length}: {ours}");
        }
    }

    #[test]
    fn chances_are_those_of_drawn_paths() {
        let (strata, seed, runs) = (six(), rand::random::<u64>(), 20_000);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        for selection in [Selection::Uniform, Selection::Weighted] {
            let mut found = [0.0; 6];
            for _ in 0..runs {
                let mut left: Vec<usize> = (0..6).collect();
                let mut slowest = usize::MAX;
                for _ in 0..3 {
                    let weights = left.iter().map(|&relay| strata.weight(relay, selection));
                    let mut at = rng.random_range(0.0..weights.clone().sum());
                    let drawn = weights.clone().position(|weight| {
                        at -= weight;
                        at < 0.0
                    });
                    let relay = left.remove(drawn.unwrap_or(left.len() - 1));
                    let place = |relay| strata.order.iter().position(|&other| other == relay);
                    if slowest == usize::MAX || place(relay) > place(slowest) {
                        slowest = relay;
                    }
                }
                found[slowest] += 1.0 / f64::from(runs);
            }
            for (found, chance) in found.iter().zip(strata.chances(3, selection)) {
                let most = 5.0 * (chance * (1.0 - chance) / f64::from(runs)).sqrt() + 1e-12;
                assert!((found - chance).abs() <= most, "seed {seed}: {found} {chance}");
            }
        }
    }

    #[test]
    fn a_path_has_the_slowest_relay_that_was_asked_for_and_none_twice() {
        let strata = six();
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut places = BTreeSet::new();
        for _ in 0..200 {
            let path = strata.path(3, 3, &mut rng).expect("three are faster");
            let slowest = path.iter().map(|&relay| strata.capacities[relay]).fold(99.0, f64::min);
            assert_eq!(slowest, 4.0);
            assert_eq!(path.iter().collect::<BTreeSet<_>>().len(), 3);
            places.insert(path.iter().position(|&relay| relay == 3));
        }
        assert_eq!(places.len(), 3, "it may be anywhere");
        assert_eq!(strata.path(1, 2, &mut rng), None, "none is faster than the fastest");
        assert_eq!(strata.path(1, 1, &mut rng), Some(vec![1]));
        assert_eq!(strata.path(3, 0, &mut rng), None);
        assert_eq!(strata.path(6, 1, &mut rng), None);
    }

    #[test]
    fn the_others_of_a_path_are_there_as_often_as_each_other_in_any_place() {
        let (strata, draws, mut rng) = (six(), 20_000, crate::chance::generator());
        let mut found = [[0_u32; 3]; 6];
        for _ in 0..draws {
            let path = strata.path(2, 3, &mut rng).expect("five are faster");
            path.iter().enumerate().for_each(|(place, &relay)| found[relay][place] += 1);
        }
        for (relay, places) in found.into_iter().enumerate() {
            // Two of five faster relays.
            let chance: f64 = if relay == 2 { 1.0 / 3.0 } else { 2.0 / 5.0 / 3.0 };
            let most = 5.0 * (chance * (1.0 - chance) * f64::from(draws)).sqrt();
            let is_fair = |found| (f64::from(found) - chance * f64::from(draws)).abs() <= most;
            assert!(places.into_iter().all(is_fair), "{relay}: {places:?}");
        }
    }

    #[test]
    fn means_are_weighed_by_chances() {
        let found = mean(&[0.25, 0.75, 0.0], &[vec![4.0, 8.0], vec![1.0, 1.0], vec![]]);
        assert_eq!(found.map(|found| found.value), Some(2.25));
        let error = found.and_then(|found| found.error).expect("two paths each");
        assert!((error - 0.25 * 8_f64.sqrt() / 2_f64.sqrt()).abs() < 1e-12, "{error}");
        let lone = mean(&[1.0], &[vec![3.0]]).expect("a path");
        assert_eq!((lone.value, lone.error), (3.0, None));
        assert_eq!(mean(&[0.5, 0.5], &[vec![3.0], vec![]]), None);
    }

    #[test]
    fn odd_capacities_are_refused() {
        assert_eq!(Strata::new(vec![]).err(), Some(StrataError::Relays(0)));
        assert_eq!(Strata::new(vec![1.0; 17]).err(), Some(StrataError::Relays(17)));
        assert_eq!(Strata::new(vec![1.0, 0.0]).err(), Some(StrataError::Capacity(1, 0.0)));
        Strata::new(vec![f64::NAN]).expect_err("no number");
        let chances = six().chances(7, Selection::Weighted);
        assert_eq!(chances, [0.0; 6]);
    }
}
