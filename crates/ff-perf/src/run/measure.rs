//! The command `circuits run`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use ff_circuits::network::{self, CircuitNetwork};
use ff_circuits::paths::{Choice, file};
use ff_lab::SourceServer;
use ff_report::input::Inputs;
use ff_report::teller::Teller;

use super::client::{Chosen, Job, check_internet, with_client};
use crate::cli::measure::{ClientKind, MeasureArgs, Measuring, Recording};
use crate::client::Client;
use crate::course::{Course, Ended, RunCounts, State, ToFile};
use crate::path::PathPlan;
use crate::probe::Program;
use crate::schedule::{PER_GUARD, ScheduleLimits};
use crate::signals::Signals;
use crate::store::{CircuitRunOptions, Opened, Pace, Setting, Store};
use crate::target::StreamTarget;

/// Default rate of new circuits per second: in private networks, and on the Internet.
const RATES: [f64; 2] = [100.0, 1.0];
/// Highest rate of new circuits per second on the Internet.
const PUBLIC_RATE: f64 = 10.0;
/// The same for downloads over the client's own paths: all begin at the same few guards, and one
/// from an onion service takes about four circuits.
const PUBLIC_OWN_RATE: f64 = 0.5;
/// Most circuits at once on the Internet.
const PUBLIC_IN_FLIGHT: u64 = 50;
/// Shortest interval of repeated first bytes on the Internet, in seconds.
const PUBLIC_TTFB_EVERY: f64 = 1.0;
/// Largest accepted share of failed circuits on the Internet; beyond it a run stops.
const PUBLIC_FAILURES: f64 = 0.5;

/// Builds circuits and measures them.
///
/// # Errors
/// If something cannot be read or written, or too many circuits fail.
pub(super) fn run(args: &MeasureArgs) -> Result<ExitCode> {
    let measuring = &args.measuring;
    let ready = ready(args, measuring)?;
    let (dir, network) = (ready.dir.clone(), ready.network.clone());
    let &Measuring { client: kind, as_client, ref state, .. } = measuring;
    let state = state.as_deref();
    let chosen = Chosen { kind, as_client, state, torrc: &[], dir: &dir, network: &network };
    let came = with_client(chosen, Run { args, ready })?;
    super::output::show(&summary(&args.recording, &came.counts))?;
    came.judged().map(|()| ExitCode::SUCCESS)
}

/// Prepares the measurement of a run with these options.
///
/// # Errors
/// If an input cannot be read or is not allowed.
pub(super) fn ready(args: &MeasureArgs, measuring: &Measuring) -> Result<Ready> {
    let ready = Ready::new(measuring, args.rate.unwrap_or(0.0), PUBLIC_RATE)?;
    if ready.network.is_public() && args.recording.failures > PUBLIC_FAILURES {
        bail!("--failures: on the Internet at most {PUBLIC_FAILURES} (ETHICS.md)");
    }
    Ok(ready)
}

/// Result of a run.
pub(super) struct Came {
    /// Counts of its circuits.
    pub(super) counts: RunCounts,
    /// Number of circuits requested.
    pub(super) wanted: u64,
    /// Why it ended early, if it did.
    pub(super) ended: Result<(), Ended>,
}

impl Came {
    /// Whether the run is complete.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn judged(self) -> Result<()> {
        let Self { counts, wanted, ended } = self;
        ended?;
        if counts.all > 0 && counts.failed == counts.all {
            bail!("all {} circuits failed; the last one: {}", counts.all, counts.last_failure);
        }
        if counts.all < wanted {
            bail!(
                "{} circuits instead of {wanted}: these rules leave too few valid paths; --resume draws the same paths",
                counts.all
            );
        }
        Ok(())
    }
}

/// Inputs of a measurement, read and checked before anything is written.
pub(super) struct Ready {
    /// Directory of the network.
    pub(super) dir: PathBuf,
    pub(super) network: CircuitNetwork,
    /// Rules for drawing paths, without a file of paths.
    pub(super) choice: Choice,
    /// Paths of the file, if given.
    pub(super) given: Option<Vec<Vec<usize>>>,
    /// SHA-256 of that file, hexadecimal.
    pub(super) paths_sha256: Option<String>,
    /// Target of streams.
    pub(super) target: Option<StreamTarget>,
    /// The default target.
    _source: Option<SourceServer>,
}

