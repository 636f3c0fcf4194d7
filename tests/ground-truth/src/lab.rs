//! The private network with the relay in question in it.
//!
//! ```text
//!   core 0   target, under a quota or limited by BandwidthRate; Pace
//!   core 1   authority, guards, middle, exits, clients, downloads, measurers, KeepAwake
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_lab::{CpuQuota, DownloadPlan, Network, Node, RelayConfig, RunningDownloads};
use ff_measurer::measurer_id;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::arti::ArtiRelays;
use crate::case::{Case, Limit, Position};
use crate::cli::Cli;
use crate::pace::Pace;
use crate::relay::Relay;

/// Clients, each with streams of its own.
const CLIENTS: usize = 5;
/// Streams of each client, each on a circuit of its own.
const STREAMS: usize = 10;
/// Guards and exits.
const GUARDS: usize = 3;
/// The length of a quota's periods.
const PERIOD: Duration = Duration::from_millis(10);
/// tor's default BandwidthRate, which nothing here reaches.
const NO_LIMIT_BYTES: u64 = 1 << 30;
/// Longer than most runs.
const VOTING_INTERVAL: Duration = Duration::from_secs(900);
/// The core of the relay in question.
const TARGET_CORE: usize = 0;
/// As nice as it gets.
const LEAST_PRIORITY: i32 = 19;
/// The core of everything else.
pub(crate) const OTHER_CORE: usize = 1;

/// The relays that include the one in question.
enum Relays {
    /// A network of tors.
    Network(Box<Network>),
    /// arti-relays without a network.
    Arti(ArtiRelays),
}

/// The relay in question, and what it needs.
pub(crate) struct Lab {
    relays: Relays,
    /// How long they took to start.
    start_time: Duration,
    /// Whether there is a relay with direct echo.
    has_direct: bool,
    /// Whether there is all that downloads need.
    has_downloads: bool,
    /// How fast the target's core is.
    pub(crate) pace: Pace,
    /// Keeps the other core awake.
    _keep_awake: KeepAwake,
}

/// A thread that computes on the other core whenever nothing else does.
///
/// On a virtual machine a core that sleeps must be woken through the host, and who sends to a
/// process there may pay for that. A relay that forwards would, one that echoes to measurers, who
/// read from time to time, would not; nor does a relay whose peers are elsewhere.
struct KeepAwake(Arc<AtomicBool>);

impl KeepAwake {
    /// Begins; it inherits the core of the calling thread.
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        thread::spawn(move || {
            // For this thread alone. A refusal only means that it takes more from the others.
            let _ = rustix::process::setpriority_process(None, LEAST_PRIORITY);
            let mut count = 0_u64;
            while !over.load(Ordering::Relaxed) {
                count = std::hint::black_box(count.wrapping_add(1));
            }
        });
        Self(is_over)
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Which relay is limited and looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The one that forwards and echoes.
    Target,
    /// The one with direct echo.
    Direct,
}

impl Lab {
    /// Starts the network, or the arti-relays of these cases.
    pub(crate) fn start(cli: &Cli, cases: &[Case]) -> Result<Self> {
        let begin = Instant::now();
        let relays = match &cli.arti_relay {
            Some(program) => {
                // Relays that may use all cores inherit them from this thread, which the round
                // before has pinned.
                unpin_this_thread()?;
                let started = ArtiRelays::start(program, cases, TARGET_CORE);
                Relays::Arti(started.context("Failed to start arti-relays")?)
            }
            None => Relays::Network(Box::new(start_network(cli)?)),
        };
        pin_this_process();
        let (has_direct, has_downloads) = (cli.direct_echo_tor.is_some(), cli.has_downloads());
        let (start_time, pace) = (begin.elapsed(), Pace::start(TARGET_CORE));
        let _keep_awake = KeepAwake::start();
        Ok(Self { relays, start_time, has_direct, has_downloads, pace, _keep_awake })
    }

    /// How long it took to start.
    pub(crate) fn start_time(&self) -> Duration {
        self.start_time
    }

    /// The network.
    ///
    /// # Errors
    /// If there are arti-relays instead.
    fn network(&self) -> Result<&Network> {
        match &self.relays {
            Relays::Network(network) => Ok(network),
            Relays::Arti(_) => bail!("arti-relays are in no network"),
        }
    }

    /// A tor.
    fn node(&self, subject: Subject) -> Result<&Node> {
        Ok(self.network()?.node(match subject {
            Subject::Target => "target",
            Subject::Direct => "direct",
        }))
    }

