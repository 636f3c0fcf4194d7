//! The loop of the daemon: waits for what happens next and carries out what is decided.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ed25519_dalek::SigningKey;
use ff_measurer::{key, measurer_id};
use ff_proto::params::Params;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::config::Config;
use super::core::{Action, Core, Effect, Member, Rhythm};
use super::course::Common;
use super::exchange::Exchanger;
use super::network::Source;
use super::plan::{Job, Means};
use super::publish::Publisher;
use super::status::{SecondShown, Status};
use crate::measure::{self, Progress};
use crate::outcome::{Failure, Outcome};
use crate::period::{Measurer, Team};
use crate::publish::v3bw::Publication;
use crate::secret;
use crate::store::{Retention, Store};
use crate::team::RemoteMeasurer;
use crate::watch::page;

/// How often the core looks at the clock.
const TICK: Duration = Duration::from_millis(250);
/// How long opening links and saying goodbye may take beside a measurement's seconds.
const MEASUREMENT_MARGIN: Duration = Duration::from_secs(60);
/// How long running measurements have to end when the daemon does.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What the daemon shows to others: its last status, and where they may ask for a bandwidth file.
#[derive(Clone)]
pub struct Handle {
    /// How it is, at most a second ago.
    pub status: watch::Receiver<Option<Arc<Status>>>,
    /// What the network's documents say of relays.
    pub network: watch::Receiver<Option<Arc<Publication>>>,
    /// What it is asked to do.
    pub actions: mpsc::UnboundedSender<Action>,
}

