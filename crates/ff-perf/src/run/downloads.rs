//! `downloads`.

mod plan;

use std::process::ExitCode;

use anyhow::Result;

use super::{measure, serve};
use crate::cli::downloads::Downloads;

/// Carries one of its commands out.
///
/// # Errors
/// As those of `circuits run` and `circuits serve`; of `plan`, when a profile cannot be read.
pub(super) fn run(command: &Downloads) -> Result<ExitCode> {
    match command {
        Downloads::Run(args) => measure::run(&args.circuits()),
        Downloads::Serve(args) => serve::run(&args.circuits()),
        Downloads::Plan(args) => plan::run(args),
    }
}
