//! A folder that accepts lines for months: consecutive files, up to a fixed number.
//!
//! A new start continues after the last complete line. The folder is locked while it is written to,
//! as two writers would give two circuits one number and remove each other's files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ff_circuits::record::CircuitRecord;

use super::error::{StoreError, io_error};
use super::folder::{files, lock};
use super::lines::Numbers;
use super::rotation::{LinePlace, Name, OldFile, Rotation, Rule};
use super::run_options::{CircuitRunOptions, check_options, write_options};
use super::{Store, line, run_unix_secs};
use crate::clocks::{Now, now};
use crate::schedule::WINDOW;

mod day_files;
mod days;

use day_files::DayFiles;

/// The highest number is among this many last lines. Circuits end in another order than they begin:
/// at most 10,000 are in flight, and as many as the scheduler's window have been passed over.
const LAST_LINES: usize = 10_000 + WINDOW;

/// An open folder.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    /// Decides which file is next.
    rotation: Rotation,
    /// The current file, if there is one.
    store: Option<Store>,
    /// Zero of the monotonic clock.
    began: Instant,
    /// Identifies the run in its lines, in all files.
    run_unix_secs: f64,
    notes: Vec<String>,
    /// OnionPerf's files, if they are written.
    days: Option<DayFiles>,
    /// The locked folder; the lock ends with it.
    _lock: File,
}

impl Shelf {
    /// Opens or creates a folder, and returns the number of the next circuit.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub fn open(
        dir: &Path,
        options: &CircuitRunOptions,
        rule: Rule,
    ) -> Result<(Self, u64), StoreError> {
        fs::create_dir_all(dir).map_err(io_error(dir))?;
        let lock = lock(dir)?;
        let files = files(dir)?;
        if files.is_empty() {
            if dir.join(super::LINES).exists() {
                return Err(StoreError::Occupied(dir.to_owned()));
            }
            write_options(dir, options)?;
        }
        let mut notes = Vec::new();
        if !files.is_empty() {
            notes.extend(check_options(dir, options)?);
        }
        Self::taken(dir, lock, files, notes, rule)
    }

    /// Opens a folder with lines, whatever their options ([`Self::check`]), and returns the number
    /// of the next circuit.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub fn reopen(dir: &Path, rule: Rule) -> Result<(Self, u64), StoreError> {
        let lock = lock(dir)?;
        Self::taken(dir, lock, files(dir)?, Vec::new(), rule)
    }

    /// Compares these options with those of the lines; returns a note, if any.
    ///
    /// # Errors
    /// [`StoreError::Other`] if they differ.
    pub fn check(&self, options: &CircuitRunOptions) -> Result<Option<String>, StoreError> {
        check_options(&self.dir, options)
    }

    /// A locked folder with these files.
    fn taken(
        dir: &Path,
        lock: File,
        files: Vec<Name>,
        mut notes: Vec<String>,
        rule: Rule,
    ) -> Result<(Self, u64), StoreError> {
        let began = Instant::now();
        let (mut store, mut number, mut lines) = (None, 0, 0);
        let long = |name: &Name| length(&dir.join(name.file())).map(|bytes| (*name, bytes));
        let mut lengths = files.iter().map(long).collect::<Result<Vec<_>, StoreError>>()?;
        for name in files.iter().rev() {
            let mut file = Store::at(dir.join(name.file()))?;
            let numbers = file.numbers()?;
            lines += numbers.all.len();
            number = number.max(numbers.all.iter().max().map_or(0, |last| last + 1));
            notes.extend(passed_by(numbers));
            store.get_or_insert(file);
            if lines >= LAST_LINES {
                break;
            }
        }
        // An incomplete last line may have been cut off.
        if let (Some((_, bytes)), Some(store)) = (lengths.last_mut(), &store) {
            *bytes = store.length;
        }
        let rotation = Rotation::new(rule, lengths, now(began));
        let mut shelf = Self {
            dir: dir.to_owned(),
            rotation,
            store,
            began,
            run_unix_secs: run_unix_secs(),
            notes,
            days: None,
            _lock: lock,
        };
        shelf.trim(now(began))?;
        Ok((shelf, number))
    }

    /// Notes on the folder at the start, one sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Bytes left until the oldest file is removed; `None` without a limit.
    #[must_use]
    pub fn left_bytes(&self) -> Option<u64> {
        let most = Some(self.rotation.disk_bytes()).filter(|most| *most < u64::MAX);
        most.map(|most| most.saturating_sub(self.rotation.bytes()))
    }

    /// Adds a circuit; may be retried if it fails.
    ///
    /// # Errors
    /// [`StoreError`]; the line is removed again, if the disk allows it.
    pub fn add(&mut self, circuit: &CircuitRecord) -> Result<(), StoreError> {
        self.add_at(circuit, now(self.began))
    }

    /// Adds a circuit at a given time.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_at(&mut self, circuit: &CircuitRecord, now: Now) -> Result<(), StoreError> {
        let line = line(circuit, self.run_unix_secs).map_err(io_error(&self.dir))?;
        let bytes = line.len() as u64;
        self.make_room(&self.rotation.place(bytes, now), now)?;
        let failed = || io_error(&self.dir)(std::io::ErrorKind::NotFound.into());
        self.store.as_mut().ok_or_else(failed)?.add_line(&line)?;
        self.rotation.added(bytes);
        let (day, file) = (self.open_day(circuit), self.rotation.last());
        if let (Some(days), Some(file)) = (&mut self.days, file) {
            days.added(file.number, day);
            self.rotation.hold(days.held());
        }
        Ok(())
    }

    /// Syncs the lines to the disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(&self) -> Result<(), StoreError> {
        self.store.as_ref().map_or(Ok(()), Store::finish)
    }

    /// Removes old files and begins a new one if needed. Removal comes first: on a full disk it
    /// makes room.
    fn make_room(&mut self, place: &LinePlace, now: Now) -> Result<(), StoreError> {
        if place.new.is_some() {
            self.finish()?;
        }
        for old in &place.forget {
            self.remove(*old)?;
        }
        if let Some(name) = place.new {
            self.store = Some(Store::at(self.dir.join(name.file()))?);
            self.rotation.began(name, now);
        }
        Ok(())
    }

    /// Removes files until the limit holds.
    fn trim(&mut self, now: Now) -> Result<(), StoreError> {
        if self.rotation.bytes() > self.rotation.disk_bytes() {
            self.make_room(&self.rotation.place(0, now), now)?;
        }
        Ok(())
    }

    fn remove(&mut self, old: OldFile) -> Result<(), StoreError> {
        let path = match (old, &self.days) {
            (OldFile::Lines(name), _) => self.dir.join(name.file()),
            (OldFile::Day(day), Some(days)) => days.path(&self.dir, day),
            (OldFile::Day(_), None) => return Ok(()),
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io_error(&path)(error))
            }
            _ => {
                self.rotation.forgot(old);
                if let (OldFile::Day(_), Some(days)) = (old, &mut self.days) {
                    days.removed();
                }
                Ok(())
            }
        }
    }
}

