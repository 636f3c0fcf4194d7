//! The command `flow`.

mod tables;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use ff_archives::network::{CapacitySource, Network};
use ff_archives::source;
use ff_flow::parallel;
use ff_flow::sim::CellWindow;
use ff_flow::tmodel::{Library, Model};
use ff_report::merge::{Collected, Merged};
use ff_report::progress::ProgressLine;
use serde::Serialize;

use self::tables::{Run, figures, loops_text, tables, text};
use super::{Reading, seeds, tell_drawn, weights};
use crate::cli::store::MergeArgs;
use crate::cli::{FlowArgs, FlowRule, FlowWeights, FlowWindow, OutArgs};
use crate::trial::closed::{Rounds, System};
use crate::trial::{self, Choice, SharingRule, TrialSetting};

/// A simulation: indices of a network, weights and a load in the arguments, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    network: usize,
    seed: u64,
    load: usize,
    weights: usize,
}

/// Refuses a load or weights that are given twice: they would count as two samples.
fn check_repetitions(args: &FlowArgs) -> Result<()> {
    for (at, load) in args.load.iter().enumerate() {
        ensure!(!args.load[..at].contains(load), "--load has {load} twice: give it once");
    }
    for (at, weights) in args.weights.iter().enumerate() {
        ensure!(
            !args.weights[..at].contains(weights),
            "--weights has {weights} twice: give it once"
        );
    }
    Ok(())
}

/// Runs `flow`.
///
/// # Errors
/// If a file cannot be read or an option is invalid.
pub(super) fn flow(args: &FlowArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let (streams, packets) = models(args.model.as_deref(), &mut reading)?;
    let (names, networks) = read_networks(args, &mut reading)?;
    let from_weights = from_weights_text(&names, &networks);
    from_weights.lines().for_each(|line| note!("{line}"));
    let files = read_weights(args, &networks, &mut reading)?;
    if let Some(load) = args.load.iter().find(|load| !(0.0..=100.0).contains(*load)) {
        bail!("--load {load}: give a multiple of the users' traffic from 0 to 100");
    }
    check_repetitions(args)?;
    let seeds = seeds(args.seed, args.seeds)?;
    check_paths(args, &names, &networks, &files)?;
    let mut runs = Vec::new();
    let cases = cases(args, networks.len(), &seeds);
    let progress = ProgressLine::of("ff-sim");
    for seed in seeds {
        let these: Vec<Case> = cases.iter().copied().filter(|case| case.seed == seed).collect();
        if these.is_empty() {
            continue;
        }
        let library = trial::library(&streams, &packets, seed, args.tick.0);
        let world = World {
            args,
            names: &names,
            networks: &networks,
            files: &files,
            library,
            progress: &progress,
        };
        runs.extend(simulate_all(&world, &these, (runs.len(), cases.len()))?);
    }
    runs.sort_by_key(|(case, _)| *case);
    let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
    let mut text = text(&runs);
    text.push_str(&from_weights);
    text.push_str(&loops_text(&runs, args.loop_rounds, args.loop_minutes));
    let (tables, figures, seed) = (tables(&runs), || figures(&runs), Some(args.seed));
    tell_drawn("flow", &args.out, &reading, seed, &runs, &text, &tables, figures)?;
    Ok(reading.status(args.strict))
}

/// The results of merged runs in `summary.json`.
#[derive(Serialize)]
struct Together<'a> {
    #[serde(flatten)]
    merged: &'a Merged,
    /// All simulations.
    runs: &'a [Run],
}

