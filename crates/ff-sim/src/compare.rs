//! Compares two bandwidth files on a network: shifts of weight between relays, the concentration of
//! weight, the errors of weights, and predicted downloads.
//!
//! ```text
//!   two bandwidth files ─┐
//!   Network ─────────────┴─▶ FileComparison: relays, positions, families, countries
//!                              └─▶ Side: Gini coefficient, errors, Prediction
//! ```
//!
//! A relay's weight is its `bw` in the file, which authorities vote with; 0 if the file does not
//! have the relay. Weights are compared as shares of the total weight of the network's relays,
//! because two files may have different units. Downloads are predicted by a model, see [`predict`].

mod groups;
pub mod predict;

use std::collections::BTreeMap;

use ff_archives::network::{CapacitySource, Network};
use ff_base::identity::Fingerprint;
use ff_report::stats;
use serde::Serialize;

pub use groups::{ComparedGroup, GroupedBy};

use crate::analysis::moment::{CapacityKind, Scale, weight_error};
use crate::analysis::ranks::under_weighted;

/// A share has changed much if the greater one is more than this many times the smaller one.
pub const MUCH: f64 = 2.0;

/// Weights of a file in kilobytes per second, by relay.
pub type Weights = BTreeMap<Fingerprint, u64>;

/// One of the files, on the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Relays in the file.
    pub relays: usize,
    /// Relays in the file that are not in the network; they are left out.
    pub not_in_network: usize,
    /// Relays of the network with a weight.
    pub weighted: usize,
    /// The Gini coefficient of weights: 0 if all relays of the network have the same weight, near 1
    /// if one relay has all.
    pub gini: f64,
    /// The weight share of the ten relays with the greatest weights.
    pub top_10_share: f64,
    /// NWE, Eq. 6, by usable capacity; `None` without capacities.
    pub weight_error: Option<f64>,
    /// The share of relays that are under-weighted.
    pub under_weighted: Option<f64>,
    /// Predicted downloads; `None` without capacities.
    pub prediction: Option<predict::Prediction>,
    /// Relays' weight errors (RWE, Eq. 5), sorted.
    #[serde(skip)]
    pub relay_errors: Vec<f64>,
}

/// A relay of the network, in both files.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRelay {
    /// The index of the relay in the network.
    pub relay: usize,
    /// Its shares of total weight in the old and the new file.
    pub shares: [f64; 2],
}

impl ComparedRelay {
    /// The new share over the old one; `None` if the old share is 0.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        let [old, new] = self.shares;
        (old > 0.0).then(|| new / old)
    }

    /// Whether its share has changed by more than a factor of [`MUCH`], or from or to 0.
    #[must_use]
    pub fn has_changed_much(&self) -> bool {
        let [old, new] = self.shares;
        new > old * MUCH || old > new * MUCH
    }
}

/// Two files on a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileComparison {
    /// The number of the network's relays.
    pub relays: usize,
    /// Whether the network has capacities, which errors of weights need.
    pub has_capacities: bool,
    /// The older file.
    pub old: Side,
    /// The newer file.
    pub new: Side,
    /// The number of relays in both files.
    pub in_both: usize,
    /// The number of relays of the network only in the new file.
    pub came: usize,
    /// The number of relays of the network only in the old file.
    pub went: usize,
    /// The number of relays in both files with shares that differ by more than a factor of two.
    pub changed_much: usize,
    /// The share of total weight that has moved between relays.
    pub moved: f64,
    /// Weight shares by position.
    pub positions: Vec<ComparedGroup>,
    /// Weight shares by country, where it is known.
    pub countries: Vec<ComparedGroup>,
    /// Weight shares by family, for families of at least two relays.
    pub families: Vec<ComparedGroup>,
    /// All relays of the network.
    #[serde(skip)]
    pub compared: Vec<ComparedRelay>,
}

