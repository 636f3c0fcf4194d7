//! The results file: everything known of one measurement, as JSON lines.
//!
//! The first line (`"type":"measurement"`) says what was measured and how, then comes one line
//! per second (`"second"`), then what came of it (`"result"`). Every published number can be
//! recomputed from such a file. Keys carry their units and are never renamed; new keys may be
//! added, so readers have to skip what they do not know.
//!
//! The seconds tell when the relay's clients were busy, so nobody but the file's owner may read it.

use std::path::{Path, PathBuf};

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::SecondSample;
use ff_proto::ids::CryptoKind;
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use crate::files::{self, FileError, Readers};
use crate::outcome::{
    CellCounts, CpuSeconds, Dispute, DrawRow, Failure, Method, Outcome, PathRow, RoundTrip,
    SecondRow, SocketCounts,
};
use crate::utc::Utc;

pub mod read;

/// Version of the format: rises when a key changes its meaning.
const FORMAT: u32 = 1;
/// Files of one name that are tried before giving up: measurements begun in one second.
const MAX_SAME_SECOND: u32 = 10_000;

/// Writes the results file of an outcome into `dir` and returns its path.
///
/// It is named `results-2026-11-20-09-30-00.jsonl` after the second in which the measurement
/// began. A file that is there is never replaced: those of other measurements begun in that
/// second get `-2`, `-3` and so on.
///
/// # Errors
/// [`FileError`] naming the path.
pub fn write(dir: &Path, outcome: &Outcome) -> Result<PathBuf, FileError> {
    let stem = file_stem(outcome.started_unix_secs);
    let mut path = dir.join(format!("{stem}.jsonl"));
    let encode = FileError::new("encode", &path);
    let bytes = to_jsonl(outcome).map_err(|error| encode(error.into()))?;
    for number in 2..=MAX_SAME_SECOND {
        match files::write_new(&path, &bytes, Readers::Owner) {
            Err(error) if error.is_already_there() => {}
            done => return done.map(|()| path),
        }
        path = dir.join(format!("{stem}-{number}.jsonl"));
    }
    files::write_new(&path, &bytes, Readers::Owner).map(|()| path)
}

/// The lines of the results file.
///
/// # Errors
/// None that the types allow; serde's signature has one.
pub fn to_jsonl(outcome: &Outcome) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for line in lines(outcome) {
        serde_json::to_writer(&mut bytes, &line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// One line.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    /// What was measured and how.
    Measurement(Measurement<'a>),
    /// A second of it.
    Second(Second),
    /// What came of it.
    Result(Conclusion<'a>),
}

/// What was measured and how.
#[derive(Serialize)]
struct Measurement<'a> {
    /// [`FORMAT`].
    format: u32,
    /// Version of the software that measured.
    software_version: &'static str,
    /// `host:port` of the relay.
    address: &'a str,
    /// Its nickname.
    nickname: Option<&'a str>,
    /// Its Ed25519 identity in base64, unpadded, as tor's files have it.
    ed25519_base64: String,
    /// Its RSA fingerprint in upper-case hexadecimal.
    fingerprint_hex: Option<String>,
    /// When it began.
    started_unix_secs: u64,
    /// The same for people, in ISO 8601.
    started_utc: Option<String>,
    /// Seconds measured.
    duration_secs: u64,
    /// Seconds that should count.
    asked_secs: u16,
    /// Seconds that count by the relay's grant.
    granted_secs: Option<u16>,
    /// Seconds that it was asked for beyond these, in which its rate was looked for.
    settle_secs: u16,
    /// When the first second that counts began.
    counted_unix_millis: Option<u64>,
    /// r.
    ratio_percent: u8,
    /// How it was measured.
    method: Method,
    /// The cipher of the measurement circuits, if the relay granted one.
    crypto: Option<&'static str>,
    /// Σa.
    allocated_bytes_per_sec: Option<u64>,
    /// The relay's known limit.
    limit_bytes_per_sec: Option<u64>,
}

/// A second.
#[derive(Serialize)]
struct Second {
    /// What was made of it.
    #[serde(flatten)]
    row: SecondRow,
    /// What the relay says it sent.
    background_sent_bytes: u64,
    /// What the relay says it received.
    background_received_bytes: u64,
}

/// What came of it.
#[derive(Serialize)]
struct Conclusion<'a> {
    /// The verdict's name.
    verdict: &'static str,
    /// Why it failed.
    failure: Option<&'a Failure>,
    /// What the attempt is worth as a draw.
    draw: DrawRow,
    /// The measurers whose counts the relay disputes.
    disputes: &'a [Dispute],
    /// The estimate (PROTOCOL.md §9).
    estimate_bytes_per_sec: Option<u64>,
    /// What cells in transit came to.
    lower_bound_bytes_per_sec: Option<u64>,
    /// How far that is from the known limit.
    error_percent: Option<f64>,
    /// Whether it may stand in a bandwidth file.
    publishable: bool,
    /// Cells over all links.
    cells: CellCounts,
    /// Round-trip times of those that were timed.
    rtt_ms: RoundTrip,
    /// CPU time.
    cpu_seconds: CpuSeconds,
    /// Links.
    sockets: SocketCounts,
    /// The paths between measurers and the relay.
    paths: &'a [PathRow],
}

/// The file's name without its ending.
fn file_stem(started_unix_secs: u64) -> String {
    let stamp = Utc::from_unix_secs(started_unix_secs)
        .map_or_else(|_| started_unix_secs.to_string(), Utc::file_stamp);
    format!("results-{stamp}")
}

/// All lines in order.
fn lines(outcome: &Outcome) -> impl Iterator<Item = Line<'_>> {
    let seconds = outcome.second_rows().into_iter().zip(&outcome.seconds);
    core::iter::once(Line::Measurement(measurement(outcome)))
        .chain(seconds.map(|(row, sample)| Line::Second(second(row, sample))))
        .chain([Line::Result(conclusion(outcome))])
}

