//! Writes the files of a single measurement, prints the result, and chooses the exit status.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_base::files::{self, Readers};
use ff_base::utc::now_unix_secs;
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_measurer::console::{note, print};
use ff_plan::outcome::{self, ClientTraffic, Outcome};
use ff_plan::publish::v3bw::{BandwidthFile, Publication};
use ff_plan::publish::{LATEST, Shelf, results};

use crate::options::Common;
use crate::report;
use crate::screen::summary;

/// Prints an error as a failed measurement, where a program was told to print JSON and has printed
/// nothing.
///
/// # Errors
/// The same, or that it cannot be printed.
pub fn or_failed_json(prints_json: bool, result: Result<ExitCode>) -> Result<ExitCode> {
    if let Err(error) = &result
        && prints_json
        && !error.is::<AfterOutput>()
    {
        let json = outcome::failed_json(&format!("{error:#}"));
        print(&format!("{json}\n"))?;
    }
    result
}

/// An error that came when the outcome had been printed already.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct AfterOutput(anyhow::Error);

/// Makes the directory for the files, before anything is measured in vain.
///
/// # Errors
/// When it cannot be made.
pub fn out_dir(common: &Common, default: &str) -> Result<PathBuf> {
    let dir = common.out.clone().unwrap_or_else(|| PathBuf::from(default));
    fs::create_dir_all(&dir)
        .with_context(|| format!("Failed to make the directory {}", dir.display()))?;
    Ok(dir)
}

/// Which command an outcome comes from.
#[derive(Clone, Copy)]
pub enum OutcomeSource<'a> {
    /// The demo of one relay, with its clients if it had any.
    Demo(Option<&'a ClientTraffic>),
    /// `measure`.
    Measure,
}

impl OutcomeSource<'_> {
    /// The program that speaks.
    fn program(self) -> &'static str {
        match self {
            Self::Demo(_) => "ff-demo",
            Self::Measure => "ff-bwauth",
        }
    }

    /// How many relays the relay's network has: the demo's is its one relay, and of others nobody
    /// has said.
    fn consensus_relays(self) -> u64 {
        match self {
            Self::Demo(_) => 1,
            Self::Measure => 0,
        }
    }
}

/// Writes the files, prints the outcome, and chooses the exit status.
///
/// # Errors
/// When a file cannot be written, or nothing printed.
pub fn finish(
    common: &Common,
    dir: &Path,
    outcome: &Outcome,
    source: OutcomeSource<'_>,
) -> Result<ExitCode> {
    let mut files = Vec::new();
    let written = write_files(dir, outcome, source.consensus_relays(), &mut files);
    let text = match source {
        OutcomeSource::Demo(clients) if common.json => {
            let mut json = outcome.to_json(&files);
            // Without clients it is null: one command's objects have the same keys.
            json["clients"] = serde_json::to_value(clients).context("Failed to encode JSON")?;
            format!("{json}\n")
        }
        OutcomeSource::Measure if common.json => format!("{}\n", outcome.to_json(&files)),
        OutcomeSource::Demo(clients) => summary(outcome, clients, &files),
        OutcomeSource::Measure => summary(outcome, None, &files),
    };
    if let Err(failure) = &outcome.result {
        note(&format!("{}: {}", source.program(), failure.message));
    }
    print(&text)?;
    written.map_err(AfterOutput)?;
    Ok(ExitCode::from(outcome.exit_status()))
}

/// Writes the results, the report and, for a conclusive estimate, the bandwidth file; notes each
/// in `files`.
fn write_files(
    dir: &Path,
    outcome: &Outcome,
    consensus_relays: u64,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    files.push(results::write(dir, outcome)?);
    let report = dir.join("report.html");
    files::write_atomically(&report, report::report_html(outcome).as_bytes(), Readers::Owner)?;
    files.push(report);
    if outcome.publishable().is_some() {
        files.push(publish(dir, outcome, consensus_relays)?);
    }
    Ok(())
}

/// Writes the bandwidth file of the one relay. With an unknown number of relays in the consensus
/// its line says `vote=0`.
fn publish(dir: &Path, outcome: &Outcome, consensus_relays: u64) -> Result<PathBuf> {
    let now = now_unix_secs();
    let publication = Publication {
        now_unix_secs: now,
        max_age_secs: MAX_FILE_AGE_SECS,
        generator_started_unix_secs: Some(outcome.started_unix_secs),
        consensus_relays,
        ..Publication::default()
    };
    let file = BandwidthFile::from_outcomes(std::slice::from_ref(outcome), &publication)?;
    Shelf::open(dir)?.place(&file)?;
    Ok(dir.join(LATEST))
}
