//! Carries out commands: measures, writes files, prints results, and chooses the exit status.

mod bandwidth_file;
mod check;
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

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use base64ct::{Base64Unpadded, Encoding};
use ff_coordinator::deliver::{OutcomeSource, finish, or_failed_json, out_dir};
use ff_coordinator::measure::{self, MeasurePlan};
use ff_coordinator::screen::Screen;
use ff_coordinator::team;
use ff_measurer::console::note;
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_measurer::transit::TransitOrder;
use ff_measurer::{dial, key, measurer_id};
use ff_plan::period::links::KnownPath;

use crate::cli::{Cli, Command, Measure};
use crate::demo;

/// The default output directory of `measure`.
const MEASURE_DIR: &str = "flashflow-results";

/// Carries out the command; the exit status is the measurement's.
///
/// # Errors
/// When the command fails as a whole. With `--json`, a failed measurement has then been printed
/// too.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    let prints_outcome = match &cli.command {
        Command::Measure(options) => options.common.json,
        _ => false,
    };
    or_failed_json(prints_outcome, run_command(cli))
}

/// Carries out the command.
fn run_command(cli: &Cli) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    match &cli.command {
        Command::Demo(options) => demo::run(options),
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

/// `measure`.
async fn run_measure(options: &Measure) -> Result<ExitCode> {
    let link = link_options(options.timeout);
    let addr = target(options, link.connect_timeout).await?;
    if let Some(order) = options.transit_order(addr) {
        return run_transit(options, &TransitOrder { link, ..order }).await;
    }
    let key = key::load_or_make(&options.key)?;
    let dir = out_dir(&options.common, MEASURE_DIR)?;
    let id = Base64Unpadded::encode_string(&measurer_id(&key).0);
    note(&format!("this coordinator is {id}; the relay must have it in FFAllowedCoordinators"));
    let params = team::params(&options.common, &KnownPath::default());
    let target = TargetAddr { addr, ed_identity: options.ed_identity };
    let team = team::share_out(&options.common, params.sockets, options.measurers, &team::cores());
    let plan = MeasurePlan {
        address_text: options.target.clone(),
        fingerprint: options.fingerprint.map(|fingerprint| fingerprint.0),
        expected: team::expected(&options.common),
        link,
        ..MeasurePlan::new(target, key, params, team)
    };
    let screen = Screen::new();
    let outcome = measure::measure(&plan, |progress| screen.show(progress)).await;
    drop(screen);
    finish(&options.common, &dir, &outcome, OutcomeSource::Measure)
}

/// The relay's address; of several, the first that accepts a connection.
async fn target(options: &Measure, connect_timeout: Duration) -> Result<SocketAddr> {
    let addresses = dial::lookup(&options.target).await?;
    // Checked before anything is sent.
    for order in addresses.iter().filter_map(|&addr| options.transit_order(addr)) {
        order.check().map_err(anyhow::Error::msg)?;
    }
    let addr = dial::reachable(&addresses, connect_timeout).await;
    addr.with_context(|| format!("{} has no address", options.target))
}

/// `measure --transit`.
async fn run_transit(options: &Measure, order: &TransitOrder) -> Result<ExitCode> {
    let dir = out_dir(&options.common, MEASURE_DIR)?;
    let screen = Screen::new();
    let outcome =
        measure::measure_transit(order, &options.target, |progress| screen.show(progress)).await;
    drop(screen);
    finish(&options.common, &dir, &outcome, OutcomeSource::Measure)
}

/// Options for links to a relay, each of which may take this many seconds to open.
fn link_options(timeout_secs: u16) -> LinkOptions {
    let timeout = Duration::from_secs(timeout_secs.into());
    let default = LinkOptions::default();
    LinkOptions {
        connect_timeout: default.connect_timeout.min(timeout),
        handshake_timeout: timeout,
        ..default
    }
}
