//! `ff-perf lab bound`: the experiments of the throughput bound, section IV, with relays of known
//! limits.

mod measure;
mod queue;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ff_circuits::lab::strata::{Selection, Strata, mean};
use ff_lab::{Ending, Network, NetworkBuilder, RelayConfig};
use ff_report::output::Folder;
use ff_report::stats;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use self::measure::Bench;
use self::queue::{Job, Size};
use self::report::{Length, Means, PathMean, Report, Setting, SlowRelay};
use crate::cli::lab::LabBoundArgs;
use crate::run::output::print;

/// Limit of the slowest relay in bytes per second: tor's minimum.
const LEAST_RATE: f64 = 76_800.0;
/// Limit of the fastest limited relay, in bytes per second.
const MOST_RATE: f64 = 4e6;
/// Measurements of a relay alone, and of a single path for its slowest relay. The median counts, as
/// some download may meet a relay that is busy with its own work.
const AGAIN: usize = 3;
/// Time between consensuses; the longest in a private network.
const VOTING_INTERVAL: Duration = Duration::from_secs(1800);

/// Numbers of paths and downloads.
struct Scale {
    /// Paths per length and slowest relay.
    paths: usize,
    /// Long downloads per path.
    again: usize,
    /// Seconds of a long download.
    secs: u8,
    /// Downloads over each of figure 6's paths.
    slow_runs: usize,
}

impl Scale {
    fn of(args: &LabBoundArgs) -> Self {
        if args.short {
            return Self { paths: 1, again: AGAIN, secs: 4, slow_runs: 4 };
        }
        let (paths, slow_runs) = (args.paths.into(), args.slow_downloads.into());
        let again = if paths == 1 { AGAIN } else { 1 };
        Self { paths, again, secs: args.secs, slow_runs }
    }
}

