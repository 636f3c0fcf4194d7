//! The command line.

mod service;
mod transit;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

pub use self::service::{InitOptions, PORT, RunOptions, watchdog_period};
pub use self::transit::{Crypto, TransitOptions, Way};
use crate::bench::{self, BenchOptions, Record, Throughput};
use crate::console::{note, print};

/// The exit statuses of a command without others of its own.
const STATUS: &str = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line";

/// Generates FlashFlow's measurement traffic.
#[derive(Debug, Parser)]
#[command(name = "ff-measurer", version, after_help = STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log more: -v for information, -vv for details; default: warnings, and with `run` each
    /// measurement.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host a measurer: a key, a config, and the lines for its coordinator's config.
    #[command(after_help = STATUS)]
    Init(InitOptions),
    /// Measure relays for the coordinators that the config names, until SIGTERM.
    ///
    /// On SIGHUP, it reads the config's limits and coordinators again.
    #[command(
        after_help = "Exit status:\n  0  ended by SIGTERM or SIGINT; with --check, the config is valid\n  1  failure, with its cause on standard error; with --check, the config is not valid\n  2  invalid command line"
    )]
    Run(RunOptions),
    /// Measure how much one core of this host can measure.
    ///
    /// Compares, in one run and over loopback, an echo over plain TCP, an echo over TLS, and the
    /// measurer. A team needs about twice the capacity of the fastest relay it measures.
    #[command(after_help = STATUS)]
    Bench(Bench),
    /// Measure how much a relay forwards, whatever software it runs.
    ///
    /// Sends cells of random content through circuits of the relay to sinks of this command, and
    /// back. The relay handles them like its clients' cells, and needs no extension.
    #[command(after_help = STATUS)]
    Transit(TransitOptions),
}

/// Options of `bench`.
#[derive(Args, Debug)]
pub struct Bench {
    /// Number of sockets (1 to 512).
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub sockets: u16,
    /// Length of each part of a round in seconds (1 to 60).
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u8).range(1..=60))]
    pub seconds: u8,
    /// Number of rounds (1 to 99); the result is their median.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub rounds: u8,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Carries out the command.
///
/// # Errors
/// When it cannot be carried out.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Command::Init(options) => service::init(options),
        Command::Run(options) => service::run(options),
        Command::Bench(options) => run_bench(options),
        Command::Transit(options) => transit::run(options),
    }
}

/// Carries out `bench`.
fn run_bench(options: &Bench) -> Result<ExitCode> {
    let bench_options = BenchOptions {
        sockets: options.sockets,
        run: Duration::from_secs(options.seconds.into()),
        rounds: options.rounds,
        cells_per_record: vec![6, 31],
    };
    let records = bench::run(&bench_options, note).context("Failed to run the bench")?;
    let text = if options.json {
        format!("{}\n", serde_json::json!({ "records": records }))
    } else {
        table(&records)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The records as a table.
fn table(records: &[Record]) -> String {
    let mut text = String::from("cells/record               Gbit/s per core   CPU s per GB\n");
    for record in records {
        let rows = [
            ("plain TCP", record.plain_tcp),
            ("raw TLS", record.raw_tls),
            ("measurer", record.measurer),
        ];
        for (name, Throughput { gbit_per_core, cpu_s_per_gb }) in rows {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:>12}  {name:<12} {gbit_per_core:>15.2}  {cpu_s_per_gb:>13.3}",
                record.cells_per_record
            );
        }
        let ratio = record.measurer_vs_raw_tls;
        let _ = writeln!(text, "{:>12}  measurer / raw TLS {ratio:>25.3}", record.cells_per_record);
    }
    text
}
