//! One simulation of a network by some weights, as the command and the ledger want it.

use anyhow::Result;
use rand_chacha::{
    ChaCha12Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

use super::{
    closed::{Loop, Rounds, System},
    fill::{MaxMin, QuietFirst, Share, Weighted},
    path::{Factors, NoPath, Paths},
    sim::{self, CELL, CellWindow, Constants, FlowConfig, Pair, Summary, Unwatched, Watch},
    tmodel::{Library, Model},
};
use crate::{
    analysis::moment::{CapacityKind, Scale, weight_error},
    network::{Network, Relay},
    schedule::errors::{DrawKey, Errors},
};

/// Circuits that users' traffic is drawn from.
const TEMPLATES: usize = 4_000;
/// Seconds of a tick, if nobody says otherwise.
pub const TICK_SECS: f64 = 0.1;
/// Seconds between the last round of a closed loop and what counts: its last weights have to reach
/// all circuits.
const SETTLE_SECS: u32 = 300;

/// Seconds in which users open as many circuits as [`TrialSetting::circuits_per_10_min`].
const TEN_MINUTES_SECS: f64 = 600.0;

/// By which weights clients choose relays.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The network's own.
    Consensus,
    /// What FlashFlow would measure.
    Flashflow,
    /// Those at which a closed loop ends.
    Loop(System, Rounds),
    /// These, one for each relay.
    Given(Vec<f64>),
}

/// How relays divide what they have.
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

/// How a network is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSetting {
    /// Circuits that users open in ten minutes.
    pub circuits_per_10_min: f64,
    /// Clients of users, and such that download files: Shadow's ten-percent networks had 792 and
    /// 79.
    pub clients: [u32; 2],
    /// Seconds before anything is counted.
    pub warm_up_secs: u32,
    /// Seconds that are counted.
    pub secs: u32,
    /// Guards that each client of users holds.
    pub guards: u8,
    /// How much may be on its way.
    pub window: CellWindow,
    /// How relays divide what they have.
    pub rule: SharingRule,
    /// The seed.
    pub seed: u64,
}

impl Default for TrialSetting {
    /// [`FlowConfig`]'s.
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
    /// This number of circuits in ten minutes, and as many clients to a circuit as by default.
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

/// What relays of Shadow's ten-percent networks can do together, in bytes a second: the mean of
/// seven.
const TENTH_BYTES_PER_SEC: f64 = 4_505_552_062.0;

/// How many circuits users open in ten minutes for what a network's relays can do, if they do as in
/// January 2019: 148,896 in a ten-percent network.
#[must_use]
pub fn circuits_of(network: &Network) -> f64 {
    capacity(network) / TENTH_BYTES_PER_SEC * TrialSetting::default().circuits_per_10_min
}

/// What all relays of a network can do, in bytes a second.
#[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
fn capacity(network: &Network) -> f64 {
    network.relays.iter().filter_map(Relay::usable).map(|rate| rate.get() as f64).sum()
}

/// How many circuits ask for this part of all that a network's relays can do, in ten minutes: each
/// byte passes three relays.
#[must_use]
pub fn circuits_for(network: &Network, part: f64, library: &Library) -> f64 {
    let of_one = 3.0 * library.mean_bytes() * CELL.0 / CELL.1;
    part * capacity(network) * TEN_MINUTES_SECS / of_one.max(1.0)
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialResult {
    /// The figures that are compared.
    pub summary: Summary,
    /// The part of its capacity that each relay used in the mean.
    pub utilisation: Vec<f64>,
    /// By which weights clients chose relays at the end.
    pub weights: Vec<f64>,
    /// Their network weight error (Eq. 6) by usable capacity, if there is one.
    pub weight_error: Option<f64>,
    /// The same at the beginning of a closed loop and after each of its rounds.
    pub loop_errors: Vec<f64>,
    /// The most circuits that waited for bytes at a time.
    pub most_waiting: usize,
    /// Bytes that users gave up waiting for.
    pub given_up_bytes: f64,
}

/// The circuits that users open by this seed, in ticks of `tick_secs` seconds: parts of one, or
/// whole ones up to ten.
#[must_use]
pub fn library(streams: &Model, packets: &Model, seed: u64, tick_secs: f64) -> Library {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    Library::sample(streams, packets, TEMPLATES, tick_secs, &mut rng)
}

/// Simulates a network.
///
/// # Errors
/// When the setting makes no sense, or no path can be drawn.
pub fn simulate(
    network: &Network,
    library: &Library,
    choice: &Choice,
    setting: &TrialSetting,
) -> Result<TrialResult> {
    simulate_told(network, library, choice, setting, &|_, _| {})
}

/// The same; after each second somebody is told how many are over, and how many there are.
///
/// # Errors
/// When the setting makes no sense, or no path can be drawn.
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

/// The weights by which clients choose relays at first, and the paths that they take by them.
///
/// # Errors
/// [`NoPath`] if there is none: all downloads would wait for ever.
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

/// Tells of the seconds that are over, and leaves all else to another.
struct Told<'a> {
    /// The other one.
    watch: &'a mut dyn Watch,
    /// The function that is told.
    tell: &'a dyn Fn(u32, u32),
    /// How many seconds there are.
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

/// The same as the simulation has it.
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

/// The network weight error (Eq. 6) of weights, by usable capacity.
fn error_of(network: &Network, weights: &[f64]) -> Option<f64> {
    let relay = |(relay, weight): (&Relay, &f64)| Relay { weight: *weight, ..relay.clone() };
    let relays = network.relays.iter().zip(weights).map(relay).collect();
    let network = Network { relays, ..Network::default() };
    weight_error(&network, CapacityKind::Usable, Scale::None, |_| true).weight_error
}

/// What FlashFlow would measure, in Mbit/s: capacities, with the paper's errors.
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
