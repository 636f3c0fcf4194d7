//! Runs the commands.

mod analyze;
mod arms;
mod bound;
mod check;
mod client;
mod compared;
mod downloads;
mod generate;
mod lab;
mod measure;
mod output;
mod paths;
mod serve;
mod source;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Circuits, Cli, Command};

/// Runs the command of the command line.
///
/// # Errors
/// If something cannot be read, measured or written.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Command::Circuits(Circuits::Analyze(args)) => analyze::run(args),
        Command::Circuits(Circuits::Guards(args)) => compared::guards(args),
        Command::Circuits(Circuits::Pairs(args)) => compared::pairs_of(args),
        Command::Circuits(Circuits::Run(args)) => measure::run(args),
        Command::Circuits(Circuits::Serve(args)) => serve::run(args),
        Command::Downloads(command) => downloads::run(command),
        Command::Source(args) => source::run(args),
        Command::Bound(args) => bound::run(args),
        Command::Paths(args) => paths::run(args),
        Command::Check(args) => check::run(args),
        Command::Lab(command) => lab::run(command),
        Command::Generate { dir } => generate::run(dir),
    }
}
