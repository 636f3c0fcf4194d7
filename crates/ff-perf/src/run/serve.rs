//! The command `circuits serve`: like `circuits run`, but slow and for months.
//!
//! ```text
//!  outside (a thread): SIGTERM, Ctrl-C ──────────────┐     ┌──▶ /metrics
//!                                                    ▼     │
//!  with_client ─▶ Life: a network after the other ─▶ Serving: gate, lines ─▶ store::shelf
//!     ▲              │ course::Course::run            └─▶ figures::Figures
//!     └─ client lost ┘
//! ```
//!
//! Failures are counted and retried at the same rate: circuits, unreadable documents of the
//! network, a client that ended, a full disk. Only a signal ends it.

mod keeper;
mod orders;
mod outside;
mod waiting;
mod ways;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ff_circuits::network::{self, NetworkError};
use ff_report::input::Inputs;

use super::arms;
use super::client::{Chosen, Job, Stopped, say, with_client};
use super::measure;
use crate::arms::turn;
use crate::cli::measure::{ClientKind, Measuring};
use crate::cli::serve::{ServeArgs, Terms};
use crate::client::Client;
use crate::clocks::{Now, now};
use crate::course::{Ended, State};
use crate::figures::{Figures, OptionalFigures};
use crate::schedule::{ScheduleLimits, Task};
use crate::signals::Signals;
use crate::store::CircuitRunOptions;
use crate::store::shelf::Shelf;
use keeper::Serving;
use orders::Orders;
use ways::{Way, Ways, has_lines, plan};

/// No share of failures ends it.
const ALL_MAY_FAIL: f64 = 1.0;

/// Builds circuits and measures them until a signal.
///
/// # Errors
/// If it cannot start, because an input cannot be read or a folder or address is unavailable. At
/// the end, if lines could not be written.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode> {
    check_address(args)?;
    let began = Instant::now();
    let ways = first_look(args)?;
    let listener = args.keeping.metrics.map(listen).transpose()?;
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let (shelf, next) = shelf(args, ways.as_ref().ok(), now(began))?;
    let mut notes = shelf.notes().to_vec();
    let open =
        |terms| Orders::open(&args.keeping.dir, terms, args.measuring.drawing.seed, now(began));
    let orders = args.terms.as_ref().map(open).transpose()?;
    notes.extend(orders.iter().flat_map(|orders| orders.notes(1.0 / args.rate)));
    let (figures, registry) = Figures::new(optional_figures(args));
    let signals = outside::start(listener, registry, args.keeping.metrics_host.clone())?;
    if let Ok(ways) = &ways {
        figures.documents(ways.valid_after_unix_secs()?);
    }
    let dir = network::directory(&args.measuring.network);
    let mut serving = Serving::new(args, &dir, (shelf, next), figures, signals);
    serving.set_orders(orders, Box::new(move || now(began)));
    say(&beginning(args, address));
    notes.iter().for_each(|note| say(note));
    let ran = measure_until_signal(args, ways, &mut serving, began);
    end(ran, serving)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures until a signal. First waits for the network if it could not be read.
fn measure_until_signal(
    args: &ServeArgs,
    ways: Result<Ways>,
    serving: &mut Serving,
    began: Instant,
) -> Result<()> {
    let ways = match ways {
        Ok(ways) => Some(ways),
        Err(error) => wait_for_network(args, error, serving, began)?,
    };
    let Some(ways) = ways else { return Ok(()) };
    let limits = measure::limits(&args.measuring, args.rate, ALL_MAY_FAIL);
    live(args, limits, ways.all, serving, began)
}

/// Writes waiting lines, also after an error, which is then returned.
fn end(ran: Result<()>, serving: Serving) -> Result<()> {
    let finished = serving.finish();
    let Err(error) = ran else { return finished };
    if let Err(lost) = finished {
        say(&format!("{lost:#}"));
    }
    Err(error)
}

/// Reads the network and checks that each arm has paths.
fn look(args: &ServeArgs) -> Result<Ways> {
    let ways = Ways::read(args)?;
    for Way { args, ready, .. } in &ways.all {
        plan(args, &ready.network, &ready.choice, ready.given.clone())?;
    }
    Ok(ways)
}

