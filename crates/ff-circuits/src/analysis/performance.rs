//! The performance of accepted circuits: tables 1, 3, 4 and 5 of NavigaTor.

use ff_report::stats;
use serde::Serialize;

use super::analysed::values;
use crate::read::{Latency, Seen};

/// The performance for users. A value is none if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Performance {
    /// The number of circuits.
    pub circuits: u64,
    /// The number of circuits with a time to first byte.
    pub ttfb_circuits: u64,
    /// Median time to first byte.
    pub ttfb_median_ms: Option<f64>,
    /// 90th percentile of time to first byte.
    pub ttfb_p90_ms: Option<f64>,
    /// The number of circuits with a throughput.
    pub throughput_circuits: u64,
    /// Median throughput.
    pub throughput_median_mbit_per_sec: Option<f64>,
    /// 10th percentile of throughput. NavigaTor calls it the 90th, because nine in ten circuits are
    /// faster.
    pub throughput_p10_mbit_per_sec: Option<f64>,
    /// 90th percentile of throughput.
    pub throughput_p90_mbit_per_sec: Option<f64>,
    /// The number of circuits with at least ten times to first byte over their life.
    pub latency_circuits: u64,
    /// The number of these whose times to first byte ended with a failed one.
    pub latency_cut_circuits: u64,
    /// The median number of their times to first byte.
    pub latency_probes: Option<f64>,
    /// The median time from the first to the last of them, in seconds.
    pub latency_secs: Option<f64>,
    /// The mean of the circuits' means, in ms.
    pub latency_mean_ms: Option<f64>,
    /// The mean of the circuits' standard deviations, in ms: the variation within a circuit.
    pub latency_deviation_ms: Option<f64>,
    /// The standard deviation of all their times to first byte, in ms, which includes the variation
    /// between circuits.
    pub latency_pooled_deviation_ms: Option<f64>,
}

impl Performance {
    /// Of these circuits.
    #[must_use]
    pub fn of(all: &[&Seen]) -> Self {
        let ttfb = stats::sorted(values(all, |seen| seen.ttfb_ms));
        let rate = stats::sorted(values(all, |seen| seen.mbit_per_sec));
        let series: Vec<Latency> =
            all.iter().filter_map(|seen| seen.latency.filter(Latency::is_series)).collect();
        let of = |value: fn(&Latency) -> f64| series.iter().map(value).collect::<Vec<f64>>();
        Self {
            circuits: all.len() as u64,
            ttfb_circuits: ttfb.len() as u64,
            ttfb_median_ms: stats::percentile(&ttfb, 50.0),
            ttfb_p90_ms: stats::percentile(&ttfb, 90.0),
            throughput_circuits: rate.len() as u64,
            throughput_median_mbit_per_sec: stats::percentile(&rate, 50.0),
            throughput_p10_mbit_per_sec: stats::percentile(&rate, 10.0),
            throughput_p90_mbit_per_sec: stats::percentile(&rate, 90.0),
            latency_circuits: series.len() as u64,
            latency_cut_circuits: series.iter().filter(|one| one.is_cut).count() as u64,
            latency_probes: stats::median(of(|one| f64::from(one.probes))),
            latency_secs: stats::median(of(|one| one.secs)),
            latency_mean_ms: stats::mean(&of(|one| one.mean_ms)),
            latency_deviation_ms: stats::mean(&of(|one| one.deviation_ms)),
            latency_pooled_deviation_ms: pooled_deviation_ms(&series),
        }
    }

    /// The mean over hosts, as in the last rows of NavigaTor's tables.
    #[must_use]
    pub fn average(all: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(of).collect();
            stats::mean(&values)
        };
        Self {
            circuits: all.iter().map(|one| one.circuits).sum(),
            ttfb_circuits: all.iter().map(|one| one.ttfb_circuits).sum(),
            ttfb_median_ms: mean(|one| one.ttfb_median_ms),
            ttfb_p90_ms: mean(|one| one.ttfb_p90_ms),
            throughput_circuits: all.iter().map(|one| one.throughput_circuits).sum(),
            throughput_median_mbit_per_sec: mean(|one| one.throughput_median_mbit_per_sec),
            throughput_p10_mbit_per_sec: mean(|one| one.throughput_p10_mbit_per_sec),
            throughput_p90_mbit_per_sec: mean(|one| one.throughput_p90_mbit_per_sec),
            latency_circuits: all.iter().map(|one| one.latency_circuits).sum(),
            latency_cut_circuits: all.iter().map(|one| one.latency_cut_circuits).sum(),
            latency_probes: mean(|one| one.latency_probes),
            latency_secs: mean(|one| one.latency_secs),
            latency_mean_ms: mean(|one| one.latency_mean_ms),
            latency_deviation_ms: mean(|one| one.latency_deviation_ms),
            latency_pooled_deviation_ms: mean(|one| one.latency_pooled_deviation_ms),
        }
    }
}

/// The standard deviation of all values of several series, from each one's mean and deviation.
fn pooled_deviation_ms(series: &[Latency]) -> Option<f64> {
    let count: f64 = series.iter().map(|one| f64::from(one.probes)).sum();
    let sum = |value: &dyn Fn(&Latency) -> f64| {
        series.iter().map(|one| f64::from(one.probes) * value(one)).sum::<f64>() / count
    };
    let mean = sum(&|one| one.mean_ms);
    let square = sum(&|one| one.deviation_ms.powi(2) + (one.mean_ms - mean).powi(2));
    (count > 0.0).then(|| square.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_said() {
        let latency = |probes| {
            let (secs, is_cut) = (f64::from(probes) - 1.0, false);
            Some(Latency { mean_ms: 100.0, deviation_ms: 10.0, probes, secs, is_cut })
        };
        let all = [
            Seen { ttfb_ms: Some(100.0), latency: latency(2), ..Seen::default() },
            Seen { ttfb_ms: Some(300.0), latency: latency(600), ..Seen::default() },
        ];
        let found = Performance::of(&all.iter().collect::<Vec<_>>());
        assert_eq!((found.ttfb_median_ms, found.ttfb_p90_ms), (Some(200.0), Some(280.0)));
        assert_eq!((found.latency_circuits, found.throughput_median_mbit_per_sec), (1, None));
        assert_eq!((found.ttfb_circuits, found.throughput_circuits), (2, 0));
        let none = Performance::of(&[]);
        let average = Performance::average(&[found, none]);
        assert_eq!((average.circuits, average.ttfb_median_ms), (2, Some(200.0)));
        assert_eq!(average.ttfb_circuits, 2);
    }

    #[test]
    fn a_pooled_deviation_is_that_of_all_values() {
        let values: [&[f64]; 2] = [&[1.0, 2.0, 6.0, 3.0], &[10.0, 14.0]];
        let series = values.map(|all| Latency {
            mean_ms: stats::mean(all).expect("a mean"),
            deviation_ms: stats::deviation(all).expect("a deviation"),
            probes: u32::try_from(all.len()).expect("few"),
            secs: 0.0,
            is_cut: false,
        });
        let found = pooled_deviation_ms(&series).expect("a deviation");
        let all = values.concat();
        assert!((found - stats::deviation(&all).expect("a deviation")).abs() < 1e-12, "{found}");
        assert_eq!(pooled_deviation_ms(&[]), None);
    }
}
