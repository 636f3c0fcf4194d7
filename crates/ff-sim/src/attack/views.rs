//! E7: lies and framing against EigenSpeed (paper §8).
//!
//! ```text
//!   200 relays of a network ─▶ streams between pairs ─▶ views ─▶ rules that spare honest relays
//!                                                         │
//!        attackers lie about each other, or about those ──┘
//!        that they frame
//! ```
//!
//! A stream between two relays gets the per-stream speed of the slower one, with noise. The number
//! of streams between two relays grows with their weights, so little is known of small relays. The
//! thresholds are those that spare 99 % of honest relays, see [`EigenSpeedRules::calibrated`].
//!
//! A gang's gain is its weight over its fair weight, so the choice of members matters. Relays with
//! a high fair weight gain little: trusted relays have already rated them well. Slow ones that give
//! all of their capacity to trusted relays gain most, and the paper's order of magnitude (7.4 to
//! 28.1) is theirs. If only changes per step are checked and few relays are trusted, they gain far
//! more: see the curves of [`liars`].
//!
//! Limits: 200 relays stand for thousands; the noise and the number of streams are our choice, so
//! only the order of magnitude and the direction of the curves can be compared. Laxer thresholds
//! give greater gains.

use ff_archives::network::Network;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::sample::{bytes, papers_capacities};
use super::{Attack, Basis, Point, System};
use crate::others::eigenspeed::{EigenSpeedRules, EigenSpeedWeights, Views, weights};

/// The number of relays that stand for the network.
const RELAYS: usize = 200;
/// The mean number of streams between two relays.
const STREAMS: f64 = 3.0;
/// The standard deviation of the logarithm of a stream's speed.
const NOISE: f64 = 0.5;
/// The share of honest relays that each threshold marks.
const MARKED: f64 = 0.01;
/// The trusted shares, by number of relays.
pub const TRUSTED: [f64; 5] = [0.05, 0.1, 0.2, 0.3, 0.5];
/// The shares of attacking relays, by number.
pub const ATTACKERS: [f64; 2] = [0.02, 0.05];
/// The same for the curve over the attackers' share.
const CURVE: [f64; 4] = [0.01, 0.02, 0.05, 0.1];
/// One relay in this number counts as slow.
const SLOW: usize = 4;
/// The number of networks for gangs of slow relays, which differ more.
const NETWORKS_OF_SLOW: u64 = 9;
/// The number of networks of which the median is taken.
const NETWORKS: u64 = 3;

/// The relays and their views of each other.
struct Crowd {
    /// In bytes per second.
    capacities: Vec<f64>,
    /// The views of honest relays.
    views: Views,
    /// The relays in random order: attackers from the front, trusted ones from the back.
    order: Vec<usize>,
}

impl Crowd {
    /// Every n-th relay of a network sorted by capacity.
    fn new(network: &Network, seed: u64) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let all =
            ff_report::stats::sorted(papers_capacities(network).into_iter().map(bytes).collect());
        let count = all.len().min(RELAYS);
        let capacities: Vec<f64> = (0..count)
            .map(|index| all[(2 * index + 1) * all.len() / (2 * count)].max(1.0))
            .collect();
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut random);
        let views = seen(&capacities, &mut random);
        Self { capacities, views, order }
    }

    /// This share of the relays, from the front.
    fn attackers(&self, share: f64) -> &[usize] {
        &self.order[..part(self.order.len(), share)]
    }

    /// The same share, from the slowest quarter of the relays that trusted relays have rated:
    /// unrated ones have 1/n with any rating. None of them is trusted at any share of the curves.
    fn slow(&self, share: f64, trusted: &[usize]) -> Vec<usize> {
        let others = &self.order[..self.order.len() - self.order.len() / 2];
        let speed = |of: usize, to: usize| self.views.speed(of, to).min(self.views.speed(to, of));
        let is_rated = |one: &usize| trusted.iter().any(|&other| speed(*one, other) > 0.0);
        let rated: Vec<usize> = others.iter().copied().filter(is_rated).collect();
        // Relays' numbers are in the order of their capacities.
        let mut sorted = rated.clone();
        sorted.sort_unstable();
        let slow = &sorted[..sorted.len().div_ceil(SLOW)];
        let count = part(self.order.len(), share);
        rated.into_iter().filter(|one| slow.contains(one)).take(count).collect()
    }

    /// This share of the relays, from the back.
    fn trusted(&self, share: f64) -> &[usize] {
        &self.order[self.order.len() - part(self.order.len(), share)..]
    }
}

