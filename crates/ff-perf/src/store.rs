//! The folder of a run: its lines, and by which options they came.
//!
//! A line is written by one system call when its circuit has ended, so a killed run loses the
//! circuits in flight only. A half line, because the disk was full or the machine stopped, is cut
//! off. The same holds for one that another program has left; a file that was moved away or removed
//! begins anew.

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

mod lines;
pub mod rotation;
pub mod shelf;
pub mod spent;
mod state;

use lines::{Numbers, cut_half_line};

/// The lines.
pub const LINES: &str = "circuits-000.jsonl";
const OPTIONS: &str = "run.json";
/// The same while it is written.
const UNFINISHED_OPTIONS: &str = "run.json.new";

/// What two parts of one run must have in common.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CircuitRunOptions {
    /// Who builds the circuits.
    pub client: ff_circuits::record::Client,
    /// What draws the paths.
    pub seed: u64,
    /// The file with the paths, if they are not drawn.
    pub path_file: Option<PathBuf>,
    /// By which rules paths are drawn, if they are.
    pub rules: Option<String>,
    /// SHA-256 of the file with the run's arms and of the files it names, in hexadecimal digits, if
    /// the run has arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms_sha256: Vec<String>,
    /// How many round trips a circuit has.
    pub rtt: u32,
    /// The longest random pause between two of them, in ms; 0 in files of older versions, which
    /// made none.
    #[serde(default)]
    pub rtt_pause_ms: u64,
    /// How many first bytes.
    pub ttfb: u32,
    /// Repeated first bytes, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<crate::series::Series>,
    /// How much is downloaded, in bytes.
    pub download_bytes: u64,
    /// On what share of circuits.
    pub download_share: f64,
    /// Which sizes downloads have, if they have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_mix: Option<String>,
    /// How long a download may take, in seconds; not in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_secs: Option<u64>,
    /// The setting of the measurement; not in files of older versions.
    #[serde(default)]
    pub setting: Option<Setting>,
    /// How fast it may go. That may change between two parts, but is said. Not in files of older
    /// versions.
    #[serde(default)]
    pub pace: Option<Pace>,
}

impl CircuitRunOptions {
    /// Whether these say what those of an older version do not.
    fn says_more_than(&self, older: &Self) -> bool {
        let digest = |options: &Self| options.setting.as_ref()?.paths_sha256.clone();
        self.setting.is_some() && older.setting.is_none()
            || digest(self).is_some() && digest(older).is_none()
    }
}

/// What circuits are measured with.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    /// Where the network is, with all links followed.
    pub network: PathBuf,
    /// SHA-256 of the file with the paths, in hexadecimal digits; not in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths_sha256: Option<String>,
    /// What streams lead to; none if nobody says what.
    pub target: Option<String>,
    /// How many round trips by RESOLVE.
    pub resolve: u32,
    /// How long a circuit may take to be built, in seconds.
    pub build_secs: u64,
    /// How long a round trip or a first byte may take, in seconds.
    pub trip_secs: u64,
    /// Whether circuits share relays while they are built.
    pub share_builds: bool,
    /// And while they are measured by single cells.
    pub share_probes: bool,
    /// Whether the client chooses paths itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_client: bool,
}

/// How fast a run may go.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pace {
    /// Circuits at once.
    pub in_flight: u64,
    /// New circuits a second.
    pub per_sec: f64,
    /// New circuits a second at one first relay.
    pub per_guard_per_sec: f64,
}

/// A folder that cannot be used, or a line that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There are circuits of another run.
    #[error("{} has circuits already: use --resume to continue with the same options, or give another folder", .0.display())]
    Occupied(PathBuf),
    /// Somebody writes to it.
    #[error("{} is in use: another program writes circuits there", .0.display())]
    Busy(PathBuf),
    /// It was made with other options.
    #[error("{}: this run had other options: {difference}; give those, or another folder", .path.display())]
    Other {
        /// Which file says so.
        path: PathBuf,
        /// Which ones, and what they were.
        difference: String,
    },
    /// A line is not a circuit.
    #[error("{}, line {line}: {reason}", .path.display())]
    Line {
        /// In which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
}

/// A folder that is written to.
#[derive(Debug)]
pub struct Store {
    /// The file with the lines.
    path: PathBuf,
    file: File,
    /// How long it was after the last whole line, in bytes.
    length: u64,
    /// What names the run in its lines.
    run_unix_secs: f64,
    /// The folder, if it is this one's alone; its lock ends with it.
    _lock: Option<File>,
}

/// A run's folder that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Where circuits go.
    pub store: Store,
    /// The numbers of those that are there already.
    pub done: HashSet<u64>,
    /// A note about it, if there is one.
    pub note: Option<String>,
}

