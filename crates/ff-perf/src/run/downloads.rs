//! The commands `downloads …`.

mod analyze;
mod export;
mod filter;
mod plan;

use std::process::ExitCode;

use anyhow::Result;

use super::{arms, measure, serve};
use crate::cli::downloads::Downloads;

/// Carries one of them out.
///
/// # Errors
/// When something cannot be read, measured or written.
pub(super) fn run(command: &Downloads) -> Result<ExitCode> {
    match command {
        Downloads::Analyze(args) => analyze::run(args),
        Downloads::Filter(args) => filter::run(args),
        Downloads::Export(args) => export::run(args),
        Downloads::Run(args) => match &args.arms {
            Some(file) => arms::run(&args.circuits(), file),
            None => measure::run(&args.circuits()),
        },
        Downloads::Serve(args) => serve::run(&args.circuits()),
        Downloads::Plan(args) => plan::run(args),
    }
}