/// A share of a number, at least one and at most half.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "hundreds"
)]
fn part(count: usize, share: f64) -> usize {
    ((count as f64 * share).round() as usize).min(count / 2).max(1).min(count)
}

/// The views that relays with these capacities have of each other.
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

/// The views with a gang's lies: members report each other's fair speed times `factor`. So all
/// members grow alike, and none is marked before the others.
fn lied(views: &Views, gang: &[usize], deserved: &EigenSpeedWeights, factor: f64) -> Views {
    let mut views = views.clone();
    for &one in gang {
        for &other in gang {
            let said = factor * deserved.shares[one] * deserved.shares[other];
            views.set(one, other, said.max(views.speed(one, other)));
        }
    }
    views
}

/// The views if a gang gives all of its capacity to trusted relays: it has streams with all of
/// them, faster in proportion to the relays left out, but no faster than the trusted relay.
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

/// A Poisson-distributed number of streams.
fn poisson(mean: f64, random: &mut ChaCha12Rng) -> u32 {
    let (limit, mut product, mut count) = ((-mean).exp(), random.random::<f64>(), 0);
    while product > limit {
        product *= random.random::<f64>();
        count += 1;
    }
    count
}

/// A standard normal deviate.
fn normal(random: &mut ChaCha12Rng) -> f64 {
    let (one, other) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

#[expect(clippy::cast_precision_loss, reason = "counts of relays")]
fn float(count: usize) -> f64 {
    count as f64
}

/// The total weight of some relays.
fn share(weights: &EigenSpeedWeights, of: &[usize]) -> f64 {
    of.iter().filter_map(|&index| weights.shares.get(index)).sum()
}

/// The gains that liars aim for.
const AIMS: [f64; 14] =
    [1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];
/// Lies above the factor at which a gang begins to take over all weight, relative to it.
const BEYOND: [f64; 10] = [1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 10.0, 1000.0];

/// The factors of a gang's lies. At the critical factor the gang alone stretches as much as all
/// honest relays, and takes over; at a part x of it, the gang's weight is multiplied by 1/(1 - x).
fn claims(honest: &EigenSpeedWeights, gang: &[usize]) -> impl Iterator<Item = f64> {
    let square = |index: &usize| honest.shares[*index] * honest.shares[*index];
    let squares: f64 = gang.iter().map(square).sum();
    let critical = if squares > 0.0 { honest.stretch / squares } else { 0.0 };
    let below = AIMS.into_iter().map(|gain| 1.0 - 1.0 / gain);
    below.chain(BEYOND).map(move |part| critical * part)
}

/// A variant of the attack, with the countermeasures.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// The curve's name.
    curve: &'static str,
    /// Whether members are from the slowest quarter.
    is_slow: bool,
    /// Whether it gives all of its capacity to trusted relays.
    courts: bool,
    /// The share of honest relays that each threshold marks.
    marked_share: f64,
    /// Whether final values are checked, in addition to changes per step.
    checks_finals: bool,
}

