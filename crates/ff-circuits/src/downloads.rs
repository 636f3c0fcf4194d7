//! Downloads from a user's side: how long they take, where the time goes, how many fail and why.
//!
//! [`DownloadReport`] has that for sets of downloads, by target and size, and compares the sets.
//! Only whole downloads count as times.

pub mod figures;
pub mod metrics;
pub mod outliers;
pub mod parts;
pub mod relays;
pub mod text;
pub mod viz;
pub mod viz_stats;

use std::collections::BTreeMap;

use ff_report::stats;
use serde::Serialize;

use self::parts::{PartMeans, Parts};
use self::relays::{PositionReport, positions};
use crate::interval::{Interval, difference, median};
use crate::onionperf::ErrorWords;
use crate::rank::{MannWhitney, mann_whitney, more_to_decide};
use crate::read::Damaged;
use crate::read::downloads::{DownloadRecord, DownloadRecords};
use crate::record::{CircuitRecord, Download};

/// The least number of values for the Mann-Whitney test.
const LEAST: usize = 8;
/// A test with a lower probability has decided.
const DECIDED: f64 = 0.05;
/// 1 MiB, a size of OnionPerf's.
pub(crate) const MIB: u64 = 1 << 20;
/// 5 MiB, a size of OnionPerf's.
pub(crate) const FIVE_MIB: u64 = 5 << 20;

/// Downloads that are analysed together.
#[derive(Clone, Debug, PartialEq)]
pub struct DownloadSet {
    /// Their label.
    pub label: String,
    /// The downloads.
    pub downloads: DownloadRecords,
}

/// The target of downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DownloadTarget {
    /// A server on the Internet, through an exit.
    Exit,
    /// An onion service.
    Onion,
}

/// The results of sets of downloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DownloadReport {
    /// Each set.
    pub sets: Vec<SetReport>,
    /// Comparisons of the sets.
    pub comparisons: Vec<Comparison>,
}

/// The results of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// Its label.
    pub label: String,
    /// The hosts that made the downloads.
    pub hosts: Vec<String>,
    /// How many there are.
    pub downloads: u64,
    /// How many `onionperf filter` has left out.
    pub left_out: u64,
    /// Circuits in its files that carried no download.
    pub other_circuits: u64,
    /// Files that ended in the middle of a line.
    pub half_lines: u64,
    /// Records that cannot be read.
    pub damaged: Damaged,
    /// Downloads by target and size.
    pub groups: Vec<GroupReport>,
}

/// The results of downloads of one size from one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// What they came from.
    pub target: DownloadTarget,
    /// How much was asked for.
    pub size_bytes: u64,
    /// How many there are.
    pub downloads: u64,
    /// How many of them are whole.
    pub whole: u64,
    /// The others, by reason in OnionPerf's words.
    pub failures: BTreeMap<String, u64>,
    /// Time to the first byte, since asking.
    pub first_byte_secs: Option<Spread>,
    /// Time to the last byte, since asking.
    pub last_byte_secs: Option<Spread>,
    /// Throughput from the first byte to the last.
    pub mbit_per_sec: Option<Spread>,
    /// Throughput of the last MiB of 5, or of the second half of 1, as OnionPerf and Tor Metrics
    /// have it.
    pub last_mbit_per_sec: Option<Spread>,
    /// Where the time went, in the mean.
    pub parts: Option<PartMeans>,
    /// By positions of relays in circuits.
    pub positions: Vec<PositionReport>,
    /// Which result has too few values, if one has.
    pub note: Option<String>,
}

/// How values are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub values: u64,
    /// A quarter are less than this.
    pub q1: f64,
    /// Their median, with its 95 % interval.
    pub median: Interval,
    /// A quarter are greater than this.
    pub q3: f64,
    /// A tenth are greater than this.
    pub p90: f64,
}

/// A comparison of two sets by one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The label of the first set.
    pub one: String,
    /// The label of the second.
    pub other: String,
    /// What was downloaded from.
    pub target: DownloadTarget,
    /// How much was asked for.
    pub size_bytes: u64,
    /// The compared measure: `first_byte_secs`, `last_byte_secs` or `mbit_per_sec`.
    pub measure: &'static str,
    /// The first set's median.
    pub one_median: Option<Interval>,
    /// The second's.
    pub other_median: Option<Interval>,
    /// The first median less the second.
    pub difference: Option<Interval>,
    /// Whether values of the first tend to be greater; none if there are too few.
    pub test: Option<MannWhitney>,
    /// The number of further whole downloads that each set needs for a decision at 5 % with a
    /// probability of 80 %, if the share of greater pairs stays; none if the test has decided, or
    /// if the number is above [`crate::rank::MOST_MORE`].
    pub more_downloads: Option<u64>,
    /// Which result has too few values, if one has.
    pub note: Option<String>,
}

