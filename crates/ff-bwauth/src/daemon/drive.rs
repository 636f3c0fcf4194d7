//! The loop of the daemon: waits for the next action and carries out its effects.

mod reload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use ed25519_dalek::SigningKey;
use ff_base::utc::now_unix_secs as now;
use ff_coordinator::measure::{self, Progress};
use ff_coordinator::team::TeamMeasurer;
use ff_measurer::{key, measurer_id};
use ff_plan::outcome::{Failure, Outcome};
use ff_plan::publish::v3bw::Publication;
use ff_proto::failure::FailureKind;
use ff_store::Store;
use ff_team::RemoteMeasurer;
use futures::FutureExt as _;
use rustix::fs::statvfs;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::core::{Action, Core, Effect};
use super::exchange::Exchanger;
use super::network::Source;
use super::plan::{Job, Means};
use super::publish::Publisher;
use super::request::Requests;
use super::setup::{common, rhythm, team};
use super::status::{DiskStatus, SecondShown, Status};
use crate::config::Config;
use crate::watch::page;

/// The largest step of the clock that is not a jump.
const CLOCK_JUMP: Duration = Duration::from_secs(2);
/// Interval between readings of the clock.
const TICK: Duration = Duration::from_millis(250);
/// How long opening links may take, also where slots have less room: longer than it takes to detect
/// a measurer that does not answer. A relay that is not ready then would be measured during the
/// next slot, with capacity of that slot's relays.
const MIN_SETUP: Duration = Duration::from_secs(20);
/// Time in addition to a measurement's seconds: for the seconds before the first counted one, the
/// last reports and the end. It is longer than a relay may take, so that a relay cannot use it to
/// decide whether a measurement counts.
const FAREWELL: Duration = Duration::from_secs(25);
/// The status takes at most about one part in this many of the loop's time.
const STATUS_PART: u32 = 20;
/// How long running measurements may take to end when the daemon ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The daemon's outside view: its last status, and the channel for requests.
#[derive(Clone)]
pub struct Handle {
    /// The last status, at most a second old.
    pub status: watch::Receiver<Option<Arc<Status>>>,
    /// The data of the network's documents about relays.
    pub network: watch::Receiver<Option<Arc<Publication>>>,
    /// Requests to the daemon.
    pub actions: mpsc::UnboundedSender<Action>,
}

/// A daemon that is ready to run.
pub struct Daemon {
    /// The state and decisions.
    core: Core,
    /// The source of documents.
    source: Source,
    /// The writer of bandwidth files.
    publisher: Publisher,
    /// Concurrent tasks.
    tasks: JoinSet<()>,
    /// Actions to handle.
    actions: mpsc::UnboundedReceiver<Action>,
    /// The channel of actions, for tasks.
    sender: mpsc::UnboundedSender<Action>,
    /// The channel of the last status.
    status: watch::Sender<Option<Arc<Status>>>,
    /// The status is not computed again before this time.
    status_due: Instant,
    /// The channel of the network's data.
    network: watch::Sender<Option<Arc<Publication>>>,
    /// Running measurements; dropping this aborts them.
    measurements: JoinSet<()>,
    /// The team, to ask for its state.
    remotes: Vec<RemoteMeasurer>,
    /// The team of the next period, if it differs.
    next_remotes: Option<Vec<RemoteMeasurer>>,
    /// The current config.
    config: Config,
    /// The coordinator's key.
    key: SigningKey,
    /// Carries out exchanges.
    exchanger: Exchanger,
    /// Requests of the operator.
    requests: Requests,
}