impl Store {
    /// Begins a run in a folder, or goes on with one; says which circuits are there already. Nobody
    /// else gets the folder meanwhile.
    ///
    /// # Errors
    /// [`StoreError`], which names the file.
    pub fn open(
        dir: &Path,
        options: &CircuitRunOptions,
        goes_on: bool,
    ) -> Result<Opened, StoreError> {
        fs::create_dir_all(dir).map_err(io_error(dir))?;
        let lock = lock(dir)?;
        let path = dir.join(LINES);
        let has_lines = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        // What `circuits serve` has begun, it alone goes on with.
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

    /// A file of lines, made with any options: opens it or makes it, and cuts a half line off.
    fn at(path: PathBuf) -> Result<Self, StoreError> {
        let (file, length) = open_lines(&path).map_err(io_error(&path))?;
        Ok(Self { path, file, length, run_unix_secs: run_unix_secs(), _lock: None })
    }

    /// The numbers of the circuits that are there.
    fn numbers(&mut self) -> Result<Numbers, StoreError> {
        Numbers::read(&mut self.file, &self.path)
    }

    /// Adds a circuit.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of the line is left then, if the disk allows it.
    pub fn add(&mut self, circuit: &CircuitRecord) -> Result<(), StoreError> {
        let line = line(circuit, self.run_unix_secs).map_err(io_error(&self.path))?;
        self.add_line(&line)
    }

    /// Adds a line, with its end.
    fn add_line(&mut self, line: &[u8]) -> Result<(), StoreError> {
        self.look().map_err(io_error(&self.path))?;
        if let Err(error) = self.file.write_all(line) {
            // If this fails, too, the next line or the next run cuts it off.
            let _ = self.file.set_len(self.length);
            return Err(io_error(&self.path)(error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Makes sure that the next line follows a whole one, in the file of this name.
    fn look(&mut self) -> io::Result<()> {
        let about = self.file.metadata()?;
        if self.is_moved(&about) {
            (self.file, self.length) = open_lines(&self.path)?;
        } else if about.len() != self.length {
            self.length = cut_half_line(&mut self.file)?;
        }
        Ok(())
    }

    /// Whether the open file, which is this one, has another name now or none.
    fn is_moved(&self, about: &Metadata) -> bool {
        match fs::metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) != (about.dev(), about.ino()),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Has the disk keep what was added.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(&self) -> Result<(), StoreError> {
        self.file.sync_all().map_err(io_error(&self.path))
    }
}

/// Opens a file of lines or makes it, and cuts a half line off; its length in bytes.
fn open_lines(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let length = cut_half_line(&mut file)?;
    Ok((file, length))
}

/// A circuit's line in a run of this name.
fn line(circuit: &CircuitRecord, run_unix_secs: f64) -> io::Result<Vec<u8>> {
    let named = CircuitRecord { run_unix_secs: Some(run_unix_secs), ..circuit.clone() };
    let mut line = serde_json::to_vec(&named).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

/// What names a run that begins now: no other one has begun at the same instant by this host's
/// clock.
fn run_unix_secs() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// About this file.
fn io_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    |error| StoreError::Io { path: path.to_owned(), error }
}

/// Takes a folder for oneself.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let folder = File::open(dir).map_err(io_error(dir))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error(dir)(error)),
    }
}

/// Compares a run's options with those it began with; what is to be said of its pace, if that is another one. A folder of
/// an older version, which does not say what it was measured with, is held to what it is measured with now.
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
    // From now on it says all.
    if options.says_more_than(&before) {
        write_options(dir, options)?;
    }
    Ok(note)
}

/// What differs between two of the same kind, with both values.
fn differences<T: Serialize>(before: &T, now: &T) -> String {
    let mut all = Vec::new();
    let [before, now] = [before, now].map(|one| serde_json::to_value(one).unwrap_or_default());
    compare(&before, &now, &mut all);
    all.join(", ")
}

/// Adds what differs between two values that have names.
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

/// Writes a run's options.
fn write_options(dir: &Path, options: &CircuitRunOptions) -> Result<(), StoreError> {
    replace_json(dir, OPTIONS, UNFINISHED_OPTIONS, serde_json::to_vec_pretty(options))
}

/// Replaces a file of a folder by JSON and the end of its line, as [`replace`] does.
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

/// Replaces a file of a folder, whole or not at all, and has the disk keep it. It is written as
/// `unfinished` in that folder, always the same name, so that kills leave only one such file.
fn replace(dir: &Path, name: &str, unfinished: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (path, unfinished) = (dir.join(name), dir.join(unfinished));
    let written = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    written().map_err(|error| {
        // On a full disk, the part that was written would take the room of lines.
        let _ = fs::remove_file(&unfinished);
        io_error(&path)(error)
    })
}

#[cfg(test)]
mod tests;
