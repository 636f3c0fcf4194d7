//! The table of statistics of OnionPerf 1.1's `viz`, with its columns and values, for all sets
//! together.
//!
//! Times are as in its table of downloads: a first byte counts also if the download failed later.
//! Statistics without values are blank.

use std::collections::BTreeMap;
use std::fmt::Display;

use ff_report::output::{Rows, Table};
use ff_report::stats;

use super::line::{DownloadTarget, last_mbit_per_sec, secs, size_bytes};
use super::set::{DownloadSet, values};
use crate::onionperf::ErrorWords;
use crate::record::CircuitRecord;

/// The columns.
const HEADER: &[&str] = &["stats", "server", "metric", "value"];

/// The table, with the name of its file.
#[must_use]
pub fn table(sets: &[DownloadSet]) -> Table {
    let all = sets.iter().flat_map(|set| &set.downloads.all).map(|one| &one.circuit);
    let all: Vec<&CircuitRecord> = all.collect();
    let parts: Vec<Part<'_>> = [DownloadTarget::Exit, DownloadTarget::Onion]
        .iter()
        .filter_map(|target| Part::of(*target, &all))
        .collect();
    let sizes = by_size(&parts);
    let of_sizes =
        || sizes.iter().flat_map(|(size, parts)| parts.iter().map(move |part| (size, part)));
    let mut rows = Rows::default();
    for part in &parts {
        part.add_times("time_to_first_byte", first_byte, &mut rows);
    }
    for (what, of) in [("first", first_byte as Value), ("last", last_byte as Value)] {
        for (size, part) in of_sizes() {
            part.add_times(&format!("time_to_{what}_byte_{size}"), of, &mut rows);
        }
    }
    for part in &parts {
        let rates = values(&part.lines, last_mbit_per_sec);
        part.add("mbps", "median", stats::median(rates), &mut rows);
    }
    for (size, part) in of_sizes() {
        // These misspelt names are OnionPerf's.
        let name = format!("number_of_dowloads_of_bytes_{size}");
        part.add(&name, "count", Some(part.lines.len()), &mut rows);
    }
    for part in &parts {
        part.add_failures(&mut rows);
    }
    ("onionperf.viz.stats.csv", HEADER, rows)
}

/// A value of a line.
type Value = fn(&CircuitRecord) -> Option<f64>;

/// Time to the first byte of a download, whether it is whole or not.
fn first_byte(circuit: &CircuitRecord) -> Option<f64> {
    circuit.download.as_ref()?.first_byte_us.map(secs)
}

/// Time to the last byte.
fn last_byte(circuit: &CircuitRecord) -> Option<f64> {
    circuit.download.as_ref()?.us.map(secs)
}

/// Lines with the same target.
struct Part<'a> {
    /// The target, as OnionPerf names it.
    server: &'static str,
    /// The lines.
    lines: Vec<&'a CircuitRecord>,
}

/// The parts by size, including sizes of which a part has no line. Each line is looked at once: the
/// downloads of a file may all have different sizes.
fn by_size<'a>(parts: &[Part<'a>]) -> BTreeMap<u64, Vec<Part<'a>>> {
    let empty = |part: &Part<'a>| Part { server: part.server, lines: Vec::new() };
    let mut sizes = BTreeMap::<u64, Vec<Part<'a>>>::new();
    for (place, part) in parts.iter().enumerate() {
        for &line in &part.lines {
            let of_size = sizes.entry(size_bytes(line));
            let of_size = of_size.or_insert_with(|| parts.iter().map(empty).collect());
            of_size[place].lines.push(line);
        }
    }
    sizes
}

