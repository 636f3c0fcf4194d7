//! The tables of outliers of OnionPerf 1.1's `viz`, with its columns and values: how often relays
//! are in circuits of slow or failed downloads.
//!
//! A whole download is slow if its time is above the 75th percentile of all sets' times from the
//! same target. The tables of slow downloads have only relays that are in slow circuits of every
//! target with slow circuits. Each table has the most frequent relays.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ff_report::output::{Rows, Table};
use ff_report::stats;

use super::line::{DownloadTarget, first_byte_secs, last_byte_secs};
use super::set::DownloadSet;
use crate::onionperf::ErrorWords;
use crate::record::{CircuitRecord, PathRelay};

/// The percentile above which a time is an outlier.
const PERCENTILE: f64 = 75.0;
/// The number of relays in a table.
const MOST_RELAYS: usize = 15;
/// The columns.
const HEADER: &[&str] = &["fingerprints", "server", "count"];
/// The targets, in the order of OnionPerf's names.
const TARGETS: [DownloadTarget; 2] = [DownloadTarget::Onion, DownloadTarget::Exit];

/// The number of circuits of each relay, by its name.
type Counts = BTreeMap<String, usize>;

/// The tables, each with the name of its file.
#[must_use]
pub fn tables(sets: &[DownloadSet]) -> [Table; 3] {
    let all = sets.iter().flat_map(|set| &set.downloads.all).map(|one| &one.circuit);
    let all: Vec<&CircuitRecord> = all.filter(|circuit| !circuit.path.is_empty()).collect();
    [
        ("onionperf.firstbyte_outliers.csv", HEADER, slow(&all, first_byte_secs)),
        ("onionperf.lastbyte_outliers.csv", HEADER, slow(&all, last_byte_secs)),
        ("onionperf.error_outliers.csv", HEADER, failed(&all)),
    ]
}

/// The rows of relays in slow circuits.
fn slow(all: &[&CircuitRecord], of: fn(&CircuitRecord) -> Option<f64>) -> Rows {
    let counts = TARGETS.map(|target| (target, counts(above(all, target, of))));
    let counts: Vec<(DownloadTarget, Counts)> =
        counts.into_iter().filter(|(_, relays)| !relays.is_empty()).collect();
    let is_common = |relay: &str| counts.iter().all(|(_, relays)| relays.contains_key(relay));
    let mut common = Counts::new();
    for (relay, count) in counts.iter().flat_map(|(_, relays)| relays) {
        if is_common(relay) {
            *common.entry(relay.clone()).or_insert(0) += count;
        }
    }
    let mut rows = Rows::default();
    for relay in most_frequent(&common) {
        for (target, relays) in &counts {
            add(relay, *target, relays, &mut rows);
        }
    }
    rows
}

/// The rows of relays in circuits of failed downloads.
fn failed(all: &[&CircuitRecord]) -> Rows {
    let mut rows = Rows::default();
    for target in TARGETS {
        let is_failed = |line: &&CircuitRecord| {
            DownloadTarget::of(line) == target && ErrorWords::of(line).is_some()
        };
        let relays = counts(all.iter().copied().filter(is_failed));
        for relay in most_frequent(&relays) {
            add(relay, target, &relays, &mut rows);
        }
    }
    rows
}

/// Adds the row of a relay, if it occurs.
fn add(relay: &str, target: DownloadTarget, relays: &Counts, rows: &mut Rows) {
    if let Some(count) = relays.get(relay) {
        rows.foreign(relay).cell(target.server()).cell(count).end_row();
    }
}

/// The lines of this target whose time is an outlier.
fn above<'a>(
    all: &[&'a CircuitRecord],
    target: DownloadTarget,
    of: fn(&CircuitRecord) -> Option<f64>,
) -> impl Iterator<Item = &'a CircuitRecord> + use<'a> {
    let timed = all.iter().copied().filter(|line| DownloadTarget::of(line) == target);
    let timed: Vec<(&CircuitRecord, f64)> =
        timed.filter_map(|line| Some((line, of(line)?))).collect();
    let sorted = stats::sorted(timed.iter().map(|(_, secs)| *secs).collect());
    let usual = stats::percentile(&sorted, PERCENTILE).unwrap_or(f64::INFINITY);
    timed.into_iter().filter(move |(_, secs)| *secs > usual).map(|(line, _)| line)
}

