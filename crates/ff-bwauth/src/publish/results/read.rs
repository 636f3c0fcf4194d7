//! Results files, read back: what was written is what is published from.
//!
//! A file may hold several measurements, one behind the other, as `cat` makes of several files. Whatever is
//! wrong is named by its line. A file whose number does not follow from its seconds is wrong, too.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::{Draw, SecondSample, Verdict, estimate};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use ff_proto::msg::ErrCode;
use ff_proto::params::DURATION_SECS;
use ff_proto::units::{BytesPerSec, Ratio};
use serde::Deserialize;

use super::FORMAT;
use crate::files::FileError;
use crate::outcome::{
    CellCounts, CpuSeconds, DrawRow, Failure, Method, Outcome, RoundTrip, SocketCounts, TargetInfo,
};

/// The longest line that is read: what we write has a few hundred characters.
const MAX_LINE_BYTES: u64 = 1 << 16;
/// Measurements that are read at most: more than a month of them for 10,000 relays.
pub const MAX_OUTCOMES: usize = 1_000_000;

/// A results file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A line is wrong.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// In which file.
        path: PathBuf,
        /// In which line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are too many.
    #[error("{} is one measurement too many: {MAX_OUTCOMES} at most are read", _0.display())]
    TooMany(PathBuf),
}

/// Reads results files, and of directories all that are named `results-*.jsonl`, in the order of their names.
///
/// # Errors
/// [`ReadError`] for the first file, and in it the first line, that cannot be read.
pub fn outcomes(paths: &[PathBuf]) -> Result<Vec<Outcome>, ReadError> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in results_in(path)? {
                read_file(&file, &mut all)?;
            }
        } else {
            read_file(path, &mut all)?;
        }
    }
    Ok(all)
}

/// The results files of a directory.
fn results_in(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = fs::read_dir(dir).map_err(FileError::new("read", dir))?;
    let is_results = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("results-") && name.ends_with(".jsonl")
    };
    let mut paths: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(is_results).collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Reads a file.
fn read_file(path: &Path, all: &mut Vec<Outcome>) -> Result<(), ReadError> {
    let failed = || FileError::new("read", path);
    let mut reader = BufReader::new(File::open(path).map_err(failed())?);
    let (mut begun, mut number) = (None, 0);
    let mut text = Vec::new();
    let bad = |line, reason| ReadError::Line { path: path.to_owned(), line, reason };
    while next_line(&mut reader, &mut text).map_err(failed())? {
        number += 1;
        let line = text
            .strip_suffix(b"\n")
            .ok_or_else(|| bad(number, "the line is cut, or longer than 64 kB".to_owned()))?;
        if let Some(outcome) = read_line(line, &mut begun).map_err(|reason| bad(number, reason))? {
            if all.len() >= MAX_OUTCOMES {
                return Err(ReadError::TooMany(path.to_owned()));
            }
            all.push(outcome);
        }
    }
    match begun {
        Some(_) => {
            Err(bad(number, "the file is cut: its last measurement has no result".to_owned()))
        }
        None if number == 0 => Err(bad(1, "the file is empty".to_owned())),
        None => Ok(()),
    }
}

/// Reads a line with its end, but no more than the longest; whether there was one.
fn next_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    Ok(reader.take(MAX_LINE_BYTES).read_until(b'\n', text)? > 0)
}

/// A line.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    /// What was measured and how.
    Measurement(Measurement),
    /// A second of it.
    Second(Second),
    /// What came of it.
    Result(Conclusion),
}

/// What was measured and how.
#[derive(Deserialize)]
struct Measurement {
    /// Version of the format.
    format: u32,
    /// `host:port` of the relay.
    address: String,
    /// Its nickname.
    nickname: Option<String>,
    /// Its Ed25519 identity.
    ed25519_base64: String,
    /// Its RSA fingerprint.
    fingerprint_hex: Option<String>,
    /// When it began.
    started_unix_secs: u64,
    /// Seconds measured.
    duration_secs: usize,
    /// Seconds that the relay was asked for.
    asked_secs: u16,
    /// Seconds that it granted.
    granted_secs: Option<u16>,
    /// Seconds beyond these, in which its rate was looked for.
    #[serde(default)]
    settle_secs: u16,
    /// When the first second that counts began.
    #[serde(default)]
    counted_unix_millis: Option<u64>,
    /// r.
    ratio_percent: u8,
    /// How it was measured.
    method: Method,
    /// The cipher of the measurement circuits.
    crypto: Option<String>,
    /// Σa.
    allocated_bytes_per_sec: Option<u64>,
    /// The relay's known limit.
    limit_bytes_per_sec: Option<u64>,
}