impl<'a> Part<'a> {
    /// The lines of this target; none without any.
    fn of(target: DownloadTarget, all: &[&'a CircuitRecord]) -> Option<Self> {
        let lines = all.iter().copied().filter(|line| DownloadTarget::of(line) == target);
        let lines: Vec<&CircuitRecord> = lines.collect();
        (!lines.is_empty()).then(|| Self { server: target.server(), lines })
    }

    fn add(&self, name: &str, metric: &str, value: Option<impl Display>, rows: &mut Rows) {
        rows.cell(name).cell(self.server).cell(metric).optional(value).end_row();
    }

    fn add_times(&self, name: &str, of: Value, rows: &mut Rows) {
        let times = values(&self.lines, of);
        let mean = stats::mean(&times);
        self.add(name, "median", stats::median(times), rows);
        self.add(name, "mean", mean, rows);
    }

    /// Adds the rows of failures, if there are failures.
    fn add_failures(&self, rows: &mut Rows) {
        let mut failures = BTreeMap::<String, u64>::new();
        for words in self.lines.iter().filter_map(|line| ErrorWords::of(line)) {
            *failures.entry(words.code()).or_insert(0) += 1;
        }
        for (code, count) in &failures {
            let name = format!("number_of_dowloads_failed_with_error_{code}");
            self.add(&name, "count", Some(count), rows);
        }
        if !failures.is_empty() {
            let all: u64 = failures.values().sum();
            self.add("number_of_dowloads_failed", "count", Some(all), rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ff_report::input::Inputs;

    use super::*;
    use crate::read::downloads::{DownloadRecord, DownloadRecords};
    use crate::record::{Client, Download};

    /// A comparison of each line with each size, three times, would take minutes.
    #[test]
    fn downloads_of_many_different_sizes_have_their_rows() {
        const SIZES: u32 = 100_000;
        let download = |size: u32| {
            let source = if size.is_multiple_of(2) { "http://a.onion:80" } else { "http://a:80" };
            let asked_bytes = Some(size.into());
            let download =
                Download { asked_bytes, source: source.to_owned(), ..Download::default() };
            let circuit = CircuitRecord {
                download: Some(download),
                ..CircuitRecord::begun(Client::Arti, size.into(), 1.7e9, 0)
            };
            DownloadRecord { host: 0, id: size.to_string(), guards: None, circuit }
        };
        let downloads = DownloadRecords {
            hosts: vec!["a".to_owned()],
            all: (0..SIZES).map(download).collect(),
            ..DownloadRecords::default()
        };
        let (_, _, rows) = table(&[DownloadSet { label: "a".to_owned(), downloads }]);
        let rows: Vec<String> = rows.iter().map(|row| row.collect::<Vec<_>>().join(",")).collect();
        let counts: Vec<&String> =
            rows.iter().filter(|row| row.starts_with("number_of_dowloads_of_bytes")).collect();
        assert_eq!(counts.len(), 2 * SIZES as usize);
        let name = "number_of_dowloads_of_bytes_99999";
        let last = [format!("{name},public,count,1"), format!("{name},onion,count,0")];
        assert!(counts.ends_with(&[&last[0], &last[1]]), "{:?}", counts.last());
    }

    #[test]
    fn the_statistics_of_public_files_are_those_of_onionperf() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-perf/tests/data/downloads");
        let names = ["2020-07-13.op-nl-test1", "2021-01-01.op-hk5"];
        let paths = names.map(|name| dir.join(format!("{name}.onionperf.analysis.json.xz")));
        let downloads = DownloadRecords::read(&paths, &mut Inputs::default()).expect("downloads");
        let (_, _, rows) = table(&[DownloadSet { label: "a".to_owned(), downloads }]);
        let rows: Vec<String> = rows.iter().map(|row| row.collect::<Vec<_>>().join(",")).collect();
        let (means, others): (Vec<&str>, Vec<&str>) =
            rows.iter().map(String::as_str).partition(|row| row.contains(",mean,"));
        let known = [
            "time_to_first_byte,public,median,1.49145",
            "time_to_first_byte,onion,median,4.29965",
            "time_to_first_byte_5242880,public,median,1.49145",
            "time_to_first_byte_5242880,onion,median,4.29965",
            "time_to_last_byte_5242880,public,median,11.817973",
            "time_to_last_byte_5242880,onion,median,27.048753",
            "mbps,public,median,3.9898140599836576",
            "mbps,onion,median,1.7828994756045484",
            "number_of_dowloads_of_bytes_5242880,public,count,3",
            "number_of_dowloads_of_bytes_5242880,onion,count,4",
            "number_of_dowloads_failed_with_error_TOR/TIMEOUT,onion,count,1",
            "number_of_dowloads_failed,onion,count,1",
        ];
        assert_eq!(others, known);
        let mean = means[0].strip_prefix("time_to_first_byte,public,mean,").expect("a mean");
        let mean: f64 = mean.parse().expect("a number");
        // (1.129437 + 11.376374 + 1.49145) / 3
        assert!((mean - 4.665_753_666_666_667).abs() < 1e-12 && means.len() == 6, "{means:?}");
    }
}
