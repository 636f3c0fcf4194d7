//! The `ff-bwauth` command.

use std::process::ExitCode;

use clap::Parser;
use ff_bwauth::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli.check() {
        error.exit();
    }
    ff_bwauth::init_logging(cli.verbose);
    ff_bwauth::run::run(&cli).unwrap_or_else(|error| ff_bwauth::fail("ff-bwauth", &error))
}
