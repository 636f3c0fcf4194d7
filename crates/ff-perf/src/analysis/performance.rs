//! What users get of accepted circuits: tables 1, 3, 4 and 5 of 002.

use ff_sim::stats;
use serde::Serialize;

use crate::analysis::values;
use crate::read::Seen;

/// Fewer probes of a circuit than this are no series of latencies.
const LEAST_PROBES: u32 = 10;

/// What users get. Each is none where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Performance {
    /// Circuits.
    pub circuits: u64,
    /// Median time to first byte.
    pub ttfb_median_ms: Option<f64>,
    /// Its 90th percentile.
    pub ttfb_p90_ms: Option<f64>,
    /// Median throughput.
    pub throughput_median_mbit_per_sec: Option<f64>,
    /// Its 10th percentile: what 002 calls the 90th, since nine in ten circuits are faster.
    pub throughput_p10_mbit_per_sec: Option<f64>,
    /// Its 90th percentile.
    pub throughput_p90_mbit_per_sec: Option<f64>,
    /// Circuits with at least ten times to first byte each.
    pub latency_circuits: u64,
    /// The mean of their means.
    pub latency_mean_ms: Option<f64>,
    /// The mean of their standard deviations.
    pub latency_deviation_ms: Option<f64>,
}

impl Performance {
    /// Of circuits.
    #[must_use]
    pub fn of(all: &[&Seen]) -> Self {
        let ttfb = stats::sorted(values(all, |seen| seen.ttfb_ms));
        let rate = stats::sorted(values(all, |seen| seen.mbit_per_sec));
        let series =
            || all.iter().filter_map(|seen| seen.latency.filter(|one| one.probes >= LEAST_PROBES));
        let means: Vec<f64> = series().map(|one| one.mean_ms).collect();
        let deviations: Vec<f64> = series().map(|one| one.deviation_ms).collect();
        Self {
            circuits: all.len() as u64,
            ttfb_median_ms: stats::percentile(&ttfb, 50.0),
            ttfb_p90_ms: stats::percentile(&ttfb, 90.0),
            throughput_median_mbit_per_sec: stats::percentile(&rate, 50.0),
            throughput_p10_mbit_per_sec: stats::percentile(&rate, 10.0),
            throughput_p90_mbit_per_sec: stats::percentile(&rate, 90.0),
            latency_circuits: means.len() as u64,
            latency_mean_ms: stats::mean(&means),
            latency_deviation_ms: stats::mean(&deviations),
        }
    }

    /// The mean over hosts, as the last rows of 002's tables are.
    #[must_use]
    pub fn average(all: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(of).collect();
            stats::mean(&values)
        };
        Self {
            circuits: all.iter().map(|one| one.circuits).sum(),
            ttfb_median_ms: mean(|one| one.ttfb_median_ms),
            ttfb_p90_ms: mean(|one| one.ttfb_p90_ms),
            throughput_median_mbit_per_sec: mean(|one| one.throughput_median_mbit_per_sec),
            throughput_p10_mbit_per_sec: mean(|one| one.throughput_p10_mbit_per_sec),
            throughput_p90_mbit_per_sec: mean(|one| one.throughput_p90_mbit_per_sec),
            latency_circuits: all.iter().map(|one| one.latency_circuits).sum(),
            latency_mean_ms: mean(|one| one.latency_mean_ms),
            latency_deviation_ms: mean(|one| one.latency_deviation_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Latency;

    #[test]
    fn what_was_not_measured_is_not_said() {
        let latency = |probes| Some(Latency { mean_ms: 100.0, deviation_ms: 10.0, probes });
        let all = [
            Seen { ttfb_ms: Some(100.0), latency: latency(2), ..Seen::default() },
            Seen { ttfb_ms: Some(300.0), latency: latency(600), ..Seen::default() },
        ];
        let found = Performance::of(&all.iter().collect::<Vec<_>>());
        assert_eq!((found.ttfb_median_ms, found.ttfb_p90_ms), (Some(200.0), Some(280.0)));
        assert_eq!((found.latency_circuits, found.throughput_median_mbit_per_sec), (1, None));
        let none = Performance::of(&[]);
        let average = Performance::average(&[found, none]);
        assert_eq!((average.circuits, average.ttfb_median_ms), (2, Some(200.0)));
    }
}
