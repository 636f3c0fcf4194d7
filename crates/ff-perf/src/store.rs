//! The folder of a run: its lines, and by which options they came.
//!
//! A line is written by one system call when its circuit has ended, so a killed run loses the circuits in flight only.
//! A line that is half there, because the disk was full or the machine stopped, is cut off.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::record::Circuit;

pub mod rotation;
pub mod shelf;

/// The lines.
pub const LINES: &str = "circuits-000.jsonl";
/// The options.
const OPTIONS: &str = "run.json";

/// What two parts of one run must have in common.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Options {
    /// Who builds the circuits.
    pub client: crate::record::Client,
    /// What draws the paths.
    pub seed: u64,
    /// The file with the paths, if they are not drawn.
    pub path_file: Option<PathBuf>,
    /// By which rules paths are drawn, if they are.
    pub rules: Option<String>,
    /// How many round trips a circuit has.
    pub rtt: u32,
    /// The longest random pause between two of them, in ms; 0 in files of older versions, which made none.
    #[serde(default)]
    pub rtt_pause_ms: u64,
    /// How many first bytes.
    pub ttfb: u32,
    /// First bytes again and again, if there are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<crate::series::Series>,
    /// How much is downloaded, in bytes.
    pub download_bytes: u64,
    /// On what share of circuits.
    pub download_share: f64,
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
    #[error("{} has circuits already: go on as they began there (`run` with --resume), or give another folder", .0.display())]
    Occupied(PathBuf),
    /// Somebody writes to it.
    #[error("{} is in use: another program writes circuits there", .0.display())]
    Busy(PathBuf),
    /// It was made with other options.
    #[error("{}: this run had other options: {before}", .path.display())]
    Other {
        /// Which file says so.
        path: PathBuf,
        /// What they were.
        before: String,
    },
    /// A line is no circuit.
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
    /// It.
    file: File,
    /// How long it is.
    length: u64,
    /// Whether a part of a line may stand behind that.
    is_torn: bool,
}

/// As much of a line as a run needs to go on.
#[derive(Deserialize)]
struct Number {
    /// The circuit's.
    number: u64,
}

impl Store {
    /// Begins a run in a folder, or goes on with one; says which circuits are there already.
    ///
    /// # Errors
    /// [`StoreError`], which names the file.
    pub fn open(
        dir: &Path,
        options: &Options,
        goes_on: bool,
    ) -> Result<(Self, HashSet<u64>), StoreError> {
        fs::create_dir_all(dir).map_err(io_error(dir))?;
        let path = dir.join(LINES);
        let has_lines = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        // What `circuits serve` has begun, it alone goes on with.
        if (has_lines && !goes_on) || shelf::is_one(dir) {
            return Err(StoreError::Occupied(dir.to_owned()));
        }
        if has_lines {
            check_options(dir, options)?
        } else {
            write_options(dir, options)?
        }
        let mut store = Self::at(path)?;
        let done = store.numbers()?;
        Ok((store, done))
    }

    /// A file of lines, whatever options they came by: opens it or makes it, and cuts a half line off.
    fn at(path: PathBuf) -> Result<Self, StoreError> {
        let opened = OpenOptions::new().create(true).append(true).read(true).open(&path);
        let mut file = opened.map_err(io_error(&path))?;
        let length = cut_half_line(&mut file).map_err(io_error(&path))?;
        Ok(Self { path, file, length, is_torn: false })
    }

    /// The numbers of the circuits that are there.
    fn numbers(&mut self) -> Result<HashSet<u64>, StoreError> {
        numbers(&mut self.file, &self.path)
    }

    /// Adds a circuit.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of the line is left then, if the disk allows it.
    pub fn add(&mut self, circuit: &Circuit) -> Result<(), StoreError> {
        let line = line(circuit).map_err(io_error(&self.path))?;
        self.add_line(&line)
    }

