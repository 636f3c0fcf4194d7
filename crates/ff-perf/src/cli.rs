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

use clap::{Parser, Subcommand};

/// What Tor's clients see: how long circuits take, which selection of paths would serve users better, and what it would
/// take from their anonymity.
#[derive(Debug, Parser)]
#[command(name = "ff-perf", version, after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What exit statuses mean.
const EXIT_STATUS: &str = "Exit status:
  0  it is done
  1  it failed
  2  the command line is wrong
  3  check: a relay starves clients
  75 lab navigator: the emulator was too late, so the run does not count; make it again
  128 and a signal's number, as 143 of SIGTERM: lab was ended by it, and has ended its network";

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
    Source(source::SourceArgs),
    /// How much random paths can carry: the mean of their slowest relays' capacities, and which relays cost users most.
    Bound(bound::BoundArgs),
    /// Draw paths through a network, for `circuits run --path-file`.
    Paths(paths::PathsArgs),
    /// Does the capacity reach clients? Downloads through relays as a client's, beside what these were measured at.
    Check(check::CheckArgs),
    /// The papers' experiments in private networks on this machine.
    #[command(subcommand)]
    Lab(lab::LabCommand),
}

/// What to do with circuits.
#[derive(Debug, Subcommand)]
pub enum Circuits {
    /// Build circuits through given relays and measure how long they take and how good they are.
    Run(Box<measure::MeasureArgs>),
    /// The same for months, slowly: files that follow each other, figures for Prometheus, until SIGTERM or Ctrl-C.
    Serve(Box<serve::ServeArgs>),
    /// Fit distributions to measured circuits, replay selections over them, and say what these gain and cost.
    Analyze(analyze::AnalyzeArgs),
    /// Guards beside each other: what circuits get that begin with each of them.
    Guards(compared::GuardsArgs),
    /// Round trips between two relays, from circuits that share the rest.
    Pairs(compared::PairsArgs),
}
