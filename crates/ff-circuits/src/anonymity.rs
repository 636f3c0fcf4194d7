//! The cost of a selection in anonymity: the published measures (NavigaTor, section 6.4), and
//! measures that are easier to interpret.
//!
//! NavigaTor's "normalised entropy" sums over pairs of first and last relays with the shares of
//! *all* measured circuits, so it falls when circuits are discarded, whichever they are. Its "Gini
//! coefficient" sums over the different counts of relays without the distances between them. Both
//! change much when circuits are discarded at random; [`thinned`] computes by how much.
//! [`Corrected`] compares equally many circuits of each selection, and [`attacker`] computes the
//! practical effect: how often an attacker has both ends.
//!
//! The published entropy is divided by the maximum for the number of observed pairs, as in section
//! 7.4. It could also mean all pairs of these relays; but NavigaTor prints more for 10^5 circuits
//! (0.941) than for 10^6 (0.842), and then it would be less.

pub mod attacker;

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

/// The first and the last relay of a circuit.
pub type Ends = (u32, u32);

/// The number of random draws whose mean is computed.
const DRAWS: u32 = 5;
/// Selections with fewer circuits are not compared: hardly any two circuits have the same ends.
const LEAST: usize = 100;
/// Selections with less than one part in this many of all circuits are not compared, because the
/// others would be reduced to as few circuits.
const LEAST_PART: usize = 100;

/// The published measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Published {
    /// "Normalised entropy" of pairs of first and last relays.
    pub entropy: f64,
    /// "Gini coefficient" of first and last relays.
    pub gini: f64,
}

/// Measures of samples of the same size for each selection, so that the number of accepted circuits
/// does not matter.
///
/// Entropies are too small unless a sample is many times as large as the number of relays, or of
/// pairs; this holds for all circuits as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// Entropy of the first relays, with most of the correction for the sample's size (Miller and
    /// Madow).
    pub first_entropy_bits: f64,
    /// Entropy of the last relays, corrected in the same way.
    pub last_entropy_bits: f64,
    /// Entropy of pairs of both, without a correction.
    pub pair_entropy_bits: f64,
    /// The Gini coefficient of first and last relays, including those without circuits.
    pub gini: f64,
}

/// Data common to all selections of the same circuits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole {
    /// The number of measured circuits.
    pub circuits: f64,
    /// The entropy if all measured pairs were equally frequent.
    pub most_bits: f64,
    /// The number of relays at an end of any circuit.
    pub relays: f64,
}

impl Whole {
    /// From the ends of all circuits.
    #[must_use]
    pub fn of(all: &[Ends]) -> Self {
        let most_bits = (pairs(all).len().max(1) as f64).log2();
        Self { circuits: all.len() as f64, most_bits, relays: both_ends(all).len() as f64 }
    }
}

/// The published measures of accepted circuits.
#[must_use]
pub fn published(accepted: &[Ends], whole: &Whole) -> Published {
    let bits = entropy_bits(&pairs(accepted), whole.circuits);
    let entropy = if whole.most_bits > 0.0 { bits / whole.most_bits } else { 0.0 };
    Published { entropy, gini: published_gini(&both_ends(accepted)) }
}

/// The published measures of the same number of circuits drawn at random.
#[must_use]
pub fn thinned(all: &[Ends], keep: usize, whole: &Whole, rng: &mut ChaCha12Rng) -> Published {
    let mut mean = Published::default();
    for _ in 0..DRAWS {
        let found = published(&some(all, keep, rng), whole);
        mean.entropy += found.entropy / f64::from(DRAWS);
        mean.gini += found.gini / f64::from(DRAWS);
    }
    mean
}

/// The number of circuits of each selection to compare: that of the smallest selection that is not
/// too small; none if all are too small.
#[must_use]
pub fn common_size(accepted: impl Iterator<Item = usize>, all: usize) -> Option<usize> {
    accepted.filter(|size| *size >= LEAST.max(all / LEAST_PART)).min()
}

