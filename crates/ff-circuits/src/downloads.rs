//! Downloads as users see them: how long they take, which parts take the time, how many fail and
//! why.
//!
//! [`DownloadReport`] has this for sets of downloads, by target and size, and compares the sets.
//! Times are only of whole downloads.

pub mod figures;
mod line;
pub mod metrics;
pub mod outliers;
pub mod parts;
pub mod relays;
mod set;
pub mod text;
pub mod viz;
pub mod viz_stats;

use std::collections::BTreeMap;

use ff_report::stats;
use serde::Serialize;

use self::parts::{PartMeans, Parts};
use self::relays::{PositionReport, positions};
use self::set::{groups, values};
use crate::interval::{Interval, difference, median};
use crate::onionperf::ErrorWords;
use crate::rank::{MannWhitney, mann_whitney, more_to_decide};
use crate::read::Damaged;
use crate::read::downloads::DownloadRecords;
use crate::record::CircuitRecord;

pub use self::line::{
    DownloadTarget, first_byte_secs, last_byte_secs, last_mbit_per_sec, mbit_per_sec, size_bytes,
    whole,
};
pub use self::set::DownloadSet;

/// The least number of values for the Mann-Whitney test.
const LEAST: usize = 8;
/// The probability below which a test has decided.
const DECIDED: f64 = 0.05;

/// The results of sets of downloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DownloadReport {
    /// Each set.
    pub sets: Vec<SetReport>,
    /// Comparisons of two sets each.
    pub comparisons: Vec<Comparison>,
}

/// The results of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// Its label.
    pub label: String,
    /// The hosts that made the downloads.
    pub hosts: Vec<String>,
    /// The number of downloads.
    pub downloads: u64,
    /// The number of downloads that `onionperf filter` has left out.
    pub left_out: u64,
    /// The number of circuits in its files that carried no download.
    pub other_circuits: u64,
    /// The number of files that ended in the middle of a line.
    pub half_lines: u64,
    /// Records that cannot be read.
    pub damaged: Damaged,
    /// Downloads by target and size.
    pub groups: Vec<GroupReport>,
}

/// The results of downloads of one size from one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// The target.
    pub target: DownloadTarget,
    /// The requested size, in bytes.
    pub size_bytes: u64,
    /// The number of downloads.
    pub downloads: u64,
    /// The number of whole downloads.
    pub whole: u64,
    /// The number of failed downloads, by reason in OnionPerf's words.
    pub failures: BTreeMap<String, u64>,
    /// Time from the request to the first byte.
    pub first_byte_secs: Option<Spread>,
    /// Time from the request to the last byte.
    pub last_byte_secs: Option<Spread>,
    /// Throughput from the first byte to the last.
    pub mbit_per_sec: Option<Spread>,
    /// Throughput of the last MiB of 5 MiB, or of the second half of 1 MiB, as in OnionPerf and Tor
    /// Metrics.
    pub last_mbit_per_sec: Option<Spread>,
    /// The mean time of each part.
    pub parts: Option<PartMeans>,
    /// Results by positions of relays in circuits.
    pub positions: Vec<PositionReport>,
    /// The result that has too few values, if any.
    pub note: Option<String>,
}

/// The distribution of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The number of values.
    pub values: u64,
    /// The first quartile.
    pub q1: f64,
    /// Their median, with its 95 % interval.
    pub median: Interval,
    /// The third quartile.
    pub q3: f64,
    /// The 90th percentile.
    pub p90: f64,
}

/// A comparison of two sets by one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The label of the first set.
    pub one: String,
    /// The label of the second.
    pub other: String,
    /// The target.
    pub target: DownloadTarget,
    /// The requested size, in bytes.
    pub size_bytes: u64,
    /// The compared measure: `first_byte_secs`, `last_byte_secs` or `mbit_per_sec`.
    pub measure: &'static str,
    /// The first set's median.
    pub one_median: Option<Interval>,
    /// The second set's median.
    pub other_median: Option<Interval>,
    /// The first median minus the second.
    pub difference: Option<Interval>,
    /// Whether values of the first tend to be greater; none if there are too few.
    pub test: Option<MannWhitney>,
    /// The number of further whole downloads that each set needs for a decision at 5 % with a
    /// probability of 80 %, if the share of greater pairs stays; none if the test has decided, or
    /// if the number is above [`crate::rank::MOST_MORE`].
    pub more_downloads: Option<u64>,
    /// The result that has too few values, if any.
    pub note: Option<String>,
}

