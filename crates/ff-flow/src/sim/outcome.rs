//! Results of a simulation.

use ff_report::stats;

/// A download of a benchmark client; its times count from the request, which is sent when its
/// stream is connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Download {
    /// Size in bytes.
    pub size: u32,
    /// When it started, in seconds from the simulation's start.
    pub start_secs: f64,
    /// When it was requested, in seconds from its start.
    pub asked_secs: f64,
    /// Seconds from the request to the first byte; `None` if none arrived.
    pub first_secs: Option<f64>,
    /// Seconds from the request to the last byte; `None` if it was given up.
    pub last_secs: Option<f64>,
}

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// The downloads of the counted time.
    pub downloads: Vec<Download>,
    /// Bytes of cells that all relays carried in each second.
    pub throughput: Vec<f64>,
    /// The mean utilisation of each relay, from 0 to 1.
    pub utilisation: Vec<f64>,
    /// The number of circuits for which no path was found.
    pub without_path: u64,
    /// The greatest number of circuits with a backlog at a time.
    pub most_waiting: usize,
    /// Bytes that users gave up.
    pub given_up_bytes: f64,
    /// The number of circuits, relays and hops of flows visited, as a measure of cost.
    pub work: u64,
}

/// Figures for comparison; times are medians, `None` if there are no values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Median time to the first byte of all downloads, in seconds.
    pub first_secs: Option<f64>,
    /// Median times to the last byte of 50 KiB, 1 MiB and 5 MiB, in seconds.
    pub last_secs: [Option<f64>; 3],
    /// Standard deviations of the times to the last byte, in seconds.
    pub deviations: [Option<f64>; 3],
    /// The share of downloads that timed out: of all, and by size.
    pub timeouts: [Option<f64>; 4],
    /// Median throughput of all relays, in Gbit/s.
    pub gbit: f64,
}

impl FlowOutcome {
    /// Empty results for `relays` relays.
    pub(super) fn new(relays: usize) -> Self {
        Self {
            downloads: Vec::new(),
            throughput: Vec::new(),
            utilisation: vec![0.0; relays],
            without_path: 0,
            most_waiting: 0,
            given_up_bytes: 0.0,
            work: 0,
        }
    }

    /// Counts a relay's traffic in a tick, which can be some seconds long.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub(super) fn count(&mut self, since: f64, tick_secs: f64, relay: usize, carried: f64) {
        // A tick's time is a product that can be just below a whole second.
        let (second, lasts) = ((since + 1e-6) as usize, tick_secs.max(1.0));
        let seconds = second..second + lasts as usize;
        if self.throughput.len() < seconds.end {
            self.throughput.resize(seconds.end, 0.0);
        }
        for in_second in &mut self.throughput[seconds] {
            *in_second += carried / lasts;
        }
        if let Some(used) = self.utilisation.get_mut(relay) {
            *used += carried;
        }
    }

    /// The figures for comparison.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let sizes = super::config::SIZES.map(|(size, ..)| size);
        let last = |size: u32| -> Vec<f64> {
            let of_size = self.downloads.iter().filter(|one| one.size == size);
            of_size.filter_map(|one| one.last_secs).collect()
        };
        // Times to the first byte are those of successful downloads, as for Shadow's.
        let done = self.downloads.iter().filter(|one| one.last_secs.is_some());
        let [a, b, c] = sizes;
        Summary {
            first_secs: stats::median(done.filter_map(|one| one.first_secs).collect()),
            last_secs: sizes.map(|size| stats::median(last(size))),
            deviations: sizes.map(|size| stats::deviation(&last(size))),
            timeouts: [
                self.timeouts(|_| true),
                self.timeouts(|size| size == a),
                self.timeouts(|size| size == b),
                self.timeouts(|size| size == c),
            ],
            // Relays without traffic carry 0.
            gbit: stats::median(self.throughput.clone()).unwrap_or_default() * 8.0 / 1e9,
        }
    }

    /// The share of downloads of some sizes that timed out; `None` if there were no such downloads.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn timeouts(&self, is_of: impl Fn(u32) -> bool) -> Option<f64> {
        let of_size = || self.downloads.iter().filter(|one| is_of(one.size));
        let failed = of_size().filter(|one| one.last_secs.is_none()).count();
        let all = of_size().count();
        (all > 0).then(|| failed as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_that_all_time_out_have_no_time() {
        let [(small, ..), (middle, ..), _] = super::super::config::SIZES;
        let download = |size, last_secs| Download {
            size,
            start_secs: 0.0,
            asked_secs: 0.0,
            first_secs: Some(0.5),
            last_secs,
        };
        let downloads = vec![download(small, Some(2.0)), download(middle, None)];
        let found = FlowOutcome { downloads, ..FlowOutcome::new(1) }.summary();
        assert_eq!(found.last_secs, [Some(2.0), None, None]);
        assert_eq!((found.first_secs, found.deviations[1]), (Some(0.5), None));
        assert_eq!(found.timeouts, [Some(0.5), Some(0.0), Some(1.0), None]);
        assert_eq!(FlowOutcome::new(1).summary(), Summary::default());
    }
}
