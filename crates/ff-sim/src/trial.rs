//! One simulation of a network by some weights, for commands and the ledger.

pub mod closed;

use anyhow::Result;
use ff_archives::network::{Network, Relay};
use ff_flow::fill::{MaxMin, QuietFirst, Share, Weighted};
use ff_flow::path::{Factors, NoPath, Paths};
use ff_flow::sim::{
    self, CELL, CellWindow, Constants, FlowConfig, Pair, Summary, Unwatched, Watch,
};
use ff_flow::tmodel::{Library, Model};
use rand_chacha::{
    ChaCha12Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

use self::closed::{Loop, Rounds, System};
use crate::{
    analysis::moment::{CapacityKind, Scale, weight_error},
    schedule::errors::{DrawKey, Errors},
};

/// The number of circuits from which users' traffic is drawn.
const TEMPLATES: usize = 4_000;
/// The default length of a tick, in seconds.
pub const TICK_SECS: f64 = 0.1;
/// Seconds between the last round of a closed loop and the measured time: its last weights must
/// reach all circuits.
const SETTLE_SECS: u32 = 300;

/// The time to which [`TrialSetting::circuits_per_10_min`] refers, in seconds.
const TEN_MINUTES_SECS: f64 = 600.0;

/// The weights by which clients choose relays.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The network's own weights.
    Consensus,
    /// The weights that FlashFlow would measure.
    Flashflow,
    /// The weights at the end of a closed loop.
    Loop(System, Rounds),
    /// These weights, one for each relay.
    Given(Vec<f64>),
}

/// How relays divide their capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharingRule {
    /// [`MaxMin`].
    MaxMin,
    /// [`Weighted`].
    #[default]
    Weighted,
    /// [`QuietFirst`].
    QuietFirst,
}

/// Settings of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSetting {
    /// The number of circuits that users open in ten minutes.
    pub circuits_per_10_min: f64,
    /// The numbers of users' clients and of benchmark clients: Shadow's ten-percent networks had
    /// 792 and 79.
    pub clients: [u32; 2],
    /// Simulated seconds before the measured ones.
    pub warm_up_secs: u32,
    /// Simulated seconds that are measured.
    pub secs: u32,
    /// The number of guards of each of the users' clients.
    pub guards: u8,
    /// The limit of data in flight.
    pub window: CellWindow,
    /// How relays divide their capacity.
    pub rule: SharingRule,
    /// Random seed.
    pub seed: u64,
}

impl Default for TrialSetting {
    /// The defaults of [`FlowConfig`].
    fn default() -> Self {
        let config = FlowConfig::default();
        Self {
            circuits_per_10_min: config.circuits_per_10_min,
            clients: [config.user_clients, config.perf_clients],
            warm_up_secs: config.warm_up_secs,
            secs: config.secs,
            guards: config.guards,
            window: config.window,
            rule: SharingRule::default(),
            seed: 0,
        }
    }
}

impl TrialSetting {
    /// This number of circuits in ten minutes, with clients in proportion.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub fn of_circuits(circuits_per_10_min: f64) -> Self {
        let default = Self::default();
        let scale = circuits_per_10_min / default.circuits_per_10_min;
        let clients =
            default.clients.map(|clients| ((f64::from(clients) * scale).round() as u32).max(1));
        Self { circuits_per_10_min, clients, ..default }
    }
}

/// The total capacity of a ten-percent network of Shadow, in bytes per second: the mean of seven.
const TENTH_BYTES_PER_SEC: f64 = 4_505_552_062.0;

/// The number of circuits that users open in ten minutes, in proportion to the network's capacity:
/// 148,896 in a ten-percent network, as in January 2019.
#[must_use]
pub fn circuits_of(network: &Network) -> f64 {
    capacity(network) / TENTH_BYTES_PER_SEC * TrialSetting::default().circuits_per_10_min
}

/// The total usable capacity of a network's relays, in bytes per second.
#[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
fn capacity(network: &Network) -> f64 {
    network.relays.iter().filter_map(Relay::usable).map(|rate| rate.get() as f64).sum()
}

/// The number of circuits in ten minutes for this load, as a part of the network's usable capacity:
/// each byte passes three relays.
#[must_use]
pub fn circuits_for(network: &Network, part: f64, library: &Library) -> f64 {
    let of_one = 3.0 * library.mean_bytes() * CELL.0 / CELL.1;
    part * capacity(network) * TEN_MINUTES_SECS / of_one.max(1.0)
}

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialResult {
    /// The figures for comparison.
    pub summary: Summary,
    /// The mean utilisation of each relay, from 0 to 1.
    pub utilisation: Vec<f64>,
    /// The weights by which clients chose relays at the end.
    pub weights: Vec<f64>,
    /// Their NWE (Eq. 6) by usable capacity, if there is one.
    pub weight_error: Option<f64>,
    /// NWE at the beginning of a closed loop and after each of its rounds.
    pub loop_errors: Vec<f64>,
    /// The greatest number of circuits with a backlog at a time.
    pub most_waiting: usize,
    /// Bytes that users gave up.
    pub given_up_bytes: f64,
}

/// The circuits that users open with this seed, for ticks of `tick_secs` seconds: parts of a
/// second, or whole seconds up to ten.
#[must_use]
pub fn library(streams: &Model, packets: &Model, seed: u64, tick_secs: f64) -> Library {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    Library::sample(streams, packets, TEMPLATES, tick_secs, &mut rng)
}

