//! Parses the command line.

mod conflict;
mod demo;
mod exit_status;
mod export;
mod measure;
mod measurers;
mod network;
mod schedule;
mod service;
mod transit;
mod v3bw;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
use ff_coordinator::options::exit_status_help;

use self::conflict::Conflict;
pub use self::demo::DemoArgs;
use self::exit_status::STATUS;
pub use self::export::ExportArgs;
pub use self::measure::{Fingerprint, Measure};
pub use self::measurers::MeasurersArgs;
pub use self::network::NetworkArgs;
pub use self::schedule::ScheduleArgs;
pub use self::service::{GenerateArgs, InitArgs, RunArgs, STATE_DIR};
pub use self::transit::TransitArgs;
pub use self::v3bw::{ScalingName, V3bw, WriteArgs};
pub use self::watch::{DoctorArgs, ExplainArgs, StatusArgs};

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
        let checked = match &self.command {
            Command::Demo(_) => Ok(()),
            Command::Measure(measure) => measure.check(),
            Command::Export(export) => export.check(),
            Command::Schedule(schedule) => schedule.check(),
            Command::Network(_) => Ok(()),
            Command::V3bw(_) => Ok(()),
            Command::Init(_) | Command::Run(_) | Command::Generate(_) => Ok(()),
            Command::Status(_) | Command::Explain(_) | Command::Doctor(_) => Ok(()),
            Command::Measurers(_) => Ok(()),
        };
        checked.map_err(|Conflict { kind, text }| Self::command().error(kind, text))
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
