//! The folder of a run: its lines, and the options that produced them.
//!
//! A line is written by one system call when its circuit has ended, so a killed run loses only the
//! circuits in flight. An incomplete last line, left by a full disk, a crash or another program, is
//! cut off. A file that was moved away or removed is created again.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ff_base::text::read_file;
use ff_circuits::record::CircuitRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod error;
mod lines;
pub mod rotation;
pub mod shelf;
pub mod spent;
mod state;

pub use error::StoreError;
use error::io_error;
use lines::{Numbers, cut_half_line};

/// Name of the file of lines.
pub const LINES: &str = "circuits-000.jsonl";
const OPTIONS: &str = "run.json";
/// Name of the options' file while it is written.
const UNFINISHED_OPTIONS: &str = "run.json.new";

/// Options that all parts of a run must share.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CircuitRunOptions {
    /// Client that builds the circuits.
    pub client: ff_circuits::record::Client,
    /// Random seed of the paths.
    pub seed: u64,
    /// File of paths, unless they are drawn.
    pub path_file: Option<PathBuf>,
    /// Rules for drawing paths, if they are drawn.
    pub rules: Option<String>,
    /// SHA-256 of the file of arms and the files that it names, hexadecimal; empty without arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms_sha256: Vec<String>,
    /// Number of round trips per circuit.
    pub rtt: u32,
    /// Longest random pause between round trips, in ms; 0 in files of older versions, which made no
    /// pauses.
    #[serde(default)]
    pub rtt_pause_ms: u64,
    /// Number of times to first byte.
    pub ttfb: u32,
    /// Repeated first bytes, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<crate::series::Series>,
    /// Bytes to download.
    pub download_bytes: u64,
    /// Share of circuits with a download.
    pub download_share: f64,
    /// Sizes of downloads, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_mix: Option<String>,
    /// Time limit of a download in seconds; `None` in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_secs: Option<u64>,
    /// More options; `None` in files of older versions.
    #[serde(default)]
    pub setting: Option<Setting>,
    /// Rates. They may differ between parts, which is reported. `None` in files of older versions.
    #[serde(default)]
    pub pace: Option<Pace>,
}

impl CircuitRunOptions {
    /// Whether these options include values that an older version did not record.
    fn says_more_than(&self, older: &Self) -> bool {
        let digest = |options: &Self| options.setting.as_ref()?.paths_sha256.clone();
        self.setting.is_some() && older.setting.is_none()
            || digest(self).is_some() && digest(older).is_none()
    }
}

/// Network, target and limits of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    /// Path of the network, with all links resolved.
    pub network: PathBuf,
    /// SHA-256 of the file of paths, hexadecimal; `None` in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths_sha256: Option<String>,
    /// Target of streams; `None` for the default.
    pub target: Option<String>,
    /// Number of round trips by RESOLVE.
    pub resolve: u32,
    /// Time limit of building a circuit, in seconds.
    pub build_secs: u64,
    /// Time limit of a round trip or a first byte, in seconds.
    pub trip_secs: u64,
    /// Whether circuits share relays while they are built.
    pub share_builds: bool,
    /// Whether circuits share relays while they are measured by single cells.
    pub share_probes: bool,
    /// Whether the client chooses its own paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_client: bool,
}

/// Rates of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pace {
    /// Most circuits at once.
    pub in_flight: u64,
    /// Most new circuits per second.
    pub per_sec: f64,
    /// Most new circuits per second at one first relay.
    pub per_guard_per_sec: f64,
}

/// A folder to which lines are written.
#[derive(Debug)]
pub struct Store {
    /// Path of the file of lines.
    path: PathBuf,
    file: File,
    /// Length of the file after the last complete line, in bytes.
    length: u64,
    /// Identifies the run in its lines.
    run_unix_secs: f64,
    /// The locked folder, if this store owns it; the lock ends with it.
    _lock: Option<File>,
}

/// An opened folder of a run.
#[derive(Debug)]
pub struct Opened {
    /// Accepts circuits.
    pub store: Store,
    /// Numbers of circuits already stored.
    pub done: HashSet<u64>,
    /// A note to print, if any.
    pub note: Option<String>,
}

