//! The throughput of random paths: the throughput bound, section III.
//!
//! The throughput of a path is at most that of its slowest relay (formula 2).
//! [`Capacities::uniform`] is Lemma 1, for drawing `m` of `n` relays uniformly without replacement;
//! it falls with the length (theorem 1) and rises when the slowest relays are left out (theorem 2).
//! [`Capacities::weighted`] is for drawing by weight with replacement. For rules without a formula,
//! paths are drawn: [`sampled`].

pub mod losses;
pub mod sampled;

/// Capacities of relays, in descending order, each with the weight by which it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities(Vec<(f64, f64)>);

impl Capacities {
    /// From pairs of a capacity and a weight, in any units. Capacities that are negative or not
    /// finite are left out; relays with such a weight are not drawn.
    #[must_use]
    pub fn new(relays: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let is_one = |number: f64| number.is_finite() && number >= 0.0;
        let weight = |weight: f64| if is_one(weight) { weight } else { 0.0 };
        let relays = relays.into_iter().filter(|(capacity, _)| is_one(*capacity));
        let mut all: Vec<_> = relays.map(|(capacity, by)| (capacity, weight(by))).collect();
        all.sort_unstable_by(|one, other| {
            other.partial_cmp(one).unwrap_or(std::cmp::Ordering::Equal)
        });
        Self(all)
    }

    /// The number of relays.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no relays.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The capacities, in descending order.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.0.iter().map(|(capacity, _)| *capacity)
    }

    /// B(n, m) of Lemma 1: the mean capacity of the slowest of `length` relays. None if there are
    /// fewer relays.
    #[must_use]
    pub fn uniform(&self, length: usize) -> Option<f64> {
        let sum = Chances::new(self.len(), length)?.zip(self.all().rev());
        Some(sum.map(|(chance, capacity)| chance * capacity).sum())
    }

    /// The same for drawing by weight with replacement. None if nothing can be drawn.
    ///
    /// The slowest of `m` relays has rank `k` or less with probability `S_k^m`, where `S_k` is the
    /// share of those ranks in the total weight.
    #[must_use]
    pub fn weighted(&self, length: usize) -> Option<f64> {
        let total: f64 = self.0.iter().map(|(_, weight)| weight).sum();
        let power = i32::try_from(length).ok().filter(|power| *power > 0 && total > 0.0)?;
        let (mut before, mut share, mut sum) = (0.0, 0.0, 0.0);
        for (capacity, weight) in &self.0 {
            share += weight;
            let now = (share / total).powi(power);
            sum += capacity * (now - before);
            before = now;
        }
        Some(sum)
    }

    /// Formula 7: the share of relays with at most this capacity in the total capacity.
    #[must_use]
    pub fn share_up_to(&self, capacity: f64) -> f64 {
        let total: f64 = self.all().sum();
        self.all().filter(|one| *one <= capacity).sum::<f64>() / total
    }
}

/// For each rank, beginning with the slowest relay, the probability that it is the slowest of a
/// uniform path: C(k - 1, m - 1) / C(n, m), by the ratio of neighbours, so that nothing overflows.
struct Chances {
    /// The next rank, from n down to m.
    rank: usize,
    /// The length m.
    length: usize,
    chance: f64,
}

impl Chances {
    /// For paths of `length` out of `relays`; none if there are too few relays.
    fn new(relays: usize, length: usize) -> Option<Self> {
        let is_possible = (1..=relays).contains(&length);
        is_possible.then(|| Self { rank: relays, length, chance: length as f64 / relays as f64 })
    }
}

impl Iterator for Chances {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        if self.rank < self.length {
            return None;
        }
        let chance = self.chance;
        if self.rank > 1 {
            self.chance *= (self.rank - self.length) as f64 / (self.rank - 1) as f64;
        }
        self.rank -= 1;
        Some(chance)
    }
}

/// Formula 1: the largest throughput of TCP over a link, in bytes a second, by Floyd and Fall, with
/// the constant for delayed acknowledgements. `rtt_secs` includes queues; `loss` is the part of
/// packets that are lost.
#[must_use]
pub fn tcp_bytes_per_sec(packet_bytes: f64, rtt_secs: f64, loss: f64) -> f64 {
    1.5 * (1.0_f64 / 3.0).sqrt() * packet_bytes / (rtt_secs * loss.sqrt())
}

#[cfg(test)]
mod tests {
    use num_rational::Ratio;
    use proptest::prelude::*;

    use super::*;

    /// Capacities without weights.
    fn of(capacities: &[u32]) -> Capacities {
        Capacities::new(capacities.iter().map(|one| (f64::from(*one), f64::from(*one))))
    }

