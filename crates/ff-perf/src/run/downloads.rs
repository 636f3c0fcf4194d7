//! `downloads`.

use std::process::ExitCode;

use anyhow::Result;

use super::measure;
use crate::cli::downloads::RunArgs;

/// Downloads from a source, one download on each circuit.
///
/// # Errors
/// As those of `circuits run`.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    measure::run(&args.circuits())
}
