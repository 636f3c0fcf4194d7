//! Parses the command line.

mod demo;
mod export;
mod measurers;
mod network;
mod schedule;
mod service;
mod transit;
mod v3bw;
mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ff_base::identity::key_base64;
use ff_coordinator::options::{Common, exit_status_help};
use tor_llcrypto::pk::ed25519::Ed25519Identity;

pub use self::demo::DemoArgs;
pub use self::export::ExportArgs;
pub use self::measurers::MeasurersArgs;
pub use self::network::NetworkArgs;
pub use self::schedule::ScheduleArgs;
pub use self::service::{GenerateArgs, InitArgs, RunArgs, STATE_DIR};
pub use self::transit::TransitArgs;
pub use self::v3bw::{ScalingName, V3bw, WriteArgs};
pub use self::watch::{DoctorArgs, ExplainArgs, StatusArgs};

/// The exit statuses of a command without others of its own.
const STATUS: &str = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line";

/// Measures how much traffic Tor relays can really forward.
///
/// A coordinator asks a relay for a measurement; measurers flood it with random cells over many
/// Tor links; the relay decrypts and returns them; the median second is its capacity, or 1.05 times
/// the mean second where that is less.
#[derive(Debug, Parser)]
#[command(
    name = "ff-bwauth",
    version,
    after_help = "Exit status: 0 success, 1 failure, 2 invalid command line; `ff-bwauth COMMAND --help` lists others."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log more: -v for information, -vv for details; default: warnings.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
}

impl Cli {
    /// Rejects options that are valid alone and contradict each other.
    ///
    /// # Errors
    /// A [`clap::Error`], whose exit status is that of a parsing error.
    pub fn check(&self) -> Result<(), clap::Error> {
        match &self.command {
            Command::Demo(_) => Ok(()),
            Command::Measure(measure) => measure.check(),
            Command::Export(export) => export.check(),
            Command::Schedule(schedule) => schedule.check(),
            Command::Network(_) => Ok(()),
            Command::V3bw(_) => Ok(()),
            Command::Init(_) | Command::Run(_) | Command::Generate(_) => Ok(()),
            Command::Status(_) | Command::Explain(_) | Command::Doctor(_) => Ok(()),
            Command::Measurers(_) => Ok(()),
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host a coordinator: a key, a secret, a config, and the lines for others.
    #[command(after_help = STATUS)]
    Init(InitArgs),
    /// Run the coordinator: measure the network continuously and publish bandwidth files.
    ///
    /// SIGTERM ends it: running measurements end at once, and the next start continues from there.
    #[command(
        after_help = "Exit status:\n  0  ended by SIGTERM or SIGINT; with --check, the config is valid\n  1  failure, with its cause on standard error; with --check, the config is not valid\n  2  invalid command line"
    )]
    Run(RunArgs),
    /// Write the files that a package adds to the two programs: man pages, completions, example
    /// configs.
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Start a network, two coordinators and three measurers on this machine, and measure it until
    /// Ctrl-C.
    ///
    /// Periods are shortened. `ff-demo` is the demo with a single relay.
    #[command(
        after_help = "Exit status:\n  0  ended by Ctrl-C; with --once, all relays were measured\n  1  failure; with --once, a relay was not measured\n  2  invalid command line"
    )]
    Demo(DemoArgs),
    /// Measure a relay that runs elsewhere, with measurers in this process.
    #[command(after_help = exit_status_help())]
    Measure(Measure),
    /// Write what a coordinator has measured as a table: CSV or Parquet.
    ///
    /// For November's results in DuckDB:
    ///
    ///   ff-bwauth export --store store.sqlite --what results --format parquet
    ///       --from 2026-11-01 --to 2026-12-01 --out november.parquet
    ///   duckdb -c "SELECT nickname, max(estimate_bytes_per_sec) FROM 'november.parquet' GROUP BY 1"
    #[command(verbatim_doc_comment, after_help = STATUS)]
    Export(ExportArgs),
    /// Fetch the network's consensus and descriptors, and show what they contain.
    #[command(
        after_help = "Exit status:\n  0  success\n  1  the documents could not be fetched\n  2  invalid command line"
    )]
    Network(NetworkArgs),
    /// Compute when and by which coordinator each relay of a network would be measured.
    #[command(after_help = STATUS)]
    Schedule(ScheduleArgs),
    /// Write, check and compare bandwidth files.
    #[command(subcommand)]
    V3bw(V3bw),
    /// Show the coordinator's state: measurers, period, coverage, failures, time left.
    ///
    /// Asks the page of the running coordinator, and prints problems first; a new coordinator may
    /// be too young to judge. If none runs, shows what its store knows.
    #[command(
        after_help = "Exit status:\n  0  no problems\n  1  no coordinator runs, or it does not answer\n  2  invalid command line\n  3  problems, which are listed first"
    )]
    Status(StatusArgs),
    /// Explain a relay's number in the bandwidth file: every step from its seconds to bw=, or why
    /// there is none.
    ///
    /// For the relay's operator. Reads the store, the last consensus that the coordinator has kept,
    /// and the last bandwidth file; the coordinator need not run.
    #[command(
        after_help = "Exit status:\n  0  success\n  1  no relay or more than one matches, or the store cannot be read\n  2  invalid command line"
    )]
    Explain(ExplainArgs),
    /// Check this host, its files and the team, and suggest fixes.
    ///
    /// Checks the clock, kernel, file descriptors, keys, store, disk, the directory of the
    /// bandwidth files, the page's port, the consensus, and every measurer.
    #[command(
        after_help = "Exit status:\n  0  all checks passed\n  1  a check failed\n  2  invalid command line\n  3  only warnings"
    )]
    Doctor(DoctorArgs),
    /// Show each measurer's network capacity, configured and measured; with --measure, measure it
    /// now.
    ///
    /// The lower of the two is used.
    #[command(
        after_help = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line\n  3  --measure has not measured all measurers"
    )]
    Measurers(MeasurersArgs),
}

