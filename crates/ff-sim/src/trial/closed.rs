//! Closed loops: weights determine load, load determines observed bandwidths and download speeds,
//! and these determine weights.
//!
//! ```text
//!   paths ─▶ simulation ─▶ bytes per second ─▶ Observed (10 s, 5 days, 18 h) ─┐
//!     ▲          └──▶ downloads over two hops ─▶ Sample ◀─────────────────────┘
//!     └── Factors ◀── weights ◀── torflow | sbws ◀──┘
//! ```
//!
//! [`Loop`] observes a running simulation ([`Watch`]). Time is compressed: a round takes some
//! simulated minutes and stands for 18 hours, the time between two descriptors of a relay; a
//! relay's traffic in these minutes stands for that of all 18 hours. All relays are measured once
//! per round if the simulation has room for it ([`Loop::probes`]): TorFlow measures with a second
//! relay of similar weight, sbws with one of at least twice the weight, or one of the ten largest;
//! the second relay of the pair is an exit. TorFlow uses the downloads of one round, sbws those of
//! the last seven, which are five days.
//!
//! Limits: weights change for all clients at once at the end of a round, and a relay without
//! traffic in the minutes has observed nothing in the 18 hours.

use std::collections::VecDeque;

use ff_archives::network::Network;
use ff_flow::path::{Factors, Paths};
use ff_flow::sim::{Pair, Watch, sequence};
use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use crate::{
    analysis::moment::{CapacityKind, Scale, weight_error},
    others::{KILOBYTE, Sample, observed, observed::Observed, sbws, torflow},
};

/// The system that computes the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// TorFlow, by class, without feedback.
    Torflow,
    /// TorFlow with feedback, with its own constants: a relay's former weight is multiplied by its
    /// measured ratio.
    TorflowPid,
    /// sbws.
    Sbws,
}

impl System {
    /// Whether it is TorFlow, with or without feedback.
    const fn is_torflow(self) -> bool {
        matches!(self, Self::Torflow | Self::TorflowPid)
    }
}

/// The length of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Number of rounds; weights stay fixed after the last.
    pub count: u32,
    /// Simulated seconds of a round, at most 18 hours.
    pub secs: u32,
}

impl Rounds {
    /// Simulated seconds of all rounds.
    #[must_use]
    pub const fn all_secs(self) -> u32 {
        self.count.saturating_mul(self.secs)
    }

    /// The days that all rounds stand for.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "18 hours are few seconds")]
    pub fn days(self) -> f64 {
        f64::from(self.count) * observed::PUBLISH_SECS as f64 / 86_400.0
    }
}

/// The number of rounds for which sbws remembers a download: five days and a quarter.
const REMEMBERED: usize = 7;

/// TorFlow chooses the second relay among this number of relays before and after the first, by
/// weight.
const NEAR: usize = 25;

/// sbws chooses the second relay among this number of largest relays if none has twice the weight.
const LARGEST: usize = 10;

/// The data on a relay.
#[derive(Clone, Debug)]
struct Known {
    /// Its observed bandwidth.
    observed: Observed,
    /// Speeds of downloads in bytes per second, by round, newest last.
    measured: VecDeque<Vec<f64>>,
    /// Bytes that it carried in this round.
    carried: f64,
}

/// A closed loop.
#[derive(Clone, Debug)]
pub struct Loop {
    system: System,
    rounds: Rounds,
    /// The network with its present weights, in kilobytes per second.
    network: Network,
    /// The data on each relay.
    known: Vec<Known>,
    /// Relays by increasing weight.
    by_weight: Vec<u32>,
    /// Relays that are still to be measured in this round.
    next: Vec<u32>,
    /// Random numbers for the choice of second relays.
    rng: ChaCha12Rng,
    /// NWE (Eq. 6) at the beginning and after each round.
    errors: Vec<f64>,
    /// The state of TorFlow's feedback for each relay.
    feedback: Vec<torflow::Errors>,
}