/// A daemon that is ready to run.
pub struct Daemon {
    /// What decides.
    core: Core,
    /// Where documents come from.
    source: Source,
    /// What writes bandwidth files.
    publisher: Publisher,
    /// What is going on beside.
    tasks: JoinSet<()>,
    /// What has happened.
    actions: mpsc::UnboundedReceiver<Action>,
    /// Where it is told.
    sender: mpsc::UnboundedSender<Action>,
    /// Who looks at the status.
    status: watch::Sender<Option<Arc<Status>>>,
    /// Who looks at the network.
    network: watch::Sender<Option<Arc<Publication>>>,
    /// The measurements, which end when these are dropped.
    measurements: JoinSet<()>,
    /// The team, to ask it how it is.
    remotes: Vec<RemoteMeasurer>,
    /// What has it exchange.
    exchanger: Exchanger,
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Serves the page that the config asks for, if it asks for one, and says where it is.
///
/// # Errors
/// When its address cannot be had.
pub async fn page(
    config: &Config,
    handle: &Handle,
) -> Result<(Option<SocketAddr>, impl Future<Output = ()> + use<>)> {
    let listener = match config.watch.listen {
        Some(addr) => {
            let failed = || format!("Failed to listen at {addr}, where the page is to be");
            Some(TcpListener::bind(addr).await.with_context(failed)?)
        }
        None => None,
    };
    let addr = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let options = page::Options {
        hosts: Vec::new(),
        figures_per_relay: config.watch.figures_per_relay,
        publish_dir: Some(config.publish_dir.clone()),
        rules: Publisher::rules(config),
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

/// What is the same in all periods.
///
/// # Errors
/// When the secret cannot be read.
pub(super) fn common(config: &Config, me: [u8; 32]) -> Result<Common> {
    let own = config
        .measurers
        .iter()
        .map(|measurer| Measurer { name: measurer.name.clone(), capacity: measurer.capacity });
    let mut teams = vec![Team { coordinator: me, measurers: own.collect() }];
    for other in &config.coordinators {
        let measurer = |(number, &capacity)| Measurer { name: format!("{number}"), capacity };
        let measurers = other.team.iter().enumerate().map(measurer).collect();
        teams.push(Team { coordinator: other.identity.0, measurers });
    }
    if config.coordinators.iter().any(|other| other.identity.0 == me) {
        anyhow::bail!(
            "a [[coordinator]] has the identity of this one: only the others belong there"
        );
    }
    Ok(Common {
        teams,
        me,
        secret: secret::read(&config.period.secret)?,
        length_secs: config.period.length_secs,
        slot_secs: config.period.slot_secs(),
        consensus_lead_secs: config.period.consensus_lead_secs,
        params: Params::default(),
    })
}

impl Daemon {
    /// Opens everything that the config names.
    ///
    /// # Errors
    /// Saying what cannot be had.
    pub fn new(config: &Config) -> Result<(Self, Handle)> {
        let key = key::load(&config.key)?;
        let me = measurer_id(&key).0;
        let common = common(config, me)?;
        let store = Store::open(&config.store(), me)?;
        let params = Params { duration_secs: config.period.measure_secs, ..Params::default() };
        let length = Duration::from_secs(config.period.measure_secs.into());
        let deadline = length + MEASUREMENT_MARGIN;
        let means = Means { key: key.clone(), params, deadline };
        let rhythm = Rhythm {
            refresh_secs: config.period.refresh_secs.into(),
            publish_secs: config.publish.every_secs.into(),
            keep: Retention {
                samples_days: config.keep.samples_days,
                results_days: config.keep.results_days,
            },
        };
        let (team, remotes) = team(config, &key)?;
        let core = Core::new(common, means, rhythm, store, team, now())?;
        let core = core.with_exchanges(config.exchange);
        let (sender, actions) = mpsc::unbounded_channel();
        let (status, shown) = watch::channel(None);
        let network = watch::Sender::new(None);
        let handle =
            Handle { status: shown, network: network.subscribe(), actions: sender.clone() };
        let daemon = Self {
            core,
            source: Source::new(&config.network)?,
            publisher: Publisher::new(config),
            tasks: JoinSet::new(),
            actions,
            sender,
            status,
            network,
            measurements: JoinSet::new(),
            exchanger: Exchanger::new(config, &remotes),
            remotes,
        };
        Ok((daemon, handle))
    }

    /// Runs until SIGTERM or SIGINT, or until it is told to end.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub async fn run(self) -> Result<()> {
        let events = Events::new(true)?;
        notify(&[NotifyState::Ready]);
        self.run_with(events).await
    }

    /// Runs until it is told to end.
    ///
    /// # Errors
    /// None so far.
    pub async fn run_until_told(self) -> Result<()> {
        self.run_with(Events::new(false)?).await
    }

    /// The loop.
    async fn run_with(mut self, mut events: Events) -> Result<()> {
        loop {
            let action = tokio::select! {
                action = events.next() => action,
                Some(action) = self.actions.recv() => action,
            };
            let is_tick = matches!(action, Action::Tick);
            let is_network = matches!(action, Action::Documents(Ok(_)));
            let effects = self.core.apply(action, now());
            for effect in effects {
                if matches!(effect, Effect::End) {
                    return self.end().await;
                }
                self.carry_out(effect);
            }
            if is_tick {
                if self.exchanger.is_asked() {
                    self.core.apply(Action::ExchangeNow, now());
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

    /// Shows how it is, once a second.
    fn show(&mut self) {
        let now = now();
        if self.status.borrow().as_ref().is_some_and(|last| last.now_unix_secs == now) {
            return;
        }
        match self.core.status(now) {
            Ok(status) => _ = self.status.send_replace(Some(Arc::new(status))),
            Err(error) => tracing::error!("the store cannot be read: {error}"),
        }
    }

    /// Carries out what was decided.
    fn carry_out(&mut self, effect: Effect) {
        let sender = self.sender.clone();
        match effect {
            Effect::Refresh => {
                let source = self.source.clone();
                self.tasks.spawn(async move {
                    let documents = source.refresh().await.map(Arc::new);
                    // The loop that listens is the one that drops this task.
                    let _ = sender.send(Action::Documents(documents));
                });
            }
            Effect::Describe(index) => {
                let Some(remote) = self.remotes.get(index).cloned() else { return };
                self.tasks.spawn(async move {
                    let described = remote.describe().await;
                    let described = described.map(Box::new).map_err(|error| error.to_string());
                    let _ = sender.send(Action::Described(index, described));
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
            Effect::End => {}
        }
    }

    /// Ends what is going on, so that relays are back in normal service at once.
    async fn end(mut self) -> Result<()> {
        notify(&[NotifyState::Stopping]);
        tracing::info!(measurements = self.measurements.len(), "ending");
        // A measurement that is dropped closes its links; the store says that it was interrupted.
        self.measurements.abort_all();
        let ended = async { while self.measurements.join_next().await.is_some() {} };
        let _ = timeout(END_TIMEOUT, ended).await;
        self.tasks.abort_all();
        Ok(())
    }
}

/// The team, and how to ask it how it is.
fn team(config: &Config, key: &SigningKey) -> Result<(Vec<Member>, Vec<RemoteMeasurer>)> {
    let mut members = Vec::new();
    let mut remotes = Vec::new();
    for table in &config.measurers {
        let remote = RemoteMeasurer::new(&table.name, &table.address, table.identity, key);
        let remote = remote.map_err(anyhow::Error::msg);
        let remote = remote.with_context(|| format!("the measurer {:?}", table.name))?;
        members.push(Member::new(Arc::new(remote.clone()), &table.address, table.capacity));
        remotes.push(remote);
    }
    Ok((members, remotes))
}

/// Measures a relay and tells what came of it.
async fn carry_out(job: Job, sender: mpsc::UnboundedSender<Action>) {
    let attempt = job.attempt;
    let watch = |progress: Progress<'_>| {
        if let Progress::Second { second, measurement_bytes, background_bytes, .. } = progress {
            let shown = SecondShown { second, measurement_bytes, background_bytes };
            let _ = sender.send(Action::Second(attempt, shown));
        }
    };
    let outcome = timeout(job.deadline, measure::measure(&job.plan, watch)).await;
    let mut outcome = outcome.unwrap_or_else(|_| late(&job));
    outcome.target.nickname = Some(job.nickname);
    let _ = sender.send(Action::Finished(attempt, Box::new(outcome)));
}

/// A measurement that took too long in all.
fn late(job: &Job) -> Outcome {
    let failure = Failure {
        kind: ff_proto::failure::FailureKind::SetupFailed,
        relay_code: None,
        message: format!("it took longer than {} s in all", job.deadline.as_secs()),
    };
    measure::failed(&job.plan, now(), failure)
}

/// The clock and the signals.
struct Events {
    /// The clock.
    tick: Interval,
    /// SIGTERM and SIGINT, if they are listened for.
    signals: Option<[Signal; 2]>,
    /// The watchdog of systemd.
    watchdog: Interval,
}

impl Events {
    /// Listens for them.
    fn new(with_signals: bool) -> Result<Self> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let listen = |kind| signal(kind).context("Failed to listen for signals");
        let signals = if with_signals {
            Some([listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?])
        } else {
            None
        };
        Ok(Self { tick, signals, watchdog: interval(ff_measurer::cli::watchdog_period()) })
    }

    /// The next one; cancel-safe.
    async fn next(&mut self) -> Action {
        loop {
            tokio::select! {
                _ = self.tick.tick() => return Action::Tick,
                () = any(&mut self.signals) => return Action::End,
                _ = self.watchdog.tick() => notify(&[NotifyState::Watchdog]),
            }
        }
    }
}

/// Waits for one of the signals.
async fn any(signals: &mut Option<[Signal; 2]>) {
    match signals {
        Some([terminate, interrupt]) => tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        },
        None => std::future::pending().await,
    }
}

/// Tells systemd, if it is there.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd cannot be told: {error}");
    }
}
