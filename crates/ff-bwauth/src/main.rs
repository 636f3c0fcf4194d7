//! The `ff-bwauth` command.

use std::process::ExitCode;

use clap::Parser;
use ff_bwauth::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli.check() {
        error.exit();
    }
    ff_measurer::init_logging(cli.verbose);
    ff_bwauth::run::run(&cli)
        .unwrap_or_else(|error| ff_measurer::console::fail("ff-bwauth", &error))
}
