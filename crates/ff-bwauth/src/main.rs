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
    match ff_bwauth::run::run(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ff-bwauth: {error:#}");
            ExitCode::FAILURE
        }
    }
}
