//! How much a random path can carry: the throughput bound, section III.
//!
//! A path carries no more than its slowest relay (formula 2). Drawing `m` of `n` relays, none twice
//! and each with the same chance, gives [`Capacities::uniform`], which is Lemma 1; it falls with
//! the length (theorem 1) and rises when the slowest relays are left out (theorem 2). Relays that
//! are drawn by weight, each time from all, give [`Capacities::weighted`]. Where a rule has no
//! formula, paths are drawn: [`sampled`].

pub mod losses;
pub mod sampled;

/// Capacities of relays, the greatest first, each with the weight by which it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities(Vec<(f64, f64)>);

impl Capacities {
    /// Of pairs of a capacity and a weight, in any units. A capacity that is not a number from 0 is
    /// left out; by a weight that is none nothing is drawn.
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

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The capacities, the greatest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.0.iter().map(|(capacity, _)| *capacity)
    }

    /// B(n, m) of Lemma 1: the mean of the slowest of `length` relays. None if no path is so long.
    #[must_use]
    pub fn uniform(&self, length: usize) -> Option<f64> {
        let sum = Chances::new(self.len(), length)?.zip(self.all().rev());
        Some(sum.map(|(chance, capacity)| chance * capacity).sum())
    }

    /// The same where relays are drawn by weight, and a relay may be drawn again. None if nothing
    /// can be drawn.
    ///
    /// The slowest of `m` has the rank `k` or a lesser one with the chance `S_k^m`, if those ranks
    /// have the share `S_k` of all weight.
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

    /// Formula 7: the share of all capacity that lies in relays of at most this one.
    #[must_use]
    pub fn share_up_to(&self, capacity: f64) -> f64 {
        let total: f64 = self.all().sum();
        self.all().filter(|one| *one <= capacity).sum::<f64>() / total
    }
}

/// For each rank, the slowest relay's first, the chance that a uniform path has this one as its
/// slowest: C(k - 1, m - 1) / C(n, m), by the ratio of neighbours, so nothing overflows.
struct Chances {
    /// The rank that comes next, from n down to m.
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

/// Formula 1: what TCP carries at most over a link, in bytes a second, by Floyd and Fall. The
/// constant is that of delayed acknowledgements. `rtt_secs` includes queues, `loss` is the share of
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

    /// Capacities that are drawn by themselves.
    fn of(capacities: &[u32]) -> Capacities {
        Capacities::new(capacities.iter().map(|one| (f64::from(*one), f64::from(*one))))
    }

    /// Lemma 1 in whole numbers.
    fn exact(capacities: &[u32], length: u128) -> f64 {
        let mut sorted: Vec<u128> = capacities.iter().map(|one| (*one).into()).collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let sum: u128 = (1..).zip(&sorted).map(|(k, one)| choose(k - 1, length - 1) * one).sum();
        let found = Ratio::new(sum, choose(sorted.len() as u128, length));
        let (whole, rest) = (found.to_integer(), found.fract());
        whole as f64 + *rest.numer() as f64 / *rest.denom() as f64
    }

    /// n over k.
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
        // 100 and three of 50 KB/s: a relay of 50 comes with 60 %.
        let four = of(&[100, 50, 50, 50]);
        assert!((four.share_up_to(50.0) - 0.6).abs() < 1e-15);
        assert!((four.weighted(1).expect("a path") - 70.0).abs() < 1e-12);
        // A slow relay comes with 24.5 % each time.
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