/// A measure by its name.
type Measure = (&'static str, fn(&CircuitRecord) -> Option<f64>);

/// What sets are compared by.
const MEASURES: [Measure; 3] = [
    ("first_byte_secs", first_byte_secs),
    ("last_byte_secs", last_byte_secs),
    ("mbit_per_sec", mbit_per_sec),
];

impl DownloadTarget {
    /// What Tor Metrics and OnionPerf call it.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::Exit => "public",
            Self::Onion => "onion",
        }
    }

    /// The target of a line.
    #[must_use]
    pub fn of(circuit: &CircuitRecord) -> Self {
        let is_onion = circuit.download.as_ref().is_some_and(Download::is_from_onion);
        if is_onion { Self::Onion } else { Self::Exit }
    }
}

/// The download of a line, if all of it came.
#[must_use]
pub fn whole(circuit: &CircuitRecord) -> Option<&Download> {
    circuit.download.as_ref().filter(|download| download.us.is_some())
}

/// Time to first byte of a whole download.
#[must_use]
pub fn first_byte_secs(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.first_byte_us.map(secs)
}

/// Time to last byte of a whole download.
#[must_use]
pub fn last_byte_secs(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.us.map(secs)
}

/// Throughput of a whole download from the first byte to the last.
#[must_use]
pub fn mbit_per_sec(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.bytes_per_sec().map(|rate| rate * 8.0 / 1e6)
}

/// Throughput of the last MiB of 5, or of the second half of 1, of a whole download.
#[must_use]
pub fn last_mbit_per_sec(circuit: &CircuitRecord) -> Option<f64> {
    let download = whole(circuit)?;
    // What came between two tenths, in Mbit; the numbers are OnionPerf's, so that quotients have
    // its digits.
    let (from, mbit) = match download.asked_bytes? {
        FIVE_MIB => (8, 8.388_608),
        MIB => (5, 4.194_304),
        _ => return None,
    };
    let at = |tenth: usize| download.tenths_us.get(tenth).copied().map(secs);
    Some(mbit / (at(10)? - at(from)?)).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// How much was asked for; if that is not known, how much came.
#[must_use]
pub fn size_bytes(circuit: &CircuitRecord) -> u64 {
    let download = circuit.download.as_ref();
    download.map_or(0, |download| download.asked_bytes.unwrap_or(download.bytes))
}

/// Microseconds in seconds.
pub(crate) fn secs(us: u64) -> f64 {
    us as f64 / 1e6
}

impl Spread {
    /// The spread of these values; none if there are none.
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

impl DownloadSet {
    /// The downloads of each arm as a set, named `LABEL.ARM`; those without an arm are the set
    /// `LABEL`. What was left out counts for the first of them.
    #[must_use]
    pub fn by_arm(label: &str, mut downloads: DownloadRecords) -> Vec<Self> {
        let mut arms = BTreeMap::<Option<String>, Vec<DownloadRecord>>::new();
        for one in std::mem::take(&mut downloads.all) {
            arms.entry(one.circuit.arm.clone()).or_default().push(one);
        }
        let mut sets = Vec::new();
        for (arm, all) in arms {
            let label = arm.map_or_else(|| label.to_owned(), |arm| format!("{label}.{arm}"));
            let rest =
                DownloadRecords { hosts: downloads.hosts.clone(), ..DownloadRecords::default() };
            let read = std::mem::replace(&mut downloads, rest);
            sets.push(Self { label, downloads: DownloadRecords { all, ..read } });
        }
        sets
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

/// Lines by their targets and sizes.
pub(crate) fn groups(
    all: &[DownloadRecord],
) -> BTreeMap<(DownloadTarget, u64), Vec<&CircuitRecord>> {
    let mut groups = BTreeMap::<_, Vec<&CircuitRecord>>::new();
    for DownloadRecord { circuit, .. } in all {
        groups.entry((DownloadTarget::of(circuit), size_bytes(circuit))).or_default().push(circuit);
    }
    groups
}

/// The values of lines that have one.
pub(crate) fn values(lines: &[&CircuitRecord], of: fn(&CircuitRecord) -> Option<f64>) -> Vec<f64> {
    lines.iter().filter_map(|line| of(line)).collect()
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

/// Compares two sets by all that both have.
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