/// Serves the page if the config has one, and returns its address.
///
/// # Errors
/// When the address cannot be bound.
pub async fn page(
    config: &Config,
    handle: &Handle,
) -> Result<(Option<SocketAddr>, impl Future<Output = ()> + use<>)> {
    let listener = match config.watch.listen {
        Some(addr) => {
            let failed = || format!("Failed to listen at {addr} for the page (watch.listen)");
            Some(TcpListener::bind(addr).await.with_context(failed)?)
        }
        None => None,
    };
    let addr = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let options = page::PageOptions {
        hosts: config.watch.hosts.clone(),
        figures_per_relay: config.watch.figures_per_relay,
        publish_dir: Some(config.publish_dir.clone()),
        rules: config.publish.rules(),
        network: Some(handle.network.clone()),
    };
    let (live, store) = (handle.status.clone(), config.store());
    let serving = async move {
        match listener {
            Some(listener) => page::serve(listener, live, store, options).await,
            None => std::future::pending().await,
        }
    };
    Ok((addr, serving))
}

impl Daemon {
    /// Opens all files, connections and directories that the config names.
    ///
    /// # Errors
    /// Names what could not be opened.
    pub fn new(config: &Config) -> Result<(Self, Handle)> {
        let key = key::load(&config.key)?;
        let me = measurer_id(&key).0;
        let common = common(config, me)?;
        let store = Store::open(&config.store(), me)?;
        let params = config.period.params();
        let length = Duration::from_secs(config.period.measure_secs.into());
        let slot = Duration::from_secs(config.period.slot_secs().into());
        let deadline = slot.saturating_sub(length).max(MIN_SETUP) + length + FAREWELL;
        let means = Means { key: key.clone(), params, deadline };
        let (team, remotes) = team(config, &key)?;
        let core = Core::new(common, means, rhythm(config), store, team, now())?;
        let publisher = Publisher::new(config);
        let core = core.with_exchanges(config.exchange).with_published(publisher.last());
        let (sender, actions) = mpsc::unbounded_channel();
        let (status, shown) = watch::channel(None);
        let network = watch::Sender::new(None);
        let handle =
            Handle { status: shown, network: network.subscribe(), actions: sender.clone() };
        let daemon = Self {
            core,
            source: Source::new(&config.network)?,
            publisher,
            tasks: JoinSet::new(),
            actions,
            sender,
            status,
            status_due: Instant::now(),
            network,
            measurements: JoinSet::new(),
            exchanger: Exchanger::new(config, &remotes),
            requests: Requests::new(&config.state_dir),
            remotes,
            next_remotes: None,
            config: config.clone(),
            key,
        };
        Ok((daemon, handle))
    }

    /// Runs until SIGTERM, SIGINT or [`Action::End`]. SIGHUP makes the daemon read this config file
    /// again.
    ///
    /// # Errors
    /// When signal handlers cannot be installed.
    pub async fn run(self, config: &Path) -> Result<()> {
        let events = Events::new(true)?;
        notify(&[NotifyState::Ready]);
        self.run_with(events, config).await
    }

    /// Runs until [`Action::End`].
    ///
    /// # Errors
    /// None at present.
    pub async fn run_until_told(self) -> Result<()> {
        self.run_with(Events::new(false)?, Path::new("")).await
    }

    /// The loop.
    async fn run_with(mut self, mut events: Events, config: &Path) -> Result<()> {
        loop {
            let action = tokio::select! {
                event = events.next() => match event {
                    Event::Action(action) => action,
                    Event::Reload => {
                        self.reload(config);
                        continue;
                    }
                },
                Some(action) = self.actions.recv() => action,
            };
            let is_tick = matches!(action, Action::Tick);
            let is_network = matches!(action, Action::Documents(Ok(_)));
            if is_tick && events.clock.has_jumped() {
                self.core.apply(Action::ClockJumped, now());
            }
            let effects = self.core.apply(action, now());
            for effect in effects {
                if matches!(effect, Effect::End) {
                    return self.end().await;
                }
                self.carry_out(effect);
            }
            if is_tick {
                for action in self.requests.take(&self.exchanger.team()) {
                    self.core.apply(action, now());
                }
                self.show();
            }
            if is_network {
                self.network.send_replace(self.core.publication(now()).map(Arc::new));
            }
            while self.tasks.try_join_next().is_some() {}
            while self.measurements.try_join_next().is_some() {}
        }
    }

