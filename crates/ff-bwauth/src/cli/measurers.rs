//! Options of `measurers`.

use std::path::PathBuf;

use clap::Args;

/// Options of `measurers`.
#[derive(Args, Clone, Debug)]
pub struct MeasurersArgs {
    /// The coordinator's config.
    #[arg(long, value_name = "FILE", default_value = super::watch::CONFIG)]
    pub config: PathBuf,
    /// Measure the measurers' networks: all exchange UDP packets with all others, up to their
    /// configured capacities. The results are stored and shown.
    ///
    /// If the coordinator runs, it measures them as soon as no relay is being measured, and this
    /// command does not wait.
    #[arg(long)]
    pub measure: bool,
    /// Length of the exchange of --measure in seconds (3 to 600); default: that of the config,
    /// which a running coordinator always uses.
    #[arg(long, value_name = "SECONDS", requires = "measure",
          value_parser = clap::value_parser!(u16).range(3..=600))]
    pub duration: Option<u16>,
    /// Trust this measurer of the config again after relays have disputed its counts: their reports
    /// until now are ignored, also by a running coordinator. Find the cause first: the measurer's
    /// program, its clock, its host.
    #[arg(long, value_name = "NAME", conflicts_with = "measure")]
    pub trust: Option<String>,
    /// Print one JSON object: measurers, and whether an exchange was measured, asked for, or
    /// neither.
    #[arg(long)]
    pub json: bool,
}
