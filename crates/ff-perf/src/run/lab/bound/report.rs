//! Results as tables, figures and JSON.

use std::fmt::Write as _;

use anyhow::Result;
use ff_circuits::lab::strata::Mean;
use ff_report::figure::{Axis, Figure};
use ff_report::output::Folder;
use ff_report::stats;
use serde::Serialize;

use super::measure::Done;

/// Largest relative deviation of long downloads' means from B (ledger row Q13).
const MOST_OFF: f64 = 0.1;

/// Results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Version of this document.
    schema: u32,
    #[serde(flatten)]
    setting: Setting,
    /// Limits of the relays.
    limits_bytes_per_sec: Vec<u64>,
    /// Throughput of each relay alone.
    capacities_bytes_per_sec: Vec<f64>,
    /// By number of limited relays.
    lengths: Vec<Length>,
    /// Figure 6.
    slow_relay: SlowRelay,
    checks: Vec<Check>,
    /// Whether all checks hold.
    pub(super) is_as_published: bool,
    /// All downloads.
    #[serde(skip)]
    done: Vec<Done>,
}

/// Settings of the experiment.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    /// The relays' tor: version and path.
    pub(super) tor: String,
    /// Random seed of the paths.
    pub(super) seed: u64,
    /// Seconds of a long download.
    pub(super) long_secs: u8,
}

/// Paths of one length.
#[derive(Debug, Serialize)]
pub(super) struct Length {
    /// Number of limited relays of a path; an exit follows.
    pub(super) limited_relays: usize,
    /// Each relay with the same probability.
    pub(super) uniform: Means,
    /// By capacity.
    pub(super) weighted: Means,
}

/// Mean throughput of random paths.
#[derive(Debug, Serialize)]
pub(super) struct Means {
    /// The bound B, from the capacities.
    pub(super) bound_bytes_per_sec: f64,
    /// Long downloads.
    pub(super) long: Measured,
    /// Downloads of 458,752 bytes.
    pub(super) published: Measured,
}

/// A measured mean.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    bytes_per_sec: f64,
    /// Standard error, if each kind of path was measured twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_error_bytes_per_sec: Option<f64>,
}

impl From<Mean> for Measured {
    fn from(mean: Mean) -> Self {
        Self { bytes_per_sec: mean.value, standard_error_bytes_per_sec: mean.error }
    }
}

impl Means {
    /// Mean of long downloads divided by B.
    fn ratio(&self) -> f64 {
        self.long.bytes_per_sec / self.bound_bytes_per_sec
    }
}

/// Figure 6: a short path with a slow relay compared with a longer path without.
#[derive(Debug, Serialize)]
pub(super) struct SlowRelay {
    /// Path with the slow relay.
    slow: PathMean,
    /// Path without it.
    fast: PathMean,
    /// The paper's results in KB/s: three hops with a slow relay, and four without.
    paper_kbytes_per_sec: [f64; 2],
}

impl SlowRelay {
    /// Compares these paths with the paper's.
    pub(super) fn of(slow: PathMean, fast: PathMean) -> Self {
        Self { slow, fast, paper_kbytes_per_sec: [19.61, 42.22] }
    }
}

/// Mean of a path's downloads.
#[derive(Debug, Serialize)]
pub(super) struct PathMean {
    /// Number of hops, including the exit.
    hops: usize,
    limited_relays: Vec<usize>,
    /// Number of downloads.
    downloads: usize,
    bytes_per_sec: f64,
    /// Half the width of the 95 % interval.
    half_width_bytes_per_sec: f64,
}

impl PathMean {
    pub(super) fn of(path: &[usize], carried: &[f64]) -> Self {
        Self {
            hops: path.len() + 1,
            limited_relays: path.to_vec(),
            downloads: carried.len(),
            bytes_per_sec: stats::mean(carried).unwrap_or(f64::NAN),
            half_width_bytes_per_sec: stats::half_width_95(carried).unwrap_or(f64::NAN),
        }
    }
}

/// A condition and whether it holds.
#[derive(Debug, Serialize)]
struct Check {
    what: String,
    holds: bool,
}

impl Report {
    /// Report of these results.
    pub(super) fn new(
        setting: Setting,
        limits: &[u64],
        capacities: Vec<f64>,
        lengths: Vec<Length>,
        slow_relay: SlowRelay,
        done: Vec<Done>,
    ) -> Self {
        let checks = checks(&lengths, &slow_relay);
        Self {
            schema: 1,
            setting,
            limits_bytes_per_sec: limits.to_vec(),
            capacities_bytes_per_sec: capacities,
            is_as_published: checks.iter().all(|check| check.holds),
            lengths,
            slow_relay,
            checks,
            done,
        }
    }

