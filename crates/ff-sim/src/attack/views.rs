//! E7: liars and framing against EigenSpeed (paper §8).
//!
//! ```text
//!   relays of a network, some hundred ─▶ streams between pairs ─▶ views ─▶ rules that spare honest relays
//!                                                                   │
//!        attackers lie about each other, and about whom they frame ─┘
//! ```
//!
//! A stream between two relays gets the speed of the slower one's part for one stream, with noise; how many streams
//! there are between two goes by their weights, so of small relays little is known. The thresholds are those that
//! spare 99 % of honest relays, see [`Rules::calibrated`].
//!
//! Limits: 150 relays stand for thousands; the noise and the number of streams are our choice, so the order of
//! magnitude and the direction of the curves are what can be compared.

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::sample::{bytes, papers_capacities};
use super::{Attack, Basis, Point, System};
use crate::network::Network;
use crate::others::eigenspeed::{Rules, Views, Weights, weights};

/// Relays that stand for the network.
const RELAYS: usize = 150;
/// Streams between two relays in the mean.
const STREAMS: f64 = 3.0;
/// The deviation of a stream's logarithm.
const NOISE: f64 = 0.5;
/// The share of honest relays that each threshold may mark.
const SPARED: f64 = 0.01;
/// The trusted shares, by number.
pub const TRUSTED: [f64; 5] = [0.05, 0.1, 0.2, 0.3, 0.5];
/// The shares of relays that attack, by number.
pub const ATTACKERS: [f64; 3] = [0.01, 0.02, 0.05];
/// Networks that are looked at: their median counts.
const NETWORKS: u64 = 3;

/// Some hundred relays and what they see of each other.
struct Crowd {
    /// What they can carry.
    capacities: Vec<f64>,
    /// What honest ones see.
    views: Views,
    /// Relays in an order that nobody chooses: the attackers from the front, the trusted ones from the back.
    order: Vec<usize>,
}

impl Crowd {
    /// Relays at equal distances of a network's, sorted by capacity.
    fn new(network: &Network, seed: u64) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let all = crate::stats::sorted(papers_capacities(network).into_iter().map(bytes).collect());
        let count = all.len().min(RELAYS);
        let capacities: Vec<f64> = (0..count)
            .map(|index| all[(2 * index + 1) * all.len() / (2 * count)].max(1.0))
            .collect();
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut random);
        let views = seen(&capacities, &mut random);
        Self { capacities, views, order }
    }

    /// So many of them, from the front.
    fn attackers(&self, share: f64) -> &[usize] {
        &self.order[..part(self.order.len(), share)]
    }

    /// So many of them, from the back.
    fn trusted(&self, share: f64) -> &[usize] {
        &self.order[self.order.len() - part(self.order.len(), share)..]
    }
}

/// A share of so many, one at least and half at most.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "hundreds"
)]
fn part(count: usize, share: f64) -> usize {
    ((count as f64 * share).round() as usize).clamp(1.min(count), count / 2)
}

/// What relays with these capacities see of each other.
fn seen(capacities: &[f64], random: &mut ChaCha12Rng) -> Views {
    let count = capacities.len();
    let mean = capacities.iter().sum::<f64>() / float(count.max(1));
    let mut views = Views::new(count).unwrap_or_default();
    for one in 0..count {
        for other in one + 1..count {
            let expected = STREAMS * capacities[one] * capacities[other] / (mean * mean);
            let streams = poisson(expected.min(50.0), random);
            if streams == 0 {
                continue;
            }
            let speed = capacities[one].min(capacities[other]);
            for (of, to) in [(one, other), (other, one)] {
                let sum: f64 = (0..streams).map(|_| speed * (NOISE * normal(random)).exp()).sum();
                views.set(of, to, sum / f64::from(streams));
            }
        }
    }
    views
}