    /// Adds a line, with its end.
    fn add_line(&mut self, line: &[u8]) -> Result<(), StoreError> {
        if self.is_torn {
            self.file.set_len(self.length).map_err(io_error(&self.path))?;
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(line) {
            // If this fails, too, the next line or the next run cuts it off.
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(io_error(&self.path)(error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Has the disk keep what was added.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(&self) -> Result<(), StoreError> {
        self.file.sync_all().map_err(io_error(&self.path))
    }
}

/// A circuit's line.
fn line(circuit: &Circuit) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(circuit).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

/// About this file.
fn io_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    |error| StoreError::Io { path: path.to_owned(), error }
}

/// Compares a run's options with those it began with.
fn check_options(dir: &Path, options: &Options) -> Result<(), StoreError> {
    let path = dir.join(OPTIONS);
    let text = fs::read_to_string(&path).map_err(io_error(&path))?;
    let is_same = serde_json::from_str::<Options>(&text).is_ok_and(|before| before == *options);
    let before = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if is_same { Ok(()) } else { Err(StoreError::Other { path, before }) }
}

/// Writes a run's options.
fn write_options(dir: &Path, options: &Options) -> Result<(), StoreError> {
    let path = dir.join(OPTIONS);
    let written = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut file, options)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    written().map_err(io_error(&path))
}

/// Cuts off what stands behind the last whole line; how long the file is then.
fn cut_half_line(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 65_536;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut buffer = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        buffer.clear();
        (&*file).take(end - begin).read_to_end(&mut buffer)?;
        if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
            end = begin + at as u64 + 1;
            break;
        }
        end = begin;
    }
    file.set_len(end)?;
    Ok(end)
}

/// The numbers of the circuits that are there.
fn numbers(file: &mut File, path: &Path) -> Result<HashSet<u64>, StoreError> {
    file.rewind().map_err(io_error(path))?;
    let mut all = HashSet::new();
    for (at, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(io_error(path))?;
        let read: Result<Number, _> = serde_json::from_str(&line);
        let wrong = |error: serde_json::Error| StoreError::Line {
            path: path.to_owned(),
            line: at + 1,
            reason: error.to_string(),
        };
        all.insert(read.map_err(wrong)?.number);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of a run.
    pub(super) fn options() -> Options {
        Options {
            client: crate::record::Client::Arti,
            seed: 1,
            path_file: None,
            rules: Some("tor".to_owned()),
            rtt: 5,
            rtt_pause_ms: 0,
            ttfb: 0,
            latency: None,
            download_bytes: 0,
            download_share: 0.0,
        }
    }

    /// A circuit of this number.
    pub(super) fn circuit(number: u64) -> Circuit {
        let line = format!(
            r#"{{"schema":1,"number":{number},"client":"arti","began_unix_secs":0.0,"began_us":0,"path":[],"ended_us":9}}"#
        );
        serde_json::from_str(&line).expect("a circuit")
    }

    #[test]
    fn a_run_goes_on_behind_its_last_whole_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut store, done) = Store::open(dir.path(), &options(), false).expect("a store");
        assert!(done.is_empty());
        store.add(&circuit(3)).expect("a line");
        store.add(&circuit(5)).expect("a line");
        store.finish().expect("kept");
        let path = dir.path().join(LINES);
        let whole = fs::read(&path).expect("lines");
        fs::write(&path, [&whole[..], b"{\"schema\":1,\"num"].concat()).expect("half a line");

        assert!(matches!(Store::open(dir.path(), &options(), false), Err(StoreError::Occupied(_))));
        let other = Options { seed: 2, ..options() };
        assert!(matches!(Store::open(dir.path(), &other, true), Err(StoreError::Other { .. })));
        let (_, done) = Store::open(dir.path(), &options(), true).expect("a store");
        assert_eq!(done, HashSet::from([3, 5]));
        assert_eq!(fs::read(&path).expect("lines"), whole);
    }

    #[test]
    fn a_line_that_is_no_circuit_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(Store::open(dir.path(), &options(), false).expect("a store"));
        fs::write(dir.path().join(LINES), "{\"number\":1}\nx\n").expect("lines");
        let error = Store::open(dir.path(), &options(), true).expect_err("a bad line").to_string();
        assert!(error.contains("circuits-000.jsonl, line 2"), "{error}");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let file = OpenOptions::new().append(true).open("/dev/full").expect("/dev/full");
        let mut store = Store { path: PathBuf::from("/dev/full"), file, length: 0, is_torn: false };
        let error = store.add(&circuit(1)).expect_err("no space").to_string();
        assert!(error.contains("/dev/full"), "{error}");
    }
}
