//! The phases: the relay forwards downloads or cells in transit, or is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_coordinator::team::{LocalMeasurer, TeamMember};
use ff_lab::RunningDownloads;
use ff_plan::outcome::Outcome;
use ff_proto::aggregate;
use ff_proto::params::Params;

use crate::case::{Case, Witness};
use crate::lab::{Lab, OTHER_CORE, Subject};
use crate::observed::{MemoryWatch, Observed};
use crate::relay::Relay;
use crate::sample::{self, Measured, Sample, Work};
use crate::transit;

/// How long the event of a second may be under way.
const EVENT_DELAY: Duration = Duration::from_millis(100);

/// A case that is being compared.
pub(crate) struct Bench<'a> {
    /// The network.
    lab: &'a Lab,
    /// The case.
    case: &'a Case,
    /// The relay that forwards and echoes.
    target: Observed<'a>,
    /// The relay with direct echo, where that is compared.
    direct: Option<Observed<'a>>,
    /// Downloads through the target, which flow while it forwards only.
    downloads: Vec<RunningDownloads>,
}

impl<'a> Bench<'a> {
    /// Opens the downloads of a case, without a byte flowing yet.
    pub(crate) fn open(lab: &'a Lab, case: &'a Case) -> Result<Self> {
        lab.flow(false)?;
        let downloads = match case.by {
            Witness::Transit => Vec::new(),
            Witness::Downloads | Witness::Both => lab.download(case.position)?,
        };
        let target = Observed::new(lab, Subject::Target, case)?;
        // A BandwidthRate binds either way.
        let has_direct = lab.has_direct() && case.is_cpu();
        let direct = has_direct.then(|| Observed::new(lab, Subject::Direct, case)).transpose()?;
        Ok(Self { lab, case, target, direct, downloads })
    }

    /// Whether there is a relay with direct echo to compare with.
    pub(crate) fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Lets the target forward the downloads.
    pub(crate) fn forward(&mut self, round: u16) -> Result<Sample> {
        let target = &mut self.target;
        target.wait_until_calm()?;
        target.limit(true)?;
        self.lab.flow(true)?;
        thread::sleep(Duration::from_secs(self.case.warm_up_secs.into()));
        target.wait_for_second()?;
        let (memory, from) = (MemoryWatch::default(), target.meter()?);
        let end = from.at + Duration::from_secs(self.case.secs.into());
        memory.watch_while(target.relay, || Instant::now() < end);
        let to = target.meter()?;
        thread::sleep(EVENT_DELAY);
        self.lab.flow(false)?;
        target.limit(false)?;
        let seconds = sample::seconds_within(target.seconds(), from.at, to.at);
        let mut sample = Sample::new(Work::Forward, round, self.case, from, to);
        sample = sample.with_seconds(&seconds);
        sample.core_micros = self.lab.pace.micros_between(from.at, to.at);
        let errors: Vec<_> = self.downloads.iter().flat_map(RunningDownloads::errors).collect();
        if let Some(error) = errors.first() {
            return Err(anyhow!("{} downloads ended: {error}", errors.len()));
        }
        sample.memory_bytes = memory.most().saturating_sub(target.idle_bytes);
        Ok(sample.judged())
    }

    /// Has a relay measured over this many sockets.
    pub(crate) fn echo(&mut self, round: u16, subject: Subject, sockets: u16) -> Result<Sample> {
        let is_direct = subject == Subject::Direct && self.direct.is_some();
        if is_direct {
            // Both have the same core.
            self.target.wait_until_calm()?;
        }
        let work = if is_direct { Work::DirectEcho { sockets } } else { Work::Echo { sockets } };
        let key = self.lab.coordinator(subject)?;
        self.sample(round, work, |case, observed| measure(case, observed, &key, sockets))
    }

    /// Has the target forward cells in transit over this many links.
    pub(crate) fn transit(&mut self, round: u16, sockets: u16) -> Result<Sample> {
        self.sample(round, Work::Transit { sockets }, |case, observed| {
            transit::forward(case, observed, sockets)
        })
    }

