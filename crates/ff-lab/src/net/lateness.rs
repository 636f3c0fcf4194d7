//! Lateness of packets, and whether it makes a run invalid.
//!
//! A packet's lateness is the time by which it left later than due, plus the time by which it may
//! have waited unread in the sender's device beyond a round of 0.2 ms. Of the latter only an upper
//! bound is known: since when the emulator last found the device empty.
//!
//! A packet that a device drops has no lateness and does not make a run invalid. If the emulator
//! was delayed, packets that the device kept have waited as long and make it invalid; if a host
//! sent more at once than the device holds, a network card would drop it too. Such drops are
//! counted and reported, because no link was set to lose these packets.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// A p99 of a run up to this is always accepted.
const ACCEPTED: Duration = Duration::from_millis(1);

/// Share of the one-way delay up to which a p99 is accepted too.
const ACCEPTED_SHARE: f64 = 0.02;

/// Largest lateness recorded.
const MAX: Duration = Duration::from_secs(60);

/// Histogram of packets' lateness.
#[derive(Debug)]
pub(crate) struct Lateness {
    /// In ns, with three significant digits.
    histogram: Histogram<u64>,
}

/// Lateness of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatenessReport {
    /// Packets that arrived.
    pub packets: u64,
    /// Median, in µs.
    pub p50_us: f64,
    /// 99th percentile, in µs.
    pub p99_us: f64,
    /// Maximum, in µs.
    pub max_us: f64,
    /// Bound of p99, in µs: the greater of 1 ms and 2 % of the shortest one-way delay between two
    /// hosts.
    pub bound_us: f64,
    /// Whether p99 is above the bound, which makes the run's measurements invalid.
    pub is_too_late: bool,
}

impl Lateness {
    pub(crate) fn new() -> Self {
        let max = nanos(MAX);
        let histogram = Histogram::new_with_bounds(1, max, 3).expect("bounds that may be");
        Self { histogram }
    }

    pub(crate) fn record(&mut self, late: Duration) {
        self.histogram.saturating_record(nanos(late).max(1));
    }

    /// Report for a lab with a shortest one-way delay of `one_way`.
    pub(crate) fn report(&self, one_way: Duration) -> LatenessReport {
        let bound = ACCEPTED.max(one_way.mul_f64(ACCEPTED_SHARE));
        let quantile =
            |share| Duration::from_nanos(self.histogram.value_at_quantile(share)).as_secs_f64();
        let packets = self.histogram.len();
        let [p50, p99] = if packets == 0 { [0.0; 2] } else { [0.5, 0.99].map(quantile) };
        LatenessReport {
            packets,
            p50_us: p50 * 1e6,
            p99_us: p99 * 1e6,
            max_us: Duration::from_nanos(self.histogram.max()).as_secs_f64() * 1e6,
            bound_us: bound.as_secs_f64() * 1e6,
            is_too_late: p99 > bound.as_secs_f64(),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(late_us: u64, share: u64, one_way_ms: u64) -> LatenessReport {
        let mut lateness = Lateness::new();
        for packet in 0..1000 {
            let late = if packet < share { late_us } else { 10 };
            lateness.record(Duration::from_micros(late));
        }
        lateness.report(Duration::from_millis(one_way_ms))
    }

    #[test]
    fn a_run_is_too_late_by_p99() {
        assert!(!report(1100, 9, 10).is_too_late, "fewer than one in a hundred");
        assert!(report(1100, 20, 10).is_too_late);
        assert!(!report(1100, 20, 60).is_too_late, "2 % of 60 ms are 1.2 ms");
        assert!(report(1300, 20, 60).is_too_late);
        let found = report(1300, 20, 60);
        assert!((found.bound_us - 1200.0).abs() < 1e-9 && (found.p50_us - 10.0).abs() < 0.1);
    }

    #[test]
    fn nothing_sent_is_not_late() {
        let found = Lateness::new().report(Duration::ZERO);
        assert_eq!((found.packets, found.is_too_late), (0, false));
    }
}