/// A second.
#[derive(Deserialize)]
struct Second {
    /// From 0.
    second: usize,
    /// x.
    measurement_bytes: u64,
    /// What the relay says it sent.
    background_sent_bytes: u64,
    /// What the relay says it received.
    background_received_bytes: u64,
}

/// What came of it.
#[derive(Deserialize)]
struct Conclusion {
    /// The verdict's name.
    verdict: String,
    /// Why it failed.
    failure: Option<FailureRow>,
    /// What the attempt is worth as a draw.
    draw: DrawRow,
    /// The estimate.
    estimate_bytes_per_sec: Option<u64>,
    /// What cells in transit came to.
    lower_bound_bytes_per_sec: Option<u64>,
    /// Cells over all links.
    cells: CellCounts,
    /// Round-trip times.
    rtt_ms: RoundTrip,
    /// CPU time.
    cpu_seconds: CpuSeconds,
    /// Links.
    sockets: SocketCounts,
}

/// A failure.
#[derive(Deserialize)]
struct FailureRow {
    /// For programs.
    code: String,
    /// The code that the relay gave for it.
    relay_code: Option<String>,
    /// For people.
    message: String,
}

/// A measurement that is being read.
struct Begun {
    /// Its first line.
    measurement: Measurement,
    /// Its identities and the ratio, which stand there.
    target: TargetInfo,
    /// r.
    ratio: Ratio,
    /// Its seconds.
    seconds: Vec<SecondSample>,
}

/// Reads a line; the outcome that it completes, or what is wrong with it.
fn read_line(line: &[u8], begun: &mut Option<Begun>) -> Result<Option<Outcome>, String> {
    let line = serde_json::from_slice(line).map_err(|error| {
        // The line is known, and the column is of no use to anybody.
        format!("this is no line of a results file: {error}")
    })?;
    match (line, begun.as_mut()) {
        (Line::Measurement(measurement), None) => {
            *begun = Some(Begun::new(measurement)?);
            Ok(None)
        }
        (Line::Second(second), Some(begun)) => begun.add(&second).map(|()| None),
        (Line::Result(conclusion), Some(_)) => {
            begun.take().map(|begun| begun.finish(conclusion)).transpose()
        }
        (Line::Measurement(_), Some(_)) => Err("the measurement before has no result".to_owned()),
        (Line::Second(_) | Line::Result(_), None) => {
            Err("no measurement has begun that this belongs to".to_owned())
        }
    }
}

impl Begun {
    /// Begins with the first line.
    fn new(measurement: Measurement) -> Result<Self, String> {
        if measurement.format != FORMAT {
            let format = measurement.format;
            return Err(format!("the format is {format}, and this program reads {FORMAT}"));
        }
        let ed_identity = Base64Unpadded::decode_vec(&measurement.ed25519_base64);
        let ed_identity = ed_identity.ok().and_then(|bytes| bytes.try_into().ok());
        let fingerprint = |text: &String| hex::decode(text).ok()?.try_into().ok();
        let rsa_fingerprint = match &measurement.fingerprint_hex {
            Some(text) => Some(fingerprint(text).ok_or("fingerprint_hex is no fingerprint")?),
            None => None,
        };
        let target = TargetInfo {
            address: measurement.address.clone(),
            ed_identity: ed_identity.ok_or("ed25519_base64 is no Ed25519 identity")?,
            rsa_fingerprint,
            nickname: measurement.nickname.clone(),
        };
        let ratio = Ratio::from_percent(measurement.ratio_percent);
        let ratio = ratio.ok_or("ratio_percent is above 99")?;
        Ok(Self { measurement, target, ratio, seconds: Vec::new() })
    }

    /// Adds a second.
    fn add(&mut self, second: &Second) -> Result<(), String> {
        if second.second != self.seconds.len() || second.second >= usize::from(*DURATION_SECS.end())
        {
            return Err(format!("second {} is not the next one", second.second));
        }
        self.seconds.push(SecondSample {
            measurement_bytes: second.measurement_bytes,
            background_sent_bytes: second.background_sent_bytes,
            background_received_bytes: second.background_received_bytes,
        });
        Ok(())
    }

