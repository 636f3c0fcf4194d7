//! Carries out a command: measures, writes the files, prints, and chooses the exit status.

mod bandwidth_file;
mod doctor;
mod documents;
mod explain;
mod export;
mod generate;
mod measurers;
mod network;
mod schedule;
mod service;
mod status;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64ct::{Base64Unpadded, Encoding};
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_measurer::transit::TransitOrder;
use ff_measurer::{key, measurer_id};

use crate::cli::{Cli, Command, Common, Demo, Measure};
use crate::console::{note, print};
use crate::demo;
use crate::files::Readers;
use crate::measure::{self, Plan};
use crate::outcome::{self, ClientTraffic, Outcome};
use crate::publish::v3bw::{BandwidthFile, MAX_FILE_AGE_SECS, Publication};
use crate::publish::{LATEST, Shelf, report, results};
use crate::screen::{Screen, summary};
use crate::{files, team};

/// Where `demo` writes when it is not told.
const DEMO_DIR: &str = "flashflow-demo";
/// Where `demo --network` writes when it is not told.
const NETWORK_DIR: &str = "flashflow-network";
/// Where `measure` writes when it is not told.
const MEASURE_DIR: &str = "flashflow-results";

/// Carries out the command; the exit status is the measurement's.
///
/// # Errors
/// When the command cannot be carried out at all. With `--json`, that has been printed as a failed
/// measurement too.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    let prints_outcome = match &cli.command {
        Command::Demo(options) => options.common.json && !options.network,
        Command::Measure(options) => options.common.json,
        _ => false,
    };
    let result = run_command(cli);
    if let Err(error) = &result
        && prints_outcome
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

/// Carries out the command.
fn run_command(cli: &Cli) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    match &cli.command {
        Command::Demo(options) if options.network => {
            let dir = out_dir(&options.common, NETWORK_DIR)?;
            demo::network::run(&options.network_demo(), &dir)
        }
        Command::Demo(options) => runtime.block_on(run_demo(options)),
        Command::Measure(options) => runtime.block_on(run_measure(options)),
        Command::Export(options) => export::run(options),
        Command::Network(options) => runtime.block_on(network::run(options)),
        Command::Schedule(options) => schedule::run(options),
        Command::V3bw(command) => bandwidth_file::run(command),
        Command::Init(options) => service::init(options),
        Command::Run(options) => service::run(options),
        Command::Generate(options) => generate::run(options),
        Command::Status(options) => status::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Doctor(options) => runtime.block_on(doctor::run(options)),
        Command::Measurers(options) => runtime.block_on(measurers::run(options)),
    }
}

/// `demo`.
async fn run_demo(options: &Demo) -> Result<ExitCode> {
    let dir = out_dir(&options.common, DEMO_DIR)?;
    let screen = Screen::new();
    let (outcome, clients) = demo::run(options, &dir, |progress| screen.show(progress)).await?;
    drop(screen);
    finish(&options.common, &dir, &outcome, Source::Demo(clients.as_ref()))
}

/// `measure`.
async fn run_measure(options: &Measure) -> Result<ExitCode> {
    let addr = measure::resolve(&options.target).await.map_err(anyhow::Error::msg)?;
    if let Some(order) = options.transit_order(addr) {
        order.check().map_err(anyhow::Error::msg)?;
        return run_transit(options, &order).await;
    }
    let key = key::load_or_make(&options.key)?;
    let dir = out_dir(&options.common, MEASURE_DIR)?;
    let id = Base64Unpadded::encode_string(&measurer_id(&key).0);
    note(&format!("this coordinator is {id}; the relay must have it in FFAllowedCoordinators"));
    let plan = Plan {
        target: TargetAddr { addr, ed_identity: options.ed_identity },
        address_text: options.target.clone(),
        fingerprint: options.fingerprint.map(|fingerprint| fingerprint.0),
        key,
        params: team::params(&options.common),
        team: team::share_out(&options.common, options.measurers, &team::cores()),
        limit: None,
        is_local: false,
        link: link_options(options.timeout),
    };
    let screen = Screen::new();
    let outcome = measure::measure(&plan, |progress| screen.show(progress)).await;
    drop(screen);
    finish(&options.common, &dir, &outcome, Source::Measure)
}

/// `measure --transit`.
async fn run_transit(options: &Measure, order: &TransitOrder) -> Result<ExitCode> {
    let dir = out_dir(&options.common, MEASURE_DIR)?;
    let order = TransitOrder { link: link_options(options.timeout), ..order.clone() };
    let screen = Screen::new();
    let outcome =
        measure::measure_transit(&order, &options.target, |progress| screen.show(progress)).await;
    drop(screen);
    finish(&options.common, &dir, &outcome, Source::Measure)
}

/// How to open links to a relay that may take so many seconds for each.
fn link_options(timeout_secs: u16) -> LinkOptions {
    let timeout = Duration::from_secs(timeout_secs.into());
    let default = LinkOptions::default();
    LinkOptions {
        connect_timeout: default.connect_timeout.min(timeout),
        handshake_timeout: timeout,
        ..default
    }
}

/// Makes the directory for the files, before anything is measured in vain.
fn out_dir(common: &Common, default: &str) -> Result<PathBuf> {
    let dir = common.out.clone().unwrap_or_else(|| PathBuf::from(default));
    fs::create_dir_all(&dir)
        .with_context(|| format!("Failed to make the directory {}", dir.display()))?;
    Ok(dir)
}

/// Which command an outcome comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// `demo`, with its clients if it had any.
    Demo(Option<&'a ClientTraffic>),
    /// `measure`.
    Measure,
}

impl Source<'_> {
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
fn finish(common: &Common, dir: &Path, outcome: &Outcome, source: Source<'_>) -> Result<ExitCode> {
    let mut files = Vec::new();
    let written = write_files(dir, outcome, source.consensus_relays(), &mut files);
    let text = match source {
        Source::Demo(clients) if common.json => {
            let mut json = outcome.to_json(&files);
            // Without clients it is null: one command's objects have the same keys.
            json["clients"] = serde_json::to_value(clients).context("Failed to encode JSON")?;
            format!("{json}\n")
        }
        Source::Measure if common.json => format!("{}\n", outcome.to_json(&files)),
        Source::Demo(clients) => summary(outcome, clients, &files),
        Source::Measure => summary(outcome, None, &files),
    };
    if let Err(failure) = &outcome.result {
        note(&format!("ff-bwauth: {}", failure.message));
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

/// Now, in seconds since 1970.
fn now_unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
