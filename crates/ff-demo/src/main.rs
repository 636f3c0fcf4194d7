#![doc = include_str!("../README.md")]

mod cli;
mod demo;
mod tor;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use ff_coordinator::deliver::{OutcomeSource, finish, or_failed_json, out_dir};
use ff_coordinator::screen::Screen;

use crate::cli::Cli;

/// Where files go when nothing is said.
const DIR: &str = "flashflow-demo";

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli.check() {
        error.exit();
    }
    ff_measurer::init_logging(cli.verbose);
    or_failed_json(cli.common.json, run(&cli))
        .unwrap_or_else(|error| ff_measurer::console::fail("ff-demo", &error))
}

/// Carries the demo out; the exit status is the measurement's.
fn run(cli: &Cli) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    runtime.block_on(async {
        let dir = out_dir(&cli.common, DIR)?;
        let screen = Screen::new();
        let (outcome, clients) = demo::run(cli, &dir, |progress| screen.show(progress)).await?;
        drop(screen);
        finish(&cli.common, &dir, &outcome, OutcomeSource::Demo(clients.as_ref()))
    })
}
