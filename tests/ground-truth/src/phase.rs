//! The two things the relay is made to do: forward downloads, and be measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ed25519_dalek::SigningKey;
use ff_bwauth::measure::{self, Plan, Progress, TeamMember};
use ff_bwauth::outcome::Outcome;
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_proto::params::Params;
use tornet::{BwWatch, CpuQuota, Node};

use crate::case::{Case, Limit};
use crate::cli::Cli;
use crate::lab::{Lab, OTHER_CORE, Subject};
use crate::sample::{self, Meter, Sample, Work};

/// A relay is calm that has moved less than this, in bytes, in a while of this length. What a
/// sample has left in queues, also those of other relays, must have drained before the next.
const CALM: (u64, Duration) = (20_000, Duration::from_millis(1000));
/// How long that may take.
const CALM_TIMEOUT: Duration = Duration::from_secs(30);

/// What both phases need.
pub(crate) struct Bench<'a> {
    /// The network.
    pub(crate) lab: &'a Lab,
    /// How long to warm up and to measure.
    pub(crate) cli: &'a Cli,
    /// What is compared.
    pub(crate) case: &'a Case,
    /// In which round.
    pub(crate) round: u16,
}

/// A relay that is looked at.
struct Observed<'a> {
    /// The relay.
    node: &'a Node,
    /// Its quota, which is off while connections are opened.
    quota: Option<CpuQuota>,
    /// Its percentage.
    percent: Option<f64>,
    /// Its own count of bytes.
    watch: BwWatch,
    /// Its memory when it was idle.
    idle_bytes: u64,
}

impl<'a> Observed<'a> {
    /// Begins to look.
    fn new(bench: &Bench<'a>, subject: Subject) -> Result<Self> {
        let node = bench.lab.node(subject);
        let percent = match bench.case.limit {
            Limit::Cpu { percent } => Some(f64::from(percent)),
            Limit::Rate { .. } => None,
        };
        wait_until_calm(node)?;
        bench.lab.set_rate(subject, bench.case.limit)?;
        let quota = percent.map(|_| bench.lab.quota(subject)).transpose()?;
        let idle_bytes = node.rss_bytes()?;
        Ok(Self { node, quota, percent, watch: BwWatch::start(node)?, idle_bytes })
    }

    /// Switches the quota on.
    fn limit(&self) -> Result<()> {
        match &self.quota {
            Some(quota) => Ok(quota.change(self.percent)?),
            None => Ok(()),
        }
    }

    /// Reads the meters.
    fn meter(&self) -> Result<Meter> {
        let quota = self.quota.as_ref().map(CpuQuota::stats).transpose()?.unwrap_or_default();
        Ok(Meter { at: Instant::now(), cpu: self.node.cpu_time()?, quota })
    }

    /// The sample of a window.
    fn sample(self, bench: &Bench<'_>, work: Work, from: Meter, to: Meter) -> Sample {
        // The event of the last second may be under way.
        thread::sleep(Duration::from_millis(100));
        let seconds = sample::seconds_within(&self.watch.stop(), from.at, to.at);
        Sample::new(work, bench.round, bench.case, from, to).with_seconds(&seconds)
    }
}

