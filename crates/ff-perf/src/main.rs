//! The `ff-perf` command.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ff_perf::cli::Cli;

fn main() -> ExitCode {
    match ff_perf::run::run(&Cli::read()) {
        Ok(code) => code,
        Err(error) => {
            // A terminal may be gone.
            let _ = writeln!(io::stderr(), "ff-perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