impl FileComparison {
    /// Compares two files; `load` is the clients' demand as a part of the total capacity.
    #[must_use]
    pub fn of(network: &Network, old: &Weights, new: &Weights, load: f64) -> Self {
        let compared = shares(network, [old, new]);
        let has_capacities = has_capacities(network);
        let those = |is_such: fn(&ComparedRelay) -> bool| {
            compared.iter().filter(|one| is_such(one)).count()
        };
        let in_both = |one: &&ComparedRelay| one.shares.iter().all(|share| *share > 0.0);
        let differ = compared.iter().map(|one| (one.shares[1] - one.shares[0]).abs());
        Self {
            relays: network.relays.len(),
            has_capacities,
            old: side(network, old, 0, &compared, load),
            new: side(network, new, 1, &compared, load),
            in_both: compared.iter().filter(in_both).count(),
            came: those(|one| one.shares[0] <= 0.0 && one.shares[1] > 0.0),
            went: those(|one| one.shares[1] <= 0.0 && one.shares[0] > 0.0),
            changed_much: compared
                .iter()
                .filter(in_both)
                .filter(|one| one.has_changed_much())
                .count(),
            moved: differ.sum::<f64>() / 2.0,
            positions: groups::of(network, &compared, GroupedBy::Position),
            countries: groups::of(network, &compared, GroupedBy::Country),
            families: groups::of(network, &compared, GroupedBy::Family),
            compared,
        }
    }
}

/// Whether capacities are known, and are not weights.
fn has_capacities(network: &Network) -> bool {
    !matches!(network.capacities, CapacitySource::None | CapacitySource::Weights)
}

/// Each relay's share of the total weight of the network's relays, in both files.
fn shares(network: &Network, files: [&Weights; 2]) -> Vec<ComparedRelay> {
    let weights = files.map(|file| of_network(network, file));
    let totals = [0, 1].map(|side: usize| weights[side].iter().sum::<f64>());
    let share = |side: usize, relay: usize| {
        if totals[side] > 0.0 { weights[side][relay] / totals[side] } else { 0.0 }
    };
    (0..network.relays.len())
        .map(|relay| ComparedRelay { relay, shares: [share(0, relay), share(1, relay)] })
        .collect()
}

/// The weights of a network's relays; if a relay is listed twice, the second entry has none.
#[expect(clippy::cast_precision_loss, reason = "weights above 2^53 are rounded, to one in 2^53")]
fn of_network(network: &Network, file: &Weights) -> Vec<f64> {
    let mut left = file.clone();
    let weight = |relay: &ff_archives::network::Relay| {
        left.remove(&relay.fingerprint).map_or(0.0, |weight| weight as f64)
    };
    network.relays.iter().map(weight).collect()
}

/// The results for one file.
fn side(
    network: &Network,
    file: &Weights,
    side: usize,
    compared: &[ComparedRelay],
    load: f64,
) -> Side {
    let sorted = stats::sorted(compared.iter().map(|one| one.shares[side]).collect());
    let in_network = network.relays.iter().filter(|relay| file.contains_key(&relay.fingerprint));
    let mut weighted = network.clone();
    for (relay, one) in weighted.relays.iter_mut().zip(compared) {
        relay.weight = one.shares[side];
    }
    let has_capacities = has_capacities(network);
    let error = has_capacities
        .then(|| weight_error(&weighted, CapacityKind::Usable, Scale::None, |_| true));
    let errors = error.iter().flat_map(|error| error.relay_errors.iter().flatten().copied());
    let relay_errors = stats::sorted(errors.collect());
    Side {
        relays: file.len(),
        not_in_network: file.len().saturating_sub(in_network.count()),
        weighted: sorted.iter().filter(|share| **share > 0.0).count(),
        gini: gini(&sorted),
        top_10_share: sorted.iter().rev().take(10).sum(),
        weight_error: error.and_then(|error| error.weight_error),
        under_weighted: under_weighted(&relay_errors),
        prediction: has_capacities.then(|| predict::predict(&weighted, load)).flatten(),
        relay_errors,
    }
}