impl Bench<'_> {
    /// Lets the target forward downloads.
    pub(crate) fn forward(&self) -> Result<Sample> {
        let observed = Observed::new(self, Subject::Target)?;
        let memory = MemoryWatch::default();
        let downloads = self.lab.download(self.case.position)?;
        observed.limit()?;
        thread::sleep(Duration::from_secs(self.cli.warm_up.into()));
        let from = observed.meter()?;
        let (node, end) = (observed.node, from.at + Duration::from_secs(self.cli.seconds.into()));
        memory.watch_until(node, end);
        let to = observed.meter()?;
        let idle = observed.idle_bytes;
        let mut sample = observed.sample(self, Work::Forward, from, to);
        let errors: Vec<_> = downloads.iter().flat_map(tornet::Downloads::errors).collect();
        if let Some(error) = errors.first() {
            sample.rejected = Some(format!("{} streams ended: {error}", errors.len()));
        }
        drop(downloads);
        sample.memory_bytes = memory.most().saturating_sub(idle);
        Ok(sample.judged())
    }

    /// Has the target measured over so many sockets, while the other relays forward about `beside`
    /// bytes per second.
    pub(crate) fn echo(
        &self,
        subject: Subject,
        sockets: u16,
        beside: Option<f64>,
    ) -> Result<Sample> {
        let key = SigningKey::from_bytes(&rand::random());
        self.lab.allow(subject, &key)?;
        let observed = Observed::new(self, subject)?;
        let downloads = beside.map(|rate| self.lab.download_past_target(rate)).transpose()?;
        let (memory, is_done) = (MemoryWatch::default(), AtomicBool::new(false));
        let measured = thread::scope(|scope| {
            scope.spawn(|| memory.watch_while(observed.node, || !is_done.load(Ordering::Relaxed)));
            let measured = self.measure(&observed, &key, sockets);
            is_done.store(true, Ordering::Relaxed);
            measured
        });
        let (outcome, from, to) = measured?;
        drop(downloads);
        let work = match subject {
            Subject::Target => Work::Echo { sockets },
            Subject::Direct => Work::DirectEcho { sockets },
        };
        let (idle, relay_cpu) = (observed.idle_bytes, observed.node.cpu_time()?);
        let mut sample = observed.sample(self, work, from, to);
        sample.rate = self.rate_of(&outcome)?;
        let relay_cpu = relay_cpu.saturating_sub(from.cpu).as_secs_f64();
        // The measurers' seconds are those of the whole measurement, the relay's without warm-up.
        let share = f64::from(self.cli.seconds) / f64::from(self.cli.seconds + self.cli.warm_up);
        sample.measurers_cpu = Some(outcome.cpu.measurers * share / relay_cpu.max(1e-9));
        sample.memory_bytes = memory.most().saturating_sub(idle);
        Ok(sample.judged())
    }

    /// Measures; also the meters at the end of the warm-up and at the end.
    fn measure(
        &self,
        observed: &Observed<'_>,
        key: &SigningKey,
        sockets: u16,
    ) -> Result<(Outcome, Meter, Meter)> {
        let plan = self.plan(observed.node, key, sockets);
        let last = plan.params.duration_secs - 1;
        let (mut from, mut to, mut error) = (None, None, None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(measure::measure(&plan, |progress| match progress {
            // All handshakes are done: the quota would only make them longer.
            Progress::Step("measuring") => error = observed.limit().err(),
            Progress::Second { second, .. } if second + 1 == self.cli.warm_up => {
                from = observed.meter().ok();
            }
            Progress::Second { second, .. } if second == last => to = observed.meter().ok(),
            _ => {}
        }));
        if let Some(error) = error {
            return Err(error);
        }
        if let Err(failure) = &outcome.result {
            return Err(anyhow!("the measurement failed: {} ({})", failure.message, failure.code));
        }
        let (from, to) = from.zip(to).context("the measurement showed no seconds")?;
        Ok((outcome, from, to))
    }

    /// What to measure, and with what.
    fn plan(&self, node: &Node, key: &SigningKey, sockets: u16) -> Plan {
        let addr = node.or_addr();
        Plan {
            target: TargetAddr { addr, ed_identity: node.ed_identity().into() },
            address_text: addr.to_string(),
            key: key.clone(),
            params: Params {
                sockets,
                duration_secs: self.cli.warm_up + self.cli.seconds,
                ..Params::default()
            },
            team: vec![TeamMember {
                key: SigningKey::from_bytes(&rand::random()),
                sockets,
                rate: None,
                cores: vec![OTHER_CORE],
            }],
            limit: None,
            is_local: true,
            link: LinkOptions::default(),
        }
    }

    /// The estimate without the warm-up: the median second.
    fn rate_of(&self, outcome: &Outcome) -> Result<f64> {
        let warm_up = usize::from(self.cli.warm_up);
        let seconds = outcome.seconds.iter().skip(warm_up);
        let rates = seconds.map(|second| sample::as_f64(second.total_bytes(outcome.ratio)));
        sample::median(rates.collect()).context("the measurement has no seconds")
    }
}

/// Waits until a relay moves nothing worth mentioning.
fn wait_until_calm(node: &Node) -> Result<()> {
    let mut control = node.control()?;
    let mut moved = || -> Result<u64> {
        let read: u64 = control.getinfo("traffic/read")?.trim().parse()?;
        let written: u64 = control.getinfo("traffic/written")?.trim().parse()?;
        Ok(read + written)
    };
    let (few, a_while) = CALM;
    let deadline = Instant::now() + CALM_TIMEOUT;
    let mut before = moved()?;
    while Instant::now() < deadline {
        thread::sleep(a_while);
        let now = moved()?;
        if now - before < few {
            return Ok(());
        }
        before = now;
    }
    Err(anyhow!("{} still moves bytes after {CALM_TIMEOUT:?}", node.name()))
}

/// The most memory that a relay had.
#[derive(Debug, Default)]
struct MemoryWatch(AtomicU64);

impl MemoryWatch {
    /// Looks until a moment.
    fn watch_until(&self, node: &Node, end: Instant) {
        self.watch_while(node, || Instant::now() < end);
    }

    /// Looks as long as this is true.
    fn watch_while(&self, node: &Node, go_on: impl Fn() -> bool) {
        while go_on() {
            self.0.fetch_max(node.rss_bytes().unwrap_or(0), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// In bytes.
    fn most(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
