//! E6: false descriptors against TorFlow and sbws (paper §8, Table 2).
//!
//! An attacker publishes a higher observed bandwidth than it has. TorFlow multiplies this by the
//! relative speed of downloads through the relay; sbws uses the consensus weight if that is lower.
//! Neither gives one relay more than 5 % of the total, so the greatest factor is 5 % over the
//! attacker's true share: 177 for 172 Mbit/s of 608 Gbit/s.
//!
//! The loop is a model without queues: relays carry their share of the load up to their capacity,
//! downloads get the rest, an honest relay observes 1.2 times its mean load, and the attacker gives
//! downloads all of its capacity; the window of a circuit limits all downloads. Its limits: clients
//! never leave slow relays, and only this relay limits a download.

use ff_archives::network::{Network, Position};
use ff_proto::units::BytesPerSec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::sample::{PAPERS_TOTAL, bytes, papers_capacities};
use super::{Attack, Basis, Point, System};
use crate::others::torflow::{self, Errors, Gains, TorFlowOptions};
use crate::others::{KILOBYTE, Sample, sbws};

/// The greatest share that TorFlow or sbws gives a relay.
const MOST_SHARE: f64 = 0.05;
/// The attacker's capacity in the paper's example.
pub const NAMED: BytesPerSec = BytesPerSec::from_mbit(172);
/// The greatest bandwidth that tor reads from a descriptor: 2^31 - 1 bytes per second.
const MOST_READ: f64 = 2_147_483_647.0;
/// The claim of an attacker that claims the maximum, in bytes per second.
const ANYTHING: f64 = 1e15;
/// Attackers' capacities, in Mbit/s.
pub const SIZES: [u64; 8] = [10, 50, 100, 172, 342, 1000, 3000, 10_000];

/// A network as TorFlow and sbws see it, the attacker last.
struct Scanned {
    /// Relays' capacities, in bytes per second.
    capacities: Vec<f64>,
    /// Relays' data as the scanners know them.
    samples: Vec<Sample>,
}

impl Scanned {
    /// A network with an attacker of this capacity, which has its fair weight at first.
    fn new(network: &Network, attacker: BytesPerSec) -> Self {
        let honest = papers_capacities(network);
        // The total is the paper's, including the attacker.
        let factor = 1.0 - bytes(attacker) / bytes(PAPERS_TOTAL);
        let mut capacities: Vec<f64> = honest.into_iter().map(|one| bytes(one) * factor).collect();
        let with = network.relays.iter().filter(|relay| relay.usable().is_some());
        let mut positions: Vec<Position> =
            with.map(ff_archives::network::Relay::position).collect();
        capacities.push(bytes(attacker));
        positions.push(Position::Guard);
        let sample = |(&capacity, position): (&f64, Position)| Sample {
            measured: vec![1e6],
            observed: capacity,
            allowed: f64::INFINITY,
            old_weight: (capacity / KILOBYTE).max(1.0),
            position,
        };
        let samples = capacities.iter().zip(positions).map(sample).collect();
        Self { capacities, samples }
    }

    fn attacker(&mut self) -> Option<&mut Sample> {
        self.samples.last_mut()
    }

    /// The attacker's share of these weights over its share of capacity.
    fn gain(&self, weights: &[f64]) -> f64 {
        let share = |of: &[f64]| {
            let sum: f64 = of.iter().sum();
            if sum > 0.0 { of.last().copied().unwrap_or(0.0) / sum } else { 0.0 }
        };
        let deserved = share(&self.capacities);
        if deserved > 0.0 { share(weights) / deserved } else { 0.0 }
    }

    /// The claim that gives the attacker 5 % of the total after the limit: a nineteenth of the
    /// others' sum.
    fn just_enough(&self) -> f64 {
        let others = self.capacities.split_last().map_or(0.0, |(_, others)| others.iter().sum());
        others * MOST_SHARE / (1.0 - MOST_SHARE)
    }
}

/// The formula: 5 % over the attacker's true share.
#[must_use]
pub fn formula(attacker: BytesPerSec) -> f64 {
    MOST_SHARE * bytes(PAPERS_TOTAL) / bytes(attacker).max(1.0)
}

/// The gain by a claim in one step, against TorFlow and against sbws.
fn one_claim(network: &Network, attacker: BytesPerSec, claim: Option<f64>) -> [f64; 2] {
    let mut scanned = Scanned::new(network, attacker);
    let claim = claim.unwrap_or_else(|| scanned.just_enough());
    if let Some(attacker) = scanned.attacker() {
        attacker.observed = claim;
    }
    let torflow = torflow::weights(&scanned.samples, &TorFlowOptions::default(), &mut []);
    [scanned.gain(&torflow), scanned.gain(&sbws::weights(&scanned.samples))]
}

