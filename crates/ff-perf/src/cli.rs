//! The command line.

pub mod analyze;
pub mod bound;
pub mod check;
pub mod compared;
pub mod downloads;
pub mod lab;
pub mod measure;
pub mod paths;
pub mod plan;
pub mod serve;
pub mod source;
mod status;

use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ff_report::options::CommandOptions;

use self::status::{EXIT_STATUS, STATUS};

/// Measures and analyses Tor as its clients see it: times of circuits and downloads, and what
/// selections of paths gain in speed and cost in anonymity.
#[derive(Debug, Parser)]
#[command(name = "ff-perf", version, after_help = EXIT_STATUS)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Option that only says where results go.
const FOLDER: &str = "figures";

impl Cli {
    /// Parses this program's arguments; if they are invalid, prints the error and exits.
    #[must_use]
    pub fn read() -> Self {
        let mut clap = Self::command();
        let mut matches = clap.get_matches_mut();
        let options = options(&clap, &matches);
        let mut cli = Self::from_arg_matches_mut(&mut matches)
            .unwrap_or_else(|error| error.format(&mut clap).exit());
        if let Some(of_command) = cli.command.options_mut() {
            *of_command = options;
        }
        cli
    }
}

/// Options given to the innermost command.
fn options(command: &clap::Command, matches: &ArgMatches) -> CommandOptions {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, inner);
    }
    let mut options = ff_report::options::options(command, matches);
    options.remove(FOLDER);
    options
}

impl Command {
    /// The command's field for its options, if its results name them.
    fn options_mut(&mut self) -> Option<&mut CommandOptions> {
        match self {
            Self::Circuits(Circuits::Analyze(args)) => Some(&mut args.options),
            Self::Downloads(downloads::DownloadsCommand::Analyze(args)) => Some(&mut args.options),
            Self::Lab(lab::LabCommand::Mobile(args)) => Some(&mut args.options),
            Self::Lab(lab::LabCommand::Navigator(args)) => Some(&mut args.options),
            Self::Lab(lab::LabCommand::Tortoise(args)) => Some(&mut args.options),
            _ => None,
        }
    }
}

