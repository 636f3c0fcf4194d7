//! E8: an attacker that exchanges bytes only with some trusted relays, against PeerFlow (paper §8).

use ff_archives::network::Network;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha12Rng;

use super::sample::{bytes, papers_capacities};
use super::{Attack, Basis, Point, System};
use crate::others::peerflow::{CITED, Exchanged, bound, estimate, greatest_lie};

/// The trusted shares of the network.
pub const TRUSTED: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5];

/// The weight shares of trusted relays, drawn one by one until they have this share of the total
/// weight.
fn trusted(network: &Network, share: f64, seed: u64) -> Vec<f64> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let capacities = papers_capacities(network);
    let total: f64 = capacities.iter().copied().map(bytes).sum();
    let mut all: Vec<f64> = capacities
        .into_iter()
        .map(|one| bytes(one) / total.max(1.0))
        .filter(|one| *one > 0.0)
        .collect();
    all.shuffle(&mut random);
    let mut sum = 0.0;
    all.into_iter()
        .take_while(|one| {
            let is_needed = sum < share;
            sum += one;
            is_needed
        })
        .collect()
}

/// The attacker's gain, and the exact trusted share.
fn gain(network: &Network, share: f64, seed: u64) -> (f64, f64) {
    let shares = trusted(network, share, seed);
    let exact: f64 = shares.iter().sum();
    (estimate(&greatest_lie(1.0, &shares)).unwrap_or(0.0), exact)
}

/// E8: traffic with few trusted relays.
#[must_use]
pub fn concentrated(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for share in TRUSTED {
        let (gain, exact) = gain(network, share, seed);
        points.push(
            Point::new("liar", exact, gain).trusting(share).beside(bound(exact)).within(0.05),
        );
        let honest: Vec<_> = trusted(network, share, seed)
            .into_iter()
            .map(|share| Exchanged { bytes: share, share })
            .collect();
        let honest = estimate(&honest).unwrap_or(0.0);
        points.push(Point::new("honest", exact, honest).trusting(share).beside(1.0));
    }
    let paper = bound(0.2);
    Attack {
        id: "E8",
        name: "traffic with half of the trusted relays only",
        system: System::PeerFlow,
        formula: "2/tau",
        unit: "times",
        paper: Some(paper),
        ours: gain(network, 0.2, seed).0,
        interval: Some([0.95 * paper, 1.05 * paper]),
        basis: Basis::Model,
        axis: "trusted share of the weight",
        points,
        note: "tau = 0.2; the interval is 5 % around the formula, because trusted relays have finite sizes".to_owned(),
    }
}

/// Figures on PeerFlow that are only cited.
#[must_use]
pub fn cited() -> Vec<Attack> {
    let attack = |cited: &crate::others::peerflow::Cited| Attack {
        id: "E8",
        name: cited.what,
        system: System::PeerFlow,
        formula: "",
        unit: "as named",
        paper: Some(cited.value),
        ours: cited.value,
        interval: None,
        basis: Basis::Cited,
        axis: "",
        points: Vec::new(),
        note: format!("not computed here: {}", cited.source),
    };
    CITED.iter().map(attack).collect()
}
