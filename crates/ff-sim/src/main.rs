//! The `ff-sim` command.

use std::process::ExitCode;

use ff_sim::cli::Cli;

fn main() -> ExitCode {
    match ff_sim::run::run(&Cli::read()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
