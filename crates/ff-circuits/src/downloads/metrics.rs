//! Tor Metrics' daily tables of downloads, with its columns: days are in UTC, times in ms,
//! throughput in kbit/s, and a row without a source is for all sources.
//!
//! Quartiles are linear between ranks, as in PostgreSQL's `PERCENTILE_CONT`; `low` and `high` are
//! the least and the greatest value within 1.5 times the interquartile range of the quartiles.
//! Times are of whole downloads. Tor Metrics has them in steps of 10 ms.

use std::collections::BTreeMap;

use ff_base::utc::Utc;
use ff_report::output::{Rows, Table};
use ff_report::stats;

use super::line::{DownloadTarget, FIVE_MIB, MIB, size_bytes, whole};
use crate::onionperf::ErrorWords;
use crate::read::downloads::DownloadRecords;
use crate::record::{CircuitRecord, Download, SIZES};

/// The first day on which throughput is that of the last MiB of 5 MiB; before, it was that from 0.5
/// to 1 MiB.
const LAST_MIB_SINCE: &str = "2021-04-01";
/// The number of a circuit's hops in the table.
const POSITIONS: usize = 3;

/// Values by the columns before them.
type Groups<K> = BTreeMap<K, Vec<f64>>;
/// A day, a source and a kind of server.
type Place = (String, String, &'static str);

/// The content of the tables.
#[derive(Default)]
struct Days {
    /// Times until this many bytes arrived: by day, bytes, source and server.
    times_ms: Groups<(String, u64, String, &'static str)>,
    /// Numbers of timeouts, other failures and all downloads.
    failures: BTreeMap<Place, [u64; 3]>,
    /// Times from hop to hop: by day, source and position.
    builds_ms: Groups<(String, String, usize)>,
    /// From the request to the answer.
    latencies_ms: Groups<Place>,
    /// Throughput.
    rates_kbit: Groups<Place>,
}

/// The tables of these downloads, each with the name that Tor Metrics gives it.
#[must_use]
pub fn tables(downloads: &DownloadRecords) -> [Table; 5] {
    let mut days = Days::default();
    for one in &downloads.all {
        let Some(day) = day(&one.circuit) else { continue };
        let host = downloads.hosts[one.host as usize].as_str();
        days.add(&day, "", &one.circuit);
        // A host without a name has the rows of all sources.
        if !host.is_empty() {
            days.add(&day, host, &one.circuit);
        }
    }
    days.tables()
}

/// The day of a download's request; none if its time is out of range.
fn day(circuit: &CircuitRecord) -> Option<String> {
    let secs = u64::try_from(circuit.asked_unix_us()).ok()? / 1_000_000;
    Utc::from_unix_secs(secs).ok()?.to_string().get(..10).map(str::to_owned)
}

/// Converts microseconds to ms.
fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

impl Days {
    /// Adds a download.
    fn add(&mut self, day: &str, source: &str, circuit: &CircuitRecord) {
        let server = DownloadTarget::of(circuit).server();
        let place = || (day.to_owned(), source.to_owned(), server);
        let words = ErrorWords::of(circuit);
        let [timeouts, failures, requests] = self.failures.entry(place()).or_default();
        *requests += 1;
        *timeouts += u64::from(words.as_ref().is_some_and(ErrorWords::is_timeout));
        *failures += u64::from(words.as_ref().is_some_and(|words| !words.is_timeout()));
        if circuit.build_us().is_some() {
            let mut before = 0;
            for (position, &us) in circuit.hops_us.iter().take(POSITIONS).enumerate() {
                let key = (day.to_owned(), source.to_owned(), position + 1);
                self.builds_ms.entry(key).or_default().push(ms(us.saturating_sub(before)));
                before = us;
            }
        }
        let Some(download) = whole(circuit) else { return };
        let size = size_bytes(circuit);
        let partial = SIZES.into_iter().zip(download.sizes_us.iter().copied());
        let partial = partial.filter(|(bytes, _)| *bytes < size);
        for (bytes, us) in partial.chain(download.us.map(|us| (size, us))) {
            let key = (day.to_owned(), bytes, source.to_owned(), server);
            self.times_ms.entry(key).or_default().push(ms(us));
        }
        if let Some((request, answer)) = download.request_us.zip(download.answer_us) {
            self.latencies_ms.entry(place()).or_default().push(ms(answer.saturating_sub(request)));
        }
        if let Some(rate) = rate_kbit(day, size, download) {
            self.rates_kbit.entry(place()).or_default().push(rate);
        }
    }

    fn tables(&self) -> [Table; 5] {
        let mut times = Rows::default();
        for ((day, bytes, source, server), values) in &self.times_ms {
            times.cell(day).cell(bytes).foreign(source).cell(server);
            // Tor Metrics rounds these, and truncates the others.
            quartiles(values).into_iter().for_each(|value| _ = times.cell((value + 0.5).floor()));
            times.end_row();
        }
        let mut failures = Rows::default();
        for ((day, source, server), counts) in &self.failures {
            failures.cell(day).foreign(source).cell(server);
            counts.iter().for_each(|count| _ = failures.cell(count));
            failures.end_row();
        }
        let mut builds = Rows::default();
        for ((day, source, position), values) in &self.builds_ms {
            builds.cell(day).foreign(source).cell(position);
            quartiles(values).into_iter().for_each(|value| _ = builds.cell(value.trunc()));
            builds.end_row();
        }
        [
            (
                "onionperf-including-partials.csv",
                &["date", "filesize", "source", "server", "q1", "md", "q3"],
                times,
            ),
            (
                "onionperf-failures.csv",
                &["date", "source", "server", "timeouts", "failures", "requests"],
                failures,
            ),
            ("buildtimes.csv", &["date", "source", "position", "q1", "md", "q3"], builds),
            ("latencies.csv", &SPREAD, spread(&self.latencies_ms)),
            ("onionperf-throughput.csv", &SPREAD, spread(&self.rates_kbit)),
        ]
    }
}

/// The columns of a table with low and high values.
const SPREAD: [&str; 8] = ["date", "source", "server", "low", "q1", "md", "q3", "high"];

/// The rows of such a table.
fn spread(groups: &Groups<Place>) -> Rows {
    let mut rows = Rows::default();
    for ((day, source, server), values) in groups {
        let [q1, median, q3] = quartiles(values);
        let reach = 1.5 * (q3 - q1);
        let low = values.iter().copied().filter(|value| *value >= q1 - reach);
        let high = values.iter().copied().filter(|value| *value <= q3 + reach);
        let all = [low.fold(f64::INFINITY, f64::min), q1, median, q3, high.fold(0.0, f64::max)];
        rows.cell(day).foreign(source).cell(server);
        all.into_iter().for_each(|value| _ = rows.cell(value.trunc()));
        rows.end_row();
    }
    rows
}

/// The quartiles of at least one value.
fn quartiles(values: &[f64]) -> [f64; 3] {
    let sorted = stats::sorted(values.to_vec());
    [25.0, 50.0, 75.0].map(|percent| stats::percentile(&sorted, percent).unwrap_or(f64::NAN))
}

/// Throughput as in Tor Metrics on that day: kbit/s are bits per ms.
fn rate_kbit(day: &str, size: u64, download: &Download) -> Option<f64> {
    let (from, to, bits) = match size {
        FIVE_MIB if day >= LAST_MIB_SINCE => (8, 10, 8_388_608.0),
        FIVE_MIB => (1, 2, 4_194_304.0),
        MIB if day < LAST_MIB_SINCE => (5, 10, 4_194_304.0),
        _ => return None,
    };
    let at = |tenth: usize| download.tenths_us.get(tenth).copied().map(ms);
    Some(bits / (at(to)? - at(from)?)).filter(|rate| rate.is_finite() && *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::downloads::DownloadRecord;

    /// A download of 5 MiB that began at this time; its n-th tenth arrived after n times
    /// `tenth_ms`.
    fn download(
        began_unix_secs: f64,
        host: u32,
        tenth_ms: u64,
        failure: Option<&str>,
    ) -> DownloadRecord {
        let at = |n: u64| n * tenth_ms * 1000;
        let tenths: Vec<u64> = (1..=11).map(at).collect();
        let mut line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti",
            "began_unix_secs": began_unix_secs, "began_us": 0, "path": [{ "id": "A" }, { "id": "B" }],
            "hops_us": [30_000, 70_999], "ended_us": 9,
            "download": { "bytes": 5_242_880, "asked_bytes": 5_242_880, "source": "http://x.onion:80",
                "request_us": 1000, "answer_us": 501_000, "sizes_us": [at(1), at(2)],
                "tenths_us": tenths, "us": at(11) } });
        if let Some(reason) = failure {
            line["download"]["us"] = serde_json::Value::Null;
            line["failure"] =
                serde_json::json!({ "stage": "download", "reason": reason, "whose": "unknown" });
        }
        let circuit = serde_json::from_value(line).expect("a line");
        DownloadRecord { host, id: "1".to_owned(), guards: None, circuit }
    }

    /// The rows of a table as text.
    fn rows(tables: &[Table], name: &str) -> Vec<String> {
        let (_, header, rows) = tables.iter().find(|table| table.0 == name).expect("a table");
        let line = |row: Vec<&str>| {
            assert_eq!(row.len(), header.len(), "{name}");
            row.join(",")
        };
        rows.iter().map(|row| line(row.collect())).collect()
    }

    #[test]
    fn a_download_of_a_host_without_a_name_counts_once() {
        let all = vec![download(1_617_235_200.0, 0, 100, Some("TGEN/TIMEOUT"))];
        let hosts = vec![String::new()];
        let tables = tables(&DownloadRecords { hosts, all, ..DownloadRecords::default() });
        let failures = rows(&tables, "onionperf-failures.csv");
        assert_eq!(failures, ["2021-04-01,,onion,1,0,1"]);
    }

    #[test]
    fn days_have_the_rows_of_tor_metrics() {
        // The last second of 2021-03-31 and the first one of April.
        let (march, april) = (1_617_235_199.5, 1_617_235_200.0);
        let all = vec![
            download(march, 0, 100, None),
            download(march, 0, 200, None),
            download(april, 1, 100, None),
            download(april, 1, 100, Some("TGEN/TIMEOUT")),
            download(april, 1, 100, Some("TOR/TIMEOUT")),
        ];
        let hosts = vec!["a".to_owned(), "b".to_owned()];
        let tables = tables(&DownloadRecords { hosts, all, ..DownloadRecords::default() });

        let times = rows(&tables, "onionperf-including-partials.csv");
        assert_eq!(times.len(), 12, "two days, three sizes, one source and all");
        assert_eq!(times[0], "2021-03-31,10240,,onion,125,150,175");
        assert_eq!(times[4], "2021-03-31,5242880,,onion,1375,1650,1925");
        assert_eq!(times[11], "2021-04-01,5242880,b,onion,1100,1100,1100");
        let failures = rows(&tables, "onionperf-failures.csv");
        assert_eq!(failures[2..], ["2021-04-01,,onion,1,1,3", "2021-04-01,b,onion,1,1,3"]);
        let builds = rows(&tables, "buildtimes.csv");
        assert_eq!(builds[..2], ["2021-03-31,,1,30,30,30", "2021-03-31,,2,40,40,40"]);
        let latencies = rows(&tables, "latencies.csv");
        assert_eq!(latencies[3], "2021-04-01,b,onion,500,500,500,500,500");
        // 524,288 bytes between 100 and 200 ms; since April 1 MiB in 200 ms.
        let rates = rows(&tables, "onionperf-throughput.csv");
        assert_eq!(rates[0], "2021-03-31,,onion,20971,26214,31457,36700,41943");
        assert_eq!(rates[2], "2021-04-01,,onion,41943,41943,41943,41943,41943");
    }
}
