//! Carries commands out.

mod analyze;
mod bound;
mod check;
mod client;
mod compared;
mod downloads;
mod lab;
mod measure;
mod paths;
mod serve;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::cli::{Circuits, Cli, Command};

/// Carries a command out.
///
/// # Errors
/// When something cannot be read, measured or written.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Command::Circuits(Circuits::Analyze(args)) => analyze::run(args),
        Command::Circuits(Circuits::Guards(args)) => compared::guards(args),
        Command::Circuits(Circuits::Pairs(args)) => compared::pairs_of(args),
        Command::Circuits(Circuits::Run(args)) => measure::run(args),
        Command::Circuits(Circuits::Serve(args)) => serve::run(args),
        Command::Downloads(command) => downloads::run(command),
        Command::Bound(args) => bound::run(args),
        Command::Paths(args) => paths::run(args),
        Command::Check(args) => check::run(args),
        Command::Lab(command) => lab::run(command),
    }
}

/// Prints results, as one JSON document or as text.
fn print<T: Serialize>(
    json: bool,
    results: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<ExitCode> {
    let printed = if json {
        format!("{}\n", serde_json::to_string(results).context("Failed to make the JSON")?)
    } else {
        text(results)
    };
    show(&printed)
}

/// Prints text.
fn show(text: &str) -> Result<ExitCode> {
    // Whoever reads may have enough already, as `head` has.
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("Failed to print the results")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
