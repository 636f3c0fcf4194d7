//! Compares the weights of a bandwidth file with those of the previous file or of the consensus.

use std::collections::BTreeMap;

use ff_base::identity::Fingerprint;
use serde::{Deserialize, Serialize};

use super::v3bw::{BandwidthFile, KILOBYTE, RelayLine};

/// The difference between two sets of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    /// Relays whose weight changed, including those with a weight only before or only after.
    pub relays: u64,
    /// The sum of all weights before, in kilobytes a second.
    pub before_kilobytes: u64,
    /// The sum of all weights after, in kilobytes a second.
    pub after_kilobytes: u64,
    /// The part of all weight that moved to other relays, in thousandths: half the sum of the
    /// changes of relays' shares.
    pub moved_permille: u64,
}

/// Weights in kilobytes a second.
type Weights = BTreeMap<Fingerprint, u64>;

impl Shift {
    /// From these weights, in kilobytes a second, to those of a file; `None` if one sum is 0.
    #[must_use]
    pub fn since(before: &Weights, file: &BandwidthFile) -> Option<Self> {
        Self::between(before, &file.relays().iter().map(weight).collect())
    }

    /// From the consensus's weights to those of a file, for the relays with a measured weight in
    /// the consensus; `None` if one sum is 0.
    #[must_use]
    pub fn from_consensus(file: &BandwidthFile) -> Option<Self> {
        let (mut before, mut after) = (Weights::new(), Weights::new());
        for line in file.relays() {
            let facts = &line.directory;
            let known = facts.consensus_bandwidth;
            let known = known.filter(|_| facts.consensus_is_unmeasured != Some(true));
            if let Some(known) = known {
                before.insert(line.rsa_fingerprint, known.get() / KILOBYTE);
                after.extend([weight(line)]);
            }
        }
        Self::between(&before, &after)
    }

    /// The difference from `before` to `after`; `None` if one sum is 0.
    fn between(before: &Weights, after: &Weights) -> Option<Self> {
        let sum =
            |weights: &Weights| weights.values().fold(0_u64, |sum, one| sum.saturating_add(*one));
        let (sum_before, sum_after) = (sum(before), sum(after));
        let (mut relays, mut apart) = (0, 0_u128);
        let mut add = |old: u64, new: u64| {
            relays += u64::from(old != new);
            let product = |weight: u64, sum: u64| u128::from(weight).saturating_mul(sum.into());
            apart =
                apart.saturating_add(product(old, sum_after).abs_diff(product(new, sum_before)));
        };
        for (relay, old) in before {
            add(*old, after.get(relay).copied().unwrap_or(0));
        }
        for (_, new) in after.iter().filter(|(relay, _)| !before.contains_key(*relay)) {
            add(0, *new);
        }
        let whole = u128::from(sum_before).saturating_mul(sum_after.into());
        let moved = apart.saturating_mul(500).checked_div(whole)?;
        Some(Self {
            relays,
            before_kilobytes: sum_before,
            after_kilobytes: sum_after,
            moved_permille: u64::try_from(moved).unwrap_or(u64::MAX),
        })
    }
}

/// The fingerprint of a line, and the weight that authorities vote with.
fn weight(line: &RelayLine) -> (Fingerprint, u64) {
    (line.rsa_fingerprint, u64::from(line.bw_kilobytes().get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of relays 1, 2, 3.
    fn weights(of: [u64; 3]) -> Weights {
        (1..)
            .zip(of)
            .filter(|(_, weight)| *weight > 0)
            .map(|(relay, weight)| ([relay; 20], weight))
            .collect()
    }

    #[test]
    fn the_moved_part_is_the_weight_that_other_relays_gained() {
        for (before, after, relays, moved_permille) in [
            ([10, 20, 30], [10, 20, 30], 0, 0),
            // Doubling all weights moves nothing.
            ([10, 20, 30], [20, 40, 60], 3, 0),
            ([50, 50, 0], [75, 25, 0], 2, 250),
            ([50, 50, 0], [50, 0, 50], 2, 500),
            ([100, 0, 0], [0, 0, 7], 2, 1000),
        ] {
            let shift =
                Shift::between(&weights(before), &weights(after)).expect("both have weight");
            assert_eq!(
                (shift.relays, shift.moved_permille),
                (relays, moved_permille),
                "{before:?} {after:?}"
            );
        }
        assert_eq!(Shift::between(&weights([0; 3]), &weights([1; 3])), None);
        assert_eq!(Shift::between(&weights([1; 3]), &weights([0; 3])), None);
        let most = Shift::between(&weights([u64::MAX; 3]), &weights([u64::MAX, 1, 1]));
        assert!(most.is_some_and(|shift| shift.before_kilobytes == u64::MAX));
    }
}
