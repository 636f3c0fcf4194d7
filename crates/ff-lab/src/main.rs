//! The `ff-lab` command.

use std::process::ExitCode;

use clap::Parser;
use ff_lab::cli::Cli;

fn main() -> ExitCode {
    match ff_lab::run::run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
