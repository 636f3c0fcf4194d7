//! Runs the commands.

/// Prints a line on standard error. It does not fail if standard error is closed.
macro_rules! note {
    ($($text:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($text)*)),
        ))
    };
}

mod analyse;
mod attack;
mod compare;
mod flow;
mod ingest;
mod ledger;
mod merge;
mod schedule;
mod tortoise;
mod weights;

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use ff_archives::network::Network;
use ff_archives::source;
use ff_report::figure::Figure;
use ff_report::input::Inputs;
use ff_report::markup::Visible;
use ff_report::output::{Folder, Summary, Table};
use ff_report::report::Page;
use ff_report::skipped::Skips;
use serde::Serialize;

use crate::cli::{Cli, Command, DescribedArgs, OutArgs};

/// The exit status if too much of the input was left out.
const TOO_MUCH_SKIPPED: u8 = 5;

/// Runs a command.
///
/// # Errors
/// If an option is invalid, or a file cannot be read or written.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Command::Ingest(args) => ingest::ingest(args),
        Command::Merge(args) => merge::merge(args),
        Command::Schedule(args) => schedule::schedule(args),
        Command::WhatIf(args) => schedule::what_if(args),
        Command::Analyse(args) => analyse::analyse(args),
        Command::Attack(args) => attack::attack(args),
        Command::Flow(args) => flow::flow(args),
        Command::Tortoise(args) => tortoise::tortoise(args),
        Command::Compare(args) => compare::compare(args),
        Command::Ledger(args) => ledger::ledger(args),
    }
}

/// The input that a command has read.
#[derive(Debug, Default)]
struct Reading {
    /// The files.
    inputs: Inputs,
    /// The omissions.
    skips: Skips,
}

impl Reading {
    /// Reads the network in a file, with descriptors of a consensus's relays if there are any.
    ///
    /// # Errors
    /// If a file cannot be read.
    fn network(&mut self, path: &Path, described: &DescribedArgs) -> Result<Network> {
        let descriptors = described.descriptors.as_deref();
        let (network, skips) = source::described(path, descriptors, &mut self.inputs)?;
        self.skips.extend(skips);
        Ok(network)
    }

    /// Reports omissions; returns the exit status that depends on their number.
    fn status(&self, strict: bool) -> ExitCode {
        let (skipped, all) = (self.skips.left_out(), &self.skips.all);
        if let Some(first) = all.first() {
            let line = first.line.map(|line| format!(", line {line}")).unwrap_or_default();
            note!(
                "ff-sim: parts of the input left out: {skipped}; the first: {}{line}: {}",
                Visible(&first.file),
                Visible(&first.reason)
            );
        }
        if let Some(first) = self.skips.missing.first() {
            let gaps = self.skips.missing.len();
            note!(
                "ff-sim: gaps in the input: {gaps}; the first: {}: {}",
                Visible(&first.file),
                Visible(&first.reason)
            );
        }
        if skipped > 0 && self.skips.read == 0 {
            note!("ff-sim: none of the input could be read");
            return ExitCode::FAILURE;
        }
        match (skipped, strict) {
            (0, _) => ExitCode::SUCCESS,
            (_, true) => ExitCode::FAILURE,
            _ if self.skips.is_too_much() => ExitCode::from(TOO_MUCH_SKIPPED),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// `count` seeds from the first one on.
///
/// # Errors
/// If the last seed would exceed the largest `u64`.
fn seeds(first: u64, count: u64) -> Result<Range<u64>> {
    let end = first.checked_add(count).with_context(|| {
        format!("--seed {first} with --seeds {count} exceeds the largest seed, {}", u64::MAX)
    })?;
    Ok(first..end)
}

/// Prints results, and writes their folder with these figures if requested.
#[expect(clippy::too_many_arguments, reason = "the parts of a folder of results")]
fn tell_drawn<T: Serialize>(
    command: &'static str,
    out: &OutArgs,
    reading: &Reading,
    seed: Option<u64>,
    results: &T,
    text: &str,
    tables: &[Table],
    figures: impl FnOnce() -> Vec<Figure>,
) -> Result<()> {
    if let Some(dir) = &out.out {
        let folder = Folder::create(dir)?;
        let mut errors = Vec::new();
        reading.skips.write_csv(&mut errors).context("Failed to write errors.csv")?;
        folder.write("errors.csv", &errors)?;
        let write = |(name, header, rows): &Table| folder.table(name, header, rows.iter());
        let figures = thread::scope(|scope| -> Result<_> {
            let written = scope.spawn(|| tables.iter().try_for_each(write));
            let figures = figures();
            figures.iter().try_for_each(|figure| folder.figure(figure))?;
            written.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(figures)
        })?;
        let (inputs, skips) = (reading.inputs.all(), &reading.skips);
        let title = format!("ff-sim {command}");
        let page = Page { command: &title, inputs, skips, seed, text, figures: &figures, tables };
        folder.write("report.html", page.html().as_bytes())?;
        folder.finish(&Summary::new(command, inputs, seed, out.options.clone(), results))?;
    }
    let printed = if out.json {
        format!(
            "{}\n",
            serde_json::to_string(results).context("Failed to encode the results as JSON")?
        )
    } else {
        text.to_owned()
    };
    print(&printed)
}

/// Writes to standard output. A closed pipe, such as with `head`, is not an error.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("Failed to print the results")
        }
        _ => Ok(()),
    }
}

/// Rows of name and value, as text.
fn rows(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:>width$}  {value}\n")).collect()
}
