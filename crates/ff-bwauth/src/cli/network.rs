//! Options of `network`.

use std::path::PathBuf;

use clap::Args;

/// Options of `network`.
#[derive(Args, Clone, Debug)]
pub struct NetworkArgs {
    /// A config with a table `network` that says which network to fetch; default: Tor's.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["private_network", "cache"])]
    pub config: Option<PathBuf>,
    /// The directory of a private network of chutney or ff-lab, whose authorities are asked.
    #[arg(long, value_name = "DIR")]
    pub private_network: Option<PathBuf>,
    /// Keep documents in this directory between runs; with --config, the config names it.
    #[arg(long, value_name = "DIR", default_value = "flashflow-network")]
    pub cache: PathBuf,
    /// Write the files consensus, consensus-microdesc, descriptors and microdescriptors there, as
    /// `schedule` reads them.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long fetching may take, in seconds (1 to 3600).
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub deadline: u32,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}