/// The Gini coefficient of sorted values; 0 if their sum is 0.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn gini(sorted: &[f64]) -> f64 {
    let (count, total) = (sorted.len() as f64, sorted.iter().sum::<f64>());
    if total <= 0.0 {
        return 0.0;
    }
    let ranked: f64 = (1..).zip(sorted).map(|(rank, value)| f64::from(rank) * value).sum();
    2.0 * ranked / (count * total) - (count + 1.0) / count
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Flags, Relay};
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// A network of relays with these capacities; even ones are guards, odd ones exits.
    fn network(mbit: &[u64]) -> Network {
        let relay = |(number, &mbit): (u8, &u64)| Relay {
            fingerprint: [number; 20],
            flags: Flags {
                running: true,
                guard: number % 2 == 0,
                exit: number % 2 == 1,
                ..Flags::default()
            },
            capacity: Some(BytesPerSec::from_mbit(mbit)),
            country: Some(if number < 2 { *b"DE" } else { *b"FR" }),
            running: 1.0,
            ..Relay::default()
        };
        let relays = (0..).zip(mbit).map(relay).collect();
        Network { capacities: CapacitySource::Given, relays, ..Network::default() }
    }

    fn file(weights: &[u64]) -> Weights {
        (0_u8..).zip(weights).map(|(number, &weight)| ([number; 20], weight)).collect()
    }

    fn is_close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn files_are_compared_by_shares() {
        let network = network(&[5, 5, 5, 5]);
        // The new file has another unit, one relay more, and one that is not in the network.
        let (old, new) = (file(&[10, 10, 10, 10]), file(&[500, 100, 200, 200, 999]));
        let found = FileComparison::of(&network, &old, &new, 0.5);
        assert_eq!((found.relays, found.in_both, found.came, found.went), (4, 4, 0, 0));
        assert_eq!((found.new.relays, found.new.not_in_network, found.new.weighted), (5, 1, 4));
        // Shares change from 1/4 to 0.5, 0.1, 0.2, 0.2: one is 2.5 times lower, and one exactly
        // doubled.
        assert_eq!((found.changed_much, found.compared[0].factor()), (1, Some(2.0)));
        assert!(is_close(found.moved, 0.25), "{}", found.moved);
        assert!(is_close(found.old.gini, 0.0) && is_close(found.new.gini, 0.3), "{found:?}");
        // Eq. 6: half the sum of the absolute differences of shares.
        assert!(found.old.weight_error.is_some_and(|error| is_close(error, 0.0)));
        assert!(found.new.weight_error.is_some_and(|error| is_close(error, 0.25)));
        assert!(is_close(found.new.top_10_share, 1.0));
        let german = found.countries.iter().find(|group| group.name == "DE").expect("one");
        assert!(
            german.relays == 2
                && is_close(german.old_share, 0.5)
                && is_close(german.new_share, 0.6)
        );
        let [old, new] =
            [&found.old, &found.new].map(|side| side.prediction.as_ref().expect("one"));
        assert!(new.seconds[2] > old.seconds[2], "worse weights make downloads slower: {new:?}");
    }

    #[test]
    fn without_capacities_nothing_is_said_of_errors() {
        let mut network = network(&[1, 2]);
        network.capacities = CapacitySource::Weights;
        let found = FileComparison::of(&network, &file(&[1, 2]), &file(&[]), 0.5);
        assert!(
            !found.has_capacities
                && found.old.weight_error.is_none()
                && found.old.prediction.is_none()
        );
        assert_eq!((found.went, found.new.weighted), (2, 0));
        assert!(is_close(found.new.gini, 0.0) && found.compared[0].factor() == Some(0.0));
        let empty =
            FileComparison::of(&Network::default(), &file(&[1]), &file(&[u64::MAX; 2]), f64::NAN);
        assert_eq!((empty.relays, empty.new.not_in_network), (0, 2));
    }
}
