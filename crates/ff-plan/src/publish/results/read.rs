//! Reads results files, from which bandwidth files can be made.
//!
//! A file may have several measurements, one after the other, as `cat` makes from several files.
//! Errors name their line. It is also an error if the number in a file does not follow from its
//! seconds.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use ff_base::files::FileError;
use ff_base::text::{UnixText, refuse_packed};
use ff_proto::params::DURATION_SECS;
use ff_proto::units::BytesPerSec;

use super::{FORMAT, First, Line};
use crate::outcome::{AttemptRow, MeasurementRow, Method, Outcome, ResultRow, SampleRow};

/// The longest line that is read, in bytes: ours have a few hundred.
const MAX_LINE_BYTES: u64 = 1 << 16;
/// The largest number of measurements that are read: more than a month's for 10,000 relays.
pub const MAX_OUTCOMES: usize = 1_000_000;

/// A results file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A line is not valid.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are too many measurements.
    #[error("{} is one measurement too many: {MAX_OUTCOMES} at most are read", _0.display())]
    TooMany(PathBuf),
}

/// Reads results files, and all files `results-*.jsonl` of directories, in the order of their
/// names.
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
    let mut packed = BufReader::new(File::open(path).map_err(failed())?);
    packed.fill_buf().and_then(|head| refuse_packed(head, &[])).map_err(failed())?;
    let mut reader = BufReader::new(UnixText::new(packed));
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

/// Reads a line with its end, up to the longest length; returns whether there was one.
fn next_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    Ok(reader.take(MAX_LINE_BYTES).read_until(b'\n', text)? > 0)
}

/// A measurement that is being read.
struct Begun {
    /// Its first line.
    measurement: MeasurementRow,
    /// Its seconds.
    seconds: Vec<SampleRow>,
}

/// Reads a line; returns the outcome that it completes, or the problem.
fn read_line(line: &[u8], begun: &mut Option<Begun>) -> Result<Option<Outcome>, String> {
    let line = serde_json::from_slice(line).map_err(|error| {
        // The line is known, and the column does not help.
        format!("this is not a line of a results file: {error}")
    })?;
    match (line, begun.as_mut()) {
        (Line::Measurement(first), None) => {
            *begun = Some(Begun::new(first)?);
            Ok(None)
        }
        (Line::Second(second), Some(begun)) => begun.add(second).map(|()| None),
        (Line::Result(result), Some(_)) => {
            begun.take().map(|begun| begun.finish(result)).transpose()
        }
        (Line::Measurement(_), Some(_)) => Err("the measurement before has no result".to_owned()),
        (Line::Second(_) | Line::Result(_), None) => {
            Err("no measurement has begun that this belongs to".to_owned())
        }
    }
}

impl Begun {
    /// Starts with the first line.
    fn new(First { format, measurement, .. }: First) -> Result<Self, String> {
        if format != FORMAT {
            return Err(format!("the format is {format}, and this program reads {FORMAT}"));
        }
        // Its errors are reported for its own line.
        measurement.target()?;
        measurement.ratio()?;
        Ok(Self { measurement, seconds: Vec::new() })
    }

    /// Adds a second.
    fn add(&mut self, second: SampleRow) -> Result<(), String> {
        let number = usize::from(second.row.second);
        if number != self.seconds.len() || number >= usize::from(*DURATION_SECS.end()) {
            return Err(format!("second {number} is not the next one"));
        }
        self.seconds.push(second);
        Ok(())
    }

    /// Ends with the last line.
    fn finish(self, result: ResultRow) -> Result<Outcome, String> {
        let Self { measurement, seconds } = self;
        if seconds.len() as u64 != measurement.duration_secs {
            let stated = measurement.duration_secs;
            return Err(format!("{} of {stated} seconds are there", seconds.len()));
        }
        let outcome = Outcome::try_from(AttemptRow { measurement, seconds, result })?;
        check(&outcome)?;
        Ok(outcome)
    }
}

/// Checks that the result follows from the seconds.
fn check(outcome: &Outcome) -> Result<(), String> {
    let Ok(verdict) = outcome.result else { return Ok(()) };
    let computed = outcome.estimator.estimate(&outcome.seconds, outcome.ratio);
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