/// A measure by its name.
type Measure = (&'static str, fn(&CircuitRecord) -> Option<f64>);

/// The compared measures.
const MEASURES: [Measure; 3] = [
    ("first_byte_secs", first_byte_secs),
    ("last_byte_secs", last_byte_secs),
    ("mbit_per_sec", mbit_per_sec),
];

impl Spread {
    /// The spread of these values; none without values.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let sorted = stats::sorted(values);
        let at = |percent: f64| stats::percentile(&sorted, percent);
        Some(Self {
            values: sorted.len() as u64,
            q1: at(25.0)?,
            median: median(&sorted)?,
            q3: at(75.0)?,
            p90: at(90.0)?,
        })
    }
}

impl DownloadReport {
    /// The report on these sets.
    #[must_use]
    pub fn of(sets: &[DownloadSet]) -> Self {
        let mut comparisons = Vec::new();
        for (at, one) in sets.iter().enumerate() {
            for other in &sets[at + 1..] {
                compare(one, other, &mut comparisons);
            }
        }
        Self { sets: sets.iter().map(SetReport::of).collect(), comparisons }
    }
}

impl SetReport {
    /// The results of a set.
    fn of(set: &DownloadSet) -> Self {
        let DownloadRecords { hosts, all, half_lines, left_out, other_circuits, damaged, .. } =
            &set.downloads;
        let groups = groups(all);
        Self {
            label: set.label.clone(),
            hosts: hosts.clone(),
            downloads: all.len() as u64,
            left_out: *left_out,
            other_circuits: *other_circuits,
            half_lines: *half_lines,
            damaged: damaged.clone(),
            groups: groups
                .into_iter()
                .map(|(group, lines)| GroupReport::of(group, &lines))
                .collect(),
        }
    }
}

impl GroupReport {
    /// The results of the lines of a group.
    fn of((target, size_bytes): (DownloadTarget, u64), lines: &[&CircuitRecord]) -> Self {
        let whole = lines.iter().filter(|line| whole(line).is_some()).count();
        let mut failures = BTreeMap::new();
        for words in lines.iter().filter_map(|line| ErrorWords::of(line)) {
            *failures.entry(words.code()).or_insert(0) += 1;
        }
        let last_byte_secs = Spread::of(values(lines, last_byte_secs));
        let has_interval = last_byte_secs.is_some_and(|spread| spread.median.low.is_some());
        let few =
            || format!("{whole} complete downloads are too few for an interval of the median");
        Self {
            target,
            size_bytes,
            downloads: lines.len() as u64,
            whole: whole as u64,
            failures,
            first_byte_secs: Spread::of(values(lines, first_byte_secs)),
            last_byte_secs,
            mbit_per_sec: Spread::of(values(lines, mbit_per_sec)),
            last_mbit_per_sec: Spread::of(values(lines, last_mbit_per_sec)),
            parts: PartMeans::of(lines.iter().filter_map(|line| Parts::of(line))),
            positions: positions(lines),
            note: (!has_interval).then(few),
        }
    }
}

/// Whether a test has not decided.
fn is_open(test: &MannWhitney) -> bool {
    test.p.is_nan() || test.p >= DECIDED
}

/// Compares two sets by the targets and sizes that both have.
fn compare(one: &DownloadSet, other: &DownloadSet, into: &mut Vec<Comparison>) {
    let others = groups(&other.downloads.all);
    for (group, lines) in groups(&one.downloads.all) {
        let Some(other_lines) = others.get(&group) else { continue };
        for (measure, of) in MEASURES {
            let sorted = |lines: &[&CircuitRecord]| stats::sorted(values(lines, of));
            let (first, second) = (sorted(&lines), sorted(other_lines));
            let least = first.len().min(second.len());
            let few =
                || format!("{} and {} values are too few for a test", first.len(), second.len());
            let (one_median, other_median) = (median(&first), median(&second));
            let test = if least < LEAST { None } else { mann_whitney(&first, &second) };
            let more =
                |test: MannWhitney| more_to_decide(test.greater, [first.len(), second.len()]);
            into.push(Comparison {
                one: one.label.clone(),
                other: other.label.clone(),
                target: group.0,
                size_bytes: group.1,
                measure,
                one_median,
                other_median,
                difference: one_median.zip(other_median).map(|(one, other)| difference(one, other)),
                test,
                more_downloads: test.filter(is_open).and_then(more),
                note: (least < LEAST).then(few),
            });
        }
    }
}

#[cfg(test)]
mod tests;
