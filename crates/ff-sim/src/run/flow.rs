//! The command `flow`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::{Reading, Table, tell};
use crate::cli::{FlowArgs, FlowRule, FlowWeights};
use crate::flow::fill::{MaxMin, QuietFirst, Share};
use crate::flow::path::{Factors, Paths};
use crate::flow::sim::{self, Config, Summary};
use crate::flow::tmodel::{Library, Model};
use crate::network::Network;
use crate::schedule::errors::{Attempt, Errors};
use crate::source;

/// Circuits that users' traffic is drawn from.
const TEMPLATES: usize = 4_000;
/// Seconds of a tick.
const TICK_SECS: f64 = 0.1;

/// Carries `flow` out.
///
/// # Errors
/// When a file cannot be read or an option makes no sense.
pub(super) fn flow(args: &FlowArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let mut runs = Vec::new();
    let [streams, packets] = ["tmodel-stream.json", "tmodel-packet.json"].map(|name| {
        let path = args.model.join(name);
        let bytes = reading.inputs.read(&path)?;
        Model::read(&bytes).with_context(|| format!("{} cannot be used", path.display()))
    });
    let (streams, packets) = (streams?, packets?);
    let all = args.network.len() * args.load.len() * args.weights.len();
    for path in &args.network {
        let (network, skips) = source::network(path, &mut reading.inputs)?;
        reading.skips.extend(skips);
        for seed in 0..args.seeds {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let library = Library::sample(&streams, &packets, TEMPLATES, TICK_SECS, &mut rng);
            for &load in &args.load {
                for &weights in &args.weights {
                    let name = path.display().to_string();
                    eprintln!(
                        "ff-sim: {} of {}: {name}, {} at load {load}",
                        runs.len() + 1,
                        all as u64 * args.seeds,
                        named(weights)
                    );
                    let found = simulate(args, &network, &library, weights, load, seed)?;
                    runs.push(Run::new(name, weights, load, seed, &found));
                }
            }
        }
    }
    let (text, tables) = (text(&runs), [table(&runs)]);
    tell("flow", &args.out, &reading, Some(0), &runs, &text, &tables)?;
    Ok(reading.status(args.strict))
}

/// The name of weights.
fn named(weights: FlowWeights) -> String {
    weights.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An hour of a network.
fn simulate(
    args: &FlowArgs,
    network: &Network,
    library: &Library,
    weights: FlowWeights,
    load: f64,
    seed: u64,
) -> Result<Summary> {
    let weights: Vec<f64> = match weights {
        FlowWeights::Consensus => network.relays.iter().map(|relay| relay.weight).collect(),
        FlowWeights::Flashflow => measured(network, seed),
    };
    let paths = Paths::new(network, &weights, &Factors::of_scarce_exits(network, &weights));
    let config = Config {
        circuits_per_10_min: args.circuits * load,
        secs: args.minutes.saturating_mul(60),
        seed,
        ..Config::default()
    };
    let mut share: Box<dyn Share> = match args.rule {
        FlowRule::MaxMin => Box::<MaxMin>::default(),
        FlowRule::QuietFirst => Box::<QuietFirst>::default(),
    };
    Ok(sim::run(network, &paths, library, &mut *share, &config)?.summary())
}

/// What FlashFlow would measure.
fn measured(network: &Network, seed: u64) -> Vec<f64> {
    let mut key = [0; 32];
    ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut key);
    let weight = |relay: &crate::network::Relay| {
        let attempt = Attempt { relay: relay.fingerprint, coordinator: 0, earlier: 0 };
        relay.usable().map_or(0.0, |rate| rate.mbit()) * Errors::PAPER.ratio(&key, &attempt)
    };
    network.relays.iter().map(weight).collect()
}

/// What came out of one simulation. Times are medians.
#[derive(Serialize)]
struct Run {
    /// The network.
    network: String,
    /// The weights.
    weights: String,
    /// How much users asked for.
    load: f64,
    /// The seed.
    seed: u64,
    /// Seconds to the first byte.
    first_byte_secs: f64,
    /// Seconds to the last byte of 50 KiB, 1 MiB and 5 MiB.
    last_byte_secs: [f64; 3],
    /// The part of downloads that timed out.
    timeouts: f64,
    /// The same by size.
    timeouts_by_size: [f64; 3],
    /// What relays carried, in Gbit/s.
    throughput_gbit_per_sec: f64,
}

impl Run {
    /// Of these figures.
    fn new(network: String, weights: FlowWeights, load: f64, seed: u64, found: &Summary) -> Self {
        let [timeouts, small, middle, large] = found.timeouts;
        Self {
            network,
            weights: named(weights),
            load,
            seed,
            first_byte_secs: found.first_secs,
            last_byte_secs: found.last_secs,
            timeouts,
            timeouts_by_size: [small, middle, large],
            throughput_gbit_per_sec: found.gbit,
        }
    }
}

/// Simulations, for people.
fn text(runs: &[Run]) -> String {
    let mut text = String::from(
        "weights     load  seed  first byte  50 KiB   1 MiB   5 MiB  timeouts  throughput  network\n",
    );
    for run in runs {
        let [small, middle, large] = run.last_byte_secs;
        text.push_str(&format!(
            "{:<10} {:>5} {:>5} {:>9.2} s {small:>5.2} s {middle:>5.2} s {large:>5.2} s {:>7.2} % {:>5.2} Gbit/s  {}\n",
            run.weights,
            run.load,
            run.seed,
            run.first_byte_secs,
            run.timeouts * 100.0,
            run.throughput_gbit_per_sec,
            run.network
        ));
    }
    text
}

/// Simulations, as a table.
fn table(runs: &[Run]) -> Table {
    let header = &[
        "network",
        "weights",
        "load",
        "seed",
        "first_byte_secs",
        "last_byte_50kib_secs",
        "last_byte_1mib_secs",
        "last_byte_5mib_secs",
        "timeouts_part",
        "timeouts_50kib_part",
        "timeouts_1mib_part",
        "timeouts_5mib_part",
        "throughput_gbit_per_sec",
    ];
    let row = |run: &Run| {
        let mut row = vec![run.network.clone(), run.weights.clone(), run.load.to_string()];
        row.extend([run.seed.to_string(), run.first_byte_secs.to_string()]);
        row.extend(run.last_byte_secs.map(|secs| secs.to_string()));
        row.push(run.timeouts.to_string());
        row.extend(run.timeouts_by_size.map(|part| part.to_string()));
        row.push(run.throughput_gbit_per_sec.to_string());
        row
    };
    ("flow.csv", header, runs.iter().map(row).collect())
}
