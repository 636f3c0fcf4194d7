//! Downloads through paths of a private network.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ff_lab::{DownloadPlan, Ending, Network, Node};
use ff_report::progress::ProgressLine;
use serde::Serialize;

use super::queue::{Job, Queue, Size};

/// The size of the downloads in the throughput bound, in bytes.
const PUBLISHED_BYTES: u64 = 458_752;
/// How many downloads run at once, none of which share a limited relay: together they are far from
/// what two cores carry.
const AT_ONCE: usize = 4;
/// A first byte that takes longer is none.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// A token bucket that is full gives a second's worth at once; what comes after this is what it
/// gives for good.
const SETTLING: Duration = Duration::from_millis(1500);
/// The published download through the slowest relay there can be takes 7 s.
const PUBLISHED_TIMEOUT: Duration = Duration::from_secs(60);
/// Between downloads: token buckets have filled again after a second, and what was on its way has
/// gone.
const PAUSE: Duration = Duration::from_millis(1200);

/// For so long the relays carry nothing before the first download. For twenty seconds after the
/// start of an idle network each has read some 90 kB/s, more than the slowest one's limit, and
/// again for ten seconds when half a minute had passed.
const QUIET: Duration = Duration::from_secs(60);
/// How often it is looked what they carry.
const LOOK: Duration = Duration::from_secs(5);
/// A relay carries nothing if it reads less than this part of what its limit lets through.
const NOTHING: f64 = 0.1;
/// When it is given up to wait for that.
const QUIET_TIMEOUT: Duration = Duration::from_secs(300);

/// A download that was made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Done {
    /// What for: `alone`, `path`, `slow`, `fast`.
    pub(super) what: &'static str,
    /// Its limited relays, the first hop first; the exit follows.
    pub(super) path: Vec<usize>,
    /// What arrived; of long downloads, once the rate had settled.
    pub(super) bytes: u64,
    /// How long that took: from the stream's opening, for long downloads from when the rate had
    /// settled.
    pub(super) secs: f64,
}

impl Done {
    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.secs
    }
}

/// A network whose limited relays carry one download each at a time.
pub(super) struct Bench<'a> {
    network: &'a Network,
    /// Requests for its end.
    ending: &'a Ending,
    /// Its limited relays.
    limited: Vec<&'a Node>,
    /// How long a long download takes.
    long: Duration,
    progress: ProgressLine,
    /// All that was downloaded.
    pub(super) done: Vec<Done>,
}

impl<'a> Bench<'a> {
    /// Of a network with this number of limited relays.
    pub(super) fn new(network: &'a Network, ending: &'a Ending, relays: usize, secs: u8) -> Self {
        let limited = (0..relays).map(|relay| network.node(&format!("limited{relay}"))).collect();
        let (long, progress) = (Duration::from_secs(secs.into()), ProgressLine::of("ff-perf"));
        Self { network, ending, limited, long, progress, done: Vec::new() }
    }

    /// Waits until the network has carried nothing for a while.
    ///
    /// # Errors
    /// When that does not come, and when a relay ends.
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

    /// The bytes that each limited relay has read so far.
    fn read(&self) -> Result<Vec<u64>> {
        let of = |node: &&Node| {
            let text = node.control()?.getinfo("traffic/read")?;
            text.parse().with_context(|| format!("traffic/read is {text:?}"))
        };
        self.limited.iter().map(of).collect()
    }

    /// How many limited relays there are.
    pub(super) fn relays(&self) -> usize {
        self.limited.len()
    }

    /// Makes downloads, some at once, none of which share a limited relay; bytes a second of each.
    ///
    /// # Errors
    /// The first that failed; no other is begun then.
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

    /// Downloads as much as the throughput bound's authors did.
    fn published(&self, plan: &DownloadPlan) -> Result<(u64, Duration)> {
        let downloads = self.network.download(self.network.node("client0"), plan)?;
        let began = Instant::now();
        let bytes = downloads.wait(PUBLISHED_TIMEOUT)?;
        Ok((bytes, began.elapsed()))
    }
}