/// The first line.
fn measurement(outcome: &Outcome) -> Measurement<'_> {
    let target = &outcome.target;
    Measurement {
        format: FORMAT,
        software_version: env!("CARGO_PKG_VERSION"),
        address: &target.address,
        nickname: target.nickname.as_deref(),
        ed25519_base64: Base64Unpadded::encode_string(&target.ed_identity),
        fingerprint_hex: target.rsa_fingerprint.map(hex::encode_upper),
        started_unix_secs: outcome.started_unix_secs,
        started_utc: Utc::from_unix_secs(outcome.started_unix_secs).ok().map(|utc| utc.to_string()),
        duration_secs: outcome.seconds.len() as u64,
        asked_secs: outcome.asked_secs,
        granted_secs: outcome.granted_secs,
        settle_secs: outcome.settle_secs,
        counted_unix_millis: outcome.counted_unix_millis,
        ratio_percent: outcome.ratio.percent(),
        method: outcome.method,
        crypto: outcome.crypto.map(CryptoKind::name),
        allocated_bytes_per_sec: outcome.allocated.map(BytesPerSec::get),
        limit_bytes_per_sec: outcome.limit.map(BytesPerSec::get),
    }
}

/// The line of a second.
fn second(row: SecondRow, sample: &SecondSample) -> Second {
    Second {
        row,
        background_sent_bytes: sample.background_sent_bytes,
        background_received_bytes: sample.background_received_bytes,
    }
}

/// The last line.
fn conclusion(outcome: &Outcome) -> Conclusion<'_> {
    let [estimate_bytes_per_sec, lower_bound_bytes_per_sec] = outcome.estimate_or_bound();
    Conclusion {
        verdict: outcome.verdict_name(),
        failure: outcome.result.as_ref().err(),
        draw: outcome.draw.into(),
        disputes: &outcome.disputes,
        estimate_bytes_per_sec,
        lower_bound_bytes_per_sec,
        error_percent: outcome.error_percent(),
        publishable: outcome.publishable().is_some(),
        cells: outcome.cells,
        rtt_ms: outcome.round_trip,
        cpu_seconds: outcome.cpu,
        sockets: outcome.sockets,
        paths: &outcome.paths,
    }
}
