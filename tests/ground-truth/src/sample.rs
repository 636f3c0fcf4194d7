//! One sample: some seconds in which the relay did one thing.

use std::time::{Duration, Instant};

use ff_lab::{BwSecond, QuotaStats};

use crate::case::{Case, Limit};

/// A quota counts as used up from here on, and at least this share of its periods must have been
/// cut short.
const USED_UP: f64 = 0.98;
/// How far a relay's bytes in and out may be from each other.
const IN_OUT_TOLERANCE: f64 = 0.01;
/// As that, of direct echo: it answers in longer records than it reads, and bounds no queue.
const DIRECT_IN_OUT_TOLERANCE: f64 = 0.05;

/// The relay's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Forwarded cells of ordinary circuits.
    Forward,
    /// Forwarded cells in transit.
    Transit {
        /// The number of our links.
        sockets: u16,
    },
    /// Echoed a team's cells.
    Echo {
        /// The number of links.
        sockets: u16,
    },
    /// As that, past queue and scheduler.
    DirectEcho {
        /// The number of links.
        sockets: u16,
    },
}

impl Work {
    /// How far the bytes in and out may be from each other.
    fn in_out_tolerance(self) -> f64 {
        match self {
            Self::Forward | Self::Transit { .. } | Self::Echo { .. } => IN_OUT_TOLERANCE,
            Self::DirectEcho { .. } => DIRECT_IN_OUT_TOLERANCE,
        }
    }
}

/// The relay's meters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// When.
    pub(crate) at: Instant,
    /// CPU time.
    pub(crate) cpu: Duration,
    /// The use of its quota.
    pub(crate) quota: QuotaStats,
}

/// The measured rate, and the CPU time after the warm-up.
pub(crate) struct Measured {
    /// The rate in bytes per second, without the warm-up.
    pub(crate) rate: f64,
    /// The relay's meters at the end of the warm-up.
    pub(crate) from: Meter,
    /// At the end.
    pub(crate) to: Meter,
    /// CPU time of the measurers in between.
    pub(crate) measurers_cpu: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The relay's work.
    pub(crate) work: Work,
    /// In which round, from 0.
    pub(crate) round: u16,
    /// Bytes per second: its own count of what it forwarded, or FlashFlow's estimate.
    pub(crate) rate: f64,
    /// Full seconds of its own count that lie in the window; 0 of a relay that does not count its
    /// bytes.
    pub(crate) full_secs: usize,
    /// Bytes it read in these, by its own count, TLS included.
    pub(crate) read_bytes: u64,
    /// Bytes it wrote.
    pub(crate) written_bytes: u64,
    /// How long the window was, in seconds.
    pub(crate) window_secs: f64,
    /// CPU seconds in the window.
    pub(crate) cpu_secs: f64,
    /// How much of its quota, or of its core, it used; 1 without either.
    pub(crate) quota_used: f64,
    /// In how many of the periods it was stopped; 1 without a quota.
    pub(crate) throttled: f64,
    /// How long the relay's core took for work that never changes, in microseconds of CPU time.
    pub(crate) core_micros: f64,
    /// CPU seconds of the measurers per CPU second of the relay.
    pub(crate) measurers_cpu: Option<f64>,
    /// The most memory above that of the idle relay, in bytes.
    pub(crate) memory_bytes: u64,
    /// Why it does not count.
    pub(crate) rejected: Option<String>,
}

/// The seconds of a relay's own count that lie within a window.
pub(crate) fn seconds_within(seconds: &[BwSecond], from: Instant, to: Instant) -> Vec<BwSecond> {
    let second = Duration::from_secs(1);
    let slack = Duration::from_millis(50);
    let is_within = |bw: &&BwSecond| bw.at >= from + second - slack && bw.at <= to + slack;
    seconds.iter().filter(is_within).copied().collect()
}

impl Sample {
    /// The sample of a window, from the meters at its ends.
    pub(crate) fn new(work: Work, round: u16, case: &Case, from: Meter, to: Meter) -> Self {
        let window_secs = to.at.duration_since(from.at).as_secs_f64();
        let cpu_secs = to.cpu.saturating_sub(from.cpu).as_secs_f64();
        let (mut quota_used, mut throttled) = (1.0, 1.0);
        match case.limit {
            Limit::Cpu { percent } => {
                quota_used = cpu_secs / window_secs / (f64::from(percent) / 100.0);
                let periods = to.quota.periods - from.quota.periods;
                let stopped = to.quota.throttled_periods - from.quota.throttled_periods;
                throttled = ratio(stopped, periods);
            }
            Limit::Core => quota_used = cpu_secs / window_secs,
            Limit::AllCores | Limit::Rate { .. } | Limit::RelayRate { .. } => {}
        }
        Self {
            work,
            round,
            rate: 0.0,
            full_secs: 0,
            read_bytes: 0,
            written_bytes: 0,
            window_secs,
            cpu_secs,
            quota_used,
            throttled,
            core_micros: f64::NAN,
            measurers_cpu: None,
            memory_bytes: 0,
            rejected: None,
        }
    }

    /// Adds the relay's own count.
    pub(crate) fn with_seconds(mut self, seconds: &[BwSecond]) -> Self {
        self.read_bytes = seconds.iter().map(|bw| bw.read_bytes).sum();
        self.written_bytes = seconds.iter().map(|bw| bw.written_bytes).sum();
        self.full_secs = seconds.len();
        if self.full_secs < 2 {
            self.rejected = Some(format!("{} full seconds", self.full_secs));
        } else if self.work == Work::Forward {
            let bytes = self.read_bytes.min(self.written_bytes);
            self.rate = as_f64(bytes) / as_f64(self.full_secs as u64);
        }
        self
    }

    /// Decides whether it counts.
    pub(crate) fn judged(mut self) -> Self {
        let reason = if self.quota_used < USED_UP {
            Some(format!("{:.1} % of the quota used", 100.0 * self.quota_used))
        } else if self.throttled < USED_UP {
            Some(format!("stopped in {:.1} % of the periods", 100.0 * self.throttled))
        } else if (self.written_to_read() - 1.0).abs() > self.work.in_out_tolerance() {
            Some(format!("{:.3} bytes out for each in", self.written_to_read()))
        } else {
            None
        };
        self.rejected = self.rejected.or(reason);
        self
    }

    /// Bytes written for each byte read; not a number of a relay that does not count them.
    pub(crate) fn written_to_read(&self) -> f64 {
        if self.full_secs == 0 {
            return f64::NAN;
        }
        ratio(self.written_bytes, self.read_bytes)
    }

    /// CPU seconds for a GB forwarded or echoed.
    pub(crate) fn cpu_per_gb(&self) -> f64 {
        self.cpu_secs / (self.rate * self.window_secs / 1e9)
    }
}

/// A quotient; 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { as_f64(part) / as_f64(whole) }
}

/// As a floating point number.
#[expect(clippy::cast_precision_loss, reason = "byte counts of seconds lie far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// The mean; not a number of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / as_f64(values.len() as u64)
}

/// The median; of an even number, the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn only_full_seconds_count() {
        let start = Instant::now();
        let at = |millis| BwSecond {
            at: start + Duration::from_millis(millis),
            read_bytes: millis,
            written_bytes: 0,
        };
        let seconds = [at(300), at(1300), at(2300), at(3300)];
        let within = seconds_within(&seconds, start, start + Duration::from_millis(2900));
        assert_eq!(within.iter().map(|bw| bw.read_bytes).collect::<Vec<_>>(), [1300, 2300]);
    }
}