    /// Updates the status, once a second, or less often when computing it would take the time that
    /// measurements need.
    fn show(&mut self) {
        let (now, begin) = (now(), Instant::now());
        let is_shown = self.status.borrow().as_ref().is_some_and(|last| last.now_unix_secs == now);
        if is_shown || begin < self.status_due {
            return;
        }
        self.core.set_disks(disks(&self.config));
        let authority = self.config.publish.dirauth_nickname.clone();
        let status = Status { authority, ..self.core.status(now) };
        self.status.send_replace(Some(Arc::new(status)));
        self.status_due = Instant::now() + begin.elapsed() * STATUS_PART;
    }

    /// Carries out an effect.
    fn carry_out(&mut self, effect: Effect) {
        let sender = self.sender.clone();
        match effect {
            Effect::Refresh => {
                let source = self.source.clone();
                self.tasks.spawn(async move {
                    let documents = source.refresh().await.map(Arc::new);
                    // The receiving loop also owns this task.
                    let _ = sender.send(Action::Documents(documents));
                });
            }
            Effect::Describe(index) => {
                let Some(remote) = self.remotes.get(index).cloned() else { return };
                self.tasks.spawn(async move {
                    let described = remote.describe().await;
                    let described = described.map(Box::new).map_err(|error| error.to_string());
                    let _ = sender.send(Action::Described(remote.id(), described));
                });
            }
            Effect::Exchange(secs) => {
                let exchange = self.exchanger.exchange(secs);
                self.tasks.spawn(async move {
                    let _ = sender.send(Action::Exchanged(exchange.await));
                });
            }
            Effect::Measure(job) => _ = self.measurements.spawn(carry_out(*job, sender)),
            Effect::Publish(network) => {
                let publisher = self.publisher.clone();
                self.tasks.spawn_blocking(move || {
                    let _ = sender.send(Action::Published(publisher.publish(*network)));
                });
            }
            Effect::TakeTeam => {
                if let Some(remotes) = self.next_remotes.take() {
                    self.exchanger = Exchanger::new(&self.config, &remotes);
                    self.remotes = remotes;
                }
            }
            Effect::End => {}
        }
    }

    /// Ends all tasks, so that relays return to normal service at once.
    async fn end(mut self) -> Result<()> {
        notify(&[NotifyState::Stopping]);
        tracing::info!(measurements = self.measurements.len(), "ending");
        // A dropped measurement closes its links; the store notes that it was interrupted.
        self.measurements.abort_all();
        let ended = async { while self.measurements.join_next().await.is_some() {} };
        let _ = timeout(END_TIMEOUT, ended).await;
        self.tasks.abort_all();
        Ok(())
    }
}

/// The free space of the disks that the coordinator writes to; directories on the same disk count
/// once.
fn disks(config: &Config) -> Vec<DiskStatus> {
    let mut disks = BTreeMap::new();
    for (of, dir) in [("store", &config.state_dir), ("bandwidth files", &config.publish_dir)] {
        // A missing directory will be created in its parent.
        let there = dir.ancestors().find(|dir| dir.is_dir());
        let found = there.and_then(|dir| Some((dir.metadata().ok()?.dev(), statvfs(dir).ok()?)));
        let Some((device, disk)) = found else { continue };
        let available_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        let dir = dir.display().to_string();
        let one = DiskStatus { of: of.to_owned(), dir, available_bytes };
        disks.entry(device).or_insert(one);
    }
    disks.into_values().collect()
}

