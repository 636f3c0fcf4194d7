//! The `ff-measurer` command.

use std::process::ExitCode;

use clap::Parser;
use ff_measurer::cli::{Cli, Command, run};
use ff_measurer::{console, init_logging, init_service_logging};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Run(_) => init_service_logging(cli.verbose),
        _ => init_logging(cli.verbose),
    }
    run(&cli).unwrap_or_else(|error| console::fail("ff-measurer", &error))
}