    /// The relay that a case is about.
    pub(crate) fn relay(&self, subject: Subject, case: &Case) -> Result<Relay<'_>> {
        match &self.relays {
            Relays::Network(_) => Ok(Relay::Tor(self.node(subject)?)),
            Relays::Arti(relays) => Ok(Relay::Arti(relays.of(case)?)),
        }
    }

    /// Whether there is a relay with direct echo.
    pub(crate) fn has_direct(&self) -> bool {
        self.has_direct
    }

    /// Sets a relay's limits by rate, or takes them off; an arti-relay has none.
    pub(crate) fn set_rate(&self, subject: Subject, limit: Limit) -> Result<()> {
        if matches!(self.relays, Relays::Arti(_)) {
            return Ok(());
        }
        let bytes = |mbit| u64::from(mbit) * 125_000;
        // 0 stands for BandwidthRate.
        let (all, relayed) = match limit {
            Limit::Rate { mbit } => (bytes(mbit), 0),
            Limit::RelayRate { mbit } => (NO_LIMIT_BYTES, bytes(mbit)),
            Limit::Cpu { .. } | Limit::Core | Limit::AllCores => (NO_LIMIT_BYTES, 0),
        };
        // In one line: tor refuses a burst below the rate, also for a moment.
        let line = format!(
            "SETCONF BandwidthRate={all} BandwidthBurst={all} \
             RelayBandwidthRate={relayed} RelayBandwidthBurst={relayed}"
        );
        self.node(subject)?.control()?.command(&line)?;
        Ok(())
    }

    /// A coordinator that may measure a relay now.
    pub(crate) fn coordinator(&self, subject: Subject) -> Result<SigningKey> {
        if let Relays::Arti(relays) = &self.relays {
            return Ok(relays.coordinator());
        }
        let key = SigningKey::from_bytes(&rand::random());
        let id = Base64Unpadded::encode_string(&measurer_id(&key).0);
        self.node(subject)?.control()?.setconf("FFAllowedCoordinators", &id)?;
        Ok(key)
    }

    /// Lets the downloads flow, or not; without downloads it does nothing.
    pub(crate) fn flow(&self, is_on: bool) -> Result<()> {
        if !self.has_downloads {
            return Ok(());
        }
        let source = self.network()?.source()?;
        if is_on {
            source.resume()
        } else {
            source.pause()
        }
        Ok(())
    }

    /// Opens downloads through the target, on circuits of their own.
    pub(crate) fn download(&self, position: Position) -> Result<Vec<RunningDownloads>> {
        let network = self.network()?;
        let target = network.node("target");
        let middle = network.node(&format!("middle{GUARDS}"));
        download_over(network, |guard, exit| match position {
            Position::Middle => vec![guard, target, exit],
            Position::Guard => vec![target, middle, exit],
        })
    }
}

/// Opens downloads of all clients, over the path that is made of a guard and an exit.
fn download_over<'a>(
    network: &'a Network,
    path: impl Fn(&'a Node, &'a Node) -> Vec<&'a Node>,
) -> Result<Vec<RunningDownloads>> {
    let open = |client: usize| {
        let guard = network.node(&format!("middle{}", client % GUARDS));
        let exit = network.node(&format!("exit{}", client % GUARDS));
        let plan = DownloadPlan::through(&path(guard, exit)).streams(STREAMS);
        let client = network.node(&format!("client{client}"));
        network.download(client, &plan).context("Failed to download")
    };
    (0..CLIENTS).map(open).collect()
}

fn start_network(cli: &Cli) -> Result<Network> {
    pin_this_process();
    let target = |name: &str, program: &Path| {
        RelayConfig::middle(name).tor(program).torrc("FFMeasurementsAllowed 1")
    };
    let mut builder = Network::builder()
        .core(OTHER_CORE)
        .core_of("target", TARGET_CORE)
        .core_of("direct", TARGET_CORE)
        // Every new consensus costs the relay CPU time and memory for compressing it.
        .voting_interval(VOTING_INTERVAL);
    if cli.has_downloads() {
        builder = builder.clients(CLIENTS).middles(GUARDS + 1).exits(GUARDS);
    }
    builder = builder.relay(target("target", &cli.tor)).keep_dir(cli.keep_network);
    if let Some(direct) = &cli.direct_echo_tor {
        builder = builder.relay(target("direct", direct));
    }
    if cli.old_circuits {
        // tor negotiates CGO together with congestion control only.
        builder = builder.consensus_param("cc_alg", 0);
    }
    builder.start().context("Failed to start the private network")
}

/// Puts a relay under a quota that is off yet.
pub(crate) fn quota(relay: Relay<'_>) -> Result<CpuQuota> {
    let quota = CpuQuota::set(relay.pid()?, 100.0, PERIOD)?;
    quota.change(None)?;
    Ok(quota)
}

/// Lets this thread, and what it starts, use the cores that it had at first.
fn unpin_this_thread() -> Result<()> {
    static AT_FIRST: OnceLock<CpuSet> = OnceLock::new();
    let now = sched_getaffinity(None)?;
    sched_setaffinity(None, AT_FIRST.get_or_init(|| now))?;
    Ok(())
}

/// Keeps this process, which serves, downloads and measures, away from the target's core.
fn pin_this_process() {
    let mut cores = CpuSet::new();
    cores.set(OTHER_CORE);
    // Without a second core there is nothing to keep away from.
    let _ = sched_setaffinity(None, &cores);
}
