//! The results file: everything known of one measurement, as JSON lines.
//!
//! The first line (`"type":"measurement"`) says what was measured and how, then comes one line
//! per second (`"second"`), then what came of it (`"result"`). Every published number can be
//! recomputed from such a file. Keys carry their units and are never renamed; new keys may be
//! added, so readers have to skip what they do not know.
//!
//! The seconds tell when the relay's clients were busy, so nobody but the file's owner may read it.

use std::path::{Path, PathBuf};

use ff_base::files::{self, FileError, Readers};
use ff_base::utc::Utc;
use serde::{Deserialize, Serialize};

use crate::outcome::{AttemptRow, MeasurementRow, Outcome, ResultRow, SampleRow};

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
    /// What was measured and how.
    Measurement(First),
    /// A second of it.
    Second(SampleRow),
    /// The result of the measurement.
    Result(ResultRow),
}

/// What was measured and how, and in which format that is said.
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

/// The file's name without its ending.
fn file_stem(started_unix_secs: u64) -> String {
    let stamp = Utc::from_unix_secs(started_unix_secs)
        .map_or_else(|_| started_unix_secs.to_string(), Utc::file_stamp);
    format!("results-{stamp}")
}