    /// Lemma 1 with integers.
    fn exact(capacities: &[u32], length: u128) -> f64 {
        let mut sorted: Vec<u128> = capacities.iter().map(|one| (*one).into()).collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let sum: u128 = (1..).zip(&sorted).map(|(k, one)| choose(k - 1, length - 1) * one).sum();
        let found = Ratio::new(sum, choose(sorted.len() as u128, length));
        let (whole, rest) = (found.to_integer(), found.fract());
        whole as f64 + *rest.numer() as f64 / *rest.denom() as f64
    }

    /// The binomial coefficient.
    fn choose(n: u128, k: u128) -> u128 {
        if k > n { 0 } else { (0..k).fold(1, |product, i| product * (n - i) / (i + 1)) }
    }

    #[test]
    fn the_ledgers_example() {
        let six = of(&[10, 9, 7, 4, 4, 1]);
        for (length, bound) in
            [(1, 35.0 / 6.0), (2, 56.0 / 15.0), (3, 2.65), (4, 2.0), (5, 1.5), (6, 1.0)]
        {
            let ours = six.uniform(length).expect("a path");
            assert!((ours - bound).abs() < 1e-12, "{length}: {ours}");
        }
        assert_eq!((six.uniform(0), six.uniform(7), of(&[]).uniform(1)), (None, None, None));
        assert_eq!((six.weighted(0), of(&[]).weighted(1)), (None, None));
    }

    #[test]
    fn the_papers_examples() {
        // 100 and three of 50 KB/s: relays of 50 have 60 % of the capacity.
        let four = of(&[100, 50, 50, 50]);
        assert!((four.share_up_to(50.0) - 0.6).abs() < 1e-15);
        assert!((four.weighted(1).expect("a path") - 70.0).abs() < 1e-12);
        // A slow relay is drawn with 24.5 % each time.
        for (draws, printed) in [(2, 0.429_975), (3, 0.569_631_125)] {
            assert!((1.0 - 0.755_f64.powi(draws) - printed).abs() < 1e-9);
        }
        // 1.5 sqrt(1/3) = sqrt(3/4).
        let found = tcp_bytes_per_sec(1460.0, 0.1, 0.01);
        assert!((found - 0.75_f64.sqrt() * 1460.0 / 0.01).abs() < 1e-6, "{found}");
    }

    #[test]
    fn odd_numbers_are_left_out() {
        let found = Capacities::new([
            (f64::NAN, 1.0),
            (-0.5, 1.0),
            (-1.0, 1.0),
            (2.0, f64::NAN),
            (1.0, 1.0),
        ]);
        assert_eq!((found.len(), found.uniform(1), found.weighted(3)), (2, Some(1.5), Some(1.0)));
    }

    proptest! {
        #[test]
        fn it_is_lemma_1_in_fractions(all in proptest::collection::vec(1_u32..100_000, 1..60), length in 1_usize..8) {
            prop_assume!(length <= all.len());
            let (ours, truth) = (of(&all).uniform(length).expect("a path"), exact(&all, length as u128));
            prop_assert!((ours / truth - 1.0).abs() < 1e-12, "{ours} {truth}");
        }

        #[test]
        fn longer_paths_carry_less_and_fewer_slow_relays_more(
            all in proptest::collection::vec(1_u32..1000, 2..40), length in 1_usize..8, left in 1_usize..40,
        ) {
            prop_assume!(length < all.len() && (length + 1..=all.len()).contains(&left));
            let mut sorted = all.clone();
            sorted.sort_unstable_by(|one, other| other.cmp(one));
            let (whole, part) = (of(&all), of(&sorted[..left]));
            let least = 1.0 - 1e-12;
            prop_assert!(whole.uniform(length) >= whole.uniform(length + 1).map(|bound| bound * least));
            prop_assert!(whole.weighted(length) >= whole.weighted(length + 1).map(|bound| bound * least));
            prop_assert!(part.uniform(length) >= whole.uniform(length).map(|bound| bound * least));
        }

        #[test]
        fn weights_are_as_all_ordered_draws_say(all in proptest::collection::vec(1_u32..50, 1..6)) {
            let total: u32 = all.iter().sum();
            let mut sum = 0.0;
            for (one, two, three) in all.iter().flat_map(|one| all.iter().map(move |two| (one, two)))
                .flat_map(|(one, two)| all.iter().map(move |three| (one, two, three)))
            {
                let chance = [one, two, three].iter().map(|draw| f64::from(**draw) / f64::from(total)).product::<f64>();
                sum += chance * f64::from(*one.min(two).min(three));
            }
            let ours = of(&all).weighted(3).expect("a path");
            prop_assert!((ours / sum - 1.0).abs() < 1e-12, "{ours} {sum}");
        }
    }
}