/// Merges runs of `flow` into one: means and figures are computed again.
///
/// # Errors
/// If their tables are not in this version's format, or the results cannot be written.
pub(super) fn merge(args: &MergeArgs, all: Collected) -> Result<ExitCode> {
    let (runs, skips) = (tables::runs(&all)?, all.skips());
    let Collected { mut merged, inputs, .. } = all;
    let tables = tables(&runs);
    merged.tables = tables.iter().map(|(name, _, rows)| ((*name).to_owned(), rows.len())).collect();
    let seed = merged.seeds.iter().filter_map(serde_json::Value::as_u64).min();
    let reading = Reading { inputs, skips };
    let (out, options) = (Some(args.out.clone()), args.options.clone());
    let out = OutArgs { json: args.json, out, options };
    let mut text = merged.text();
    text.push_str(&tables::text(&runs));
    let (found, figures) = (Together { merged: &merged, runs: &runs }, || figures(&runs));
    tell_drawn("merge", &out, &reading, seed, &found, &text, &tables, figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all networks; their names in results are their paths.
fn read_networks(args: &FlowArgs, reading: &mut Reading) -> Result<(Vec<String>, Vec<Network>)> {
    let (mut names, mut networks) = (Vec::new(), Vec::new());
    for given in &args.network {
        for path in source::numbered(given)? {
            let mut network = reading.network(&path, &args.described)?;
            let name = path.display().to_string();
            leave_out(&mut network, &name);
            if trial::circuits_of(&network) <= 0.0 {
                bail!("{name} has no capacities, so nothing can be simulated");
            }
            names.push(name);
            networks.push(network);
        }
    }
    check_different(&names, &networks)?;
    Ok((names, networks))
}

/// Refuses a network that is given twice: it would count as two in the means.
fn check_different(names: &[String], networks: &[Network]) -> Result<()> {
    let mut known = HashMap::new();
    for (name, network) in names.iter().zip(networks) {
        match known.insert(network.digest(), name) {
            None => {}
            Some(other) if other == name => {
                bail!("--network has {name} twice, which would count as two networks: give it once")
            }
            Some(other) => bail!(
                "{other} and {name} are the same network (equal relays, capacities and weights), which would \
                 count as two: give one of them"
            ),
        }
    }
    Ok(())
}

/// Refuses a network in which some weights allow no path, before any simulation.
fn check_paths(
    args: &FlowArgs,
    names: &[String],
    networks: &[Network],
    files: &Files,
) -> Result<()> {
    for (name, network) in names.iter().zip(networks) {
        for named in &args.weights {
            let choice = choice(args, named, network, files)?;
            trial::first_paths(network, &choice, args.seed)
                .with_context(|| format!("{name}, by the weights {named}"))?;
        }
    }
    Ok(())
}

/// Leaves out relays of unknown capacity, and reports their weight: a client that chose one would
/// wait forever.
fn leave_out(network: &mut Network, name: &str) {
    let (before, weight) = (network.relays.len(), network.total_weight());
    network.relays.retain(|relay| relay.usable().is_some());
    let (left, kept) = (before - network.relays.len(), network.total_weight());
    if left > 0 {
        let part = if weight > 0.0 { (1.0 - kept / weight) * 100.0 } else { 0.0 };
        note!(
            "ff-sim: {name}: {left} relays have no capacity and are left out, with {part:.1} % of all weight"
        );
    }
}

/// The text about networks with weights as capacities.
fn from_weights_text(names: &[String], networks: &[Network]) -> String {
    let all = names.iter().zip(networks);
    let of_weights = all.filter(|(_, network)| network.capacities == CapacitySource::Weights);
    of_weights.map(|(name, _)| format!("{name}: capacities are from weights\n")).collect()
}

/// The progress of a simulation as text: `secs` of its seconds are finished.
pub(super) fn minutes(name: &str, secs: u32, all_secs: u32) -> String {
    format!("{name}: minute {} of {}", secs / 60, all_secs.div_ceil(60))
}

/// The models of streams and of packets from a folder, or from this program.
pub(super) fn models(dir: Option<&Path>, reading: &mut Reading) -> Result<(Model, Model)> {
    let Some(dir) = dir else { return Ok(Model::built_in()?.into()) };
    let [streams, packets] = ["tmodel-stream.json", "tmodel-packet.json"].map(|name| {
        let path = dir.join(name);
        let bytes = reading.inputs.read(&path)?;
        Model::read(&bytes).with_context(|| format!("{} cannot be used", path.display()))
    });
    Ok((streams?, packets?))
}

/// All simulations of this shard.
fn cases(args: &FlowArgs, networks: usize, seeds: &Range<u64>) -> Vec<Case> {
    let mut cases = Vec::new();
    for network in 0..networks {
        for seed in seeds.clone() {
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

/// Weights of bandwidth files, by path.
type Files = BTreeMap<PathBuf, weights::Weights>;

/// Reads the bandwidth files among the weights, which must be of the networks' months.
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

/// The inputs of simulations with one seed.
struct World<'a> {
    args: &'a FlowArgs,
    /// The names of networks.
    names: &'a [String],
    networks: &'a [Network],
    /// Weights of bandwidth files.
    files: &'a Files,
    /// The circuits of users.
    library: Library,
    progress: &'a ProgressLine,
}

/// Simulates cases in parallel; `before` of `all` are finished.
fn simulate_all(
    world: &World<'_>,
    cases: &[Case],
    (before, all): (usize, usize),
) -> Result<Vec<(Case, Run)>> {
    let jobs = usize::try_from(world.args.jobs).unwrap_or(1);
    let work = |&case: &Case| simulate(world, case);
    let tell = |done: usize, _: &Case, run: &Run| {
        note!("ff-sim: {} of {all}: {}", before + done, run.name());
    };
    let runs = parallel::map(cases, jobs, work, tell)?;
    Ok(cases.iter().copied().zip(runs).collect())
}

fn simulate(world: &World<'_>, case: Case) -> Result<Run> {
    let World { args, names, networks, files, library, progress } = world;
    let (path, network) = (&names[case.network], &networks[case.network]);
    let named = &args.weights[case.weights];
    let choice = choice(args, named, network, files)?;
    let load = args.load[case.load];
    let setting = setting(args, network, load, case.seed);
    let name = format!("{path}, {named} at load {load}, seed {}", case.seed);
    let tell = |now: u32, all: u32| progress.say(|| minutes(&name, now, all));
    let found = trial::simulate_told(network, library, &choice, &setting, &tell)?;
    Ok(Run::new([path.clone(), named.to_string()], load, &setting, network, found))
}

/// The weights by which clients choose relays, for a name in the arguments.
fn choice(
    args: &FlowArgs,
    named: &FlowWeights,
    network: &Network,
    files: &Files,
) -> Result<Choice> {
    let rounds = Rounds { count: args.loop_rounds, secs: args.loop_minutes * 60 };
    Ok(match named {
        FlowWeights::Consensus => Choice::Consensus,
        FlowWeights::Flashflow => Choice::Flashflow,
        FlowWeights::TorflowLoop => Choice::Loop(System::Torflow, rounds),
        FlowWeights::TorflowPidLoop => Choice::Loop(System::TorflowPid, rounds),
        FlowWeights::SbwsLoop => Choice::Loop(System::Sbws, rounds),
        FlowWeights::File(path) => {
            let file = files.get(path).context("a bandwidth file was not read")?;
            let joined = weights::joined(network, file);
            Choice::Given(joined.with_context(|| format!("{}", path.display()))?)
        }
    })
}

/// The settings in the arguments at a load.
fn setting(args: &FlowArgs, network: &Network, load: f64, seed: u64) -> TrialSetting {
    let circuits = args.circuits.unwrap_or_else(|| trial::circuits_of(network));
    let at_full_load = TrialSetting::of_circuits(circuits);
    TrialSetting {
        circuits_per_10_min: circuits * load,
        warm_up_secs: args.warm_up.saturating_mul(60),
        secs: args.minutes.saturating_mul(60),
        guards: args.guards,
        window: match args.window {
            FlowWindow::Fixed => CellWindow::Fixed,
            FlowWindow::CongestionControl => CellWindow::CongestionControl,
        },
        rule: match args.rule {
            FlowRule::Weighted => SharingRule::Weighted,
            FlowRule::MaxMin => SharingRule::MaxMin,
            FlowRule::QuietFirst => SharingRule::QuietFirst,
        },
        seed,
        ..at_full_load
    }
}