    pub(super) fn write(&self, folder: &Folder) -> Result<()> {
        let header = ["download", "what", "limited_relays", "bytes", "time_s", "rate_bytes_per_s"];
        let row = |(number, done): (usize, &Done)| {
            let path: Vec<_> = done.path.iter().map(usize::to_string).collect();
            let (bytes, secs) = (done.bytes.to_string(), format!("{:.6}", done.secs));
            let rate = format!("{:.0}", done.rate());
            [(number + 1).to_string(), done.what.to_owned(), path.join(" "), bytes, secs, rate]
        };
        folder.table("downloads.csv", &header, self.done.iter().enumerate().map(row))?;
        folder.write("fig7.svg", self.figure().svg().as_bytes())?;
        folder
            .write("bound.json", format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())?;
        Ok(())
    }

    /// Figure 7.
    fn figure(&self) -> Figure {
        let x = Axis::linear("limited relays of a path");
        let y = Axis::log("mean throughput, kB/s");
        let curve = |of: fn(&Length) -> f64| {
            let point = |length: &Length| (length.limited_relays as f64, of(length) / 1e3);
            self.lengths.iter().map(point).collect::<Vec<_>>()
        };
        Figure::new("fig7", "Throughput of random paths, and B(n, m)", x, y)
            .with("B, uniform", curve(|length| length.uniform.bound_bytes_per_sec))
            .with("B, weighted", curve(|length| length.weighted.bound_bytes_per_sec))
            .with_marks("measured, uniform", curve(|length| length.uniform.long.bytes_per_sec))
            .with_marks("measured, weighted", curve(|length| length.weighted.long.bytes_per_sec))
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "Mean throughput of random paths, kB/s: B of capacities that were measured, downloads of {} s, and of 458,752 bytes; {}\n\
             {:>7} | {:>8} {:>8} {:>6} {:>8} | {:>8} {:>8} {:>6} {:>8}\n",
            self.setting.long_secs,
            self.setting.tor,
            "limited",
            "uniform",
            "long",
            "ratio",
            "short",
            "weighted",
            "long",
            "ratio",
            "short"
        );
        for length in &self.lengths {
            // Writing to a string cannot fail.
            let _ = write!(text, "{:>7}", length.limited_relays);
            for means in [&length.uniform, &length.weighted] {
                let (bound, long) = (means.bound_bytes_per_sec, means.long.bytes_per_sec);
                let short = means.published.bytes_per_sec / 1e3;
                let _ = write!(
                    text,
                    " | {:>8.1} {:>8.1} {:>6.3} {short:>8.1}",
                    bound / 1e3,
                    long / 1e3,
                    means.ratio()
                );
            }
            text.push('\n');
        }
        let slow = &self.slow_relay;
        for (path, paper) in [&slow.slow, &slow.fast].into_iter().zip(slow.paper_kbytes_per_sec) {
            let (mean, width) = (path.bytes_per_sec / 1e3, path.half_width_bytes_per_sec / 1e3);
            let (hops, downloads) = (path.hops, path.downloads);
            let _ = writeln!(
                text,
                "{hops} hops: {mean:.1} +- {width:.1} kB/s, {downloads} downloads (paper: {paper})"
            );
        }
        for check in &self.checks {
            let verdict = if check.holds { "holds" } else { "DOES NOT HOLD" };
            let _ = writeln!(text, "{verdict}: {}", check.what);
        }
        text
    }
}

/// Conditions that follow from the bound.
fn checks(lengths: &[Length], slow: &SlowRelay) -> Vec<Check> {
    let mut checks = Vec::new();
    let uniform: Vec<_> = lengths.iter().map(|length| &length.uniform).collect();
    let weighted: Vec<_> = lengths.iter().map(|length| &length.weighted).collect();
    for (name, means) in [("uniform", uniform), ("weighted", weighted)] {
        let worst = means.iter().map(|means| (means.ratio() - 1.0).abs());
        let worst = worst.fold(0.0, f64::max);
        checks.push(Check {
            what: format!(
                "{name}: within 10 % of B for each length (at most {:.1} %)",
                worst * 100.0
            ),
            holds: worst <= MOST_OFF,
        });
        let rates: Vec<f64> = means.iter().map(|means| means.long.bytes_per_sec).collect();
        let falls: Vec<f64> = rates.windows(2).map(|pair| pair[0] - pair[1]).collect();
        checks.push(Check {
            what: format!("{name}: longer paths are slower"),
            holds: falls.iter().all(|fall| *fall > 0.0),
        });
        checks.push(Check {
            what: format!("{name}: the largest fall is from one relay to two"),
            holds: falls.iter().skip(1).all(|fall| fall < &falls[0]),
        });
    }
    let upper = slow.slow.bytes_per_sec + slow.slow.half_width_bytes_per_sec;
    let lower = slow.fast.bytes_per_sec - slow.fast.half_width_bytes_per_sec;
    checks.push(Check {
        what: "the slowest relay decides: the short path's interval lies below the long one's"
            .into(),
        holds: upper < lower,
    });
    checks
}
