//! Options of `v3bw`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ff_plan::publish::{Limit, scaling};

use super::exit_status::STATUS;

/// What to do with bandwidth files.
#[derive(Clone, Debug, Subcommand)]
pub enum V3bw {
    /// Write the bandwidth file of measured results, and point latest.v3bw at it.
    ///
    /// Writes nothing if the new file breaks a safety limit, or if the directory has a latest.v3bw
    /// of other software: the previous file stays the latest.
    #[command(
        after_help = "Exit status:\n  0  a file was written\n  1  no file was written\n  2  invalid command line"
    )]
    Write(WriteArgs),
    /// Read files as a directory authority does, and name the lines that it would reject.
    ///
    /// Accepts any version, written by any software. Also names violations of bandwidth-file-spec
    /// that authorities accept.
    #[command(
        after_help = "Exit status:\n  0  an authority takes every line\n  1  an authority refuses a file or skips a line of it\n  2  invalid command line"
    )]
    Check {
        /// The files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The time for checks of age, in seconds since 1970; default: now.
        #[arg(long, value_name = "SECONDS")]
        now: Option<u64>,
        /// Print a JSON object for each file, one per line.
        #[arg(long)]
        json: bool,
    },
    /// Compare two files: list the relays for which authorities would vote differently.
    #[command(after_help = STATUS)]
    Diff {
        /// The older file.
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The newer file.
        #[arg(value_name = "NEW")]
        new: PathBuf,
        /// Print a JSON object for each relay, one per line.
        #[arg(long)]
        json: bool,
    },
}

/// Options of `v3bw write`.
#[derive(Args, Clone, Debug)]
pub struct WriteArgs {
    /// Results files, or directories of results-*.jsonl.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present = "store")]
    pub results: Vec<PathBuf>,
    /// A coordinator's store instead of results files; it may be in use. Relays that the last
    /// schedule in it measures as a group share the group's result.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["results", "families"])]
    pub store: Option<PathBuf>,
    /// The network's consensus, of either flavour, as a file.
    #[arg(long, value_name = "FILE")]
    pub consensus: PathBuf,
    /// Files of server descriptors, for limits, families and Ed25519 identities.
    ///
    /// Without them, relays' MaxAdvertisedBandwidth is unknown and ignored.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub descriptors: Vec<PathBuf>,
    /// Share results among the relays of a family, too, as among relays on the same address.
    ///
    /// This is right if each family was measured in one slot, and too low for a family that needed
    /// more than the team has and was measured in parts.
    #[arg(long, requires = "descriptors")]
    pub families: bool,
    /// Write into this directory of bandwidth files; created if missing.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print the weights that other software would compute from these capacities next to ours. The
    /// file always has ours.
    #[arg(long, value_enum, default_value_t = ScalingName::None)]
    pub scaling: ScalingName,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Write the file even if it breaks this limit: min-relays, min-percent, total-factor,
    /// relay-factor (which also lets relays rise at once), consensus-age, result-age or clock.
    #[arg(long, value_name = "LIMIT")]
    pub force: Vec<Limit>,
    /// Nickname of the authority that votes with the file, for its header.
    #[arg(long, value_name = "NICKNAME")]
    pub dirauth_nickname: Option<String>,
    /// The time in the file, in seconds since 1970; default: now.
    #[arg(long, value_name = "SECONDS")]
    pub now: Option<u64>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Whose formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScalingName {
    /// No other formula.
    None,
    /// TorFlow's formula, from bandwidth-file-spec B.4.
    Torflow,
    /// The formula of sbws 1.5.2.
    Sbws,
}

impl ScalingName {
    /// The formula, if there is one.
    #[must_use]
    pub fn formula(self) -> Option<scaling::Scaling> {
        match self {
            Self::None => None,
            Self::Torflow => Some(scaling::Scaling::Torflow),
            Self::Sbws => Some(scaling::Scaling::Sbws),
        }
    }
}
