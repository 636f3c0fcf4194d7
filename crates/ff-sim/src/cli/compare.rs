//! Options of `compare`.

use std::path::PathBuf;

use clap::Args;

use super::{DescribedArgs, OutArgs};

/// Options of `compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The older bandwidth file, of any version.
    #[arg(value_name = "OLD.v3bw")]
    pub old: PathBuf,
    /// The newer bandwidth file.
    #[arg(value_name = "NEW.v3bw")]
    pub new: PathBuf,
    /// The network, for positions, countries, families, and capacities if it has any. Relays that
    /// are not in it are left out; the results have their number.
    #[arg(long, value_name = "SRC")]
    pub network: PathBuf,
    /// Further data on the network.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// Join files and a network of different months too.
    #[arg(long)]
    pub allow_mixed: bool,
    /// The clients' demand, as a fraction of the total capacity, for predicted download times. They
    /// come from a model in which a relay serves all streams at once: use them for comparison, not
    /// as forecasts.
    #[arg(long, value_name = "PART", default_value_t = 0.5)]
    pub load: f64,
    /// Also simulate downloads with both files' weights at that load, as `ff-sim flow` does.
    #[arg(long)]
    pub flow: bool,
    /// A folder with tmodel-stream.json and tmodel-packet.json, the models of users' traffic;
    /// default: the models in this program.
    #[arg(long, value_name = "DIR", requires = "flow")]
    pub model: Option<PathBuf>,
    /// Measured time of each simulation, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 10, requires = "flow",
          value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: u32,
    /// Warm-up before the measured time, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 10, requires = "flow",
          value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub warm_up: u32,
    /// Random seed of circuits and downloads.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "flow")]
    pub seed: u64,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}
