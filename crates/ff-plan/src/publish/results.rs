//! The results file: all data of one measurement, as JSON lines.
//!
//! The first line (`"type":"measurement"`) has the parameters, then each second has a line
//! (`"second"`), and the last line has the result (`"result"`). Every published number can be
//! recomputed from such a file. Keys contain their units and are never renamed; new keys may be
//! added, so readers must ignore unknown ones.
//!
//! The seconds show when the relay's clients were busy, so only the file's owner may read it.

use std::path::{Path, PathBuf};

use ff_base::files::{self, FileError, Readers};
use ff_base::utc::Utc;
use serde::{Deserialize, Serialize};

use crate::outcome::{AttemptRow, MeasurementRow, Outcome, ResultRow, SampleRow};

pub mod read;

/// Version of the format; it grows when the meaning of a key changes.
const FORMAT: u32 = 1;
/// The largest number of names that are tried: measurements begun in the same second.
const MAX_SAME_SECOND: u32 = 10_000;

/// Writes the results file of an outcome to `dir` and returns its path.
///
/// It is named `results-2026-11-20-09-30-00.jsonl` after the second in which the measurement began.
/// Existing files are never replaced: those of other measurements begun in the same second get
/// `-2`, `-3` and so on.
///
/// # Errors
/// [`FileError`] with the path.
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
/// None for these types; serde's signature has one.
pub fn to_jsonl(outcome: &Outcome) -> Result<Vec<u8>, serde_json::Error> {
    let AttemptRow { measurement, seconds, result } = outcome.into();
    let software_version = env!("CARGO_PKG_VERSION").to_owned();
    let first = Line::Measurement(First { format: FORMAT, software_version, measurement });
    let lines = seconds.into_iter().map(Line::Second).chain([Line::Result(result)]);
    let mut bytes = Vec::new();
    for line in [first].into_iter().chain(lines) {
        serde_json::to_writer(&mut bytes, &line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    /// The parameters of the measurement.
    Measurement(First),
    /// A second.
    Second(SampleRow),
    /// The result of the measurement.
    Result(ResultRow),
}

/// The parameters of a measurement, with the version of the format.
#[derive(Serialize, Deserialize)]
struct First {
    /// [`FORMAT`].
    format: u32,
    /// Version of the software that measured.
    #[serde(default)]
    software_version: String,
    /// The measurement.
    #[serde(flatten)]
    measurement: MeasurementRow,
}

/// The file's name without its suffix.
fn file_stem(started_unix_secs: u64) -> String {
    let stamp = Utc::from_unix_secs(started_unix_secs)
        .map_or_else(|_| started_unix_secs.to_string(), Utc::file_stamp);
    format!("results-{stamp}")
}
