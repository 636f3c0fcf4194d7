//! The `ff-measurer` command.

use std::process::ExitCode;

use clap::Parser;
use ff_measurer::cli::{Cli, run};
use ff_measurer::init_logging;

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_logging(cli.verbose);
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-measurer: {error:#}");
            ExitCode::FAILURE
        }
    }
}
