//! The `ff-perf` command.

use std::process::ExitCode;

use ff_lab::console::note;
use ff_perf::cli::Cli;

fn main() -> ExitCode {
    ff_perf::run::run(&Cli::read()).unwrap_or_else(|error| {
        note(&format!("ff-perf: {error:#}"));
        ExitCode::FAILURE
    })
}
