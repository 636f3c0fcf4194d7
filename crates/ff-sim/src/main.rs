//! The `ff-sim` command.

use std::process::ExitCode;

use clap::Parser;
use ff_sim::cli::Cli;

fn main() -> ExitCode {
    match ff_sim::run::run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
