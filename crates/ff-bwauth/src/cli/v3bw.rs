//! What `v3bw` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ff_plan::publish::{Limit, scaling};

/// What to do with bandwidth files.
#[derive(Clone, Debug, Subcommand)]
pub enum V3bw {
    /// Write the bandwidth file of what has been measured, and lead latest.v3bw to it.
    ///
    /// Nothing is written if it breaks a safety limit, or if what is there is not ours: then the file before
    /// stays the latest.
    #[command(
        after_help = "Exit status:\n  0  a file was written\n  1  no file was written\n  2  invalid command line"
    )]
    Write(WriteArgs),
    /// Read files as a directory authority does, and name what it would not take.
    ///
    /// Any version, written by any software. Also names what only bandwidth-file-spec forbids.
    #[command(
        after_help = "Exit status:\n  0  an authority takes every line\n  1  an authority refuses a file or skips a line of it\n  2  invalid command line"
    )]
    Check {
        /// The files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The time to read them at, in seconds since 1970; by default now.
        #[arg(long, value_name = "SECONDS")]
        now: Option<u64>,
        /// Print a JSON object a line for each file.
        #[arg(long)]
        json: bool,
    },
    /// Say which relays authorities would vote for otherwise, from one file to the next.
    #[command(after_help = super::STATUS)]
    Diff {
        /// The older file.
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The newer file.
        #[arg(value_name = "NEW")]
        new: PathBuf,
        /// Print a JSON object a line for each relay.
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
    /// A coordinator's store instead of results files; it may be in use. Relays share what they showed together as
    /// the last schedule in it has grouped them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["results", "families"])]
    pub store: Option<PathBuf>,
    /// The network's consensus, of either flavour, as a file.
    #[arg(long, value_name = "FILE")]
    pub consensus: PathBuf,
    /// Server descriptors, as many as the files have: their limits, families and Ed25519 identities.
    ///
    /// Without them a relay's MaxAdvertisedBandwidth is not known, and is not kept to.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub descriptors: Vec<PathBuf>,
    /// Let the relays of a family count, too, for what they showed together, as those on one address do.
    ///
    /// That is right where each family was measured in one slot, and too little for one that needed more than
    /// the team has, so that it was measured in parts.
    #[arg(long, requires = "descriptors")]
    pub families: bool,
    /// The directory of bandwidth files; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print the weights that other software's formula would make of these capacities, beside ours. The file has
    /// ours all the same.
    #[arg(long, value_enum, default_value_t = ScalingName::None)]
    pub scaling: ScalingName,
    /// Say what would be written, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Write it although it breaks this limit: min-relays, min-percent, total-factor, relay-factor (which also
    /// lets relays rise at once), consensus-age, result-age or clock.
    #[arg(long, value_name = "LIMIT")]
    pub force: Vec<Limit>,
    /// Nickname of the authority that votes with the file, for its header.
    #[arg(long, value_name = "NICKNAME")]
    pub dirauth_nickname: Option<String>,
    /// The time it is written at, in seconds since 1970; by default now.
    #[arg(long, value_name = "SECONDS")]
    pub now: Option<u64>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Whose formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScalingName {
    /// Only ours.
    None,
    /// TorFlow's, as bandwidth-file-spec B.4 has it.
    Torflow,
    /// That of sbws 1.5.2.
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