/// Measures a relay and reports the outcome.
async fn carry_out(job: Job, sender: mpsc::UnboundedSender<Action>) {
    let attempt = job.attempt;
    let (has_started, mut starting) = watch::channel(false);
    let watch = |progress: Progress<'_>| match progress {
        Progress::Started { .. } => _ = has_started.send_replace(true),
        Progress::Second { second, measurement_bytes, background_bytes, .. } => {
            let shown = SecondShown { second, measurement_bytes, background_bytes };
            let _ = sender.send(Action::Second(attempt, shown));
        }
        _ => {}
    };
    let length = Duration::from_secs(job.plan.params.duration_secs.into());
    let setup = job.deadline.saturating_sub(length + FAREWELL);
    let is_stuck = async {
        if timeout(setup, starting.wait_for(|started| *started)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    // After a panic without this, the measurement would count as running for ever.
    let measuring = AssertUnwindSafe(measure::measure(&job.plan, watch)).catch_unwind();
    let mut outcome = tokio::select! {
        outcome = timeout(job.deadline, measuring) => match outcome {
            Ok(outcome) => outcome.unwrap_or_else(|_| panicked(&job)),
            Err(_) => endless(&job),
        },
        () = is_stuck => stuck(&job, setup),
    };
    outcome.target.nickname = Some(job.nickname);
    let _ = sender.send(Action::Finished(attempt, Box::new(outcome)));
}

/// The outcome of a measurement that did not begin in its slot. Relays can cause that, so it counts
/// as one that failed on the way to the relay.
fn stuck(job: &Job, setup: Duration) -> Outcome {
    let message = format!("its links were not open within {} s", setup.as_secs());
    given_up(job, FailureKind::Timeout, message)
}

/// The outcome of a measurement that did not end. The relay's reports have deadlines of their own,
/// so a measurer is the cause.
fn endless(job: &Job) -> Outcome {
    let message = format!("a measurer did not end within {} s in all", job.deadline.as_secs());
    given_up(job, FailureKind::MeasurerFailed, message)
}

/// The outcome of a measurement in which this program panicked.
fn panicked(job: &Job) -> Outcome {
    let message = "internal error (panic; see the log): please report it";
    given_up(job, FailureKind::MeasurerFailed, message.to_owned())
}

/// The outcome of a measurement that this daemon aborted.
fn given_up(job: &Job, kind: FailureKind, message: String) -> Outcome {
    let failure = Failure { kind, relay_code: None, message };
    measure::failed(&job.plan, now(), failure)
}

/// A signal or a tick of the clock.
enum Event {
    /// An action for the core.
    Action(Action),
    /// The config must be read again.
    Reload,
}

/// The wall clock and a monotonic clock.
#[derive(Clone, Copy)]
struct Clock {
    /// Time of the wall clock.
    wall: SystemTime,
    /// Time of the monotonic clock.
    steady: Instant,
}

impl Clock {
    /// The present time of both.
    fn new() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// Whether the wall clock has jumped since the last call.
    fn has_jumped(&mut self) -> bool {
        self.has_jumped_to(Self::new())
    }

    /// The same, with this present time.
    fn has_jumped_to(&mut self, now: Self) -> bool {
        let before = std::mem::replace(self, now);
        let passed = self.steady.duration_since(before.steady);
        let expected = before.wall + passed;
        let apart = self.wall.duration_since(expected).unwrap_or_else(|early| early.duration());
        apart > CLOCK_JUMP
    }
}

/// The clock and the signals.
struct Events {
    /// The interval of looks at the clock.
    tick: Interval,
    /// The clock.
    clock: Clock,
    /// SIGTERM, SIGINT and SIGHUP, if they are handled.
    signals: Option<[Signal; 3]>,
    /// The watchdog of systemd.
    watchdog: Interval,
}

impl Events {
    /// Installs the signal handlers, if asked for.
    fn new(with_signals: bool) -> Result<Self> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let listen = |kind| signal(kind).context("Failed to listen for signals");
        let signals = if with_signals {
            let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()];
            Some([listen(terminate)?, listen(interrupt)?, listen(SignalKind::hangup())?])
        } else {
            None
        };
        let watchdog = interval(ff_measurer::cli::watchdog_period());
        Ok(Self { tick, clock: Clock::new(), signals, watchdog })
    }

    /// Waits for the next event; cancel-safe.
    async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                _ = self.tick.tick() => return Event::Action(Action::Tick),
                event = any(&mut self.signals) => return event,
                _ = self.watchdog.tick() => notify(&[NotifyState::Watchdog]),
            }
        }
    }
}

