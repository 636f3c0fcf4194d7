//! Runs the commands.

mod check;
mod link;
mod up;

use std::process::ExitCode;

use crate::cli::link::LinkCommand;
use crate::cli::{Cli, Command};

/// Exit status of a run that is invalid because the emulator was too late; another run may succeed
/// (EX_TEMPFAIL of `sysexits.h`).
pub const DOES_NOT_COUNT: u8 = 75;

/// Runs the command of the command line.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Up(args) => up::run(args),
        Command::Link(args) => match &args.command {
            LinkCommand::Run(args) => link::run(args),
            LinkCommand::Profiles(args) => link::profiles(args),
            LinkCommand::Check(args) => check::run(args),
            LinkCommand::Guarded(args) => link::guarded(args),
        },
    }
}