/// What a gang makes of the views that says this of the streams between any two of its own.
fn lied(views: &Views, gang: &[usize], speed: f64) -> Views {
    let mut views = views.clone();
    for &one in gang {
        for &other in gang {
            views.set(one, other, speed);
        }
    }
    views
}

/// The views when a gang gives all that it has to trusted relays: it has streams with all of them, each as much
/// faster as it leaves others out, and no faster than the trusted relay.
fn courted(crowd: &Crowd, gang: &[usize], trusted: &[usize]) -> Views {
    let mut views = crowd.views.clone();
    let more = float(crowd.order.len()) / float(trusted.len().max(1));
    for &one in gang {
        for &other in trusted {
            let speed = crowd.capacities[other].min(crowd.capacities[one] * more);
            views.set(one, other, speed);
            views.set(other, one, speed);
        }
    }
    views
}

/// A number of streams.
fn poisson(mean: f64, random: &mut ChaCha12Rng) -> u32 {
    let (limit, mut product, mut count) = ((-mean).exp(), random.random::<f64>(), 0);
    while product > limit {
        product *= random.random::<f64>();
        count += 1;
    }
    count
}

/// A number from the standard normal distribution.
fn normal(random: &mut ChaCha12Rng) -> f64 {
    let (one, other) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "counts of relays")]
fn float(count: usize) -> f64 {
    count as f64
}

/// The share of some relays.
fn share(weights: &Weights, of: &[usize]) -> f64 {
    of.iter().filter_map(|&index| weights.shares.get(index)).sum()
}

/// The least and the greatest speed that liars claim.
const CLAIMS: [f64; 2] = [1.0, 1e12];
/// Halvings between the two.
const HALVINGS: u32 = 16;

/// How many times what it deserves a gang gets whose members praise each other as much as they can without being
/// marked; `courts` if it gives all that it has to trusted relays, too.
fn liars_gain(crowd: &Crowd, trusted: f64, attackers: f64, courts: bool) -> f64 {
    let (trusted, gang) = (crowd.trusted(trusted), crowd.attackers(attackers));
    let rules = Rules::calibrated(&crowd.views, trusted, SPARED);
    let honest = weights(&crowd.views, trusted, &rules);
    let marked = |found: &Weights| gang.iter().filter(|&&index| found.marked[index]).count();
    let (deserved, before) = (share(&honest, gang), marked(&honest));
    let views = if courts { courted(crowd, gang, trusted) } else { crowd.views.clone() };
    let mut most = 1.0_f64;
    let [mut low, mut high] = CLAIMS;
    for _ in 0..HALVINGS {
        let speed = (low * high).sqrt();
        let found = weights(&lied(&views, gang, speed), trusted, &rules);
        if marked(&found) <= before {
            most = most.max(share(&found, gang) / deserved);
            low = speed;
        } else {
            high = speed;
        }
    }
    most
}

/// The median over some networks.
fn median_of(network: &Network, seed: u64, one: impl Fn(&Crowd) -> f64) -> f64 {
    let of = |number: u64| one(&Crowd::new(network, seed.wrapping_add(number)));
    crate::stats::median((0..NETWORKS).map(of).collect()).unwrap_or(0.0)
}

/// E7: a gang whose members praise each other.
#[must_use]
pub fn liars(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for (curve, courts) in [("praise", false), ("praise, and service to trusted relays", true)] {
        for attackers in ATTACKERS {
            for trusted in TRUSTED {
                let gain =
                    median_of(network, seed, |crowd| liars_gain(crowd, trusted, attackers, courts));
                points.push(Point::new(curve, attackers, gain).trusting(trusted));
            }
        }
    }
    Attack {
        id: "E7",
        name: "liars who praise each other",
        system: System::EigenSpeed,
        formula: "",
        unit: "times",
        paper: Some(21.5),
        ours: super::at(&points, "praise, and service to trusted relays", 0.02, Some(0.2)),
        interval: Some([7.4, 28.1]),
        basis: Basis::Model,
        axis: "share of relays that attack",
        points,
        note: format!(
            "20 % of relays trusted, 2 % attack; the interval is the paper's range; median of {NETWORKS} networks of \
             {RELAYS} relays; thresholds that spare {} % of honest relays each",
            100.0 * (1.0 - SPARED)
        ),
    }
}