/// Waits for one of the signals.
async fn any(signals: &mut Option<[Signal; 3]>) -> Event {
    match signals {
        Some([terminate, interrupt, hangup]) => tokio::select! {
            _ = terminate.recv() => Event::Action(Action::End),
            _ = interrupt.recv() => Event::Action(Action::End),
            _ = hangup.recv() => Event::Reload,
        },
        None => std::future::pending().await,
    }
}

/// Notifies systemd, if it runs.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::aggregate::Draw;
    use ff_proto::params::Params;
    use ff_store::AttemptId;

    use super::*;
    use crate::daemon::view::Contact;

    #[tokio::test]
    async fn a_relay_that_keeps_its_measurement_from_beginning_has_no_free_attempt() {
        // This relay accepts connections and sends nothing.
        let relay = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = relay.local_addr().expect("its address");
        let setup = Duration::from_millis(100);
        let means = Means {
            key: SigningKey::from_bytes(&[1; 32]),
            params: Params { duration_secs: 1, ..Params::default() },
            deadline: setup + Duration::from_secs(1) + FAREWELL,
        };
        let contact = Contact { nickname: "x".to_owned(), addr, ed_identity: [2; 32] };
        let mut plan = means.plan([3; 20], &contact, Vec::new());
        plan.params.sockets = 1;
        let (attempt, nickname) = (AttemptId(7), "x".to_owned());
        let deadline = means.deadline;
        let job = Job { attempt, fingerprint: [3; 20], nickname, plan, deadline };
        let (sender, mut actions) = mpsc::unbounded_channel();
        carry_out(job, sender).await;
        let Some(Action::Finished(AttemptId(7), outcome)) = actions.recv().await else {
            panic!("it is over")
        };
        let failure = outcome.result.expect_err("nothing was measured");
        assert_eq!(
            (failure.kind, outcome.draw),
            (FailureKind::Timeout, Draw::Blank),
            "{failure:?}"
        );
        // The daemon aborted it, not the part that opens links, which has more time.
        assert!(failure.message.contains("its links were not open"), "{failure:?}");
    }

    #[test]
    fn directories_on_one_disk_are_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bwauth.toml");
        let identity = key::identity_text(&ff_proto::ids::Ed25519Id([7; 32]));
        let text = format!(
            "key = 'key'\nstate_dir = 'not/yet'\npublish_dir = '.'\n[network]\nconsensus = 'c'\ndescriptors = []\n\
             [period]\nsecret = 'secret'\n[[measurer]]\nname = 'm'\naddress = '127.0.0.1:1'\n\
             identity = '{identity}'\ncapacity = '1Gbit'\n"
        );
        std::fs::write(&path, text).expect("written");
        let disks = disks(&Config::load(&path).expect("a config"));
        let [disk] = &disks[..] else { panic!("{disks:?}") };
        assert!(disk.of == "store" && disk.dir.ends_with("not/yet"), "{disk:?}");
    }

    #[test]
    fn a_clock_that_is_set_has_jumped_once() {
        for (ahead, has_jumped) in [(0_i64, false), (1, false), (-1, false), (9, true), (-9, true)]
        {
            let (set, now) = (Duration::from_secs(ahead.unsigned_abs()), Clock::new());
            let wall = if ahead < 0 { now.wall + set } else { now.wall - set };
            let mut clock = Clock { wall, ..now };
            assert_eq!(clock.has_jumped_to(now), has_jumped, "by {ahead} s");
            assert!(!clock.has_jumped_to(now));
        }
    }
}