impl Loop {
    /// A loop that starts with the network's own weights: each relay has published its weight share
    /// of the total capacity.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    pub fn new(network: &Network, system: System, rounds: Rounds, seed: u64) -> Self {
        let mut network = network.clone();
        let usable = network.relays.iter().filter_map(ff_archives::network::Relay::usable);
        let capacity = usable.map(|rate| rate.get() as f64).sum::<f64>();
        let scale = capacity / KILOBYTE / network.total_weight().max(f64::MIN_POSITIVE);
        let mut rng = sequence(seed, 6);
        let mut known = Vec::new();
        for relay in &mut network.relays {
            relay.weight = Some(relay.weight * scale).filter(|w| w.is_finite()).unwrap_or(0.0);
            let first = rng.random_range(0..observed::PUBLISH_SECS);
            known.push(Known {
                observed: Observed::new(0, relay.weight * KILOBYTE, first),
                measured: VecDeque::from([Vec::new()]),
                carried: 0.0,
            });
        }
        let (by_weight, next, errors) = (Vec::new(), Vec::new(), Vec::new());
        let feedback = vec![torflow::Errors::default(); known.len()];
        let mut this =
            Self { system, rounds, network, known, by_weight, next, rng, errors, feedback };
        this.begin_round();
        this
    }

    /// The number of concurrent downloads needed to measure all relays in a round: a download takes
    /// five seconds, plus a little for round trips.
    #[must_use]
    pub fn probes(&self) -> u32 {
        let all = u32::try_from(self.network.relays.len()).unwrap_or(u32::MAX);
        all.saturating_mul(7).div_ceil(self.rounds.secs.max(1))
    }

    /// The present weights, in kilobytes per second.
    #[must_use]
    pub fn weights(&self) -> Vec<f64> {
        self.network.relays.iter().map(|relay| relay.weight).collect()
    }

    /// NWE (Eq. 6) at the beginning and after each round.
    #[must_use]
    pub fn errors(&self) -> &[f64] {
        &self.errors
    }

    /// Begins a round with the present weights.
    fn begin_round(&mut self) {
        let error = weight_error(&self.network, CapacityKind::Usable, Scale::None, |_| true);
        self.errors.push(error.weight_error.unwrap_or(f64::NAN));
        let count = u32::try_from(self.network.relays.len()).unwrap_or(u32::MAX);
        let relays = &self.network.relays;
        self.by_weight = (0..count).collect();
        self.by_weight.sort_by(|&a, &b| {
            relays[a as usize].weight.total_cmp(&relays[b as usize].weight).then(a.cmp(&b))
        });
        self.next = (0..count).collect();
        // Fisher-Yates shuffle.
        for last in (1..self.next.len()).rev() {
            let other = self.rng.random_range(0..=last);
            self.next.swap(last, other);
        }
    }

    /// Ends a round: computes new weights and the resulting paths.
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    fn end_round(&mut self) -> Paths {
        let secs = f64::from(self.rounds.secs.max(1));
        let rest = observed::PUBLISH_SECS.saturating_sub(self.rounds.secs.into());
        let mut samples = Vec::new();
        for (known, relay) in self.known.iter_mut().zip(&self.network.relays) {
            let mean = std::mem::take(&mut known.carried) / secs;
            known.observed.add_steady(rest, mean, mean);
            samples.push(Sample {
                measured: known.measured.iter().flatten().copied().collect(),
                observed: known.observed.published(),
                allowed: relay.rate.map_or(f64::INFINITY, |rate| rate.get() as f64),
                old_weight: relay.weight,
                position: relay.position(),
            });
            known.measured.push_back(Vec::new());
            let most = if self.system.is_torflow() { 1 } else { REMEMBERED };
            while known.measured.len() > most {
                known.measured.pop_front();
            }
        }
        let weights = match self.system {
            System::Torflow => {
                torflow::weights(&samples, &torflow::TorFlowOptions::default(), &mut [])
            }
            System::TorflowPid => {
                let feedback = Some(torflow::Gains::default());
                let options =
                    torflow::TorFlowOptions { feedback, ..torflow::TorFlowOptions::default() };
                torflow::weights(&samples, &options, &mut self.feedback)
            }
            System::Sbws => sbws::weights(&samples),
        };
        for (relay, weight) in self.network.relays.iter_mut().zip(&weights) {
            relay.weight = *weight;
        }
        self.begin_round();
        Paths::new(&self.network, &weights, &Factors::of(&self.network, &weights))
    }

    /// A second relay to measure this one with, if there is one: an exit if this one is not an
    /// exit, otherwise a relay that is not an exit.
    fn partner(&mut self, relay: u32) -> Option<u32> {
        let relays = &self.network.relays;
        let is_exit =
            |one: u32| relays[one as usize].flags.exit && !relays[one as usize].flags.bad_exit;
        let wants_exit = !is_exit(relay);
        let fits = |one: &&u32| **one != relay && is_exit(**one) == wants_exit;
        let weight = relays[relay as usize].weight;
        let at = self.by_weight.partition_point(|&one| relays[one as usize].weight < weight);
        let (before, behind) = self.by_weight.split_at(at);
        let candidates: Vec<u32> = match self.system {
            System::Torflow | System::TorflowPid => {
                let near = before.iter().rev().filter(fits).take(NEAR);
                near.chain(behind.iter().filter(fits).take(NEAR)).copied().collect()
            }
            System::Sbws => {
                let twice = |one: &&u32| relays[**one as usize].weight >= 2.0 * weight;
                let large: Vec<u32> = behind.iter().filter(fits).filter(twice).copied().collect();
                if large.is_empty() {
                    self.by_weight.iter().rev().filter(fits).take(LARGEST).copied().collect()
                } else {
                    large
                }
            }
        };
        let at = self.rng.random_range(0..candidates.len().max(1));
        candidates.get(at).copied()
    }
}

