//! The `ff-perf` command.

use std::process::ExitCode;

use clap::Parser;
use ff_perf::cli::Cli;

fn main() -> ExitCode {
    match ff_perf::run::run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