/// The greatest weight over fair weight for a gang that praises its members as much as possible
/// without being marked.
fn liars_gain(crowd: &Crowd, [trusted, attackers]: [f64; 2], way: &Way) -> f64 {
    let trusted = crowd.trusted(trusted);
    let gang = &match way.is_slow {
        true => crowd.slow(attackers, trusted),
        false => crowd.attackers(attackers).to_vec(),
    };
    let mut rules = EigenSpeedRules::calibrated(&crowd.views, trusted, way.marked_share);
    if !way.checks_finals {
        rules.most_growth = f64::INFINITY;
    }
    let honest = weights(&crowd.views, trusted, &rules);
    let marked =
        |found: &EigenSpeedWeights| gang.iter().filter(|&&index| found.marked[index]).count();
    let before = marked(&honest);
    let views = if way.courts { courted(crowd, gang, trusted) } else { crowd.views.clone() };
    let unseen = claims(&honest, gang)
        .map(|factor| weights(&lied(&views, gang, &honest, factor), trusted, &rules))
        .filter(|found| marked(found) <= before)
        .map(|found| times(share(&found, gang), share(&honest, gang)));
    unseen.fold(1.0, f64::max)
}

/// The ratio of a share to the fair share; 0 if that is 0.
fn times(share: f64, deserved: f64) -> f64 {
    if deserved > 0.0 { share / deserved } else { 0.0 }
}

/// The median over [`NETWORKS`] networks.
fn median_of(network: &Network, seed: u64, one: impl Fn(&Crowd) -> f64) -> f64 {
    median_of_many(network, NETWORKS, seed, one)
}

/// The median over `many` networks.
fn median_of_many(network: &Network, many: u64, seed: u64, one: impl Fn(&Crowd) -> f64) -> f64 {
    let of = |number: u64| one(&Crowd::new(network, seed.wrapping_add(number)));
    ff_report::stats::median((0..many).map(of).collect()).unwrap_or(0.0)
}

/// The curve of a gang that also gives all of its capacity to trusted relays.
pub const COURTING: &str = "praise, and service to trusted relays";

/// The same with slow members.
pub const SLOW_COURTING: &str = "slow relays, praise, and service to trusted relays";

/// The variants of the attack.
const WAYS: [Way; 5] = {
    let plain = Way {
        curve: "praise",
        is_slow: false,
        courts: false,
        marked_share: MARKED,
        checks_finals: true,
    };
    let courting = Way { curve: COURTING, courts: true, ..plain };
    let lax = "the same, thresholds that mark no honest relay";
    let steps = "slow relays, the same, changes in a step count alone";
    [
        plain,
        courting,
        Way { curve: lax, marked_share: 0.0, ..courting },
        Way { curve: SLOW_COURTING, is_slow: true, ..courting },
        Way { curve: steps, is_slow: true, checks_finals: false, ..courting },
    ]
};

