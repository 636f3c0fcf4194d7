//! Options of `circuits guards` and `circuits pairs`.

use std::path::PathBuf;

use clap::Args;

/// Options of `circuits guards`.
///
/// For each first relay: the share of its circuits that were built, and the medians of build time, round trip, time to
/// first byte and throughput, with 95 % intervals.
///
/// Circuits of one number of relays count (--hops), because with it grow build times and round trips. A circuit that failed
/// at its guard counts as one of the guard's that was not built, but not if it is OnionPerf's: its files tell no path of
/// such a circuit, so the shares of built ones are those of circuits whose guard answered.
#[derive(Args, Clone, Debug)]
pub struct GuardsArgs {
    /// Where circuits are, as for `circuits analyze`.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Circuits of so many relays count; others are counted and left out.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=8))]
    pub hops: u8,
    /// Guards with fewer circuits are counted and left out.
    #[arg(long, value_name = "CIRCUITS", default_value_t = 10)]
    pub least: u64,
    /// Print JSON; times are in ms, throughput in Mbit/s.
    #[arg(long)]
    pub json: bool,
}

/// Options of `circuits pairs`.
///
/// The round trip between two relays is what a circuit takes longer that ends with both than one that is the same but
/// for the last. So measure both with `circuits run --path-file`: a line with `G,X` and one with `G,X,Y` give X and Y. Both
/// must be one host's: those of different folders are not joined.
#[derive(Args, Clone, Debug)]
pub struct PairsArgs {
    /// Where circuits are, as for `circuits analyze`.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Paths with fewer round trips do not count.
    #[arg(long, value_name = "ROUND-TRIPS", default_value_t = 20)]
    pub least: u64,
    /// Print JSON; times are in ms.
    #[arg(long)]
    pub json: bool,
}