/// E6, in one step.
#[must_use]
pub fn one_step(network: &Network) -> Attack {
    let mut points = Vec::new();
    for mbit in SIZES {
        let (x, attacker) =
            (f64::from(u32::try_from(mbit).unwrap_or(0)), BytesPerSec::from_mbit(mbit));
        let claims =
            [("just enough", None), ("2^31-1", Some(MOST_READ)), ("anything", Some(ANYTHING))];
        for (name, claim) in claims {
            let [torflow, sbws] = one_claim(network, attacker, claim);
            let point = Point::new(format!("torflow, {name}"), x, torflow);
            // Only the claim that is just enough gives the formula's value.
            let is_enough = claim.is_none();
            points.push(if is_enough {
                point.beside(formula(attacker)).within(1e-3)
            } else {
                point
            });
            // sbws rounds to two significant digits.
            points.push(Point::new(format!("sbws, {name}"), x, sbws).beside(1.0).within(0.05));
        }
    }
    Attack {
        id: "E6",
        name: "a false descriptor, in one step",
        system: System::TorFlow,
        formula: "0.05 / true share",
        unit: "times",
        paper: Some(177.0),
        ours: super::at(&points, "torflow, just enough", NAMED.mbit(), None),
        interval: None,
        basis: Basis::Model,
        axis: "attacker, Mbit/s",
        points,
        note: format!(
            "ours is for {NAMED} of 608 Gbit/s; the paper's other figure, 89, is for 342 Mbit/s; the limit is 5 % \
             of a sum that includes the claim, so an unlimited claim gets nearly everything; a descriptor \
             that tor accepts has at most 2^31-1 bytes per second, which is not quite enough for 5 %"
        ),
    }
}

/// The system that is simulated over several steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// TorFlow, by observed bandwidths.
    Torflow,
    /// TorFlow with feedback.
    Feedback,
    Sbws,
}

/// Clients' demand as a part of the total capacity.
const LOAD: f64 = 0.5;
/// A relay's observed bandwidth over its mean load.
const PEAK: f64 = 1.2;
/// The greatest speed of a download, in bytes per second: 500 cells of 514 bytes per round trip
/// through two hops, of 118 ms each in the median.
const MOST_STREAM: f64 = 500.0 * 514.0 / 0.236;
/// The part of downloads that is new in each step: weights use the downloads of many days.
const NEW_PART: f64 = 0.25;
/// Steps of a loop: weeks, if a scan takes two days and its weights need a few days more.
const STEPS: u32 = 30;

impl Loop {
    const fn name(self) -> &'static str {
        match self {
            Self::Torflow => "torflow",
            Self::Feedback => "torflow with feedback",
            Self::Sbws => "sbws",
        }
    }

    /// One step. Load follows weight alone here, so relays are compared with all others and not
    /// within their class: with feedback, a class with greater differences would take the others'
    /// weight.
    fn weights(self, samples: &[Sample], errors: &mut [Errors]) -> Vec<f64> {
        let options = TorFlowOptions { by_class: false, ..TorFlowOptions::default() };
        match self {
            Self::Torflow => torflow::weights(samples, &options, &mut []),
            Self::Feedback => {
                let feedback = Some(Gains::default());
                torflow::weights(samples, &TorFlowOptions { feedback, ..options }, errors)
            }
            Self::Sbws => sbws::weights(samples),
        }
    }

    /// The attacker's gain after each step with this claim; `None` if it is honest.
    fn gains(self, network: &Network, claim: Option<f64>, seed: u64) -> Vec<f64> {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let mut scanned = Scanned::new(network, NAMED);
        let mut errors = vec![Errors::default(); scanned.samples.len()];
        let total: f64 = scanned.capacities.iter().sum();
        let mut streams: Vec<f64> =
            scanned.capacities.iter().map(|capacity| capacity.min(MOST_STREAM)).collect();
        let mut gains = Vec::new();
        for _ in 0..STEPS {
            let sum: f64 = scanned.samples.iter().map(|sample| sample.old_weight).sum();
            let relays = scanned.samples.iter_mut().zip(&scanned.capacities).zip(&mut streams);
            for ((sample, capacity), stream) in relays {
                let load = (sample.old_weight / sum * total * LOAD).min(*capacity);
                sample.observed = sample.observed.max(load * PEAK).min(*capacity);
                // Even a full relay gives a new circuit a fiftieth of its capacity.
                let left = (capacity - load).max(capacity / 50.0).min(MOST_STREAM);
                *stream += (left - *stream) * NEW_PART;
                sample.measured = (0..3).map(|_| *stream * random.random_range(0.5..1.0)).collect();
            }
            let capacity = scanned.capacities.last().copied().unwrap_or(0.0);
            if let Some((attacker, claim)) = scanned.attacker().zip(claim) {
                (attacker.observed, attacker.measured) =
                    (claim, vec![capacity.min(MOST_STREAM); 3]);
            }
            let weights = self.weights(&scanned.samples, &mut errors);
            gains.push(scanned.gain(&weights));
            for (sample, weight) in scanned.samples.iter_mut().zip(weights) {
                sample.old_weight = weight;
            }
        }
        gains
    }
}

/// E6, in several steps.
#[must_use]
pub fn loops(network: &Network, seed: u64) -> Attack {
    let mut points = Vec::new();
    for system in [Loop::Torflow, Loop::Feedback, Loop::Sbws] {
        for (what, claim) in [("honest", None), ("2^31-1", Some(MOST_READ))] {
            let gains = system.gains(network, claim, seed);
            let curve = format!("{}, {what}", system.name());
            let steps = (1..).map(f64::from).zip(gains);
            points.extend(steps.map(|(step, gain)| Point::new(curve.clone(), step, gain)));
        }
    }
    let curve = format!("{}, 2^31-1", Loop::Sbws.name());
    let ours = points.iter().filter(|point| point.curve == curve).map(|point| point.ours);
    let ours = ours.fold(0.0, f64::max);
    Attack {
        id: "E6",
        name: "a false descriptor, step by step",
        system: System::Sbws,
        formula: "about 0.05 / true share at most",
        unit: "times",
        paper: None,
        ours,
        interval: None,
        basis: Basis::Model,
        axis: "step",
        points,
        note: format!(
            "an attacker with {NAMED} that uses all its capacity for downloads; load {LOAD}; ours is sbws's maximum"
        ),
    }
}
