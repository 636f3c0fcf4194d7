//! The `ff-measurer` command.

use std::process::ExitCode;

use clap::Parser;
use ff_measurer::cli::{Cli, run};

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-measurer: {error:#}");
            ExitCode::FAILURE
        }
    }
}
