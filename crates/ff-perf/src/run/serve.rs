//! `circuits serve`: what `circuits run` does, slowly and for months.
//!
//! ```text
//!  outside (a thread): SIGTERM, Ctrl-C ──────────────┐     ┌──▶ /metrics
//!                                                    ▼     │
//!  with_client ─▶ Life: a network after the other ─▶ Serving: gate, lines ─▶ store::shelf
//!     ▲              │ course::Course::run            └─▶ figures::Figures
//!     └─ client lost ┘
//! ```
//!
//! What fails is counted and tried again at the same rate: circuits, a network whose documents cannot be read, a client
//! that is gone, a disk that is full. Only a signal ends it.

mod keeper;
mod orders;
mod outside;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ff_bwauth::network::text::read_file;

use super::client::{Chosen, Job, say, with_client};
use super::measure::{self, Ready};
use crate::cli::measure::ClientKind;
use crate::cli::serve::ServeArgs;
use crate::client::Client;
use crate::course::{Ended, State};
use crate::figures::{Figures, OptionalFigures};
use crate::network::Network;
use crate::path::Plan;
use crate::paths::{Choice, file};
use crate::schedule::Limits;
use crate::signals::Signals;
use crate::store::Options;
use crate::store::shelf::{Shelf, now};
use keeper::Serving;
use orders::Orders;

/// How many new circuits a second there may be on the Internet: six a minute.
const PUBLIC_RATE: f64 = 0.1;
/// The longest file of paths that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;
/// Failures do not end it: no share of them is more than all.
const ALL_MAY_FAIL: f64 = 1.0;

/// Builds circuits and measures them until a signal.
///
/// # Errors
/// When it cannot begin: something cannot be read, a folder or an address is not to be had. At the end, when lines could
/// not be written.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode> {
    check_address(args)?;
    let ready = Ready::new(&args.measuring, args.rate, PUBLIC_RATE)?;
    plan(args, &ready.network, &ready.choice, ready.given.clone())?;
    let listener = args.keeping.metrics.map(listen).transpose()?;
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let (shelf, next) =
        Shelf::open(&args.keeping.dir, &options(args, &ready), args.keeping.rule())?;
    let mut notes = shelf.notes().to_vec();
    let (measuring, began) = (&args.measuring, Instant::now());
    let open = |terms| Orders::open(&args.keeping.dir, terms, measuring.seed, now(began));
    let orders = args.terms.as_ref().map(open).transpose()?;
    notes.extend(orders.iter().flat_map(|orders| orders.notes(1.0 / args.rate)));
    let optional = OptionalFigures {
        ttfb: measuring.ttfb > 0,
        downloads: measuring.download > 0,
        data: args.terms.as_ref().is_some_and(|terms| terms.data_bytes.is_some()),
        disk: args.keeping.disk.is_some(),
    };
    let (figures, registry) = Figures::new(optional);
    let signals = outside::start(listener, registry, args.keeping.metrics_host.clone())?;
    figures.documents(ready.network.valid_after_unix_secs);
    let mut serving = Serving::new(args, &ready.dir, (shelf, next), figures, signals);
    serving.set_orders(orders, began);
    say(&beginning(args, address));
    notes.iter().for_each(|note| say(note));
    let limits = measure::limits(&args.measuring, args.rate, ALL_MAY_FAIL);
    live(args, limits, ready, &mut serving)?;
    serving.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Options that two starts have in common.
fn options(args: &ServeArgs, ready: &Ready) -> Options {
    let mix = args.terms.as_ref().map(|terms| &terms.mix).filter(|mix| mix.sizes().len() > 1);
    let options = measure::options(&args.measuring, ready, args.rate);
    Options { download_mix: mix.map(ToString::to_string), ..options }
}

/// A client after the other, until a signal.
fn live(args: &ServeArgs, limits: Limits, mut ready: Ready, serving: &mut Serving) -> Result<()> {
    let mut state = State::new(limits, Box::new(std::iter::empty()));
    let pause = Duration::try_from_secs_f64(1.0 / args.rate).unwrap_or(Duration::MAX);
    let mut is_first = true;
    loop {
        let (dir, network) = (ready.dir.clone(), ready.network.clone());
        let life = Life { args, limits, ready: &mut ready, state: &mut state, serving };
        let (kind, own) = (args.measuring.client, args.measuring.own_paths.as_ref());
        match with_client(Chosen { kind, own, dir: &dir, network: &network }, life) {
            Ok(Why::Signal) => return Ok(()),
            Ok(Why::Parameters) => {
                is_first = false;
                continue;
            }
            Ok(Why::ClientLost) => {}
            // What was wrong from the beginning is for whoever has started it.
            Err(error) if is_first => return Err(error),
            Err(error) => serving.no_client(&format!("{error:#}; trying again"), state.began()),
        }
        is_first = false;
        if serving.pause(pause)? {
            return Ok(());
        }
    }
}

