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

use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ff_sim::cli::Options;

/// What Tor's clients see: how long circuits take, which selection of paths would serve users better, and what it would
/// take from their anonymity.
#[derive(Debug, Parser)]
#[command(name = "ff-perf", version, after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where results go, which changes nothing of them.
const FOLDER: &str = "figures";

impl Cli {
    /// Reads this program's arguments; where they are wrong, it says so and ends the program.
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

/// What the innermost command was run with.
fn options(command: &clap::Command, matches: &ArgMatches) -> Options {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, inner);
    }
    let mut options = ff_sim::cli::options(command, matches);
    options.remove(FOLDER);
    options
}

impl Command {
    /// What it was run with, if its results say so.
    fn options_mut(&mut self) -> Option<&mut Options> {
        match self {
            Self::Circuits(Circuits::Analyze(args)) => Some(&mut args.options),
            Self::Downloads(downloads::Downloads::Analyze(args)) => Some(&mut args.options),
            Self::Lab(lab::LabCommand::Mobile(args)) => Some(&mut args.options),
            Self::Lab(lab::LabCommand::Navigator(args)) => Some(&mut args.options),
            _ => None,
        }
    }
}

/// What exit statuses mean.
const EXIT_STATUS: &str = "Exit status:
  0  it is done
  1  it failed
  2  the command line is wrong
  3  check: a relay starves clients
  75 lab navigator: the emulator was too late, so the run does not count; make it again
  128 and a signal's number, as 143 of SIGTERM: lab was ended by it, and has ended its network";

/// What exit statuses of commands mean that have no others.
const STATUS: &str = "Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Circuits: what they say of the network.
    #[command(subcommand)]
    Circuits(Circuits),
    /// Downloads over Tor, as its users have them: how long they take.
    #[command(subcommand)]
    Downloads(downloads::Downloads),
    /// Where downloads come from: a web server that gives as many bytes as it is asked for to who knows its token.
    ///
    /// Prints the URL that `downloads run --to` takes, and gives bytes until SIGTERM or Ctrl-C. Everybody can connect, and gets
    /// nothing without the token, which is in that URL.
    #[command(after_help = STATUS)]
    Source(source::SourceArgs),
    /// How much random paths can carry: the mean of their slowest relays' capacities, and which relays cost users most.
    ///
    /// The bound is the mean, over random paths of a length, of the slowest relay's capacity: no path carries more. By a consensus
    /// capacities are its weights, in kilobytes a second. Relays without a capacity are counted and left out.
    ///
    /// One relay of a path of `tor` is an exit, two are a guard and an exit, more have further relays in between, /16s apart. Of a
    /// consensus they are drawn as by `ff-perf paths`: by the bandwidth-weights of its footer, with the flags that clients want
    /// (Fast, guards also Stable), exits that let streams to port 443 out, families apart that are known by --descriptors or by
    /// microdescriptors beside it. Of other files with flags and weights the bandwidth-weights are computed, and Fast, Stable and
    /// policies do not count.
    #[command(after_help = STATUS)]
    Bound(bound::BoundArgs),
    /// Draw paths through a network, for `circuits run --path-file`.
    ///
    /// Writes a file for `circuits run --path-file`: a path a line, the fingerprints of its relays, the first hop first. Relays of a
    /// family stay apart where descriptors are given or the network names families. Without bandwidth-weights in a footer tor's
    /// clients take 10000 for all of them; here they are computed.
    #[command(after_help = STATUS)]
    Paths(paths::PathsArgs),
    /// Does the capacity reach clients? Downloads through relays as a client's, beside what these were measured at.
    ///
    /// Downloads through each relay as a client's: of ordinary sizes, at times that are drawn anew (exponential gaps behind a
    /// least one), through paths of which the rest is drawn as clients draw it. Each is starved or not: it is if it gets less
    /// than half of what the relay has to spare by its capacity and by how busy it says it is, and of what downloads of that
    /// size get through the other relays of its place in the middle. It says nothing if it gets half of what another relay of
    /// its path has to spare, and is unclear if the relay is as many times farther away than the others (by 0.3 s at most,
    /// which excuses much where the others are near), or if it did not end in --download-time and that is too short to tell.
    /// Relays are in one place each: last if they are exits, else first if they are guards, else in the middle. They are
    /// compared with those of the same place, as others fail and are slow more or less often. So name at least four relays of
    /// a kind, of which most serve their clients: with fewer than three others, a slow download may be usual, and is unclear,
    /// and so is a circuit that fails farther behind a guard; one that fails at it counts, beside those that there are or
    /// --most. A relay that starves a share s of its clients is caught by k downloads with a chance of 1-(1-s)^k. Nobody is
    /// accused of what one other relay of its paths may have done. After 20 downloads in a row that fail, through 3 relays of
    /// the list or more, it ends.
    ///
    /// What cannot be told: a relay that was down meanwhile counts as one that serves nobody, so look whether it ran. A target
    /// that blocks an exit's address makes that exit look as if it starved: use one that blocks nobody. A guard sees this
    /// machine's address in each probe, and an exit the --target, so that only middles cannot tell a probe from a client: change
    /// both from time to time.
    ///
    /// Exit status: 0 if no relay was found to starve clients, 3 if one was, 1 if it could not be tried to the end. Who stops the
    /// downloads (Ctrl-C, SIGTERM) gets the verdicts by those that there are, and 1.
    Check(check::CheckArgs),
    /// The papers' experiments in private networks on this machine.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Write what a package has besides ff-perf, ff-sim and ff-lab: man pages and completions.
    #[command(hide = true)]
    Generate {
        /// Where a directory for each program goes; made if it is not there.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// What to do with circuits.
#[derive(Debug, Subcommand)]
pub enum Circuits {
    /// Build circuits through given relays and measure how long they take and how good they are.
    #[command(after_help = STATUS)]
    Run(Box<measure::MeasureArgs>),
    /// The same for months, slowly: files that follow each other, figures for Prometheus, until SIGTERM or Ctrl-C.
    #[command(after_help = STATUS)]
    Serve(Box<serve::ServeArgs>),
    /// Fit distributions to measured circuits, replay selections over them, and say what these gain and cost.
    Analyze(analyze::AnalyzeArgs),
    /// Guards beside each other: what circuits get that begin with each of them.
    ///
    /// For each first relay: the share of its circuits that were built, and the medians of build time, round trip, time to
    /// first byte and throughput, with 95 % intervals.
    ///
    /// Circuits of one number of relays count (--hops), because with it grow build times and round trips. A circuit that failed
    /// at its guard counts as one of the guard's that was not built, but not if it is OnionPerf's: its files tell no path of
    /// such a circuit, so the shares of built ones are those of circuits whose guard answered.
    #[command(after_help = STATUS)]
    Guards(compared::GuardsArgs),
    /// Round trips between two relays, from circuits that share the rest.
    ///
    /// The round trip between two relays is what a circuit takes longer that ends with both than one that is the same but
    /// for the last. So measure both with `circuits run --path-file`: a line with `G,X` and one with `G,X,Y` give X and Y. Both
    /// must be one host's: those of different folders are not joined.
    #[command(after_help = STATUS)]
    Pairs(compared::PairsArgs),
}
