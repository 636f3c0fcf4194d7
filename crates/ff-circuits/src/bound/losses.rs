//! The relays that cost users most: how much B would rise without them.
//!
//! Groups ([`losses`]) each need a pass over all relays. For all single relays ([`each`]) two
//! passes are enough: without the relay of rank `r`, lower ranks stay and higher ranks move up by
//! one, so its bound is the sum of a part for each.

use serde::Serialize;

use super::{Capacities, Chances};

/// The effect of leaving out relays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// The name: a nickname, a family's first relay, a class.
    pub who: String,
    /// The number of these relays.
    pub relays: u64,
    /// The sum of their capacities, in kB/s.
    pub capacity_kbytes_per_sec: f64,
    /// B without them minus B with them, in kB/s: positive if users would be faster without them.
    pub loss_kbytes_per_sec: f64,
}

/// Relays that are left out together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub who: String,
    /// Indices in the list of relays.
    pub relays: Vec<usize>,
}

/// How relays of paths are drawn, for rules with a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Uniformly, without replacement.
    Uniform,
    /// By weight, with replacement.
    ByWeight,
}

impl Drawn {
    /// The bound of paths of this length.
    #[must_use]
    pub fn bound(self, of: &Capacities, length: usize) -> Option<f64> {
        match self {
            Self::Uniform => of.uniform(length),
            Self::ByWeight => of.weighted(length),
        }
    }
}

/// A relay with a larger share of the total weight is left out by a pass of its own, because the
/// powers in [`by_weight`] would cancel. There are at most four.
const GREAT_SHARE: f64 = 0.2;

/// For each relay, in the order of [`Capacities::all`], the bound without it; none if no path is
/// left without it.
#[must_use]
pub fn each(of: &Capacities, drawn: Drawn, length: usize) -> Vec<Option<f64>> {
    match drawn {
        Drawn::Uniform => uniform(of, length),
        Drawn::ByWeight => by_weight(of, length),
    }
}

/// The same for uniform paths.
fn uniform(of: &Capacities, length: usize) -> Vec<Option<f64>> {
    let Some(chances) = of.len().checked_sub(1).and_then(|left| Chances::new(left, length)) else {
        return vec![None; of.len()];
    };
    // By rank, beginning with the fastest relay; ranks below the length are never the slowest.
    let mut by_rank = vec![0.0; length - 1];
    let mut slowest_first: Vec<f64> = chances.collect();
    slowest_first.reverse();
    by_rank.append(&mut slowest_first);
    let behind = of.0.iter().skip(1).zip(&by_rank).map(|((capacity, _), chance)| capacity * chance);
    let mut behind = sums_behind(behind.collect());
    behind.push(0.0);
    let (mut before, chances) = (0.0, by_rank.iter().chain([&0.0]));
    let each = of.0.iter().zip(&behind).zip(chances).map(|(((capacity, _), behind), chance)| {
        let without = before + behind;
        before += capacity * chance;
        Some(without)
    });
    each.collect()
}

/// The same for paths by weight: `(S_k - w)^m` of the ranks after the relay, from powers of `S_k`.
fn by_weight(of: &Capacities, length: usize) -> Vec<Option<f64>> {
    let total: f64 = of.0.iter().map(|(_, weight)| weight).sum();
    let Some(power) = i32::try_from(length).ok().filter(|power| *power > 0 && total > 0.0) else {
        return vec![None; of.len()];
    };
    let ranks: Vec<(f64, f64, f64)> = {
        let mut share = 0.0;
        let rank = |&(capacity, weight): &(f64, f64)| {
            let before = share;
            share += weight / total;
            (capacity, before, share)
        };
        of.0.iter().map(rank).collect()
    };
    let step = |power: i32, (capacity, before, share): (f64, f64, f64)| {
        capacity * (share.powi(power) - before.powi(power))
    };
    let behind: Vec<Vec<f64>> = (1..=power)
        .map(|power| sums_behind(ranks.iter().map(|rank| step(power, *rank)).collect()))
        .collect();
    let mut sum = 0.0;
    let one = |(place, rank): (usize, &(f64, f64, f64))| {
        let (weight, before) = (of.0[place].1 / total, sum);
        sum += step(power, *rank);
        if weight > GREAT_SHARE {
            let left = of.0.iter().enumerate().filter(|(other, _)| *other != place);
            return Capacities(left.map(|(_, relay)| *relay).collect()).weighted(length);
        }
        let term = |(power, behind): (usize, &Vec<f64>)| {
            let behind = behind.get(place + 1).copied().unwrap_or(0.0);
            let rest = i32::try_from(length - power).unwrap_or(0);
            binomial(length, power) * (-weight).powi(rest) * behind
        };
        let behind: f64 = (1..).zip(&behind).map(term).sum();
        Some((before + behind) / (1.0 - weight).powi(power))
    };
    ranks.iter().enumerate().map(one).collect()
}