/// A client's life: networks, one after the other.
struct Life<'a> {
    /// The options.
    args: &'a ServeArgs,
    /// What it may do.
    limits: Limits,
    /// What is measured, renewed when it changes.
    ready: &'a mut Ready,
    /// How far it has come.
    state: &'a mut State,
    /// Who keeps circuits.
    serving: &'a mut Serving,
}

/// Why a client's life has ended.
enum Why {
    /// Somebody wished that all ends.
    Signal,
    /// The network has other parameters, which the client knows from its beginning only.
    Parameters,
    /// It does not work any more.
    ClientLost,
}

impl Job for Life<'_> {
    type Done = Why;

    async fn run<C: Client>(self, client: C, _: Signals) -> Result<Why> {
        let Self { args, limits, ready, state, serving } = self;
        let (measuring, client) = (&args.measuring, Arc::new(client));
        serving.has_client();
        loop {
            let (target, given) = (ready.target.clone(), ready.given.clone());
            let plan = plan(args, &ready.network, &ready.choice, given)?;
            let plan = plan.beginning_with(serving.next_number());
            let client = Arc::clone(&client);
            let course = measure::course(measuring, limits, client, &ready.network, target);
            state.scheduler.renew(course.tasks(plan));
            match course.run(state, serving).await {
                Ok(()) => {}
                Err(Ended::Signal) => return Ok(Why::Signal),
                Err(error) => return Err(error.into()),
            }
            if serving.is_ending() {
                return Ok(Why::Signal);
            }
            if serving.is_client_lost() {
                return Ok(Why::ClientLost);
            }
            // Also where no circuit has begun: signals are heard here, and documents not read again at once.
            serving.breathe().await;
            let before = ready.network.params.clone();
            let read = renew(args, ready).map(|()| ready.network.valid_after_unix_secs);
            serving.looked(read.map_err(|error| format!("{error:#}")));
            // A client that chooses its paths itself follows its own consensus.
            let is_given_paths = measuring.own_paths.is_none();
            if measuring.client == ClientKind::Arti
                && is_given_paths
                && ready.network.params != before
            {
                return Ok(Why::Parameters);
            }
        }
    }
}

/// Reads the network again. If that fails, the old one stays.
fn renew(args: &ServeArgs, ready: &mut Ready) -> Result<()> {
    let measuring = &args.measuring;
    let network = measure::read_network(measuring, &ready.dir, args.rate, PUBLIC_RATE)?;
    let given = match &measuring.path_file {
        Some(file) => {
            let text = read_file(file, MOST_BYTES).with_context(|| file.display().to_string())?;
            Some(usable(&text, &network).with_context(|| file.display().to_string())?)
        }
        None => measuring.own_paths.as_ref().map(|_| measure::no_paths()),
    };
    plan(args, &network, &ready.choice, given.clone())?;
    (ready.network, ready.given) = (network, given);
    Ok(())
}

/// The paths that can be used still: relays come and go.
fn usable(text: &str, network: &Network) -> Result<Vec<Vec<usize>>> {
    let find = |id: &str| network.find(id);
    let paths = text.lines().filter_map(|line| file::find("", line, find).ok());
    let paths: Vec<_> = paths.flatten().collect();
    if paths.is_empty() {
        bail!("the network has no relays any more for any of its paths");
    }
    Ok(paths)
}

/// The circuits, without an end.
fn plan(
    args: &ServeArgs,
    network: &Network,
    choice: &Choice,
    given: Option<Vec<Vec<usize>>>,
) -> Result<Plan> {
    measure::plan(&args.measuring, network, choice, given, u64::MAX, Default::default())
}

/// Refuses an address that others reach, unless their name is given.
fn check_address(args: &ServeArgs) -> Result<()> {
    let Some(address) = args.keeping.metrics.filter(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    if args.keeping.metrics_host.is_empty() {
        bail!(
            "--metrics {address}: whoever reaches it may read the figures; give it an address of loopback, as 127.0.0.1, \
             and reach it through a tunnel, or give --metrics-host if you mean it"
        );
    }
    Ok(())
}

/// Listens for Prometheus.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address);
    let listener = bound.with_context(|| format!("Failed to listen at {address} (--metrics)"))?;
    listener.set_nonblocking(true).context("Failed to set up the listener of --metrics")?;
    Ok(listener)
}

/// What is said at the beginning.
fn beginning(args: &ServeArgs, address: Option<SocketAddr>) -> String {
    let figures =
        address.map_or_else(String::new, |at| format!(", figures at http://{at}/metrics"));
    let (dir, per_hour) =
        (args.keeping.dir.display(), (args.rate * 3600.0 * 100.0).round() / 100.0);
    format!("at most {per_hour} circuits an hour, lines in {dir}{figures}")
}