/// Measures of accepted circuits from samples of this size, which are comparable between
/// selections.
#[must_use]
pub fn corrected(
    accepted: &[Ends],
    size: usize,
    whole: &Whole,
    rng: &mut ChaCha12Rng,
) -> Corrected {
    let mut found = Corrected::default();
    for _ in 0..DRAWS {
        let some = some(accepted, size, rng);
        let end = |of: fn(&Ends) -> u32| {
            miller_madow(&counts(some.iter().map(|ends| u64::from(of(ends)))))
        };
        found.first_entropy_bits += end(|ends| ends.0) / f64::from(DRAWS);
        found.last_entropy_bits += end(|ends| ends.1) / f64::from(DRAWS);
        found.pair_entropy_bits +=
            entropy_bits(&pairs(&some), some.len() as f64) / f64::from(DRAWS);
        found.gini += gini(&both_ends(&some), whole.relays) / f64::from(DRAWS);
    }
    found
}

/// Draws `keep` of all circuits, without replacement.
fn some(all: &[Ends], keep: usize, rng: &mut ChaCha12Rng) -> Vec<Ends> {
    let mut some = all.to_vec();
    let keep = keep.min(some.len());
    for place in 0..keep {
        let other = rng.random_range(place..some.len());
        some.swap(place, other);
    }
    some.truncate(keep);
    some
}

/// The counts of pairs of ends.
fn pairs(all: &[Ends]) -> Vec<f64> {
    counts(all.iter().map(|ends| (u64::from(ends.0) << 32) | u64::from(ends.1)))
}

/// The counts of relays at an end.
fn both_ends(all: &[Ends]) -> Vec<f64> {
    counts(all.iter().flat_map(|ends| [u64::from(ends.0), u64::from(ends.1)]))
}

/// The counts of equal values.
fn counts(all: impl Iterator<Item = u64>) -> Vec<f64> {
    let mut all: Vec<u64> = all.collect();
    all.sort_unstable();
    all.chunk_by(|one, other| one == other).map(|equal| equal.len() as f64).collect()
}

/// Entropy of counts, as parts of a total.
fn entropy_bits(counts: &[f64], total: f64) -> f64 {
    let part = |count: &f64| count / total;
    // The sum of no values is -0, which tables would show.
    counts.iter().map(part).fold(0.0, |bits, part| bits - part * part.log2())
}

/// Entropy of counts, corrected for the sample's size.
fn miller_madow(counts: &[f64]) -> f64 {
    let total: f64 = counts.iter().sum();
    if total == 0.0 {
        return 0.0;
    }
    let missed = (counts.len() as f64 - 1.0) / (2.0 * total * std::f64::consts::LN_2);
    entropy_bits(counts, total) + missed
}

/// The sum of CDF (1 - CDF) over the different counts, divided by their mean, without the distances
/// between counts.
fn published_gini(counts: &[f64]) -> f64 {
    let sum = steps(counts, 0.0).fold(0.0, |sum, (_, below)| sum + below * (1.0 - below));
    sum / mean(counts, 0.0)
}

/// The Gini coefficient of counts; missing relays count as 0.
fn gini(counts: &[f64], relays: f64) -> f64 {
    let none = (relays - counts.len() as f64).max(0.0);
    let distances = steps(counts, none).map(|(distance, below)| distance * below * (1.0 - below));
    distances.fold(0.0, std::ops::Add::add) / mean(counts, none)
}

/// The mean of the counts and of `none` further zeros.
fn mean(counts: &[f64], none: f64) -> f64 {
    (counts.iter().sum::<f64>() / (counts.len() as f64 + none).max(1.0)).max(f64::MIN_POSITIVE)
}

