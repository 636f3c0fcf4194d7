//! A relay that is looked at while it works: its own count of bytes, its CPU time, its memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ff_lab::{BwSecond, BwWatch, CpuQuota};

use crate::case::{Case, Limit};
use crate::lab::{self, Lab, Subject};
use crate::relay::Relay;
use crate::sample::Meter;

/// A relay is calm that has moved less than this, in bytes, in a while of this length. What a
/// window has left in queues, also those of other relays, must have drained before the next.
const CALM: (u64, Duration) = (10_000, Duration::from_millis(200));
/// The same of a relay that does not count its bytes, in microseconds of CPU time.
const CALM_CPU_MICROS: u64 = 10_000;
/// How long that may take.
const CALM_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a `BW` event may take under a quota.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// A relay under a case's limit.
pub(crate) struct Observed<'a> {
    pub(crate) relay: Relay<'a>,
    /// Its quota, which is off while connections are opened.
    quota: Option<CpuQuota>,
    percent: Option<f64>,
    /// Its own count of bytes, if it has one.
    watch: Option<BwWatch>,
    /// What that has told so far.
    seconds: Vec<BwSecond>,
    /// Its memory when it was last calm.
    pub(crate) idle_bytes: u64,
}

impl<'a> Observed<'a> {
    /// Begins to look at an idle relay, and sets its limit, but for a quota, which is off yet.
    pub(crate) fn new(lab: &'a Lab, subject: Subject, case: &Case) -> Result<Self> {
        let relay = lab.relay(subject, case)?;
        lab.set_rate(subject, case.limit)?;
        let percent = match case.limit {
            Limit::Cpu { percent } => Some(f64::from(percent)),
            Limit::Core | Limit::AllCores | Limit::Rate { .. } | Limit::RelayRate { .. } => None,
        };
        let quota = percent.map(|_| lab::quota(relay)).transpose()?;
        let watch = match relay {
            Relay::Tor(node) => Some(BwWatch::start(node)?),
            Relay::Arti(_) => None,
        };
        Ok(Self { relay, quota, percent, watch, seconds: Vec::new(), idle_bytes: 0 })
    }

    /// Switches the quota on or off, if there is one.
    pub(crate) fn limit(&self, is_on: bool) -> Result<()> {
        match &self.quota {
            Some(quota) => Ok(quota.change(self.percent.filter(|_| is_on))?),
            None => Ok(()),
        }
    }

    /// Reads the meters.
    pub(crate) fn meter(&self) -> Result<Meter> {
        let quota = self.quota.as_ref().map(CpuQuota::stats).transpose()?.unwrap_or_default();
        Ok(Meter { at: Instant::now(), cpu: self.relay.cpu_time()?, quota })
    }

    /// Waits for the end of the relay's current second.
    pub(crate) fn wait_for_second(&mut self) -> Result<()> {
        self.seconds();
        let (before, deadline) = (self.seconds.len(), Instant::now() + EVENT_TIMEOUT);
        while self.seconds().len() == before {
            if Instant::now() > deadline {
                return Err(anyhow!(
                    "{} reported no second within {EVENT_TIMEOUT:?}",
                    self.relay.name()
                ));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// All its seconds so far; none of a relay that does not count its bytes.
    pub(crate) fn seconds(&mut self) -> &[BwSecond] {
        self.seconds.extend(self.watch.iter().flat_map(BwWatch::take));
        &self.seconds
    }

    /// Whether it counts its bytes.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.watch.is_some()
    }

    /// Waits until it moves nothing worth mentioning, and notes its memory.
    pub(crate) fn wait_until_calm(&mut self) -> Result<()> {
        let (few, a_while) = match self.relay {
            Relay::Tor(_) => CALM,
            Relay::Arti(_) => (CALM_CPU_MICROS, CALM.1),
        };
        let mut moved = work_meter(self.relay)?;
        let deadline = Instant::now() + CALM_TIMEOUT;
        let mut before = moved()?;
        while Instant::now() < deadline {
            thread::sleep(a_while);
            let now = moved()?;
            if now - before < few {
                self.idle_bytes = self.relay.rss_bytes()?;
                return Ok(());
            }
            before = now;
        }
        Err(anyhow!("{} still moves bytes after {CALM_TIMEOUT:?}", self.relay.name()))
    }
}

/// A reading of how much a relay has done.
type WorkMeter<'a> = Box<dyn FnMut() -> Result<u64> + 'a>;

/// Reads how much a relay has done so far: bytes, or microseconds of CPU time if it does not count
/// bytes.
fn work_meter(relay: Relay<'_>) -> Result<WorkMeter<'_>> {
    Ok(match relay {
        Relay::Tor(node) => {
            let mut control = node.control()?;
            Box::new(move || -> Result<u64> {
                let read: u64 = control.getinfo("traffic/read")?.trim().parse()?;
                let written: u64 = control.getinfo("traffic/written")?.trim().parse()?;
                Ok(read + written)
            })
        }
        Relay::Arti(_) => {
            Box::new(move || -> Result<u64> { Ok(u64::try_from(relay.cpu_time()?.as_micros())?) })
        }
    })
}

/// The most memory that a relay had.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch(AtomicU64);

impl MemoryWatch {
    /// Looks as long as this is true.
    pub(crate) fn watch_while(&self, relay: Relay<'_>, go_on: impl Fn() -> bool) {
        while go_on() {
            self.0.fetch_max(relay.rss_bytes().unwrap_or(0), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// In bytes.
    pub(crate) fn most(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
