//! A relay, clients and measurers on this machine.
//!
//! The relay is one built from Arti's crates, in this process, or with `--tor` a tor in a process
//! of its own. Clients speak to the former only: they need its echo, which tor does not have.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_coordinator::team;
use ff_measurer::link::TargetAddr;
use ff_measurer::measurer_id;
use ff_plan::outcome::{ClientTraffic, Outcome};
use ff_plan::period::links::KnownPath;
use ff_proto::session::target::Policy;
use ff_proto::units::BytesPerSec;
use ff_relay_ext::arti::background::Background;
use ff_relay_ext::arti::host::RelayHost;
use ff_relay_ext::options::{self, TargetOptions};
use tokio::sync::oneshot;

use crate::cli::Cli;
use crate::tor::{TorConfig, TorHost};

/// How long clients run before the measurement, and are watched after it.
const CLIENT_SECONDS: u8 = 2;

/// Runs the demo; `dir` is where its files go.
///
/// # Errors
/// When the relay or its clients cannot be started. A measurement that fails is an outcome.
pub(crate) async fn run(
    demo: &Cli,
    dir: &Path,
    mut watch: impl FnMut(Progress<'_>),
) -> Result<(Outcome, Option<ClientTraffic>)> {
    let key = SigningKey::from_bytes(&rand::random());
    watch(Progress::Step("starting the relay"));
    let cores = team::cores();
    let (relay_core, measurer_cores) = match cores.split_first() {
        Some((first, rest)) if !rest.is_empty() => (Some(*first), rest.to_vec()),
        _ => (None, cores),
    };
    let mut host = Host::start(demo, dir, &key, relay_core, &mut watch).await?;
    let target = host.target();
    let mut clients = Clients::start(demo.clients(), &target, &mut watch).await?;

    let params = team::params(&demo.common, &KnownPath::default());
    let members = team::share_out(&demo.common, params.sockets, demo.measurers, &measurer_cores);
    let plan = MeasurePlan {
        limit: demo.limit.0,
        is_local: true,
        ..MeasurePlan::new(target, key, params, members)
    };
    let cpu_before = host.cpu_time();
    let mut outcome = match &mut clients {
        Some(clients) => clients.watch_during(&plan, &mut watch).await,
        None => measure::measure(&plan, &mut watch).await,
    };
    let cpu = host.cpu_time().zip(cpu_before).map(|(after, before)| after - before);
    outcome.cpu.target = cpu.map(|time| time.as_secs_f64());
    outcome.target.nickname = Some("ffdemo".to_owned());
    host.explain(&mut outcome).await;
    if let Some(clients) = &mut clients {
        watch(Progress::Step("watching the clients for two seconds"));
        clients.traffic.after_bytes = clients.watch().await;
    }
    Ok((outcome, clients.map(|clients| clients.traffic)))
}

/// The relay that is measured; it ends when this is dropped.
enum Host {
    /// One built from Arti's crates, in a thread.
    Arti(RelayHost),
    /// A tor, in a process.
    Tor(TorHost),
}

impl Host {
    /// Starts the relay that the user wants, on this core if one is given.
    async fn start(
        demo: &Cli,
        dir: &Path,
        key: &SigningKey,
        core: Option<usize>,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<Self> {
        let (options, limit) = (relay_options(key, demo), demo.limit.0);
        let Some(program) = &demo.tor else {
            return Ok(Self::Arti(RelayHost::start(policy(&options)?, limit, core)?));
        };
        let config = TorConfig { program, dir, options: &options, limit, core };
        Ok(Self::Tor(TorHost::start(&config, watch).await?))
    }

    /// Where it is, and who.
    fn target(&self) -> TargetAddr {
        let (addr, ed_identity) = match self {
            Self::Arti(relay) => (relay.addr(), relay.keys().ed_identity()),
            Self::Tor(tor) => (tor.addr(), tor.ed_identity()),
        };
        TargetAddr { addr, ed_identity }
    }

    /// Its CPU time so far, where that is known.
    fn cpu_time(&self) -> Option<Duration> {
        match self {
            Self::Arti(relay) => Some(relay.cpu_time()),
            Self::Tor(tor) => tor.cpu_time(),
        }
    }

    /// Adds to a failed measurement that its relay has ended, if that is so.
    async fn explain(&mut self, outcome: &mut Outcome) {
        if let Self::Tor(tor) = self
            && let Err(failure) = &mut outcome.result
            && let Some(end) = tor.end().await
        {
            failure.message = format!("{}; {end}", failure.message);
        }
    }
}

/// The relay's options, by name: this coordinator, this ratio, this duration.
fn relay_options(key: &SigningKey, demo: &Cli) -> [(&'static str, String); 5] {
    let coordinator = Base64Unpadded::encode_string(&measurer_id(key).0);
    [
        (options::MEASUREMENTS_ALLOWED, "1".to_owned()),
        (options::ALLOWED_COORDINATORS, coordinator),
        (options::BACKGROUND_PERCENT, demo.common.ratio.percent().to_string()),
        // 10 seconds is the least that the option takes.
        (options::MAX_DURATION, demo.common.duration.max(10).to_string()),
        (options::MAX_SOCKETS, team::sockets(&demo.common, &KnownPath::default()).to_string()),
    ]
}

/// What the options come to in an Arti relay.
fn policy(options: &[(&'static str, String)]) -> Result<Policy> {
    let mut parsed = TargetOptions::default();
    for (name, value) in options {
        parsed.set(name, value).with_context(|| format!("Failed to set {name}"))?;
    }
    Ok(parsed.resolve(&BTreeMap::new()))
}

/// Clients that load the relay.
struct Clients {
    /// The traffic.
    background: Background,
    /// What was seen of it.
    traffic: ClientTraffic,
}

impl Clients {
    /// Starts them, if there are to be any, and watches them for a while.
    async fn start(
        rate: Option<BytesPerSec>,
        relay: &TargetAddr,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<Option<Self>> {
        let Some(rate) = rate else { return Ok(None) };
        watch(Progress::Step("starting clients"));
        let (addr, identity) = (relay.addr, relay.ed_identity);
        let start = move || Background::start(addr, identity, rate.get());
        let background = tokio::task::spawn_blocking(start)
            .await
            .context("The clients' thread ended")?
            .context("Failed to start the clients")?;
        let offered_bytes_per_sec = rate.get();
        let traffic = ClientTraffic { offered_bytes_per_sec, ..ClientTraffic::default() };
        let mut clients = Self { background, traffic };
        clients.traffic.before_bytes = clients.watch().await;
        Ok(Some(clients))
    }

    /// Bytes that come back in each of the next seconds.
    async fn watch(&self) -> Vec<u64> {
        let mut seconds = Vec::new();
        self.count_from(Instant::now(), usize::from(CLIENT_SECONDS), &mut seconds).await;
        seconds
    }

    /// Measures, and counts meanwhile what comes back in each of the measurement's seconds.
    async fn watch_during(
        &mut self,
        plan: &MeasurePlan,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Outcome {
        let (told, started) = oneshot::channel();
        let mut told = Some(told);
        let mut during = Vec::new();
        let measuring = measure::measure(plan, |progress| {
            if let Progress::Started { at, seconds } = progress
                && let Some(told) = told.take()
            {
                // The counting ends with the measurement and not before.
                let _ = told.send((at, seconds));
            }
            watch(progress);
        });
        let counting = async {
            if let Ok((at, seconds)) = started.await {
                self.count_from(at, usize::from(seconds), &mut during).await;
            }
            // The measurement lasts longer, and its end is the end of both.
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            biased;
            () = counting => unreachable!("it never ends"),
            outcome = measuring => outcome,
        };
        self.traffic.during_bytes = during;
        outcome
    }

    /// Counts what comes back in each of `count` seconds from a moment on.
    async fn count_from(&self, start: Instant, count: usize, seconds: &mut Vec<u64>) {
        let mut ticks = tokio::time::interval_at(start.into(), Duration::from_secs(1));
        ticks.tick().await;
        let mut before = self.background.echoed_bytes();
        while seconds.len() < count {
            ticks.tick().await;
            let now = self.background.echoed_bytes();
            seconds.push(now - before);
            before = now;
        }
    }
}