impl Store {
    /// Starts a run in a folder, or continues one, and locks the folder.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub fn open(
        dir: &Path,
        options: &CircuitRunOptions,
        goes_on: bool,
    ) -> Result<Opened, StoreError> {
        fs::create_dir_all(dir).map_err(io_error(dir))?;
        let lock = lock(dir)?;
        let path = dir.join(LINES);
        let has_lines = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        // Only `circuits serve` can continue a folder that it has started.
        if (has_lines && !goes_on) || shelf::is_one(dir) {
            return Err(StoreError::Occupied(dir.to_owned()));
        }
        let note = if has_lines { check_options(dir, options)? } else { None };
        if !has_lines {
            write_options(dir, options)?;
        }
        let mut store = Self { _lock: Some(lock), ..Self::at(path)? };
        match store.numbers()? {
            Numbers { bad: Some(bad), .. } => Err(bad),
            Numbers { all: done, .. } => Ok(Opened { store, done, note }),
        }
    }

    /// Opens or creates a file of lines, whatever its options, and cuts off an incomplete last
    /// line.
    fn at(path: PathBuf) -> Result<Self, StoreError> {
        let (file, length) = open_lines(&path).map_err(io_error(&path))?;
        Ok(Self { path, file, length, run_unix_secs: run_unix_secs(), _lock: None })
    }

    /// Numbers of the circuits in the file.
    fn numbers(&mut self) -> Result<Numbers, StoreError> {
        Numbers::read(&mut self.file, &self.path)
    }

    /// Adds a circuit.
    ///
    /// # Errors
    /// [`StoreError`]; the line is removed again, if the disk allows it.
    pub fn add(&mut self, circuit: &CircuitRecord) -> Result<(), StoreError> {
        let line = line(circuit, self.run_unix_secs).map_err(io_error(&self.path))?;
        self.add_line(&line)
    }

    /// Adds a line with its end.
    fn add_line(&mut self, line: &[u8]) -> Result<(), StoreError> {
        self.look().map_err(io_error(&self.path))?;
        if let Err(error) = self.file.write_all(line) {
            // If this fails too, the next line or the next run cuts it off.
            let _ = self.file.set_len(self.length);
            return Err(io_error(&self.path)(error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Ensures that the next line follows a complete one, in the file of this name.
    fn look(&mut self) -> io::Result<()> {
        let about = self.file.metadata()?;
        if self.is_moved(&about) {
            (self.file, self.length) = open_lines(&self.path)?;
        } else if about.len() != self.length {
            self.length = cut_half_line(&mut self.file)?;
        }
        Ok(())
    }

    /// Whether the open file was renamed or removed.
    fn is_moved(&self, about: &Metadata) -> bool {
        match fs::metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) != (about.dev(), about.ino()),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Syncs the lines to the disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(&self) -> Result<(), StoreError> {
        self.file.sync_all().map_err(io_error(&self.path))
    }
}

/// Opens or creates a file of lines, cuts off an incomplete last line, and returns the length in
/// bytes.
fn open_lines(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let length = cut_half_line(&mut file)?;
    Ok((file, length))
}

/// A circuit's line in a run with this identifier.
fn line(circuit: &CircuitRecord, run_unix_secs: f64) -> io::Result<Vec<u8>> {
    let named = CircuitRecord { run_unix_secs: Some(run_unix_secs), ..circuit.clone() };
    let mut line = serde_json::to_vec(&named).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

/// Identifier of a run that begins now; no other has begun at the same instant of this host's
/// clock.
fn run_unix_secs() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let folder = File::open(dir).map_err(io_error(dir))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error(dir)(error)),
    }
}

/// Compares a run's options with those at its start; returns a note on its rates if they differ. A
/// folder of an older version, which does not record all options, is extended by the present ones.
fn check_options(dir: &Path, options: &CircuitRunOptions) -> Result<Option<String>, StoreError> {
    let path = dir.join(OPTIONS);
    let text = read_file(&path, state::MOST_BYTES).map_err(io_error(&path))?;
    let before: CircuitRunOptions = serde_json::from_str(&text).map_err(|error| {
        let reason = format!("these are not a run's options ({error}): give another folder");
        StoreError::Line { path: path.clone(), line: error.line().max(1), reason }
    })?;
    let paces = before.pace.as_ref().zip(options.pace.as_ref());
    let pace = paces.map(|(before, now)| differences(before, now)).filter(|all| !all.is_empty());
    let note = pace.map(|all| format!("{}: continues with {all}", path.display()));
    let of_now = |before: &Setting| {
        let paths_sha256 = &before.paths_sha256;
        options.setting.clone().map(|now| Setting {
            paths_sha256: now.paths_sha256.filter(|_| paths_sha256.is_some()),
            ..now
        })
    };
    let now = CircuitRunOptions {
        setting: before.setting.as_ref().and_then(of_now),
        pace: before.pace.clone(),
        download_secs: options.download_secs.filter(|_| before.download_secs.is_some()),
        ..options.clone()
    };
    let difference = differences(&before, &now);
    if !difference.is_empty() {
        return Err(StoreError::Other { path, difference });
    }
    // From now on all are recorded.
    if options.says_more_than(&before) {
        write_options(dir, options)?;
    }
    Ok(note)
}

/// Differences between two values of the same type, with both values.
fn differences<T: Serialize>(before: &T, now: &T) -> String {
    let mut all = Vec::new();
    let [before, now] = [before, now].map(|one| serde_json::to_value(one).unwrap_or_default());
    compare(&before, &now, &mut all);
    all.join(", ")
}

/// Collects differences between two JSON objects.
fn compare(before: &Value, now: &Value, all: &mut Vec<String>) {
    let empty = Map::new();
    let names = |value: &Value| value.as_object().unwrap_or(&empty).clone();
    let (before, now) = (names(before), names(now));
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for key in keys {
        match (before.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null)) {
            (one, other) if one == other => {}
            (one @ Value::Object(_), other @ Value::Object(_)) => compare(one, other, all),
            (one, other) => all.push(format!("{key} {other} instead of {one}")),
        }
    }
}

fn write_options(dir: &Path, options: &CircuitRunOptions) -> Result<(), StoreError> {
    replace_json(dir, OPTIONS, UNFINISHED_OPTIONS, serde_json::to_vec_pretty(options))
}

/// Replaces a file of a folder by JSON and a newline, as [`replace`] does.
fn replace_json(
    dir: &Path,
    name: &str,
    unfinished: &str,
    json: serde_json::Result<Vec<u8>>,
) -> Result<(), StoreError> {
    let mut text = json.map_err(|error| io_error(&dir.join(name))(error.into()))?;
    text.push(b'\n');
    replace(dir, name, unfinished, &text)
}

/// Replaces a file of a folder, whole or not at all, and syncs it. It is first written as
/// `unfinished` in that folder, always under the same name, so that killed processes leave only one
/// such file.
fn replace(dir: &Path, name: &str, unfinished: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (path, unfinished) = (dir.join(name), dir.join(unfinished));
    let written = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    written().map_err(|error| {
        // On a full disk, the incomplete file would take the space of lines.
        let _ = fs::remove_file(&unfinished);
        io_error(&path)(error)
    })
}

#[cfg(test)]
mod tests;