/// Note on a file's lines that are not circuits. They do not prevent a start, and stay for the
/// operator to examine; `circuits analyze` refuses the file as long as they are there.
fn passed_by(numbers: Numbers) -> Option<String> {
    let bad = numbers.bad?;
    Some(match numbers.more_bad {
        0 => format!("{bad}; it is skipped"),
        more => format!("{bad}; it is skipped, and so are further such lines of this file: {more}"),
    })
}

/// Length of a file, in bytes.
fn length(path: &Path) -> Result<u64, StoreError> {
    fs::metadata(path).map(|file| file.len()).map_err(io_error(path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{circuit, options};
    use super::*;

    /// A rule for small files.
    const SMALL: Rule = Rule { keep: 3, is_daily: false, file_bytes: 300, disk_bytes: u64::MAX };

    /// Lines of all files, oldest first.
    fn lines(dir: &Path) -> Vec<String> {
        let files = files(dir).expect("files");
        let read = |name: &Name| fs::read_to_string(dir.join(name.file())).expect("lines");
        files
            .iter()
            .flat_map(|name| read(name).lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn a_start_goes_on_behind_the_last_whole_line_with_the_next_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut shelf, next) = Shelf::open(dir.path(), &options(), SMALL).expect("a shelf");
        assert_eq!(next, 0);
        for number in [0, 2, 1] {
            shelf.add(&circuit(number)).expect("a line");
        }
        assert!(matches!(Shelf::open(dir.path(), &options(), SMALL), Err(StoreError::Busy(_))));
        drop(shelf);
        let last = files(dir.path()).expect("files").pop().expect("a file");
        let path = dir.path().join(last.file());
        let mut text = fs::read(&path).expect("lines");
        text.extend(b"{\"schema\":1,\"num");
        fs::write(&path, text).expect("half a line");

        let other = CircuitRunOptions { seed: 2, ..options() };
        let error = Shelf::open(dir.path(), &other, SMALL).expect_err("other options").to_string();
        assert!(error.contains("run.json"), "{error}");
        let (mut shelf, next) = Shelf::open(dir.path(), &options(), SMALL).expect("a shelf");
        assert_eq!(next, 3);
        shelf.add(&circuit(3)).expect("a line");
        let whole =
            |line: &String| serde_json::from_str::<CircuitRecord>(line).expect("a whole line");
        let all: Vec<_> = lines(dir.path()).iter().map(whole).collect();
        let numbers: Vec<_> = all.iter().map(|circuit| circuit.number).collect();
        assert_eq!(numbers, [0, 2, 1, 3]);
        let runs: Vec<_> = all.iter().map(|circuit| circuit.run_unix_secs).collect();
        assert!(files(dir.path()).expect("files").len() > 1, "a run of several files");
        assert!(runs[0].is_some() && runs[0] == runs[1] && runs[1] == runs[2], "{runs:?}");
        assert!(runs[3].is_some() && runs[3] != runs[2], "{runs:?}");
        let busy = Store::open(dir.path(), &options(), false);
        assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
        drop(shelf);
        assert!(matches!(Store::open(dir.path(), &options(), false), Err(StoreError::Occupied(_))));
    }

    #[test]
    fn a_line_that_is_no_circuit_is_named_and_passed_by() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut shelf, _) = Shelf::open(dir.path(), &options(), SMALL).expect("a shelf");
        shelf.add(&circuit(4)).expect("a line");
        assert!(shelf.notes().is_empty());
        drop(shelf);
        let name = files(dir.path()).expect("files").pop().expect("a file").file();
        let path = dir.path().join(&name);
        let whole = fs::read(&path).expect("a line");
        let odd = [&whole[..], b"{\"schema\":1,\"num\n", b"\xff\0\n", &whole].concat();
        fs::write(&path, &odd).expect("lines");

        let (shelf, next) = Shelf::open(dir.path(), &options(), SMALL).expect("a shelf");
        let [note] = shelf.notes() else { panic!("one: {:?}", shelf.notes()) };
        assert!(note.contains(&format!("{name}, line 2: ")) && note.ends_with(": 1"), "{note}");
        assert_eq!((next, fs::read(&path).expect("lines")), (5, odd), "nothing is lost");
    }

    #[test]
    fn so_many_files_are_kept_and_no_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut shelf, _) = Shelf::open(dir.path(), &options(), SMALL).expect("a shelf");
        for number in 0..50 {
            shelf.add(&circuit(number)).expect("a line");
            let files = files(dir.path()).expect("files");
            let bytes =
                |name: &Name| fs::metadata(dir.path().join(name.file())).expect("a file").len();
            assert!(files.len() <= 3 && files.iter().map(bytes).sum::<u64>() <= 900, "{files:?}");
        }
        assert!(lines(dir.path()).last().expect("a line").contains("\"number\":49"));
    }

    /// A year of downloads, one every 15 minutes by simulated clocks, into real files: the folder
    /// never exceeds its limit, and the remaining lines are the last ones, each once.
    #[test]
    fn a_year_of_lines_stays_within_its_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let rule = Rule { keep: 400, is_daily: true, file_bytes: 20_000, disk_bytes: 100_000 };
        let bytes_there = || {
            let files = files(dir.path()).expect("files");
            files
                .iter()
                .map(|name| length(&dir.path().join(name.file())).expect("a file"))
                .sum::<u64>()
        };
        let count = 365 * 96;
        let (mut shelf, _) = Shelf::open(dir.path(), &options(), rule).expect("a shelf");
        for number in 0..count {
            let secs = number * 900;
            let now = Now { unix_secs: 1_795_132_800 + secs, elapsed: Duration::from_secs(secs) };
            shelf.add_at(&circuit(number), now).expect("a line");
            if number % 500 == 0 {
                assert!(bytes_there() <= rule.disk_bytes, "{}", bytes_there());
                assert_eq!(shelf.left_bytes(), Some(rule.disk_bytes - bytes_there()));
            }
        }
        let number =
            |line: &String| serde_json::from_str::<CircuitRecord>(line).expect("a line").number;
        let numbers: Vec<u64> = lines(dir.path()).iter().map(number).collect();
        let first = *numbers.first().expect("lines");
        assert!(numbers.iter().copied().eq(first..count), "no line is missing or doubled");
        assert!(bytes_there() > 70_000, "the bound is made use of");
        drop(shelf);
        // A start with a smaller limit applies it at once, and continues the numbers.
        let rule = Rule { file_bytes: 5_000, disk_bytes: 10_000, ..rule };
        let (mut shelf, next) = Shelf::open(dir.path(), &options(), rule).expect("a shelf");
        assert_eq!(next, count);
        assert!(bytes_there() <= 10_000, "{}", bytes_there());
        shelf.add(&circuit(next)).expect("a line");
        assert!(lines(dir.path()).last().expect("a line").contains(&format!("\"number\":{next}")));
    }
}
