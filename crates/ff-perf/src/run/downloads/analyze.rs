//! The command `downloads analyze`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use ff_circuits::downloads::{
    DownloadReport, DownloadSet, figures, metrics, outliers, relays, text, viz, viz_stats,
};
use ff_circuits::read::downloads::DownloadRecords;
use ff_report::input::Inputs;
use ff_report::markup::Visible;
use ff_report::output::{Folder, Rows, Summary, Table};
use ff_report::report::Page;
use ff_report::skipped::Skips;

use crate::arms::is_name;
use crate::cli::downloads::AnalyzeArgs;
use crate::run::output::print;

/// Name of the command in results.
const COMMAND: &str = "downloads analyze";

/// Runs the command.
pub(super) fn run(args: &AnalyzeArgs) -> Result<ExitCode> {
    let (mut inputs, mut labels, mut sets) = (Inputs::default(), BTreeSet::new(), Vec::new());
    for one in &args.data {
        let label = one.label.as_str();
        ensure!(
            labels.insert(label),
            "--data {label}=… is given twice: give all paths of a set in one --data"
        );
        let downloads = DownloadRecords::read(&one.paths, &mut inputs)?;
        let first = downloads.damaged.first.first();
        let first = first.map_or_else(String::new, |first| format!(" ({first})"));
        let others = downloads.other_circuits + downloads.left_out + downloads.damaged.count;
        ensure!(
            !downloads.all.is_empty(),
            "set {label} has no downloads; other records: {others}{first}. Give files with downloads"
        );
        let mut arms = downloads.all.iter().filter_map(|one| one.circuit.arm.as_deref());
        if let Some(odd) = arms.find(|arm| !is_name(arm)) {
            bail!(
                "set {label} has a line with the arm {odd:?}, which is not a valid name: 1 to 64 letters, digits, - and _"
            );
        }
        sets.extend(DownloadSet::by_arm(label, downloads));
    }
    let mut labels = BTreeSet::new();
    if let Some(twice) = sets.iter().find(|set| !labels.insert(set.label.as_str())) {
        bail!("two sets would be named {}: change a label in --data", twice.label);
    }
    let report = DownloadReport::of(&sets);
    if let Some(dir) = &args.out {
        let folder = write(dir, &sets, &report, &inputs)?;
        let options = args.options.clone();
        folder.finish(&Summary::new(COMMAND, inputs.all(), None, options, &report))?;
    }
    // Names come from files of others.
    print(args.json, &report, |report| Visible(&text::text(report)).to_string())
}

/// Writes the page, figures and tables.
fn write(
    dir: &Path,
    sets: &[DownloadSet],
    report: &DownloadReport,
    inputs: &Inputs,
) -> Result<Folder> {
    let folder = Folder::create(dir)?;
    let figures = figures::figures(sets, report);
    for figure in &figures {
        folder.figure(figure)?;
    }
    let (header, rows) = viz::table(sets);
    folder.table("onionperf.viz.csv", &header, rows.iter())?;
    folder.table("relays.csv", &relays::HEADER, relays::table(sets).iter())?;
    let [first, last, failed] = outliers::tables(sets);
    for (name, header, rows) in [viz_stats::table(sets), first, last, failed] {
        folder.table(name, header, rows.iter())?;
    }
    for set in sets {
        for (name, header, rows) in metrics::tables(&set.downloads) {
            folder.table(&format!("{}.{name}", set.label), header, rows.iter())?;
        }
    }
    let (skips, tables) = (skips(sets), [failures(report)]);
    for (name, header, rows) in &tables {
        folder.table(name, header, rows.iter())?;
    }
    let page = Page {
        command: &format!("ff-perf {COMMAND}"),
        inputs: inputs.all(),
        skips: &skips,
        seed: None,
        text: &text::text(report),
        figures: &figures,
        tables: &tables,
    };
    folder.write("report.html", page.html().as_bytes())?;
    Ok(folder)
}

/// Unreadable records of the inputs.
fn skips(sets: &[DownloadSet]) -> Skips {
    let mut skips = Skips::default();
    for DownloadSet { label, downloads } in sets {
        skips.read += downloads.all.len() as u64;
        for first in &downloads.damaged.first {
            skips.add(label.as_str(), None, None, first.as_str());
        }
    }
    skips
}

/// Table of failures by reason.
fn failures(report: &DownloadReport) -> Table {
    let mut rows = Rows::default();
    for set in &report.sets {
        for group in &set.groups {
            for (reason, count) in &group.failures {
                rows.cell(&set.label).cell(group.target.server()).cell(group.size_bytes);
                rows.cell(reason).cell(count).cell(group.downloads).end_row();
            }
        }
    }
    ("failures.csv", &["label", "server", "filesize_bytes", "reason", "failures", "requests"], rows)
}
