//! The `ff-sim` command.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ff_report::markup::Visible;
use ff_sim::cli::Cli;

fn main() -> ExitCode {
    match ff_sim::run::run(&Cli::read()) {
        Ok(code) => code,
        Err(error) => {
            // Messages may quote file contents, and standard error may be closed.
            let _ = writeln!(io::stderr(), "ff-sim: {}", Visible(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