/// E7: a gang that praises its members.
#[must_use]
pub fn liars(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for way in &WAYS {
        let (shares, many): (&[f64], _) = match (way.curve, way.is_slow) {
            (COURTING, _) => (&CURVE, NETWORKS),
            (_, true) => (&ATTACKERS[..1], NETWORKS_OF_SLOW),
            _ => (&ATTACKERS, NETWORKS),
        };
        for &attackers in shares {
            for trusted in TRUSTED {
                let gain = |crowd: &Crowd| liars_gain(crowd, [trusted, attackers], way);
                let gain = median_of_many(network, many, seed, gain);
                points.push(Point::new(way.curve, attackers, gain).trusting(trusted));
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
        ours: super::at(&points, COURTING, 0.02, Some(0.2)),
        interval: Some([7.4, 28.1]),
        basis: Basis::Model,
        axis: "share of relays that attack",
        points,
        note: format!(
            "20 % of relays are trusted, 2 % attack, at random; slow ones, with a small true share, gain most (median of \
             {NETWORKS_OF_SLOW}); the interval is \
             the paper's range, for an implementation whose thresholds are not in the paper; median of {NETWORKS} networks of {RELAYS} relays; each threshold spares {} % of honest \
             relays",
            100.0 * (1.0 - MARKED)
        ),
    }
}

/// The share of honest relays that are marked because of a gang, with or without the check of
/// changes per step. The gang praises its members and reports no speed of others, except for the
/// fifth that it frames.
fn framed(crowd: &Crowd, trusted: f64, attackers: f64, checks_steps: bool) -> f64 {
    let (trusted, gang) = (crowd.trusted(trusted), crowd.attackers(attackers));
    let mut rules = EigenSpeedRules::calibrated(&crowd.views, trusted, MARKED);
    if !checks_steps {
        rules.most_change = f64::INFINITY;
    }
    let honest = &crowd.order[gang.len()..];
    let victims = &honest[..part(honest.len(), FRAMED)];
    let marked =
        |found: &EigenSpeedWeights| honest.iter().filter(|&&index| found.marked[index]).count();
    let without = weights(&crowd.views, trusted, &rules);
    let before = marked(&without);
    let most = claims(&without, gang).map(|factor| {
        let mut views = lied(&crowd.views, gang, &without, factor);
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

/// The share of honest relays that the gang frames.
const FRAMED: f64 = 0.2;

/// E7: a gang that makes honest relays look like liars.
#[must_use]
pub fn framing(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for (curve, checks_steps) in
        [("final values count", false), ("changes in a step count, too", true)]
    {
        for attackers in ATTACKERS {
            for trusted in TRUSTED {
                let one = |crowd: &Crowd| framed(crowd, trusted, attackers, checks_steps);
                let share = median_of(network, seed, one);
                points.push(Point::new(curve, attackers, share).trusting(trusted));
            }
        }
    }
    Attack {
        id: "E7",
        name: "honest relays framed by increase",
        system: System::EigenSpeed,
        formula: "",
        unit: "share of honest relays",
        paper: Some(0.2),
        ours: super::at(&points, "final values count", 0.02, Some(0.2)),
        interval: None,
        basis: Basis::Model,
        axis: "share of relays that attack",
        points,
        note: "20 % of relays are trusted, 2 % attack: they try to have a fifth of the honest relays marked, and are marked themselves; \
               final values count, because a relay that changes too much in a step is excluded before it can frame others"
            .to_owned(),
    }
}

/// E7: relays that no other relay has seen, each with the weight 1/n.
#[must_use]
pub fn sybils(network: &Network, seed: u64) -> Attack {
    let gain = |crowd: &Crowd, attackers: f64| {
        let trusted = crowd.trusted(0.2);
        let rules = EigenSpeedRules::calibrated(&crowd.views, trusted, MARKED);
        let honest = weights(&crowd.views, trusted, &rules);
        // The relays with the lowest fair weight that have been rated.
        let mut least: Vec<usize> = (0..crowd.order.len()).collect();
        least.retain(|index| !trusted.contains(index));
        least.sort_by(|&one, &other| honest.shares[one].total_cmp(&honest.shares[other]));
        least.truncate(part(crowd.order.len(), attackers));
        let mut views = crowd.views.clone();
        for &one in &least {
            (0..crowd.order.len()).for_each(|other| views.set(one, other, 0.0));
        }
        times(share(&weights(&views, trusted, &rules), &least), share(&honest, &least))
    };
    let points = ATTACKERS.map(|attackers| {
        let gain = median_of(network, seed, |crowd| gain(crowd, attackers));
        Point::new("least deserving relays", attackers, gain).trusting(0.2)
    });
    Attack {
        id: "E7",
        name: "relays that nobody has rated",
        system: System::EigenSpeed,
        formula: "1/n over the deserved share",
        unit: "times",
        paper: None,
        ours: points[0].ours,
        interval: None,
        basis: Basis::Model,
        axis: "share of relays that attack",
        points: points.to_vec(),
        note: "the attackers are the slowest relays, which carry almost nothing in a real network; each gets the share of one relay".to_owned(),
    }
}
