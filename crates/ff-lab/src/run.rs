//! What the commands do.

mod check;
mod link;
mod up;

use std::process::ExitCode;

use crate::cli::link::LinkCommand;
use crate::cli::{Cli, Command};

/// The exit status of a run in which the emulator was too late: nothing that was measured counts,
/// and another run may be in time (EX_TEMPFAIL of `sysexits.h`).
pub const DOES_NOT_COUNT: u8 = 75;

/// Does what the command line says.
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
