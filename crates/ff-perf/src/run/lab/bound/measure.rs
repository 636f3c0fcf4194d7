//! Downloads through paths of a private network.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ff_lab::{DownloadPlan, Ending, Network, Node};
use ff_report::progress::ProgressLine;
use serde::Serialize;

use super::queue::{Job, Queue, Size};

/// Size of the paper's downloads, in bytes.
const PUBLISHED_BYTES: u64 = 458_752;
/// Downloads at once, none of which share a limited relay. Together they need far less than two
/// cores can carry.
const AT_ONCE: usize = 4;
/// Longest wait for a first byte.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until a full token bucket, which allows a second's worth at once, is used up and the rate
/// is steady.
const SETTLING: Duration = Duration::from_millis(1500);
/// Time limit of the paper's download, which takes 7 s through the slowest relay possible.
const PUBLISHED_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between downloads: token buckets are full after a second, and no bytes are in flight.
const PAUSE: Duration = Duration::from_millis(1200);

/// Time without traffic before the first download. For twenty seconds after the start of an idle
/// network each relay read about 90 kB/s, more than the slowest one's limit, and again for ten
/// seconds after half a minute.
const QUIET: Duration = Duration::from_secs(60);
/// Interval of checks of the relays' traffic.
const LOOK: Duration = Duration::from_secs(5);
/// A relay counts as idle if it reads less than this share of its limit.
const NOTHING: f64 = 0.1;
/// Longest wait until the network is idle.
const QUIET_TIMEOUT: Duration = Duration::from_secs(300);

/// A finished download.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Done {
    /// Purpose: `alone`, `path`, `slow`, `fast`.
    pub(super) what: &'static str,
    /// Limited relays, first hop first; the exit follows.
    pub(super) path: Vec<usize>,
    /// Bytes received; of long downloads, once the rate had settled.
    pub(super) bytes: u64,
    /// Time for these bytes: since the stream opened, or for long downloads since the rate had
    /// settled.
    pub(super) secs: f64,
}

impl Done {
    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.secs
    }
}

/// A network whose limited relays carry one download each at a time.
pub(super) struct Bench<'a> {
    network: &'a Network,
    /// Interrupts the run.
    ending: &'a Ending,
    limited: Vec<&'a Node>,
    /// Length of a long download.
    long: Duration,
    progress: ProgressLine,
    /// All downloads so far.
    pub(super) done: Vec<Done>,
}

impl<'a> Bench<'a> {
    /// For a network with this number of limited relays.
    pub(super) fn new(network: &'a Network, ending: &'a Ending, relays: usize, secs: u8) -> Self {
        let limited = (0..relays).map(|relay| network.node(&format!("limited{relay}"))).collect();
        let (long, progress) = (Duration::from_secs(secs.into()), ProgressLine::of("ff-perf"));
        Self { network, ending, limited, long, progress, done: Vec::new() }
    }

    /// Waits until the network has been idle for [`QUIET`].
    ///
    /// # Errors
    /// If it does not become idle, or a relay ends.
    pub(super) fn wait_for_quiet(&self, limits: &[u64]) -> Result<()> {
        let began = Instant::now();
        let most = |limit: &u64| *limit as f64 * LOOK.as_secs_f64() * NOTHING;
        let most: Vec<f64> = limits.iter().map(most).collect();
        let (mut read, mut quiet) = (self.read()?, Duration::ZERO);
        while quiet < QUIET {
            if began.elapsed() > QUIET_TIMEOUT {
                bail!(
                    "the relays carried traffic for {QUIET_TIMEOUT:?} although nothing was downloaded"
                );
            }
            self.progress.say(|| {
                format!(
                    "the relays have been quiet for {} s of {}",
                    quiet.as_secs(),
                    QUIET.as_secs()
                )
            });
            self.ending.sleep(LOOK)?;
            let now = self.read()?;
            let is_quiet = |(at, most): (usize, &f64)| (now[at] - read[at]) as f64 <= *most;
            quiet =
                if most.iter().enumerate().all(is_quiet) { quiet + LOOK } else { Duration::ZERO };
            read = now;
        }
        Ok(())
    }

    /// Bytes that each limited relay has read so far.
    fn read(&self) -> Result<Vec<u64>> {
        let of = |node: &&Node| {
            let text = node.control()?.getinfo("traffic/read")?;
            text.parse().with_context(|| format!("traffic/read is {text:?}"))
        };
        self.limited.iter().map(of).collect()
    }

    /// Number of limited relays.
    pub(super) fn relays(&self) -> usize {
        self.limited.len()
    }

    /// Runs downloads, several at once, none of which share a limited relay; bytes per second of
    /// each.
    ///
    /// # Errors
    /// The first failure; no other download begins after it.
    pub(super) fn run(&mut self, jobs: &[Job]) -> Result<Vec<f64>> {
        let queue = Queue::new(jobs, self.relays());
        let began = self.done.len();
        let made = |job: usize| {
            let number = began + queue.begun();
            self.progress.say(|| {
                let (what, path) = (jobs[job].what, &jobs[job].path);
                format!("download {number} of {}: {what} through {path:?}", began + jobs.len())
            });
            self.download(&jobs[job])
        };
        let mut found = std::thread::scope(|scope| {
            let work = || queue.work(&made);
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
            ended.flatten().collect::<Vec<_>>()
        });
        found.sort_by_key(|(job, _)| *job);
        let done = found.into_iter().map(|(_, done)| done).collect::<Result<Vec<_>>>()?;
        let rates = done.iter().map(Done::rate).collect();
        self.done.extend(done);
        Ok(rates)
    }

    fn download(&self, job: &Job) -> Result<Done> {
        let nodes: Vec<_> = job.path.iter().map(|&relay| self.limited[relay]).collect();
        let path: Vec<_> = nodes.into_iter().chain([self.network.node("exit0")]).collect();
        let plan = DownloadPlan::through(&path);
        let carried = || match job.size {
            Size::Long => self.long(&plan),
            Size::Published => self.published(&plan.clone().bytes_each(PUBLISHED_BYTES)),
        };
        let (bytes, time) = carried()
            .with_context(|| format!("a download through relays {:?} and the exit", job.path))?;
        self.ending.sleep(PAUSE)?;
        Ok(Done { what: job.what, path: job.path.clone(), bytes, secs: time.as_secs_f64() })
    }

    /// Downloads for some seconds, once the rate has settled.
    fn long(&self, plan: &DownloadPlan) -> Result<(u64, Duration)> {
        let downloads = self.network.download(self.network.node("client0"), plan)?;
        let deadline = Instant::now() + FIRST_BYTE_TIMEOUT;
        while downloads.bytes() == 0 {
            if downloads.alive() == 0 || Instant::now() > deadline {
                bail!("no byte arrived within {FIRST_BYTE_TIMEOUT:?}");
            }
            self.ending.check()?;
            sleep(Duration::from_millis(1));
        }
        self.ending.sleep(SETTLING)?;
        let (before, began) = (downloads.bytes(), Instant::now());
        self.ending.sleep(self.long)?;
        let (bytes, time) = (downloads.bytes() - before, began.elapsed());
        let errors = downloads.errors();
        errors.first().map_or(Ok((bytes, time)), |error| bail!("it ended early: {error}"))
    }

    /// Downloads as many bytes as the paper did.
    fn published(&self, plan: &DownloadPlan) -> Result<(u64, Duration)> {
        let downloads = self.network.download(self.network.node("client0"), plan)?;
        let began = Instant::now();
        let bytes = downloads.wait(PUBLISHED_TIMEOUT)?;
        Ok((bytes, began.elapsed()))
    }
}
