//! `circuits run`.

use std::collections::HashSet;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use ff_lab::Source;

use super::client::{Job, check_internet, with_client};
use crate::cli::measure::{ClientKind, MeasureArgs};
use crate::client::Client;
use crate::course::{Counts, Course};
use crate::network::{self, Network};
use crate::path::Plan;
use crate::paths::{Choice, file};
use crate::probe::Program;
use crate::schedule::Limits;
use crate::store::{Options, Store};
use crate::target::Target;

/// New circuits a second, if nobody says how many: in private networks, and on the Internet.
const RATES: [f64; 2] = [100.0, 1.0];
/// What one may ask of a first relay on the Internet: tor marks who has 3 new circuits a second.
const PUBLIC_PER_GUARD: f64 = 2.0;
/// How many new circuits a second there may be on the Internet, at most.
const PUBLIC_RATE: f64 = 10.0;
/// How many circuits may be there at once on the Internet.
const PUBLIC_IN_FLIGHT: u64 = 50;
/// How long a download may take.
const DOWNLOAD_TIME: Duration = Duration::from_secs(300);

/// Builds circuits and measures them.
///
/// # Errors
/// When something cannot be read or written, and when too many circuits fail.
pub(super) fn run(args: &MeasureArgs) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let dir = network::directory(&args.network);
    let network = Network::read(&dir, now)?;
    check_public(args, &network)?;
    if args.client == ClientKind::Tor && args.resolve > 0 {
        bail!(
            "--resolve: tor resolves a literal address itself and asks no exit; use --client arti"
        );
    }
    let given = paths(args, &network)?;
    // Lives as long as the run: streams lead to it.
    let source = source(args, &network)?;
    let target = args.target.clone().or_else(|| source.as_ref().map(Target::of_source));
    let port = target.as_ref().map(|target| target.port);
    let choice = args.rules.choice(!network.is_public(), port);
    if given.is_none() {
        super::paths::say_unknown(&network.consensus, &network.pool, &choice);
    }
    let job = Run { args, network: &network, choice, given, target };
    let counts = with_client(args.client, &dir, &network, job)?;
    say(args, &counts)?;
    if counts.all > 0 && counts.failed == counts.all {
        bail!("all {} circuits failed; the last one: {}", counts.all, counts.last_failure);
    }
    Ok(ExitCode::SUCCESS)
}

/// The run itself.
struct Run<'a> {
    /// Its options.
    args: &'a MeasureArgs,
    /// Its network.
    network: &'a Network,
    /// How paths are drawn, if there is no file with them.
    choice: Choice,
    /// The paths of the file, if there is one.
    given: Option<Vec<Vec<usize>>>,
    /// Where streams lead.
    target: Option<Target>,
}

impl Job for Run<'_> {
    type Done = Counts;

    /// Measures. Its folder is made only now that everything else is there.
    async fn run<C: Client>(self, client: C) -> Result<Counts> {
        let Self { args, network, choice, given, target } = self;
        if given.is_none() {
            plan(args, network, &choice, None, HashSet::new())?;
        }
        let (mut store, done) = Store::open(&args.out, &options(args), args.resume)?;
        let plan = plan(args, network, &choice, given, done)?;
        let ended = course(args, client, network, target).run(plan, &mut store).await;
        store.finish()?;
        Ok(ended?)
    }
}

/// Refuses the Internet's relays to those who have not asked for them, and to those who ask for too much.
fn check_public(args: &MeasureArgs, network: &Network) -> Result<()> {
    if !check_internet(&args.network, network, args.public)? {
        return Ok(());
    }
    if args.per_guard > PUBLIC_PER_GUARD {
        bail!(
            "--per-guard {}: on the Internet at most {PUBLIC_PER_GUARD} (ETHICS.md)",
            args.per_guard
        );
    }
    if args.in_flight > PUBLIC_IN_FLIGHT {
        bail!(
            "--in-flight {}: on the Internet at most {PUBLIC_IN_FLIGHT} (ETHICS.md)",
            args.in_flight
        );
    }
    if args.rate.is_some_and(|rate| rate > PUBLIC_RATE) {
        bail!("--rate: on the Internet at most {PUBLIC_RATE} (ETHICS.md)");
    }
    if args.share_builds {
        bail!("--share-builds: not on the Internet (ETHICS.md)");
    }
    Ok(())
}

/// The paths of the file, if there is one.
fn paths(args: &MeasureArgs, network: &Network) -> Result<Option<Vec<Vec<usize>>>> {
    let Some(path) = &args.path_file else { return Ok(None) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(Some(file::find(&path.display().to_string(), &text, |id| network.find(id))?))
}

/// What streams lead to if nobody says what.
fn source(args: &MeasureArgs, network: &Network) -> Result<Option<Source>> {
    if args.target.is_some() || (args.ttfb == 0 && args.download == 0) {
        return Ok(None);
    }
    if network.is_public() {
        bail!("--ttfb and --download need a --target on the Internet, a server of your own");
    }
    Ok(Some(Source::start()?))
}

/// What two parts of a run have in common.
fn options(args: &MeasureArgs) -> Options {
    Options {
        client: args.client.into(),
        seed: args.seed,
        path_file: args.path_file.clone(),
        rules: args.path_file.is_none().then(|| args.rules.words()),
        rtt: args.rtt,
        ttfb: args.ttfb,
        download_bytes: args.download,
        download_share: args.download_share,
    }
}

/// The circuits that are to be measured.
fn plan(
    args: &MeasureArgs,
    network: &Network,
    choice: &Choice,
    given: Option<Vec<Vec<usize>>>,
    done: HashSet<u64>,
) -> Result<Plan> {
    let is_done = Box::new(move |number| done.contains(&number));
    match given {
        Some(paths) => Ok(Plan::given(paths, args.count, is_done)),
        None => Plan::drawn(network, choice, args.seed, args.count, is_done)
            .with_context(|| network.consensus.display().to_string()),
    }
}

/// The run.
fn course<C: Client>(
    args: &MeasureArgs,
    client: C,
    network: &Network,
    target: Option<Target>,
) -> Course<C> {
    let program = Program {
        rtt: args.rtt,
        resolve: args.resolve,
        ttfb: args.ttfb,
        download_bytes: args.download,
        target,
        build_time: Duration::from_secs(args.build_time),
        trip_time: Duration::from_secs(args.trip_time),
        download_time: DOWNLOAD_TIME,
    };
    let limits = Limits {
        in_flight: usize::try_from(args.in_flight).unwrap_or(usize::MAX),
        per_guard_per_sec: args.per_guard,
        per_sec: args.rate.unwrap_or(RATES[usize::from(network.is_public())]),
        builds_share: args.share_builds,
        probes_share: args.share_probes,
        failures: args.failures,
    };
    Course {
        client: Arc::new(client),
        relays: network.relays.iter().cloned().map(Arc::new).collect(),
        program: Arc::new(program),
        download_share: args.download_share,
        limits,
        tells: std::io::stderr().is_terminal() && !args.json,
    }
}

/// Says what it came to.
fn say(args: &MeasureArgs, counts: &Counts) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::json!({ "built": counts.built, "failed": counts.failed, "last_failure": counts.last_failure, "out": args.out });
        writeln!(out, "{text}")?;
    } else {
        let lines = args.out.join(crate::store::LINES);
        writeln!(
            out,
            "built   {}\nfailed  {}\nfile    {}",
            counts.built,
            counts.failed,
            lines.display()
        )?;
    }
    Ok(())
}