/// Options of `measure`.
#[derive(Args, Clone, Debug)]
pub struct Measure {
    /// The relay's ORPort. If the name has several addresses, the first that accepts a connection
    /// is measured.
    #[arg(long, value_name = "HOST:PORT")]
    pub target: String,
    /// The relay's Ed25519 identity, 43 base64 characters: `fingerprint-ed25519` in its data
    /// directory.
    #[arg(long, value_name = "BASE64", value_parser = parse_identity)]
    pub ed_identity: Ed25519Identity,
    /// The relay's RSA fingerprint from the consensus: 40 hexadecimal digits.
    ///
    /// The bandwidth file names relays by it, and the Ed25519 identity does not prove it. A relay
    /// with another fingerprint is not measured. Default: the fingerprint that the relay shows on
    /// the link.
    #[arg(long, value_name = "HEX", value_parser = parse_fingerprint)]
    pub fingerprint: Option<Fingerprint>,
    /// The file of the coordinator's key; created with a new key if missing.
    ///
    /// The relay must list the key's identity in FFAllowedCoordinators.
    #[arg(long, value_name = "FILE", default_value = "ff-coordinator.key")]
    pub key: PathBuf,
    /// What both ways have.
    #[command(flatten)]
    pub common: Common,
    /// Number of measurers (1 to 8), which share the cores of this machine.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub measurers: u8,
    /// How long a link to the relay may take to open, in seconds (1 to 120).
    #[arg(long, default_value_t = 20, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub timeout: u16,
    /// What only cells in transit need.
    #[command(flatten)]
    pub transit: TransitArgs,
}

/// An RSA fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 20]);

/// Reads an RSA fingerprint, with or without the `$` and the blanks that tor writes.
fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    let digits: String = text.chars().filter(|&c| c != ' ').collect();
    let mut bytes = [0; 20];
    hex::decode_to_slice(digits.trim_start_matches('$'), &mut bytes)
        .map_err(|_| "not a fingerprint: give 40 hexadecimal digits".to_owned())?;
    Ok(Fingerprint(bytes))
}

/// Reads an Ed25519 identity.
fn parse_identity(text: &str) -> Result<Ed25519Identity, String> {
    key_base64(text.trim()).map(Ed25519Identity::from).ok_or_else(|| {
        "not an Ed25519 identity: give the 43 base64 characters from the file fingerprint-ed25519 in the relay's data \
         directory"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_tor_writes_it() {
        let expected = Ok(Fingerprint([0xAB; 20]));
        let spaced = ["ABAB"; 10].join(" ");
        for text in ["ab".repeat(20), format!("${}", "AB".repeat(20)), spaced] {
            assert_eq!(parse_fingerprint(&text), expected, "{text}");
        }
        for text in ["", "AB", &"AB".repeat(21), &"AG".repeat(20)] {
            assert!(parse_fingerprint(text).is_err(), "{text}");
        }
    }
}