/// Simulates a network.
///
/// # Errors
/// If the setting is invalid, or no path can be drawn.
pub fn simulate(
    network: &Network,
    library: &Library,
    choice: &Choice,
    setting: &TrialSetting,
) -> Result<TrialResult> {
    simulate_told(network, library, choice, setting, &|_, _| {})
}

/// The same with a callback after each simulated second, which gets the number of finished seconds
/// and of all.
///
/// # Errors
/// If the setting is invalid, or no path can be drawn.
pub fn simulate_told(
    network: &Network,
    library: &Library,
    choice: &Choice,
    setting: &TrialSetting,
    tell: &dyn Fn(u32, u32),
) -> Result<TrialResult> {
    let (mut weights, paths) = first_paths(network, choice, setting.seed)?;
    let mut config = config(setting);
    let mut share: Box<dyn Share> = match setting.rule {
        SharingRule::MaxMin => Box::<MaxMin>::default(),
        SharingRule::Weighted => Box::<Weighted>::default(),
        SharingRule::QuietFirst => Box::<QuietFirst>::default(),
    };
    let mut loop_errors = Vec::new();
    let outcome = if let Choice::Loop(system, rounds) = *choice {
        let mut closed = Loop::new(network, system, rounds, setting.seed);
        config.probes = closed.probes();
        let loops = rounds.all_secs().saturating_add(SETTLE_SECS);
        config.warm_up_secs = config.warm_up_secs.max(loops);
        let mut told = Told {
            watch: &mut closed,
            tell,
            secs: config.warm_up_secs.saturating_add(config.secs),
        };
        let found = sim::run_watched(network, &paths, library, &mut *share, &config, &mut told)?;
        weights = closed.weights();
        loop_errors = closed.errors().to_vec();
        found
    } else {
        let mut told = Told {
            watch: &mut Unwatched,
            tell,
            secs: config.warm_up_secs.saturating_add(config.secs),
        };
        sim::run_watched(network, &paths, library, &mut *share, &config, &mut told)?
    };
    Ok(TrialResult {
        summary: outcome.summary(),
        weight_error: error_of(network, &weights),
        utilisation: outcome.utilisation,
        weights,
        loop_errors,
        most_waiting: outcome.most_waiting,
        given_up_bytes: outcome.given_up_bytes,
    })
}

/// The weights by which clients choose relays at first, and the resulting paths.
///
/// # Errors
/// [`NoPath`] if no path can be drawn: all downloads would wait forever.
pub fn first_paths(
    network: &Network,
    choice: &Choice,
    seed: u64,
) -> Result<(Vec<f64>, Paths), NoPath> {
    let weights: Vec<f64> = match choice {
        Choice::Consensus | Choice::Loop(..) => {
            network.relays.iter().map(|relay| relay.weight).collect()
        }
        Choice::Flashflow => flashflow(network, seed),
        Choice::Given(weights) => weights.clone(),
    };
    let paths = Paths::new(network, &weights, &Factors::of(network, &weights));
    paths.check(&mut ChaCha12Rng::seed_from_u64(seed))?;
    Ok((weights, paths))
}

/// Reports finished seconds and forwards all calls to another observer.
struct Told<'a> {
    watch: &'a mut dyn Watch,
    /// Gets the number of finished seconds and of all.
    tell: &'a dyn Fn(u32, u32),
    /// The number of all seconds.
    secs: u32,
}

impl Watch for Told<'_> {
    fn second(&mut self, second: u32, carried: &[f64]) -> Option<Paths> {
        (self.tell)(second + 1, self.secs);
        self.watch.second(second, carried)
    }

    fn next_probe(&mut self) -> Option<Pair> {
        self.watch.next_probe()
    }

    fn probed(&mut self, pair: Pair, bytes_per_sec: f64) {
        self.watch.probed(pair, bytes_per_sec);
    }
}

/// The setting as a configuration.
fn config(setting: &TrialSetting) -> FlowConfig {
    let [user_clients, perf_clients] = setting.clients;
    FlowConfig {
        circuits_per_10_min: setting.circuits_per_10_min,
        user_clients,
        guards: setting.guards,
        perf_clients,
        probes: 0,
        warm_up_secs: setting.warm_up_secs,
        secs: setting.secs,
        window: setting.window,
        constants: Constants::default(),
        seed: setting.seed,
    }
}

/// NWE (Eq. 6) of these weights, by usable capacity.
fn error_of(network: &Network, weights: &[f64]) -> Option<f64> {
    let relay = |(relay, weight): (&Relay, &f64)| Relay { weight: *weight, ..relay.clone() };
    let relays = network.relays.iter().zip(weights).map(relay).collect();
    let network = Network { relays, ..Network::default() };
    weight_error(&network, CapacityKind::Usable, Scale::None, |_| true).weight_error
}

/// The weights that FlashFlow would measure, in Mbit/s: capacities with the paper's errors.
#[must_use]
pub fn flashflow(network: &Network, seed: u64) -> Vec<f64> {
    let mut key = [0; 32];
    ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut key);
    let weight = |relay: &Relay| {
        let attempt = DrawKey { relay: relay.fingerprint, coordinator: 0, earlier: 0 };
        relay.usable().map_or(0.0, |rate| rate.mbit()) * Errors::PAPER.ratio(&key, &attempt)
    };
    network.relays.iter().map(weight).collect()
}