/// Commands of `ff-perf`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure circuits and analyse them.
    #[command(subcommand)]
    Circuits(Circuits),
    /// Measure downloads over Tor as its users see them, and analyse them.
    #[command(subcommand)]
    Downloads(downloads::DownloadsCommand),
    /// Serve downloads: a web server that sends as many bytes as it is asked for to clients that
    /// know its token.
    ///
    /// Prints the URL that `downloads run --to` takes, and serves until SIGTERM or Ctrl-C. Anybody
    /// can connect, but only clients that know the token, which is part of that URL, get bytes.
    #[command(after_help = STATUS)]
    Source(source::SourceArgs),
    /// Compute how much random paths can carry, from capacities, and which relays cost users most.
    ///
    /// The bound is the mean, over random paths of a length, of the slowest relay's capacity: no
    /// path carries more. With a consensus, capacities are its weights, in kilobytes per second.
    /// Relays without a capacity are counted and left out.
    ///
    /// One relay of a path of `tor` is an exit, two are a guard and an exit; longer paths have
    /// further relays in between, in different /16s. Paths of a consensus are drawn as by `ff-perf
    /// paths`: by the bandwidth-weights of its footer, with the flags that clients require (Fast,
    /// and Stable of guards), with exits that allow streams to port 443, and without two relays of
    /// a family, as far as --descriptors or the microdescriptors in the same directory name
    /// families. For other files with flags and weights the bandwidth-weights are computed, and
    /// Fast, Stable and policies are ignored.
    #[command(after_help = STATUS)]
    Bound(bound::BoundArgs),
    /// Draw paths through a network, for `circuits run --path-file`.
    ///
    /// Writes a file for `circuits run --path-file`, one path per line: the fingerprints of its
    /// relays, first hop first. No path has two relays of a family, if descriptors are given or the
    /// network names families. Without bandwidth-weights in the footer, tor's clients use 10000 for
    /// all of them; here they are computed.
    #[command(after_help = STATUS)]
    Paths(paths::PathsArgs),
    /// Compare client downloads with measured capacity.
    ///
    /// Downloads through each relay as a client does: with ordinary sizes, at random times
    /// (exponential gaps after a minimum), over paths with other relays that are drawn as clients
    /// draw them.
    ///
    /// A download is starved if its rate is less than half of the relay's spare capacity (capacity
    /// minus reported load) and less than half of the median rate of downloads of its size through
    /// other relays in the same position. It does not count if it has half of the spare capacity of
    /// another relay on its path, which may be the limit then. It is unclear if the relay is
    /// farther away than the others by the factor by which the download is slower (at most 0.3 s
    /// farther is considered), or if it did not end within --download-time and that is too short to
    /// tell.
    ///
    /// Each relay has one position: last if it is an exit, else first if it is a guard, else in the
    /// middle. It is compared only with relays in the same position, because failures and slow
    /// downloads are not equally frequent in all positions. So give at least four relays for each
    /// position, most of which serve their clients: with fewer than three others, a slow download
    /// is unclear, and so is a circuit that fails after the guard; a circuit that fails at the
    /// guard counts, compared with the others or with --most. k downloads catch a relay that
    /// starves a share s of its clients with probability 1-(1-s)^k. A relay is not accused if one
    /// other relay on its paths may be the cause. The check ends after 20 failed downloads in a row
    /// through at least 3 of the relays.
    ///
    /// Limits: a relay that was down during the check counts as one that serves no clients, so find
    /// out whether it ran. A target that blocks an exit's address makes that exit look as if it
    /// starved clients: use a target that blocks no exits. A guard sees this machine's address in
    /// each probe, and an exit sees the --target, so only middle relays cannot tell a probe from a
    /// client: change both from time to time.
    ///
    /// Exit status: 0 if no relay was found to starve clients, 3 if one was, 1 if the check could
    /// not be completed. If it is stopped (Ctrl-C, SIGTERM), it prints the verdicts so far and the
    /// status is 1.
    Check(check::CheckArgs),
    /// Repeat the papers' experiments in private networks on this machine.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Write man pages and completions of ff-perf, ff-sim and ff-lab for a package.
    #[command(hide = true)]
    Generate {
        /// Write a directory for each program into this directory; created if missing.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Commands of `ff-perf circuits`.
#[derive(Debug, Subcommand)]
pub enum Circuits {
    /// Build circuits through given relays and measure how long they take and how good they are.
    #[command(after_help = STATUS)]
    Run(Box<measure::MeasureArgs>),
    /// Build and measure circuits continuously and slowly, until SIGTERM or Ctrl-C: rotated files,
    /// metrics for Prometheus.
    #[command(after_help = STATUS)]
    Serve(Box<serve::ServeArgs>),
    /// Fit distributions to measured circuits, replay selections over them, and show what these
    /// gain and cost.
    Analyze(analyze::AnalyzeArgs),
    /// Compare guards by their circuits.
    ///
    /// For each first relay: the share of its circuits that were built, and the medians of build
    /// time, round trip, time to first byte and throughput, with 95 % intervals.
    ///
    /// Only circuits with the same number of relays count (--hops), because build times and round
    /// trips grow with it. A circuit that failed at its guard counts as not built, except in
    /// OnionPerf's files: they do not give the path of such a circuit, so their shares are those of
    /// circuits whose guard answered.
    #[command(after_help = STATUS)]
    Guards(compared::GuardsArgs),
    /// Compute round trips between two relays, from circuits that share all other relays.
    ///
    /// The round trip between two relays is the difference between two circuits: one that ends with
    /// both, and the same one without the last relay. So measure both with `circuits run
    /// --path-file`: lines `G,X` and `G,X,Y` give X and Y. Both must be measured by the same host:
    /// circuits of different folders are not joined.
    #[command(after_help = STATUS)]
    Pairs(compared::PairsArgs),
}
