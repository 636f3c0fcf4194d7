//! The arguments of `ff-lab link`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ff-lab link`.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// The command.
    #[command(subcommand)]
    pub command: LinkCommand,
}

/// Commands of `ff-lab link`.
#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// Run a command over a link; the other end is this machine.
    ///
    /// The command has the address $FF_LAB_ADDRESS and reaches only this machine, at $FF_LAB_PEER.
    /// A report on the link is written to standard error at the end.
    ///
    /// Exit status: that of the command, or 128 plus the signal's number if a signal ended it; 1 if
    /// the link could not be made; 75, whatever the command's status is, if the emulator was too
    /// late (p99 above 1 ms and above 2 % of the one-way delay): the run is invalid; repeat it.
    Run(LinkRunArgs),
    /// List the built-in profiles.
    #[command(
        after_help = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line"
    )]
    Profiles(ProfilesArgs),
    /// Check the emulator: set delays, rates and losses, and measure them with UDP and TCP.
    ///
    /// A run is repeated, at most five times, if the emulator was too late (p99 above 1 ms and
    /// above 2 % of the one-way delay), or if a figure is out of its bounds by no more than the
    /// emulator's longest stop can explain.
    ///
    /// Exit status: 0 if all figures are within their bounds, 1 if one is not, 75 if only invalid
    /// runs prevent a result.
    Check(CheckArgs),
    /// Start a program that ends with this process; `link run` uses it.
    #[command(hide = true)]
    Guarded(GuardedArgs),
}

/// `ff-lab link run`.
#[derive(Debug, Args)]
pub struct LinkRunArgs {
    /// A built-in profile (see `ff-lab link profiles`) or the TOML file of one.
    #[arg(long, value_name = "NAME|FILE", default_value = "none")]
    pub profile: String,
    /// Constant rate from the command to this machine instead of the profile's: 200kbit, 5Mbit or
    /// unlimited; or the file of a trace in Mahimahi's format (each line is the time in ms of one
    /// 1,500-byte opportunity).
    #[arg(long, value_name = "RATE|TRACE")]
    pub up: Option<String>,
    /// Rate from this machine to the command instead of the profile's; as with --up.
    #[arg(long, value_name = "RATE|TRACE")]
    pub down: Option<String>,
    /// One-way delay to add in each direction, in ms (0 to 60000).
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub delay_ms: f64,
    /// Random seed: with the same seed and the same packets, the same ones are lost.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// TCP's congestion control at both ends of the link, unless a program chooses another.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion_control: String,
    /// Also write the report on the link to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `ff-lab link profiles`.
#[derive(Debug, Args)]
pub struct ProfilesArgs {
    /// Print a JSON array instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `ff-lab link check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Make fewer and shorter runs: about 40 seconds instead of two minutes.
    #[arg(long)]
    pub short: bool,
    /// Print a JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Do not keep all cores busy during the check.
    #[arg(long)]
    pub idle: bool,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `ff-lab link guarded`.
#[derive(Debug, Args)]
pub struct GuardedArgs {
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}