impl Watch for Loop {
    fn second(&mut self, second: u32, carried: &[f64]) -> Option<Paths> {
        if second >= self.rounds.all_secs() {
            return None;
        }
        for (known, &bytes) in self.known.iter_mut().zip(carried) {
            known.observed.add_second(bytes, bytes);
            known.carried += bytes;
        }
        let is_over = (second + 1).is_multiple_of(self.rounds.secs.max(1));
        let paths = is_over.then(|| self.end_round());
        if second + 1 == self.rounds.all_secs() {
            self.next.clear();
        }
        paths
    }

    fn next_probe(&mut self) -> Option<Pair> {
        if self.rounds.count == 0 {
            return None;
        }
        while let Some(measured) = self.next.pop() {
            if let Some(other) = self.partner(measured) {
                let flags = self.network.relays[measured as usize].flags;
                let is_last = flags.exit && !flags.bad_exit;
                let relays = if is_last { [other, measured] } else { [measured, other] };
                return Some(Pair { relays, measured });
            }
        }
        None
    }

    fn probed(&mut self, pair: Pair, bytes_per_sec: f64) {
        for relay in pair.relays {
            // TorFlow counts a download for both relays, sbws only for the measured one.
            let counts = self.system.is_torflow() || relay == pair.measured;
            if let Some(now) = self.known[relay as usize].measured.back_mut().filter(|_| counts) {
                now.push(bytes_per_sec);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Flags, Relay};
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// A network of relays g, m and e in turn, each twice as fast as the previous one of its class,
    /// with equal weights.
    fn network() -> Network {
        let relay = |index: u8| Relay {
            fingerprint: [index; 20],
            addresses: vec![[index, 1, 0, 1].into()],
            flags: Flags {
                guard: index.is_multiple_of(3),
                exit: index % 3 == 2,
                ..Flags::default()
            },
            capacity: Some(BytesPerSec::new(1_000_000 << (index / 3))),
            weight: 1.0,
            ..Relay::default()
        };
        Network { relays: (0..12).map(relay).collect(), ..Network::default() }
    }

    const ROUNDS: Rounds = Rounds { count: 2, secs: 60 };

    /// Runs rounds in which relays carry half of their capacity and downloads get the rest.
    fn play(system: System) -> Loop {
        let network = network();
        let mut one = Loop::new(&network, system, ROUNDS, 3);
        let usable =
            |relay: u32| network.relays[relay as usize].usable().expect("some").mbit() * 125_000.0;
        let carried: Vec<f64> = (0..12).map(|relay| usable(relay) / 2.0).collect();
        for second in 0..180 {
            while let Some(pair) = one.next_probe() {
                let relays = pair.relays;
                assert!(relays.contains(&pair.measured));
                assert!(
                    second < 120 && network.relays[relays[1] as usize].flags.exit,
                    "{relays:?}"
                );
                one.probed(pair, usable(relays[0]).min(usable(relays[1])) / 2.0);
            }
            let paths = Watch::second(&mut one, second, &carried);
            assert_eq!(paths.is_some(), second == 59 || second == 119, "{second}");
        }
        one
    }

    #[test]
    fn loops_come_nearer_to_what_relays_can_carry() {
        // By hand: equal weights for capacities of 1, 2, 4 and 8 of 15 have the error (1/4-1/15) +
        // (1/4-2/15) = 0.3.
        for system in [System::Torflow, System::TorflowPid, System::Sbws] {
            let one = play(system);
            assert_eq!(one.errors().len(), 3);
            assert!((one.errors()[0] - 0.3).abs() < 1e-9, "{:?}", one.errors());
            let weights = one.weights();
            assert!(weights.iter().all(|weight| weight.is_finite() && *weight >= 1.0));
            assert!(weights[9] > weights[0], "{system:?}: {weights:?}");
            assert_eq!(play(system).weights(), weights, "the same seed, the same weights");
        }
        assert_ne!(play(System::TorflowPid).weights(), play(System::Torflow).weights());
        assert!((ROUNDS.days() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn networks_without_exits_or_relays_are_not_measured() {
        let mut none = Loop::new(&Network::default(), System::Sbws, ROUNDS, 1);
        assert_eq!((none.next_probe(), none.probes()), (None, 0));
        let mut guards = network();
        guards.relays.retain(|relay| !relay.flags.exit);
        let mut one = Loop::new(&guards, System::Torflow, ROUNDS, 1);
        assert_eq!((one.next_probe(), one.probes()), (None, 1));
    }
}
