//! What `measurers` takes.

use std::path::PathBuf;

use clap::Args;

/// Options of `measurers`.
#[derive(Args, Clone, Debug)]
pub struct MeasurersArgs {
    /// The coordinator's config.
    #[arg(long, value_name = "FILE", default_value = super::watch::CONFIG)]
    pub config: PathBuf,
    /// Have all measurers exchange UDP with all others, store what their networks carried, and show it.
    ///
    /// Each is sent and sends as much as the config states. Where the coordinator runs, it is told to do so as soon
    /// as no relay is being measured, and this does not wait for it.
    #[arg(long)]
    pub measure: bool,
    /// With --measure: for how long, in seconds (3 to 600); else as the config says. A coordinator that runs goes by
    /// its config.
    #[arg(long, value_name = "SECONDS", requires = "measure",
          value_parser = clap::value_parser!(u16).range(3..=600))]
    pub duration: Option<u16>,
    /// Trust this measurer of the config again after relays have disputed what it counted: what they have said until now
    /// does not count. Where the coordinator runs, it is told so. Look for the cause first: its program, its clock, its host.
    #[arg(long, value_name = "NAME", conflicts_with = "measure")]
    pub trust: Option<String>,
    /// Print one JSON object: measurers, and whether an exchange was measured, asked for, or neither.
    #[arg(long)]
    pub json: bool,
}
