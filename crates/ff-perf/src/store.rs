//! The folder of a run: its lines, and the options that produced them.
//!
//! A line is written by one system call when its circuit has ended, so a killed run loses only the
//! circuits in flight. An incomplete last line, left by a full disk, a crash or another program, is
//! cut off. A file that was moved away or removed is created again.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ff_circuits::record::CircuitRecord;

mod error;
mod folder;
mod lines;
mod replace;
pub mod rotation;
mod run_options;
pub mod shelf;
pub mod spent;
mod state;

pub use error::StoreError;
use error::io_error;
pub(crate) use folder::is_shelf;
use folder::lock;
use lines::{Numbers, cut_half_line};
pub use run_options::{CircuitRunOptions, Pace, Setting};
use run_options::{check_options, write_options};

/// Name of the file of lines.
pub const LINES: &str = "circuits-000.jsonl";

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
        if (has_lines && !goes_on) || is_shelf(dir) {
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

#[cfg(test)]
mod tests;