/// For each different count, from 0 if there are zeros: the distance to the next one, and the part
/// of values at or below it.
fn steps(counts: &[f64], none: f64) -> impl Iterator<Item = (f64, f64)> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let total = counts.len() as f64 + none;
    let mut below = none;
    let mut all: Vec<(f64, f64)> = if none > 0.0 { vec![(0.0, none)] } else { Vec::new() };
    for equal in sorted.chunk_by(|one, other| one.total_cmp(other).is_eq()) {
        below += equal.len() as f64;
        all.push((equal[0], below));
    }
    let next: Vec<f64> = all.iter().skip(1).map(|(count, _)| *count).collect();
    let last = all.last().map_or(0.0, |(count, _)| *count);
    let next = next.into_iter().chain([last]);
    all.into_iter().zip(next).map(move |((count, below), next)| (next - count, below / total))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// Circuits whose relays are drawn by weights that fall with their number.
    fn circuits(count: usize, rng: &mut ChaCha12Rng) -> Vec<Ends> {
        let draw =
            |rng: &mut ChaCha12Rng| rng.random_range(0..14_u32) * rng.random_range(0..14_u32);
        (0..count).map(|_| (draw(rng), 1000 + draw(rng))).collect()
    }

    #[test]
    fn gini_is_none_of_equal_and_near_one_of_a_single_relay() {
        assert!(gini(&[5.0; 10], 10.0).abs() < 1e-12);
        assert!((gini(&[7.0], 100.0) - 0.99).abs() < 1e-12);
        // Half of the mean distance divided by the mean: (0 + 1 + 1 + 0)/4 / (2 1.5).
        assert!((gini(&[1.0, 2.0], 2.0) - 1.0 / 6.0).abs() < 1e-12);
        // Without distances, 1 and 100 are as close as 1 and 2.
        assert!(
            (published_gini(&[1.0, 2.0]) * 1.5 - published_gini(&[1.0, 100.0]) * 50.5).abs()
                < 1e-12
        );
    }

    #[test]
    fn the_published_measures_move_with_the_share_and_the_corrected_ones_do_not() {
        let mut rng = ChaCha12Rng::seed_from_u64(3);
        let all = circuits(20_000, &mut rng);
        let whole = Whole::of(&all);
        let half = some(&all, 10_000, &mut rng);
        let (before, after) = (published(&all, &whole), published(&half, &whole));
        assert!(after.entropy < 0.6 * before.entropy, "{before:?} {after:?}");
        let random = thinned(&all, 10_000, &whole, &mut rng);
        assert!((random.entropy / after.entropy - 1.0).abs() < 0.01, "{random:?}");
        let [before, after] = [&all, &half].map(|some| corrected(some, 10_000, &whole, &mut rng));
        assert!(
            (before.pair_entropy_bits - after.pair_entropy_bits).abs() < 0.02,
            "{before:?} {after:?}"
        );
        assert!((before.first_entropy_bits - after.first_entropy_bits).abs() < 0.02);
        assert!((before.gini - after.gini).abs() < 0.01);
    }

    #[test]
    fn entropies_of_ends_are_compared_where_circuits_are_fewer_than_relays() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let mut draw = || rng.random_range(0..6000_u32);
        let all: Vec<Ends> = (0..2001).map(|_| (draw(), draw())).collect();
        let (whole, few) = (Whole::of(&all), &all[..400]);
        let [before, after] = [&all[..], few].map(|some| corrected(some, 400, &whole, &mut rng));
        for (before, after) in [
            (before.first_entropy_bits, after.first_entropy_bits),
            (before.last_entropy_bits, after.last_entropy_bits),
        ] {
            assert!((before - after).abs() < 0.05, "{before} {after}");
        }
    }

    #[test]
    fn a_selection_that_is_too_small_does_not_set_the_size() {
        let size = |accepted: &[usize], all| common_size(accepted.iter().copied(), all);
        assert_eq!(size(&[2000, 1, 1600, 0], 2000), Some(1600));
        assert_eq!(size(&[2000, 99, 100], 2000), Some(100));
        // 150 of 20,000 are too few for the comparison.
        assert_eq!(size(&[20_000, 150, 6600], 20_000), Some(6600));
        assert_eq!([size(&[99, 50], 99), size(&[], 0)], [None; 2]);
    }

    #[test]
    fn nothing_has_no_entropy() {
        let whole = Whole::of(&[]);
        let found = published(&[], &whole);
        assert_eq!(found, Published::default());
        assert!([found.entropy, found.gini].iter().all(|value| value.is_sign_positive()));
        let mut rng = ChaCha12Rng::seed_from_u64(4);
        assert_eq!(corrected(&[], 5, &whole, &mut rng), Corrected::default());
    }
}
