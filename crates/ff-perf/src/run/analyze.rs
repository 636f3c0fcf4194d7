//! The command `circuits analyze`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_archives::network::Network;
use ff_circuits::analysis::{AnalysisOptions, Report, figures, tables, text};
use ff_circuits::buckets::truth::parse;
use ff_circuits::read::Circuits;
use ff_report::input::Inputs;
use ff_report::markup::Visible;
use ff_report::output::{Folder, Summary};

use super::output::print;
use crate::cli::analyze::AnalyzeArgs;

/// Runs `circuits analyze`.
///
/// # Errors
/// If a file cannot be read or is invalid, if no circuit counts, or if results cannot be written.
pub(super) fn run(args: &AnalyzeArgs) -> Result<ExitCode> {
    let mut inputs = Inputs::default();
    let circuits = Circuits::read(&args.paths, &mut inputs)?;
    let network = network(args, &circuits, &mut inputs)?;
    let options = AnalysisOptions {
        hops: args.hops,
        window: usize::try_from(args.window).context("--window is too long")?,
        shares: args.shares.clone(),
        timeout: args.timeout.into(),
        seed: args.seed,
        refill_ms: args.refill,
    };
    let truth = truth(args, &mut inputs)?;
    let mut report = Report::of(&circuits, network.as_ref(), &options);
    if let Some(truth) = &truth {
        report.token_buckets = report.token_buckets.map(|found| found.beside(truth));
    }
    ensure!(
        report.circuits > 0,
        "none of {} circuits was built with {} hops; {} were built with other numbers of hops: see --hops",
        report.read.all,
        args.hops,
        report.read.other_hops
    );
    if let Some(dir) = &args.figures {
        write(dir, args, &circuits, &report, &inputs)?;
    }
    // Names come from files of others.
    print(args.json, &report, |report| Visible(&text::text(report)).to_string())
}

/// The relays that hold cells back, if given.
fn truth(args: &AnalyzeArgs, inputs: &mut Inputs) -> Result<Option<BTreeSet<String>>> {
    let Some(path) = &args.truth else { return Ok(None) };
    let bytes = inputs.read(path)?;
    Ok(Some(parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes))?))
}

/// The network in which circuits were measured, if given.
fn network(
    args: &AnalyzeArgs,
    circuits: &Circuits,
    inputs: &mut Inputs,
) -> Result<Option<Network>> {
    let Some(path) = &args.network else { return Ok(None) };
    let (network, _) = ff_archives::source::described(path, args.descriptors.as_deref(), inputs)?;
    ensure!(
        circuits.known(&network) > 0,
        "{} has none of the {} relays of the circuits: give a network of the time when they were measured",
        path.display(),
        circuits.relays.len()
    );
    Ok(Some(network))
}

/// Writes figures, tables and the summary.
fn write(
    dir: &Path,
    args: &AnalyzeArgs,
    circuits: &Circuits,
    report: &Report,
    inputs: &Inputs,
) -> Result<()> {
    let folder = Folder::create(dir)?;
    for figure in figures::figures(circuits, report) {
        folder.write(&format!("{}.svg", figure.name), figure.svg().as_bytes())?;
    }
    for (name, header, rows) in tables::tables(report) {
        folder.table(name, header, rows.iter())?;
    }
    let (inputs, options) = (inputs.all(), args.options.clone());
    let summary = Summary::new("circuits analyze", inputs, Some(report.seed), options, report);
    folder.finish(&summary)?;
    Ok(())
}
