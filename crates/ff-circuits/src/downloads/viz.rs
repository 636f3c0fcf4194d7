//! The table of OnionPerf's `viz`, with its columns and values: a row for each download.
//!
//! Columns on guards exist if any download has a value for them, as with pandas.

use ff_base::utc::Utc;
use ff_report::output::Rows;

use super::line::{DownloadTarget, last_mbit_per_sec, secs, size_bytes};
use super::set::DownloadSet;
use crate::onionperf::ErrorWords;
use crate::read::downloads::DownloadRecord;

/// The columns that always exist.
const ALWAYS: [&str; 9] = [
    "id",
    "time_to_first_byte",
    "time_to_last_byte",
    "error_code",
    "mbps",
    "label",
    "filesize_bytes",
    "server",
    "start",
];
/// The columns on the client's guards.
const CLIENT: [&str; 2] = ["guard_country_codes", "guards"];
/// The columns on the circuit's guard.
const CIRCUIT: [&str; 3] = ["guard", "uses_guard", "guard_index"];

/// The header and the rows.
#[must_use]
pub fn table(sets: &[DownloadSet]) -> (Vec<&'static str>, Rows) {
    let all = || sets.iter().flat_map(|set| set.downloads.all.iter().map(move |one| (set, one)));
    let has_client = all().any(|(_, one)| one.guards.is_some());
    let has_circuit = all().any(|(_, one)| !one.circuit.path.is_empty());
    let mut header = ALWAYS.to_vec();
    header.extend(CLIENT.iter().filter(|_| has_client));
    header.extend(CIRCUIT.iter().filter(|_| has_circuit));
    let mut rows = Rows::default();
    for (set, one) in all() {
        add(&set.label, one, &mut rows);
        if has_client {
            let guards = one.guards.as_ref();
            rows.optional(guards.map(|guards| &guards.countries));
            rows.optional(guards.map(|guards| guards.count));
        }
        if has_circuit {
            let guard = one.circuit.path.first();
            let place = one.guards.as_ref().and_then(|guards| guards.place);
            rows.foreign(guard.map_or("", |guard| &guard.id));
            rows.optional(guard.map(|_| if place.is_some() { "True" } else { "False" }));
            rows.optional(guard.map(|_| place.map_or("-1".to_owned(), |place| place.to_string())));
        }
        rows.end_row();
    }
    (header, rows)
}

/// The columns that always exist.
fn add(label: &str, one: &DownloadRecord, rows: &mut Rows) {
    let circuit = &one.circuit;
    let download = circuit.download.as_ref();
    rows.foreign(&one.id)
        .optional(download.and_then(|download| download.first_byte_us).map(secs))
        .optional(download.and_then(|download| download.us).map(secs))
        .optional(ErrorWords::of(circuit).map(|words| words.code()))
        .optional(last_mbit_per_sec(circuit))
        .cell(label)
        .cell(size_bytes(circuit))
        .cell(DownloadTarget::of(circuit).server())
        .cell(start(circuit.asked_unix_us()));
}

/// A time in pandas' format: `2021-01-01 00:01:49.410935`.
fn start(unix_us: i64) -> String {
    let us = u64::try_from(unix_us).unwrap_or(0);
    let time = Utc::from_unix_secs(us / 1_000_000).map(|time| time.to_string()).unwrap_or_default();
    format!("{}.{:06}", time.replace('T', " "), us % 1_000_000)
}