/// The number of these circuits that each relay is in.
fn counts<'a>(lines: impl Iterator<Item = &'a CircuitRecord>) -> Counts {
    let mut counts = Counts::new();
    for relay in lines.flat_map(|line| &line.path) {
        *counts.entry(long_name(relay)).or_insert(0) += 1;
    }
    counts
}

/// The most frequent relays; those of equal frequency by name.
fn most_frequent(relays: &Counts) -> Vec<&str> {
    let mut all: Vec<(&String, &usize)> = relays.iter().collect();
    all.sort_by_key(|(relay, count)| (Reverse(**count), *relay));
    all.truncate(MOST_RELAYS);
    let mut names: Vec<&str> = all.into_iter().map(|(relay, _)| relay.as_str()).collect();
    names.sort_unstable();
    names
}

/// A relay in OnionPerf's form: `$FINGERPRINT~nickname`.
fn long_name(relay: &PathRelay) -> String {
    let tilde = if relay.nick.is_empty() { "" } else { "~" };
    format!("${}{tilde}{}", relay.id, relay.nick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::downloads::{DownloadRecord, DownloadRecords};

    /// A download through these relays that took this long, in seconds; without a time it failed.
    fn record(path: &[&str], secs: Option<u64>, source: &str) -> DownloadRecord {
        let path: Vec<_> = path.iter().map(|id| serde_json::json!({ "id": id })).collect();
        let us = secs.map(|secs| secs * 1_000_000);
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "tor", "began_unix_secs": 0.0,
            "began_us": 0, "path": path, "ended_us": 9,
            "download": { "bytes": 10, "source": source, "first_byte_us": 500, "us": us } });
        let circuit = serde_json::from_value(line).expect("a line");
        DownloadRecord { host: 0, id: String::new(), guards: None, circuit }
    }

    /// The tables of these downloads; each row is a text.
    fn rows(all: Vec<DownloadRecord>) -> [Vec<String>; 3] {
        let downloads = DownloadRecords { all, ..DownloadRecords::default() };
        let tables = tables(&[DownloadSet { label: "a".to_owned(), downloads }]);
        let text = |rows: &Rows| rows.iter().map(|row| row.collect::<Vec<_>>().join(" ")).collect();
        tables.map(|(_, _, rows)| text(&rows))
    }

    #[test]
    fn relays_of_slow_circuits_count_if_they_are_so_with_both_targets() {
        let (exit, onion) = ("http://a:80", "http://x.onion:80");
        // Above the 75th percentile are the last two of eight, and one of four.
        let mut all: Vec<_> =
            (1..=6).map(|secs| record(&["A", "B", "C"], Some(secs), exit)).collect();
        all.extend((7..=8).map(|secs| record(&["A", "D", "C"], Some(secs), exit)));
        assert_eq!(rows(all.clone())[1], ["$A public 2", "$C public 2", "$D public 2"]);
        all.extend((1..=3).map(|secs| record(&["A", "B", "E"], Some(secs), onion)));
        all.push(record(&["D", "B", "A"], Some(9), onion));
        all.push(record(&["F"], None, onion));
        all.push(record(&[], None, onion));
        let [first, last, failed] = rows(all);
        assert_eq!(last, ["$A onion 1", "$A public 2", "$D onion 1", "$D public 2"]);
        assert_eq!((first, failed), (Vec::new(), vec!["$F onion 1".to_owned()]));
    }

    #[test]
    fn a_table_has_the_most_frequent_relays() {
        let names: Vec<String> = (0..20).map(|number| format!("R{number:02}")).collect();
        let mut all: Vec<_> =
            names.iter().map(|name| record(&[name], None, "http://a:80")).collect();
        all.push(record(&["R19"], None, "http://a:80"));
        let [_, _, failed] = rows(all);
        assert_eq!(failed.len(), MOST_RELAYS);
        assert_eq!((failed[0].as_str(), failed[14].as_str()), ("$R00 public 1", "$R19 public 2"));
    }

    #[test]
    fn relays_are_named_as_tor_does() {
        let relay = PathRelay { id: "AB".to_owned(), nick: "one".to_owned() };
        assert_eq!(long_name(&relay), "$AB~one");
        assert_eq!(long_name(&PathRelay { nick: String::new(), ..relay }), "$AB");
    }
}
