//! Runs the experiments in private networks.

mod bound;
mod mobile;
mod navigator;
mod tortoise;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ff_lab::Ending;

use crate::cli::lab::LabCommand;

pub(super) fn run(command: &LabCommand) -> Result<ExitCode> {
    let ending = Ending::of_signals().context("Failed to wait for signals")?;
    let ended = match command {
        LabCommand::Bound(args) => bound::run(args, &ending),
        LabCommand::Mobile(args) => mobile::run(args, &ending),
        LabCommand::Navigator(args) => navigator::run(args, &ending),
        LabCommand::Tortoise(args) => tortoise::run(args, &ending),
    };
    // Ctrl-C in a terminal also reaches the nodes, so the error may be that one of them ended.
    match (ended, ending.signal()) {
        (Err(_), Some(signal)) => {
            super::client::say(&format!("ended by signal {signal}; the network has been removed"));
            Ok(Ending::exit_code(signal))
        }
        (ended, _) => ended,
    }
}
