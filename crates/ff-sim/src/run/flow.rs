//! The command `flow`.

mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};

use self::tables::{
    Run, figures, mean_rows, position_rows, relay_rows, round_rows, run_rows, text,
};
use super::{Reading, tell_drawn, weights};
use crate::cli::{FlowArgs, FlowRule, FlowWeights, FlowWindow};
use crate::flow::closed::{Rounds, System};
use crate::flow::sim::Window;
use crate::flow::tmodel::{Library, Model};
use crate::flow::trial::{self, Choice, Rule, Setting};
use crate::network::{CapacitySource, Network};
use crate::source;

/// Which simulation: a network, weights and a load by their places in the arguments, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    /// The network.
    network: usize,
    /// The seed.
    seed: u64,
    /// The load.
    load: usize,
    /// The weights.
    weights: usize,
}

/// Carries `flow` out.
///
/// # Errors
/// When a file cannot be read or an option makes no sense.
pub(super) fn flow(args: &FlowArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let (streams, packets) = models(&args.model, &mut reading)?;
    let mut networks = Vec::new();
    for path in &args.network {
        let (network, skips) = source::network(path, &mut reading.inputs)?;
        if network.capacities == CapacitySource::Weights {
            eprintln!("ff-sim: {}: capacities are from weights", path.display());
        }
        reading.skips.extend(skips);
        networks.push(network);
    }
    let files = read_weights(args, &networks, &mut reading)?;
    if let Some(load) = args.load.iter().find(|load| !(0.0..=100.0).contains(*load)) {
        bail!("--load {load}: it is a part of what users did, from 0 to 100");
    }
    let mut runs = Vec::new();
    let cases = cases(args);
    for seed in 0..args.seeds {
        let these: Vec<Case> = cases.iter().copied().filter(|case| case.seed == seed).collect();
        if these.is_empty() {
            continue;
        }
        let library = trial::library(&streams, &packets, seed, args.tick.0);
        let all = (runs.len(), cases.len());
        runs.extend(simulate_all(args, &these, &networks, &files, &library, all)?);
    }
    runs.sort_by_key(|(case, _)| *case);
    let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
    let tables = [
        run_rows(&runs),
        mean_rows(&runs),
        position_rows(&runs),
        relay_rows(&runs),
        round_rows(&runs),
    ];
    let (text, figures) = (text(args, &runs), || figures(&runs));
    tell_drawn("flow", &args.out, &reading, Some(0), &runs, &text, &tables, figures)?;
    Ok(reading.status(args.strict))
}

/// The models of streams and of packets of a folder.
pub(super) fn models(dir: &Path, reading: &mut Reading) -> Result<(Model, Model)> {
    let [streams, packets] = ["tmodel-stream.json", "tmodel-packet.json"].map(|name| {
        let path = dir.join(name);
        let bytes = reading.inputs.read(&path)?;
        Model::read(&bytes).with_context(|| format!("{} cannot be used", path.display()))
    });
    Ok((streams?, packets?))
}

/// All simulations of this shard.
fn cases(args: &FlowArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for network in 0..args.network.len() {
        for seed in 0..args.seeds {
            for load in 0..args.load.len() {
                for weights in 0..args.weights.len() {
                    cases.push(Case { network, seed, load, weights });
                }
            }
        }
    }
    let numbered = cases.into_iter().enumerate();
    numbered.filter(|(number, _)| args.shard.has(*number)).map(|(_, case)| case).collect()
}

/// Weights of bandwidth files by their paths.
type Files = BTreeMap<PathBuf, weights::Weights>;

/// Reads the bandwidth files among the weights, which have to be of the networks' months.
fn read_weights(args: &FlowArgs, networks: &[Network], reading: &mut Reading) -> Result<Files> {
    let mut files = Files::new();
    for named in &args.weights {
        if let FlowWeights::File(path) = named {
            let file = weights::read(path, reading)?;
            for network in networks {
                weights::check_month(path, &file, network, args.allow_mixed)?;
            }
            files.insert(path.clone(), file.weights);
        }
    }
    Ok(files)
}

/// Simulates cases, as many at a time as there may be; `before` are done of `all`.
fn simulate_all(
    args: &FlowArgs,
    cases: &[Case],
    networks: &[Network],
    files: &Files,
    library: &Library,
    (before, all): (usize, usize),
) -> Result<Vec<(Case, Run)>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some(&case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = simulate(args, case, networks, files, library)?;
            let mut found = found.lock().map_err(|_| anyhow!("another simulation has failed"))?;
            eprintln!("ff-sim: {} of {all}: {}", before + found.len() + 1, run.name());
            found.push((case, run));
        }
        Ok(())
    };
    let jobs = usize::try_from(args.jobs).unwrap_or(1).min(cases.len()).max(1);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let other = other.join().unwrap_or_else(|_| Err(anyhow!("a simulation has failed")));
            result = result.and(other);
        }
        result
    })?;
    found.into_inner().map_err(|_| anyhow!("a simulation has failed"))
}

/// Simulates a case.
fn simulate(
    args: &FlowArgs,
    case: Case,
    networks: &[Network],
    files: &Files,
    library: &Library,
) -> Result<Run> {
    let (network, named) = (&networks[case.network], &args.weights[case.weights]);
    let rounds = Rounds { count: args.loop_rounds, secs: args.loop_minutes * 60 };
    let choice = match named {
        FlowWeights::Consensus => Choice::Consensus,
        FlowWeights::Flashflow => Choice::Flashflow,
        FlowWeights::TorflowLoop => Choice::Loop(System::Torflow, rounds),
        FlowWeights::SbwsLoop => Choice::Loop(System::Sbws, rounds),
        FlowWeights::File(path) => {
            let file = files.get(path).context("a bandwidth file was not read")?;
            Choice::Given(
                weights::joined(network, file).with_context(|| format!("{}", path.display()))?,
            )
        }
    };
    let load = args.load[case.load];
    let found = trial::simulate(network, library, &choice, &setting(args, load, case.seed))?;
    let path = args.network[case.network].display().to_string();
    Ok(Run::new(path, named.to_string(), load, case.seed, network, found))
}

/// The setting of the arguments at a load.
fn setting(args: &FlowArgs, load: f64, seed: u64) -> Setting {
    let at_full_load = Setting::of_circuits(args.circuits);
    Setting {
        circuits_per_10_min: args.circuits * load,
        warm_up_secs: args.warm_up.saturating_mul(60),
        secs: args.minutes.saturating_mul(60),
        guards: args.guards,
        window: match args.window {
            FlowWindow::Fixed => Window::Fixed,
            FlowWindow::CongestionControl => Window::CongestionControl,
        },
        rule: match args.rule {
            FlowRule::Weighted => Rule::Weighted,
            FlowRule::MaxMin => Rule::MaxMin,
            FlowRule::QuietFirst => Rule::QuietFirst,
        },
        seed,
        ..at_full_load
    }
}