/// The binomial coefficient.
fn binomial(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
}

/// For each index the sum from there to the end.
fn sums_behind(mut all: Vec<f64>) -> Vec<f64> {
    let mut sum = 0.0;
    for one in all.iter_mut().rev() {
        sum += *one;
        *one = sum;
    }
    all
}

/// The loss of each group, the largest first; without groups that leave no path.
pub fn losses(
    relays: &[(f64, f64)],
    groups: impl IntoIterator<Item = Group>,
    bound: impl Fn(&Capacities) -> Option<f64>,
) -> Vec<Loss> {
    let Some(with) = bound(&Capacities::new(relays.iter().copied())) else { return Vec::new() };
    let loss = |group: Group| {
        let mut left = relays.to_vec();
        let mut capacity = 0.0;
        for &relay in &group.relays {
            // NaN is left out of all sums.
            capacity += std::mem::replace(&mut left[relay].0, f64::NAN);
        }
        let without = bound(&Capacities::new(left))?;
        Some(Loss {
            who: group.who,
            relays: group.relays.len() as u64,
            capacity_kbytes_per_sec: capacity,
            loss_kbytes_per_sec: without - with,
        })
    };
    let mut found: Vec<_> = groups.into_iter().filter_map(loss).collect();
    found.sort_by(|one, other| other.loss_kbytes_per_sec.total_cmp(&one.loss_kbytes_per_sec));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_costs_most_and_the_fastest_is_a_loss_to_lose() {
        let relays = [(10.0, 10.0), (9.0, 9.0), (1.0, 1.0), (4.0, 4.0)];
        let group =
            |who: &str, relays: &[usize]| Group { who: who.into(), relays: relays.to_vec() };
        let groups = [
            group("fast", &[0]),
            group("slow", &[2]),
            group("two", &[2, 3]),
            group("three", &[0, 1, 2]),
        ];
        let found = losses(&relays, groups, |left| left.uniform(2));
        let names: Vec<_> = found.iter().map(|loss| loss.who.as_str()).collect();
        assert_eq!(names, ["two", "slow", "fast"], "of one relay there is no path of two");
        // Pairs of 10, 9, 1, 4 have the slowest relays 9, 1, 4, 1, 4, 1: 20 / 6; without the 1 they
        // are 9, 4, 4.
        assert!((found[1].loss_kbytes_per_sec - (17.0 / 3.0 - 20.0 / 6.0)).abs() < 1e-12);
        assert_eq!((found[0].relays, found[0].capacity_kbytes_per_sec), (2, 5.0));
        assert!(found[2].loss_kbytes_per_sec < 0.0);
    }

    proptest::proptest! {
        /// One by one gives the same as a pass for each, also if one relay has nearly all weight.
        #[test]
        fn one_by_one_is_a_pass_for_each(
            relays in proptest::collection::vec((0_u32..1000, 0_u32..1000), 0..40),
            great in proptest::option::of(1_u32..1_000_000),
            length in 1_usize..9,
        ) {
            let relays: Vec<_> = relays.into_iter().chain(great.map(|weight| (500, weight)))
                .map(|(capacity, weight)| (f64::from(capacity), f64::from(weight))).collect();
            let sorted = Capacities::new(relays);
            for drawn in [Drawn::Uniform, Drawn::ByWeight] {
                let found = each(&sorted, drawn, length);
                proptest::prop_assert_eq!(found.len(), sorted.len());
                for (place, found) in found.into_iter().enumerate() {
                    let left = sorted.0.iter().enumerate().filter(|(other, _)| *other != place);
                    let naive = drawn.bound(&Capacities::new(left.map(|(_, relay)| *relay)), length);
                    match (found, naive) {
                        (Some(found), Some(naive)) => {
                            proptest::prop_assert!((found - naive).abs() < 1e-9 * naive.max(1.0), "{found} {naive}");
                        }
                        (found, naive) => proptest::prop_assert_eq!(found, naive),
                    }
                }
            }
        }
    }
}
