//! The `ff-lab` command.

use std::process::ExitCode;

use clap::Parser;
use ff_lab::cli::Cli;
use ff_lab::console::note;

fn main() -> ExitCode {
    ff_lab::run::run(&Cli::parse()).unwrap_or_else(|error| {
        note(&format!("ff-lab: {error:#}"));
        ExitCode::FAILURE
    })
}
