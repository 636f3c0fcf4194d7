//! The relays of outliers: of whole downloads whose time lies above the 95th percentile of all sets' times from a target.
//!
//! OnionPerf 1.1 draws how often these relays occur; here each has a row.

use ff_report::output::Rows;
use ff_report::stats;

use super::relays::placed;
use super::{DownloadSet, Measure, Target, first_byte_secs, last_byte_secs, size_bytes};
use crate::read::downloads::DownloadRecord;
use crate::record::Circuit;

/// The percentile above which a time is an outlier.
const PERCENTILE: f64 = 95.0;
/// The times, by the names of OnionPerf's columns.
const TIMES: [Measure; 2] =
    [("time_to_first_byte", first_byte_secs), ("time_to_last_byte", last_byte_secs)];

/// The columns of [`table`].
pub const HEADER: [&str; 8] =
    ["time", "server", "label", "id", "filesize_bytes", "seconds", "position", "relay"];

/// A download with one of its times.
struct Timed<'a> {
    /// The label of its set.
    label: &'a str,
    /// The download.
    record: &'a DownloadRecord,
    /// The time, in seconds.
    secs: f64,
}

/// A row for each relay of each outlier.
#[must_use]
pub fn table(sets: &[DownloadSet]) -> Rows {
    let mut rows = Rows::default();
    for (time, of) in TIMES {
        for target in [Target::Exit, Target::Onion] {
            let all = timed(sets, target, of);
            let sorted = stats::sorted(all.iter().map(|one| one.secs).collect());
            let Some(usual) = stats::percentile(&sorted, PERCENTILE) else { continue };
            for Timed { label, record, secs } in all.into_iter().filter(|one| one.secs > usual) {
                let size = size_bytes(&record.circuit);
                for (position, relay) in placed(&record.circuit) {
                    rows.cell(time).cell(target.server()).cell(label).foreign(&record.id);
                    rows.cell(size).cell(secs).cell(position.name()).foreign(relay).end_row();
                }
            }
        }
    }
    rows
}

/// The whole downloads from a target whose circuits are known, with a time of each.
fn timed(sets: &[DownloadSet], target: Target, of: fn(&Circuit) -> Option<f64>) -> Vec<Timed<'_>> {
    let all = sets.iter().flat_map(|set| set.downloads.all.iter().map(move |one| (set, one)));
    let known =
        all.filter(|(_, one)| Target::of(&one.circuit) == target && !one.circuit.path.is_empty());
    let mut timed = Vec::new();
    for (set, record) in known {
        let secs = of(&record.circuit);
        timed.extend(secs.map(|secs| Timed { label: &set.label, record, secs }));
    }
    timed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::downloads::Downloads;

    #[test]
    fn only_the_slowest_downloads_are_outliers() {
        let record = |number: u64| {
            let path: Vec<_> = ["A", "B", "C"].map(|id| serde_json::json!({ "id": id })).to_vec();
            let us = number * 1_000_000;
            let line = serde_json::json!({ "schema": 1, "number": number, "client": "tor", "began_unix_secs": 0.0,
                "began_us": 0, "path": path, "ended_us": 9,
                "download": { "bytes": 10, "source": "http://a:80", "first_byte_us": 500, "us": us } });
            let circuit = serde_json::from_value(line).expect("a line");
            DownloadRecord { host: 0, id: number.to_string(), guards: None, circuit }
        };
        let downloads = Downloads { all: (1..=21).map(record).collect(), ..Downloads::default() };
        let rows = table(&[DownloadSet { label: "a".to_owned(), downloads }]);
        let rows: Vec<Vec<&str>> = rows.iter().map(Iterator::collect).collect();
        // The 95th percentile of 1 to 21 s is 20 s; no time to the first byte is above the others.
        assert_eq!(rows.len(), 3, "{rows:?}");
        let first = ["time_to_last_byte", "public", "a", "21", "10", "21", "guard", "A"];
        assert_eq!((rows[0].as_slice(), rows[2][6..].to_vec()), (&first[..], vec!["exit", "C"]));
        assert!(rows.iter().all(|row| row.len() == HEADER.len()));
    }
}
