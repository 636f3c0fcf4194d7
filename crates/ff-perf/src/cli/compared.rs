//! Options of `circuits guards` and `circuits pairs`.

use std::path::PathBuf;

use clap::Args;

/// Options of `circuits guards`.
#[derive(Args, Clone, Debug)]
pub struct GuardsArgs {
    /// Read circuits from these directories or files, as `circuits analyze` does.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Analyse only circuits with this number of relays; others are counted and left out.
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
#[derive(Args, Clone, Debug)]
pub struct PairsArgs {
    /// Read circuits from these directories or files, as `circuits analyze` does.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Paths with fewer round trips do not count.
    #[arg(long, value_name = "ROUND-TRIPS", default_value_t = 20)]
    pub least: u64,
    /// Print JSON; times are in ms.
    #[arg(long)]
    pub json: bool,
}
