//! What a relay and its clients move, looked at many times a second.
//!
//! A measurement's seconds begin when the relay echoes its first cell, those of tor's `BW` events
//! when its timer was set up. So that both can be compared, the counters that BW events are the
//! differences of (`traffic/read`, `traffic/written`) are asked for every [`PERIOD`] and
//! interpolated at any moment in between. What was read from TLS counts there, record headers
//! included; the control port's bytes do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ff_lab::{Control, Node, RunningDownloads};

/// How often the counters are looked at: more than tor's bandwidth buckets are refilled by default
/// (100 ms).
const PERIOD: Duration = Duration::from_millis(20);

/// One look.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// When.
    at: Instant,
    /// Bytes the relay has read.
    read: u64,
    /// Bytes the relay has written.
    written: u64,
    /// Bytes the clients have downloaded.
    downloaded: u64,
    /// The relay's resident memory.
    rss: u64,
}

/// All looks, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<Sample>);

/// Does something while a relay and downloads are looked at.
///
/// # Panics
/// When the relay ends.
pub(crate) fn metered<T>(
    node: &Node,
    downloads: &[RunningDownloads],
    work: impl FnOnce() -> T,
) -> (T, Record) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let meter = scope.spawn(|| record_until(node, downloads, &is_done));
        // Also when `work` panics: the scope waits for the meter.
        let stop = SetOnDrop(&is_done);
        let result = work();
        drop(stop);
        (result, meter.join().expect("the meter"))
    })
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks until it is done, and once more.
fn record_until(node: &Node, downloads: &[RunningDownloads], is_done: &AtomicBool) -> Record {
    let mut control = node.control().expect("a control connection");
    let mut samples = Vec::new();
    loop {
        let is_last = is_done.load(Ordering::Relaxed);
        samples.push(look(node, &mut control, downloads));
        if is_last {
            return Record(samples);
        }
        thread::sleep(PERIOD);
    }
}

/// Looks once.
fn look(node: &Node, control: &mut Control, downloads: &[RunningDownloads]) -> Sample {
    let before = Instant::now();
    let reply = control.command("GETINFO traffic/read traffic/written").expect("the counters");
    // A busy relay answers late; the truth lies in between.
    let at = before + before.elapsed() / 2;
    let value = |key| reply.value(key).and_then(|text| text.parse().ok()).expect("a number");
    Sample {
        at,
        read: value("traffic/read"),
        written: value("traffic/written"),
        downloaded: downloads.iter().map(RunningDownloads::bytes).sum(),
        rss: node.rss_bytes().expect("the relay runs"),
    }
}

impl Record {
    /// Bytes the relay read between two moments.
    pub(crate) fn read(&self, from: Instant, to: Instant) -> f64 {
        self.between(|sample| sample.read, from, to)
    }

    /// Bytes the relay wrote between two moments.
    pub(crate) fn written(&self, from: Instant, to: Instant) -> f64 {
        self.between(|sample| sample.written, from, to)
    }

    /// Bytes the clients downloaded between two moments.
    pub(crate) fn downloaded(&self, from: Instant, to: Instant) -> f64 {
        self.between(|sample| sample.downloaded, from, to)
    }

    /// The most memory that the relay had.
    pub(crate) fn most_rss(&self) -> u64 {
        self.0.iter().map(|sample| sample.rss).max().unwrap_or(0)
    }

    /// How much a counter grew between two moments.
    fn between(&self, counter: impl Fn(&Sample) -> u64, from: Instant, to: Instant) -> f64 {
        self.at(&counter, to) - self.at(&counter, from)
    }

    /// The interpolated value of a counter.
    fn at(&self, counter: impl Fn(&Sample) -> u64, moment: Instant) -> f64 {
        let next = self.0.partition_point(|sample| sample.at < moment);
        let (Some(left), Some(right)) = (self.0.get(next.wrapping_sub(1)), self.0.get(next)) else {
            panic!("nobody looked around {moment:?}");
        };
        let share = (moment - left.at).as_secs_f64() / (right.at - left.at).as_secs_f64();
        let (low, high) = (as_f64(counter(left)), as_f64(counter(right)));
        low + share * (high - low)
    }
}

/// As a floating point number.
#[expect(clippy::cast_precision_loss, reason = "a test's byte counts lie far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// The median; of an even number, the mean of the two in the middle.
///
/// # Panics
/// Of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().checked_sub(1).expect("values") / 2;
    f64::midpoint(values[lower], values[upper])
}
