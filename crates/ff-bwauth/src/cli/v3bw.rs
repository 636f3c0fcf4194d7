//! What `v3bw` takes.

use std::path::PathBuf;

use clap::Subcommand;

/// What to do with bandwidth files.
#[derive(Clone, Debug, Subcommand)]
pub enum V3bw {
    /// Read files as a directory authority does, and name what it would not take.
    ///
    /// Any version, by whatever software. Exit status 1 if an authority would refuse a file or skip a line
    /// of it; what is only against bandwidth-file-spec is named, too.
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
