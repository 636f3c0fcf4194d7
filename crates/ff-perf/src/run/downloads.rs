//! The commands `downloads …`.

mod analyze;
mod export;
mod filter;
mod plan;

use std::process::ExitCode;

use anyhow::Result;

use super::{arms, measure, serve};
use crate::cli::downloads::DownloadsCommand;

/// Runs one of them.
///
/// # Errors
/// If something cannot be read, measured or written.
pub(super) fn run(command: &DownloadsCommand) -> Result<ExitCode> {
    match command {
        DownloadsCommand::Analyze(args) => analyze::run(args),
        DownloadsCommand::Filter(args) => filter::run(args),
        DownloadsCommand::Export(args) => export::run(args),
        DownloadsCommand::Run(args) => match &args.arms {
            Some(file) => arms::run(&args.circuits(), file),
            None => measure::run(&args.circuits()),
        },
        DownloadsCommand::Serve(args) => serve::run(&args.circuits()),
        DownloadsCommand::Plan(args) => plan::run(args),
    }
}