/// Reads the network at the start. If downloads have lines already, it is waited for while its
/// documents cannot be read: that is the inner error.
///
/// # Errors
/// In all other cases: the user who starts the program can correct the cause.
fn first_look(args: &ServeArgs) -> Result<Result<Ways>> {
    match look(args) {
        Ok(ways) => Ok(Ok(ways)),
        Err(error) if error.is::<NetworkError>() && has_lines(args) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// Waits until the network can be read; each slot gets a line meanwhile. `None` after a signal.
fn wait_for_network(
    args: &ServeArgs,
    mut error: anyhow::Error,
    serving: &mut Serving,
    began: Instant,
) -> Result<Option<Ways>> {
    let read = |file| arms::read(file, &args.measuring, &mut Inputs::default());
    let arms = args.arms.as_deref().map(read).transpose()?.unwrap_or_default();
    loop {
        if !arms.is_empty() {
            let arm = &arms[turn(arms.len(), serving.next_number(), args.measuring.drawing.seed)];
            serving.set_arm(arm.client.into(), arm.as_client, Some(arm.name.clone()));
        }
        serving.no_client(&format!("{error:#}; trying again"), began);
        if serving.pause(slot(args))? {
            return Ok(None);
        }
        match look(args) {
            Ok(ways) => {
                serving.check(&options(args, &ways)?)?.iter().for_each(|note| say(note));
                serving.looked(Ok(ways.valid_after_unix_secs()?));
                return Ok(Some(ways));
            }
            Err(again) if again.is::<NetworkError>() => error = again,
            Err(other) => return Err(other),
        }
    }
}

/// The folder of lines, and the number of the next circuit. If the network is unknown, its options
/// are compared later.
fn shelf(args: &ServeArgs, ways: Option<&Ways>, now: Now) -> Result<(Shelf, u64)> {
    let (dir, rule) = (&args.keeping.dir, args.keeping.rule());
    let (mut shelf, next) = match ways {
        Some(ways) => Shelf::open(dir, &options(args, ways)?, rule)?,
        None => Shelf::reopen(dir, rule)?,
    };
    if let Some(Terms { host, address, .. }) = &args.terms {
        shelf.keep_days(host, address.clone(), next, now)?;
    }
    Ok((shelf, next))
}

/// Metrics that depend on the options.
fn optional_figures(args: &ServeArgs) -> OptionalFigures {
    OptionalFigures {
        ttfb: args.measuring.ttfb > 0,
        downloads: args.measuring.download > 0,
        data: args.terms.as_ref().is_some_and(|terms| terms.data_bytes.is_some()),
        disk: args.keeping.disk.is_some(),
    }
}

/// Time from the start of one circuit to the start of the next.
fn slot(args: &ServeArgs) -> Duration {
    Duration::try_from_secs_f64(1.0 / args.rate).unwrap_or(Duration::MAX)
}

/// Options that all starts of a run must share.
///
/// # Errors
/// If there are no arms.
fn options(args: &ServeArgs, ways: &Ways) -> Result<CircuitRunOptions> {
    let mix = args.terms.as_ref().map(|terms| &terms.mix).filter(|mix| mix.sizes().len() > 1);
    let options = measure::options(&args.measuring, ways.first()?, args.rate);
    let arms_sha256 = ways.arms_sha256.clone();
    Ok(CircuitRunOptions { download_mix: mix.map(ToString::to_string), arms_sha256, ..options })
}

/// Runs one client after another until a signal, in a run that began at `began`.
fn live(
    args: &ServeArgs,
    limits: ScheduleLimits,
    mut ways: Vec<Way>,
    serving: &mut Serving,
    began: Instant,
) -> Result<()> {
    let mut state = State::begun_at(limits, Box::new(std::iter::empty()), began);
    // If downloads have lines already, each further slot gets one too.
    let mut is_first = args.terms.is_none() || serving.next_number() == 0;
    loop {
        let arms = ways.len();
        let way = &mut ways[turn(arms, serving.next_number(), args.measuring.drawing.seed)];
        let &Measuring { client: kind, as_client, .. } = &way.args.measuring;
        serving.set_arm(kind.into(), as_client, way.name.clone());
        way.keep_up(serving.looks());
        let (dir, network) = (way.ready.dir.clone(), way.ready.network.clone());
        let (torrc, folder) = (way.torrc.clone(), way.args.measuring.state.clone());
        let (folder, torrc) = (folder.as_deref(), torrc.as_slice());
        let chosen = Chosen { kind, as_client, state: folder, torrc, dir: &dir, network: &network };
        let life = Life { way, arms: arms as u64, limits, state: &mut state, serving };
        match with_client(chosen, life) {
            Ok(Why::Signal) => return Ok(()),
            Ok(Why::Parameters | Why::Turn) => {
                is_first = false;
                continue;
            }
            Ok(Why::ClientLost) => {}
            // The pause below notices the signal too.
            Err(error) if error.is::<Stopped>() => {}
            // The user who starts the program can correct errors at its start.
            Err(error) if is_first => return Err(error),
            Err(error) => serving.no_client(&format!("{error:#}; trying again"), state.began()),
        }
        is_first = false;
        if serving.pause(slot(args))? {
            return Ok(());
        }
    }
}

/// Life of a client: measures one network after another.
struct Life<'a> {
    /// The arm.
    way: &'a mut Way,
    /// Number of arms.
    arms: u64,
    /// Limits of the schedule.
    limits: ScheduleLimits,
    /// Progress of the run.
    state: &'a mut State,
    /// Stores the circuits.
    serving: &'a mut Serving,
}

/// Why a client's life ended.
enum Why {
    /// A signal was received.
    Signal,
    /// The network has other parameters, which the client reads only at its start.
    Parameters,
    /// The next arm's turn.
    Turn,
    /// The client has stopped working.
    ClientLost,
}

impl Job for Life<'_> {
    type Done = Why;

    async fn meanwhile(&mut self) -> Why {
        let (time, began) = (slot(&self.way.args), self.state.began());
        let is_ended = self.serving.await_client(time, self.arms, began).await;
        if is_ended { Why::Signal } else { Why::Turn }
    }

    async fn run<C: Client>(self, client: C, _: Signals) -> Result<Why> {
        let Self { way, arms, limits, state, serving } = self;
        let client = Arc::new(client);
        serving.has_client();
        loop {
            let Way { args, ready, .. } = &*way;
            let (target, given) = (ready.target.clone(), ready.given.clone());
            let plan = plan(args, &ready.network, &ready.choice, given)?;
            let number = serving.next_number();
            let plan = plan.beginning_with(number / arms);
            let client = Arc::clone(&client);
            let course = measure::course(&args.measuring, limits, client, &ready.network, target);
            // With several arms, each has one circuit per turn.
            let tasks = match arms {
                1 => course.tasks(plan),
                _ => course.tasks(plan.take(1).map(move |task| Task { number, ..task })),
            };
            state.scheduler.renew(tasks);
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
            if arms > 1 && serving.next_number() != number {
                return Ok(Why::Turn);
            }
            // Even if no circuit has begun: signals are noticed here, and documents are not read
            // again at once.
            serving.breathe().await;
            let before = way.ready.network.params.clone();
            let read = way.renew().map(|()| way.ready.network.valid_after_unix_secs);
            serving.looked(read.map_err(|error| format!("{error:#}")));
            way.looks = serving.looks();
            // A client with its own paths follows its own consensus.
            let &Measuring { client, as_client, .. } = &way.args.measuring;
            let is_told = client == ClientKind::Arti && !as_client;
            if is_told && way.ready.network.params != before {
                return Ok(Why::Parameters);
            }
        }
    }
}

/// Refuses an address that other hosts can reach, unless their name is given.
fn check_address(args: &ServeArgs) -> Result<()> {
    let Some(address) = args.keeping.metrics.filter(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    if args.keeping.metrics_host.is_empty() {
        bail!(
            "--metrics {address}: everybody who can reach it may read the metrics; use an address of loopback, such as \
             127.0.0.1, and a tunnel, or allow this with --metrics-host"
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

fn beginning(args: &ServeArgs, address: Option<SocketAddr>) -> String {
    let figures =
        address.map_or_else(String::new, |at| format!(", metrics at http://{at}/metrics"));
    let (dir, per_hour) =
        (args.keeping.dir.display(), (args.rate * 3600.0 * 100.0).round() / 100.0);
    format!("at most {per_hour} circuits an hour, lines in {dir}{figures}")
}