impl Ready {
    /// Reads the inputs for `per_sec` circuits per second, which are limited on the Internet.
    ///
    /// # Errors
    /// If an input cannot be read or is not allowed.
    pub(super) fn new(args: &Measuring, per_sec: f64, most_per_sec: f64) -> Result<Self> {
        let dir = network::directory(&args.network);
        let network = read_network(args, &dir, per_sec, most_per_sec)?;
        if args.client == ClientKind::Tor && args.resolve > 0 {
            bail!(
                "--resolve: tor resolves a literal address itself and asks no exit; use --client arti"
            );
        }
        args.latency().map_err(|reason| anyhow!("--ttfb-every: {reason}"))?;
        check_own_paths(args)?;
        let (given, paths_sha256) =
            if args.as_client { (Some(no_paths()), None) } else { paths(args, &network)?.unzip() };
        let source = source(args, &network)?;
        let target = args.target.clone().or_else(|| source.as_ref().map(StreamTarget::of_source));
        let port = target.as_ref().map(|target| target.port);
        let choice = args.drawing.rules.choice(!network.is_public(), port);
        if given.is_none() {
            super::paths::say_unknown(&network.consensus, &network.pool, &choice);
        }
        Ok(Self { dir, network, choice, given, paths_sha256, target, _source: source })
    }
}

/// Empty paths, for clients that choose their own.
pub(super) fn no_paths() -> Vec<Vec<usize>> {
    vec![Vec::new()]
}

/// Refuses options on paths for clients that choose their own, and onion services for others.
fn check_own_paths(args: &Measuring) -> Result<()> {
    let is_onion = args.target.as_ref().is_some_and(StreamTarget::is_onion);
    if !args.as_client {
        if is_onion {
            bail!(
                "an onion service is reached over circuits that the client chooses itself: use `downloads run --as-client`"
            );
        }
        return Ok(());
    }
    if args.state.is_some() && args.client == ClientKind::Tor {
        bail!("--state is for --client arti; the tor in --network keeps its own state");
    }
    if args.path_file.is_some() {
        bail!("--as-client: the client chooses its paths itself; leave out --path-file");
    }
    if args.drawing.rules.is_given() {
        bail!(
            "--as-client: the client chooses its paths itself; leave out --select, --lengths, --guards, --subnets and --port"
        );
    }
    Ok(())
}

/// Reads the current network, and refuses it if these options are not allowed there.
pub(super) fn read_network(
    args: &Measuring,
    dir: &Path,
    per_sec: f64,
    most_per_sec: f64,
) -> Result<CircuitNetwork> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let network = CircuitNetwork::read(dir, now)?;
    check_public(args, &network)?;
    let most_own = if args.as_client { PUBLIC_OWN_RATE } else { f64::INFINITY };
    let most_per_sec = most_per_sec.min(most_own);
    if network.is_public() && per_sec > most_per_sec {
        bail!("--rate: on the Internet at most {most_per_sec} a second (ETHICS.md)");
    }
    Ok(network)
}

struct Run<'a> {
    args: &'a MeasureArgs,
    ready: Ready,
}

impl Job for Run<'_> {
    type Done = Came;

    /// Measures. Creates the folder only once everything else is ready.
    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Came> {
        let Self { args, ready } = self;
        let MeasureArgs { measuring, recording, .. } = args;
        let network = &ready.network;
        if ready.given.is_none() {
            plan(measuring, network, &ready.choice, None, args.count, HashSet::new())?;
        }
        let per_sec = args.rate.unwrap_or(RATES[usize::from(network.is_public())]);
        let options = options(measuring, &ready, per_sec);
        let Opened { mut store, done, note } =
            Store::open(&recording.out, &options, recording.resume)?;
        let wanted = args.count.saturating_sub(done.len() as u64);
        note.iter().for_each(|note| super::client::say(note));
        let plan = plan(measuring, network, &ready.choice, ready.given, args.count, done)?;
        let limits = limits(measuring, per_sec, recording.failures);
        let course = course(measuring, limits, Arc::new(client), network, ready.target);
        let mut state = State::new(limits, course.tasks(plan));
        let teller = if recording.json { Teller::default() } else { Teller::of_terminal() };
        let counts = RunCounts::default();
        let mut keeper = ToFile { store: &mut store, counts, signals, is_over: false, teller };
        let ended = course.run(&mut state, &mut keeper).await;
        let counts = keeper.counts;
        store.finish()?;
        Ok(Came { counts, wanted, ended })
    }
}

/// Refuses relays on the Internet without --public, and too high limits there.
fn check_public(args: &Measuring, network: &CircuitNetwork) -> Result<()> {
    if !check_internet(&args.network, network, args.public)? {
        return Ok(());
    }
    if args.share_downloads {
        bail!("--share-relays: not on the Internet (ETHICS.md)");
    }
    if args.per_guard > PER_GUARD {
        bail!("--per-guard {}: on the Internet at most {PER_GUARD} (ETHICS.md)", args.per_guard);
    }
    if args.in_flight > PUBLIC_IN_FLIGHT {
        bail!(
            "--in-flight {}: on the Internet at most {PUBLIC_IN_FLIGHT} (ETHICS.md)",
            args.in_flight
        );
    }
    if args.ttfb_for.is_some() && args.ttfb_every < PUBLIC_TTFB_EVERY {
        bail!("--ttfb-every: on the Internet at least {PUBLIC_TTFB_EVERY} s (ETHICS.md)");
    }
    if args.share_builds {
        bail!("--share-builds: not on the Internet (ETHICS.md)");
    }
    Ok(())
}

