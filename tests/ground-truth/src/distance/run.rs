//! One measurement of the relays of a case.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{MeasurePlan, Progress, measure};
use ff_coordinator::team::TeamMember;
use ff_lab::net::Report;
use ff_measurer::measurer_id;
use ff_plan::outcome::Outcome;
use ff_plan::period::links::{KnownPath, links_for};
use ff_proto::aggregate::{self, SecondSample};
use ff_proto::params::Params;
use ff_proto::units::{BytesPerSec, Ratio};
use futures::future::join_all;

use super::case::Case;
use super::hosts::{Hosts, Team};
use super::relay::Relay;

/// How often a run is made again because the emulator was late.
const ATTEMPTS: u32 = 5;
/// How late one packet in a hundred may be, in µs: a burst of a measurer takes the emulator some
/// milliseconds, and is there all the same.
const MAX_LATE_US: f64 = 10_000.0;

/// Settings of all runs.
pub(crate) struct Bench {
    tor: PathBuf,
}

/// The result of measuring one relay.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The estimate divided by what the relay can echo ([`Case::truth`]); `None` without an
    /// estimate.
    pub(crate) ratio: Option<f64>,
    /// The verdict's name.
    pub(crate) verdict: String,
    /// Links that opened.
    pub(super) links: u64,
    /// The echoed bytes of each second before those that count, divided by the same.
    pub(super) settling: Vec<f64>,
    /// The echoed bytes of each second that counts, divided by the same.
    pub(super) counted: Vec<f64>,
    /// The seconds that count.
    samples: Vec<SecondSample>,
    /// The rate that the relay can echo, in bytes per second.
    truth: f64,
    /// How long all of it took, in seconds.
    pub(super) whole_secs: f64,
    /// CPU time of the measurers, in seconds.
    pub(super) cpu_secs: f64,
    /// The same in each second in which cells were sent, in ms.
    pub(super) cpu_by_second: Vec<u64>,
    /// Part of the segments that TCP saw lost, there and back, on the first measurer's path.
    pub(super) losses: (f64, f64),
}

/// A measurement that was made.
struct Made {
    outcome: Outcome,
    /// Since all began.
    took: Duration,
    /// CPU time of the measurers in each second, in ms.
    cpu_by_second: Vec<u64>,
}

impl Run {
    /// The result of measuring a relay that can echo `truth` bytes per second.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a measurement are below 2^53")]
    fn of(Made { outcome, took, cpu_by_second }: &Made, truth: f64) -> Self {
        let part = |bytes: u64| bytes as f64 / truth;
        let path = outcome.paths.first();
        Self {
            ratio: outcome.estimate.map(|estimate| part(estimate.get())),
            verdict: match &outcome.result {
                Ok(verdict) => verdict.name().to_owned(),
                Err(failure) => failure.code().to_owned(),
            },
            links: outcome.sockets.opened,
            settling: outcome.settling_bytes.iter().copied().map(part).collect(),
            counted: outcome.seconds.iter().map(|second| part(second.measurement_bytes)).collect(),
            samples: outcome.seconds.clone(),
            truth,
            whole_secs: took.as_secs_f64(),
            cpu_secs: outcome.cpu.measurers,
            cpu_by_second: cpu_by_second.clone(),
            losses: path.map_or((f64::NAN, f64::NAN), |path| (path.loss_out, path.loss_back)),
        }
    }

    /// The first second in which the relay was full: it echoed 0.95 of what it can.
    pub(super) fn full_after(&self) -> Option<usize> {
        self.settling.iter().chain(&self.counted).position(|&second| second >= 0.95)
    }

    /// The estimates, divided by the same, of consecutive measurements of `secs` seconds each
    /// within this one.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a measurement are below 2^53")]
    pub(crate) fn of_seconds(&self, secs: usize) -> Vec<f64> {
        let estimate = |samples| aggregate::estimate(samples, Ratio::ZERO);
        let windows = self.samples.chunks_exact(secs);
        windows.filter_map(estimate).map(|estimate| estimate.get() as f64 / self.truth).collect()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ratio.map_or("none".to_owned(), |ratio| format!("{ratio:.3}"));
        let full =
            self.full_after().map_or("never".to_owned(), |second| format!("in second {second}"));
        let (out, back) = (self.losses.0 * 100.0, self.losses.1 * 100.0);
        write!(
            f,
            "{ratio} {}, {} links, full {full}, {:.1} s, {:.2} CPU s, {out:.3} % and {back:.3} % lost",
            self.verdict, self.links, self.whole_secs, self.cpu_secs
        )
    }
}

