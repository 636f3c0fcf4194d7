//! Carries experiments in private networks out.

mod bound;
mod navigator;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::lab::LabCommand;

/// Carries an experiment out.
pub(super) fn run(command: &LabCommand) -> Result<ExitCode> {
    match command {
        LabCommand::Bound(args) => bound::run(args),
        LabCommand::Navigator(args) => navigator::run(args),
    }
}