    /// Ends with the last line.
    fn finish(self, conclusion: Conclusion) -> Result<Outcome, String> {
        let Self { measurement, target, ratio, seconds } = self;
        if seconds.len() != measurement.duration_secs {
            let stated = measurement.duration_secs;
            return Err(format!("{} of {stated} seconds are there", seconds.len()));
        }
        let result = result(&conclusion)?;
        let stated = conclusion.estimate_bytes_per_sec.or(conclusion.lower_bound_bytes_per_sec);
        let outcome = Outcome {
            target,
            started_unix_secs: measurement.started_unix_secs,
            asked_secs: measurement.asked_secs,
            granted_secs: measurement.granted_secs,
            settle_secs: measurement.settle_secs,
            counted_unix_millis: measurement.counted_unix_millis,
            settling_bytes: Vec::new(),
            ratio,
            crypto: crypto(measurement.crypto.as_deref())?,
            allocated: measurement.allocated_bytes_per_sec.map(BytesPerSec::new),
            method: measurement.method,
            estimate: stated.map(BytesPerSec::new),
            draw: draw(conclusion.draw),
            limit: measurement.limit_bytes_per_sec.map(BytesPerSec::new),
            result,
            seconds,
            cells: conclusion.cells,
            round_trip: conclusion.rtt_ms,
            cpu: conclusion.cpu_seconds,
            sockets: conclusion.sockets,
            paths: Vec::new(),
            disputes: Vec::new(),
        };
        check(&outcome)?;
        Ok(outcome)
    }
}

/// Whether what stands at the end follows from what stands before.
fn check(outcome: &Outcome) -> Result<(), String> {
    let Ok(verdict) = outcome.result else { return Ok(()) };
    let computed = estimate(&outcome.seconds, outcome.ratio);
    if outcome.method == Method::Echo && outcome.estimate != computed {
        let number = |rate: Option<BytesPerSec>| {
            rate.map_or("nothing".to_owned(), |rate| format!("{} bytes/s", rate.get()))
        };
        return Err(format!(
            "the estimate is {}, and the seconds come to {}",
            number(outcome.estimate),
            number(computed)
        ));
    }
    if outcome.estimate.is_some_and(|estimate| outcome.draw != verdict.draw(estimate)) {
        return Err(format!("a {} result does not count as this draw", outcome.verdict_name()));
    }
    Ok(())
}

/// The draw of a row.
fn draw(row: DrawRow) -> Draw {
    match (row.counts, row.bytes_per_sec) {
        (false, _) => Draw::Void,
        (true, None) => Draw::Blank,
        (true, Some(bytes)) => Draw::Value(BytesPerSec::new(bytes)),
    }
}

/// The cipher of a name.
fn crypto(name: Option<&str>) -> Result<Option<CryptoKind>, String> {
    let Some(name) = name else { return Ok(None) };
    let kind = CryptoKind::SUPPORTED.iter().find(|kind| kind.name() == name);
    kind.copied().map(Some).ok_or_else(|| format!("there is no cipher {name:?}"))
}

/// What a verdict and a failure say.
fn result(conclusion: &Conclusion) -> Result<Result<Verdict, Failure>, String> {
    let verdict = match (conclusion.verdict.as_str(), &conclusion.failure) {
        ("failed", Some(row)) => return failure(row).map(Err),
        ("failed", None) => return Err("it failed, but no failure stands there".to_owned()),
        (verdict, Some(_)) => return Err(format!("it is {verdict:?}, but a failure stands there")),
        (verdict, None) => verdict,
    };
    let found = Verdict::ALL.iter().find(|known| known.name() == verdict);
    found.map(|verdict| Ok(*verdict)).ok_or_else(|| format!("there is no verdict {verdict:?}"))
}

/// The failure of a row.
fn failure(row: &FailureRow) -> Result<Failure, String> {
    let kind = FailureKind::ALL.iter().find(|kind| kind.code() == row.code);
    let kind = *kind.ok_or_else(|| format!("there is no failure {:?}", row.code))?;
    let code = |text: &String| {
        let named = ErrCode::ALL.iter().find(|code| code.name() == text).copied();
        let number = || text.strip_prefix("code ")?.parse().ok().map(ErrCode);
        named.or_else(number).ok_or_else(|| format!("there is no relay's code {text:?}"))
    };
    let relay_code = row.relay_code.as_ref().map(code).transpose()?;
    Ok(Failure { kind, relay_code, message: row.message.clone() })
}
