//! Options of `demo`.

use std::path::PathBuf;

use clap::Args;

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Start a network on this machine: relays, two coordinators and three measurers.
    #[arg(long, required = true)]
    pub network: bool,
    /// End after the first whole period, with exit status 0 if every relay was measured.
    #[arg(long)]
    pub once: bool,
    /// Number of relays (1 to 32): the first is limited to 4 Mbit/s, and each further one to 4
    /// Mbit/s more.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub relays: u8,
    /// The length of a period in seconds (30 to 86400).
    #[arg(long, default_value_t = 120, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(30..=86_400))]
    pub period_secs: u32,
    /// How long each relay is measured, in seconds (1 to 120).
    #[arg(long, default_value_t = 5, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub duration: u16,
    /// Write the coordinators' files into this directory; created if missing.
    #[arg(long, value_name = "DIR", default_value = "flashflow-network")]
    pub out: PathBuf,
    /// Print one JSON object on standard output, and everything else on standard error.
    #[arg(long)]
    pub json: bool,
}
