//! How late packets were, and whether a run counts.
//!
//! A packet's lateness is the time by which it left later than due, and the time by which it may
//! have waited unread in the sender's device beyond a round of 0.2 ms. Of the latter only the most
//! is known, when the emulator had seen nothing there.
//!
//! A packet that a device has dropped has no lateness, and marks no run by itself. If the emulator
//! was held up, those that the device kept have waited as long and mark it; if somebody sent more
//! at once than the device holds, that would be lost at any network card as well. It is counted,
//! and said at the end, because no link was set to lose it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Below this a run's lateness at p99 is never too much.
const ACCEPTED: Duration = Duration::from_millis(1);

/// As a share of the one-way delay, what is accepted too.
const ACCEPTED_SHARE: f64 = 0.02;

/// The greatest lateness that is told apart.
const MAX: Duration = Duration::from_secs(60);

/// Counts how late packets were.
#[derive(Debug)]
pub(crate) struct Lateness {
    /// In ns, to three digits.
    histogram: Histogram<u64>,
}

/// The lateness of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatenessReport {
    /// Packets that arrived.
    pub packets: u64,
    /// The median, in µs.
    pub p50_us: f64,
    /// What one packet in a hundred exceeds, in µs.
    pub p99_us: f64,
    /// The greatest, in µs.
    pub max_us: f64,
    /// What p99 may be, in µs: the greater of 1 ms and 2 % of the shortest one-way delay between
    /// two hosts.
    pub bound_us: f64,
    /// Whether p99 is above it: then nothing that was measured in the run counts.
    pub is_too_late: bool,
}

impl Lateness {
    /// Nothing counted yet.
    pub(crate) fn new() -> Self {
        let max = nanos(MAX);
        let histogram = Histogram::new_with_bounds(1, max, 3).expect("bounds that may be");
        Self { histogram }
    }

    /// Counts a packet.
    pub(crate) fn record(&mut self, late: Duration) {
        self.histogram.saturating_record(nanos(late).max(1));
    }

    /// Sums up, for a lab whose shortest one-way delay is `one_way`.
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

/// A time in ns.
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