pub(super) fn run(args: &LabBoundArgs, ending: &Ending) -> Result<ExitCode> {
    let folder = args.out.as_deref().map(Folder::create).transpose()?;
    let rates = rates(args.relays.into());
    let network = start(args, &rates, ending).context("Failed to start the private network")?;
    let report = experiment(args, &rates, &network, ending)?;
    if let Some(folder) = &folder {
        report.write(folder)?;
    }
    print(args.json, &report, Report::text)?;
    Ok(if report.is_as_published { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Limits in bytes per second: a geometric sequence, lowest first.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 million at most")]
fn rates(relays: u32) -> Vec<u64> {
    let step = (MOST_RATE / LEAST_RATE).powf(1.0 / f64::from(relays - 1));
    (0..relays).map(|relay| (LEAST_RATE * step.powf(relay.into())).round() as u64).collect()
}

fn start(args: &LabBoundArgs, rates: &[u64], ending: &Ending) -> ff_lab::Result<Network> {
    let limited = |(relay, &rate): (usize, &u64)| {
        RelayConfig::middle(format!("limited{relay}")).bandwidth_rate(rate)
    };
    let relays = rates.iter().enumerate().map(limited);
    let builder = Network::builder().exits(1).clients(1).ending(ending);
    // Directory requests of relays count against their limits.
    let builder = builder.voting_interval(VOTING_INTERVAL);
    let builder = match &args.tor {
        Some(tor) => builder.tor(tor),
        None => builder,
    };
    relays.fold(builder, NetworkBuilder::relay).start()
}

fn experiment(
    args: &LabBoundArgs,
    rates: &[u64],
    network: &Network,
    ending: &Ending,
) -> Result<Report> {
    let scale = Scale::of(args);
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    let mut bench = Bench::new(network, ending, rates.len(), scale.secs);
    bench.wait_for_quiet(rates)?;
    let capacities = alone(&mut bench)?;
    let strata = Strata::new(capacities.clone())?;
    let paths = Paths::drawn(&strata, args.lengths.into(), scale.paths, &mut rng);
    let long = medians(&mut bench, &paths.jobs(Size::Long), scale.again)?;
    let published = bench.run(&paths.jobs(Size::Published))?;
    let lengths = 1..=usize::from(args.lengths);
    let lengths = lengths.map(|length| paths.of_length(&strata, length, &long, &published));
    let lengths = lengths.collect::<Result<Vec<_>>>()?;
    let slow = slow(&mut bench, &strata, scale.slow_runs)?;
    let setting =
        Setting { tor: which_tor(args, network)?, seed: args.seed, long_secs: scale.secs };
    Ok(Report::new(setting, rates, capacities, lengths, slow, bench.done))
}

/// The relays' tor: version and path.
fn which_tor(args: &LabBoundArgs, network: &Network) -> Result<String> {
    let version = network.node("exit0").control()?.getinfo("version")?;
    let place =
        args.tor.as_ref().map_or("the system's".to_owned(), |tor| tor.display().to_string());
    Ok(format!("tor {version} ({place})"))
}

/// Throughput of each relay alone, in bytes per second.
fn alone(bench: &mut Bench<'_>) -> Result<Vec<f64>> {
    let job = |relay| Job { what: "alone", path: vec![relay], size: Size::Long };
    let jobs: Vec<_> = (0..bench.relays()).map(job).collect();
    medians(bench, &jobs, AGAIN)
}

/// Repeats each download; the medians in bytes per second.
fn medians(bench: &mut Bench<'_>, jobs: &[Job], again: usize) -> Result<Vec<f64>> {
    let all: Vec<_> = jobs.iter().flat_map(|job| vec![job.clone(); again]).collect();
    let carried = bench.run(&all)?;
    let median = |of: &[f64]| stats::median(of.to_vec()).context("a download is missing");
    carried.chunks(again).map(median).collect()
}

/// Paths of all lengths, with their slowest relays.
struct Paths(Vec<(usize, Vec<usize>)>);

impl Paths {
    /// Draws `paths` paths per length and slowest relay.
    fn drawn(strata: &Strata, lengths: usize, paths: usize, rng: &mut ChaCha12Rng) -> Self {
        let relays = strata.fastest_first().len();
        let kinds =
            (1..=lengths).flat_map(|length| (0..relays).map(move |slowest| (length, slowest)));
        let mut drawn = Vec::new();
        for (length, slowest) in kinds {
            let of_kind = (0..paths).filter_map(|_| strata.path(slowest, length, rng));
            drawn.extend(of_kind.map(|path| (slowest, path)));
        }
        Self(drawn)
    }

    /// A download through each path.
    fn jobs(&self, size: Size) -> Vec<Job> {
        let job = |(_, path): &(usize, Vec<usize>)| Job { what: "path", path: path.clone(), size };
        self.0.iter().map(job).collect()
    }

    /// Results of paths of a length.
    fn of_length(
        &self,
        strata: &Strata,
        length: usize,
        long: &[f64],
        published: &[f64],
    ) -> Result<Length> {
        let by = |selection| {
            let chances = strata.chances(length, selection);
            let found = |rates: &[f64]| {
                let carried = self.by_slowest(chances.len(), length, rates);
                mean(&chances, &carried).context("a path is missing")
            };
            anyhow::Ok(Means {
                bound_bytes_per_sec: strata.mean_of_slowest(length, selection),
                long: found(long)?.into(),
                published: found(published)?.into(),
            })
        };
        let (uniform, weighted) = (by(Selection::Uniform)?, by(Selection::Weighted)?);
        Ok(Length { limited_relays: length, uniform, weighted })
    }

    /// Rates of paths of a length, by their slowest relay.
    fn by_slowest(&self, relays: usize, length: usize, rates: &[f64]) -> Vec<Vec<f64>> {
        let mut carried = vec![Vec::new(); relays];
        for ((slowest, path), &rate) in self.0.iter().zip(rates) {
            if path.len() == length {
                carried[*slowest].push(rate);
            }
        }
        carried
    }
}

/// Figure 6: a short path with the slowest relay, at either position, and a longer one of the
/// fastest.
fn slow(bench: &mut Bench<'_>, strata: &Strata, runs: usize) -> Result<SlowRelay> {
    let order = strata.fastest_first();
    let (&slowest, fast_path) = (order.last().context("no relay")?, order[..3].to_vec());
    let slow_path = vec![fast_path[0], slowest];
    let job = |what, path| Job { what, path, size: Size::Published };
    let both = |run: usize| {
        let mut path = slow_path.clone();
        path.rotate_left(run % 2);
        [job("slow", path), job("fast", fast_path.clone())]
    };
    let carried = bench.run(&(0..runs).flat_map(both).collect::<Vec<_>>())?;
    let of = |first: usize| carried.iter().copied().skip(first).step_by(2).collect::<Vec<_>>();
    Ok(SlowRelay::of(PathMean::of(&slow_path, &of(0)), PathMean::of(&fast_path, &of(1))))
}