/// Paths of the file, if given, and its SHA-256.
fn paths(args: &Measuring, network: &CircuitNetwork) -> Result<Option<(Vec<Vec<usize>>, String)>> {
    let Some(path) = &args.path_file else { return Ok(None) };
    let mut inputs = Inputs::default();
    let text = String::from_utf8(inputs.read(path)?).with_context(|| path.display().to_string())?;
    let paths = file::find(&path.display().to_string(), &text, |id| network.find(id))?;
    Ok(inputs.all().first().map(|file| (paths, file.sha256.clone())))
}

/// Starts the default target, if streams need one.
fn source(args: &Measuring, network: &CircuitNetwork) -> Result<Option<SourceServer>> {
    if args.target.is_some() || !args.has_streams() {
        return Ok(None);
    }
    if network.is_public() {
        bail!(
            "--ttfb, --ttfb-for and --download need a --target on the Internet, a server of your own"
        );
    }
    Ok(Some(SourceServer::start()?))
}

/// Options that both parts of a continued run must share.
pub(super) fn options(args: &Measuring, ready: &Ready, per_sec: f64) -> CircuitRunOptions {
    let setting = Setting {
        network: fs::canonicalize(&ready.dir).unwrap_or_else(|_| ready.dir.clone()),
        paths_sha256: ready.paths_sha256.clone(),
        target: args.target.as_ref().map(StreamTarget::to_string),
        resolve: args.resolve,
        build_secs: args.build_time,
        trip_secs: args.trip_time,
        share_builds: args.share_builds,
        share_probes: args.share_probes,
        as_client: args.as_client,
    };
    let (in_flight, per_guard_per_sec) = (args.in_flight, args.per_guard);
    CircuitRunOptions {
        client: args.client.into(),
        seed: args.drawing.seed,
        path_file: args.path_file.clone(),
        rules: (args.path_file.is_none() && !args.as_client).then(|| args.drawing.rules.words()),
        arms_sha256: Vec::new(),
        rtt: args.rtt,
        rtt_pause_ms: args.rtt_pause,
        ttfb: args.ttfb,
        latency: args.latency().unwrap_or_default(),
        download_bytes: args.download,
        download_share: args.download_share,
        download_mix: None,
        download_secs: Some(args.download_time),
        setting: Some(setting),
        pace: Some(Pace { in_flight, per_sec, per_guard_per_sec }),
    }
}

/// The circuits to measure.
pub(super) fn plan(
    args: &Measuring,
    network: &CircuitNetwork,
    choice: &Choice,
    given: Option<Vec<Vec<usize>>>,
    count: u64,
    done: HashSet<u64>,
) -> Result<PathPlan> {
    let is_done = Box::new(move |number| done.contains(&number));
    match given {
        Some(paths) => Ok(PathPlan::given(paths, count, is_done)),
        None => PathPlan::drawn(network, choice, args.drawing.seed, count, is_done)
            .with_context(|| network.consensus.display().to_string()),
    }
}

/// Limits: new circuits per second, and the share of failures.
pub(super) fn limits(args: &Measuring, per_sec: f64, failures: f64) -> ScheduleLimits {
    ScheduleLimits {
        in_flight: usize::try_from(args.in_flight).unwrap_or(usize::MAX),
        per_guard_per_sec: args.per_guard,
        per_sec,
        builds_share: args.share_builds,
        probes_share: args.share_probes,
        downloads_share: args.share_downloads,
        failures,
    }
}

pub(super) fn course<C: Client>(
    args: &Measuring,
    limits: ScheduleLimits,
    client: Arc<C>,
    network: &CircuitNetwork,
    target: Option<StreamTarget>,
) -> Course<C> {
    let program = Program {
        rtt: args.rtt,
        resolve: args.resolve,
        rtt_pause: Duration::from_millis(args.rtt_pause),
        ttfb: args.ttfb,
        latency: args.latency().unwrap_or_default(),
        download_bytes: args.download,
        target,
        build_time: Duration::from_secs(args.build_time),
        trip_time: Duration::from_secs(args.trip_time),
        download_time: Duration::from_secs(args.download_time),
    };
    Course {
        client,
        relays: network.relays.iter().cloned().map(Arc::new).collect(),
        program: Arc::new(program),
        download_share: args.download_share,
        limits,
    }
}

/// Summary of a run, complete or not.
pub(super) fn summary(recording: &Recording, counts: &RunCounts) -> String {
    let (built, failed) = (counts.built, counts.failed);
    if recording.json {
        let last = &counts.last_failure;
        let text = serde_json::json!({ "built": built, "failed": failed, "last_failure": last, "out": recording.out });
        return format!("{text}\n");
    }
    let lines = recording.out.join(crate::store::LINES);
    format!("built   {built}\nfailed  {failed}\nfile    {}\n", lines.display())
}

#[cfg(test)]
pub(super) mod tests;