/// The share of honest relays that a gang gets marked which praises its members and, of the others, a fifth.
fn framed(crowd: &Crowd, trusted: f64, attackers: f64) -> f64 {
    let (trusted, gang) = (crowd.trusted(trusted), crowd.attackers(attackers));
    let rules = Rules::calibrated(&crowd.views, trusted, SPARED);
    let honest = &crowd.order[gang.len()..];
    let victims = &honest[..part(honest.len(), FRAMED)];
    let marked = |found: &Weights| honest.iter().filter(|&&index| found.marked[index]).count();
    let before = marked(&weights(&crowd.views, trusted, &rules));
    // From far below to far above the truth.
    let most = (0..16).map(|power| 1e4 * 3_f64.powi(power)).map(|speed| {
        let mut views = lied(&crowd.views, gang, speed);
        for &one in gang {
            honest
                .iter()
                .filter(|other| !victims.contains(other))
                .for_each(|&other| views.set(one, other, 0.0));
        }
        marked(&weights(&views, trusted, &rules)).saturating_sub(before)
    });
    float(most.max().unwrap_or(0)) / float(honest.len().max(1))
}

/// The share of honest relays that are to be framed.
const FRAMED: f64 = 0.2;

/// E7: a gang that makes honest relays look like liars.
#[must_use]
pub fn framing(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for attackers in ATTACKERS {
        for trusted in TRUSTED {
            let share = median_of(network, seed, |crowd| framed(crowd, trusted, attackers));
            points.push(Point::new("framed", attackers, share).trusting(trusted));
        }
    }
    Attack {
        id: "E7",
        name: "honest relays framed by increase",
        system: System::EigenSpeed,
        formula: "",
        unit: "share of honest relays",
        paper: Some(0.2),
        ours: super::at(&points, "framed", 0.02, Some(0.2)),
        interval: None,
        basis: Basis::Model,
        axis: "share of relays that attack",
        points,
        note: "20 % of relays trusted; attackers want a fifth of the honest ones marked, and are marked themselves"
            .to_owned(),
    }
}

/// E7: relays that nobody has seen, each of which gets 1/n.
#[must_use]
pub fn sybils(network: &Network, seed: u64) -> Attack {
    let gain = |crowd: &Crowd, attackers: f64| {
        let trusted = crowd.trusted(0.2);
        let rules = Rules::calibrated(&crowd.views, trusted, SPARED);
        let honest = weights(&crowd.views, trusted, &rules);
        // Those that deserve least and have been rated.
        let mut least: Vec<usize> = (0..crowd.order.len()).collect();
        least.retain(|index| !trusted.contains(index));
        least.sort_by(|&one, &other| honest.shares[one].total_cmp(&honest.shares[other]));
        least.truncate(part(crowd.order.len(), attackers));
        let mut views = crowd.views.clone();
        for &one in &least {
            (0..crowd.order.len()).for_each(|other| views.set(one, other, 0.0));
        }
        share(&weights(&views, trusted, &rules), &least) / share(&honest, &least)
    };
    let points = ATTACKERS.map(|attackers| {
        let gain = median_of(network, seed, |crowd| gain(crowd, attackers));
        Point::new("who deserves least", attackers, gain).trusting(0.2)
    });
    Attack {
        id: "E7",
        name: "relays that nobody has rated",
        system: System::EigenSpeed,
        formula: "1/n over the deserved share",
        unit: "times",
        paper: None,
        ours: points[1].ours,
        interval: None,
        basis: Basis::Model,
        axis: "share of relays that attack",
        points: points.to_vec(),
        note: "the slowest relays hide; each gets the part of one relay".to_owned(),
    }
}