    /// Takes a sample of what measurers do.
    fn sample(
        &mut self,
        round: u16,
        work: Work,
        run: impl FnOnce(&Case, &Observed<'a>) -> Result<Measured>,
    ) -> Result<Sample> {
        let case = self.case;
        let observed = match (work, &mut self.direct) {
            (Work::DirectEcho { .. }, Some(direct)) => direct,
            _ => &mut self.target,
        };
        observed.wait_until_calm()?;
        let (memory, is_done) = (MemoryWatch::default(), AtomicBool::new(false));
        let relay = observed.relay;
        let measured = thread::scope(|scope| {
            scope.spawn(|| memory.watch_while(relay, || !is_done.load(Ordering::Relaxed)));
            let measured = run(case, observed);
            is_done.store(true, Ordering::Relaxed);
            measured
        });
        observed.limit(false)?;
        let Measured { rate, from, to, measurers_cpu } = measured?;
        thread::sleep(EVENT_DELAY);
        let seconds = sample::seconds_within(observed.seconds(), from.at, to.at);
        let mut sample = Sample::new(work, round, case, from, to);
        if observed.counts_bytes() {
            sample = sample.with_seconds(&seconds);
        }
        sample.rate = rate;
        sample.core_micros = self.lab.pace.micros_between(from.at, to.at);
        sample.measurers_cpu = Some(measurers_cpu.as_secs_f64() / sample.cpu_secs.max(1e-9));
        sample.memory_bytes = memory.most().saturating_sub(observed.idle_bytes);
        Ok(sample.judged())
    }
}

fn measure(
    case: &Case,
    observed: &Observed<'_>,
    key: &SigningKey,
    sockets: u16,
) -> Result<Measured> {
    let plan = plan(case, observed.relay, key, sockets);
    let last = plan.params.duration_secs - 1;
    let (mut from, mut to, mut error) = (None, None, None);
    let mut measurers_cpu_micros = 0;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(measure::measure(&plan, |progress| match progress {
        // All handshakes are done: the quota would only make them longer.
        Progress::Started { .. } => error = observed.limit(true).err(),
        Progress::Second { second, .. } if second + 1 < case.warm_up_secs => {}
        Progress::Second { second, .. } if second + 1 == case.warm_up_secs => {
            from = observed.meter().ok();
        }
        Progress::Second { second, measurers_cpu_micros: micros, .. } => {
            measurers_cpu_micros += micros;
            if second == last {
                to = observed.meter().ok();
            }
        }
        _ => {}
    }));
    if let Some(error) = error {
        return Err(error);
    }
    if let Err(failure) = &outcome.result {
        return Err(anyhow!("the measurement failed: {} ({})", failure.message, failure.code()));
    }
    let (from, to) = from.zip(to).context("the measurement returned no seconds")?;
    let measurers_cpu = Duration::from_micros(measurers_cpu_micros);
    Ok(Measured { rate: rate_of(case, &outcome)?, from, to, measurers_cpu })
}

/// What to measure, and with what.
fn plan(case: &Case, relay: Relay<'_>, key: &SigningKey, sockets: u16) -> MeasurePlan {
    let params = Params {
        sockets,
        duration_secs: case.warm_up_secs + case.secs,
        cells_per_record: case.cells_per_record,
        ..Params::default()
    };
    let measurer_key = SigningKey::from_bytes(&rand::random());
    let measurer = Arc::new(LocalMeasurer::new("0", measurer_key, vec![OTHER_CORE]));
    let member = TeamMember { measurer, sockets, rate: None };
    let plan = MeasurePlan::new(relay.target(), key.clone(), params, vec![member]);
    MeasurePlan { is_local: true, ..plan }
}

/// The estimate without the warm-up.
fn rate_of(case: &Case, outcome: &Outcome) -> Result<f64> {
    let seconds = outcome.seconds.get(case.warm_up_secs.into()..).unwrap_or_default();
    let estimate = aggregate::estimate(seconds, outcome.ratio);
    estimate.map(|rate| sample::as_f64(rate.get())).context("the measurement has no seconds")
}
