//! Options of `compare`.

use std::path::PathBuf;

use clap::Args;

use super::OutArgs;

/// Options of `compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The older bandwidth file, of any version.
    #[arg(value_name = "OLD.v3bw")]
    pub old: PathBuf,
    /// The newer one.
    #[arg(value_name = "NEW.v3bw")]
    pub new: PathBuf,
    /// The network: positions, countries, families, and capacities if it has any. Relays that it does not have count
    /// nowhere; how many that are is in the results.
    #[arg(long, value_name = "SRC")]
    pub network: PathBuf,
    /// What clients want, as a part of all capacity, for the predicted times of downloads. These are a model, in which a relay
    /// serves all streams at once: good for comparing, and no forecast.
    #[arg(long, value_name = "PART", default_value_t = 0.5)]
    pub load: f64,
    /// Fail if anything of the input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Where results go.
    #[command(flatten)]
    pub out: OutArgs,
}