impl Bench {
    /// What runs need, with this tor.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn new(tor: &Path) -> Result<Self> {
        let tor = tor.canonicalize().with_context(|| {
            format!(
                "there is no tor {}: build one with crates/ff-relay-ext/tor/build-tor",
                tor.display()
            )
        })?;
        Ok(Self { tor })
    }

    /// Measures each relay once; again if the emulator was late.
    ///
    /// # Errors
    /// When the relays or links cannot be started, or the emulator was always late.
    pub(crate) fn run(&self, case: &Case) -> Result<Vec<Run>> {
        for _ in 0..ATTEMPTS {
            let (runs, report) = self.attempt(case)?;
            if report.lateness.p99_us <= MAX_LATE_US {
                return Ok(runs);
            }
            eprintln!(
                "    repeating: the emulator was {:.1} ms late",
                report.lateness.p99_us / 1e3
            );
        }
        bail!("the emulator was late {ATTEMPTS} times: is this machine busy?")
    }

    /// Measures each relay once.
    fn attempt(&self, case: &Case) -> Result<(Vec<Run>, Report)> {
        let dir = tempfile::tempdir().context("Failed to make a directory")?;
        let key = SigningKey::from_bytes(&rand::random());
        let coordinator = Base64Unpadded::encode_string(&measurer_id(&key).0);
        let hosts = Hosts::start(case)?;
        let start = |number: u16| {
            let dir = dir.path().join(number.to_string());
            Relay::start(&self.tor, (&hosts, number), &dir, case.rate(), &coordinator)
        };
        let relays = (0..case.relays).map(start).collect::<Result<Vec<_>>>()?;
        let outcomes = hosts.coordinator().run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(measure_all(case, &hosts, &relays, &key))
        })??;
        drop(relays);
        let truth = case.truth()?;
        let runs = outcomes.iter().map(|made| Run::of(made, truth)).collect();
        Ok((runs, hosts.stop()?))
    }
}

/// Measures all relays at once.
async fn measure_all(
    case: &Case,
    hosts: &Hosts,
    relays: &[Relay],
    key: &SigningKey,
) -> Result<Vec<Made>> {
    let team = hosts.team()?;
    let begin = Instant::now();
    let plans: Vec<_> = relays.iter().map(|relay| plan(case, relay, key, &team)).collect();
    let made = async |plan| {
        let mut cpu_by_second = Vec::new();
        let watch = |progress: Progress<'_>| {
            if let Progress::Second { measurers_cpu_micros, .. } = progress {
                cpu_by_second.push(measurers_cpu_micros / 1000);
            }
        };
        let outcome = measure(plan, watch).await;
        Made { outcome, took: begin.elapsed(), cpu_by_second }
    };
    Ok(join_all(plans.iter().map(made)).await)
}

/// What a coordinator does that knows what the relay carries.
fn plan(case: &Case, relay: &Relay, key: &SigningKey, team: &Team) -> MeasurePlan {
    let rate = BytesPerSec::new(case.rate()).scale(case.multiple);
    let expected = (case.links == 0).then_some(BytesPerSec::new(case.rate()));
    let by_rate = |expected| links_for(expected, &KnownPath::default());
    let sockets = expected.map_or(case.links, by_rate);
    let count = u16::try_from(team.measurers.len()).unwrap_or(u16::MAX);
    let member = |(number, measurer): (u16, &Arc<_>)| TeamMember {
        measurer: Arc::clone(measurer),
        sockets: sockets / count + u16::from(number < sockets % count),
        rate: Some(rate.scale(1.0 / f64::from(count))),
    };
    let params = Params { sockets, duration_secs: case.seconds, ..Params::default() };
    let members = (0..).zip(&team.measurers).map(member).collect();
    MeasurePlan { expected, ..MeasurePlan::new(relay.target, key.clone(), params, members) }
}
