//! OnionPerf's files of a shelf, one for each past day of UTC. Each download is in exactly one of
//! them.
//!
//! ```text
//!  lines in no file ─▶ Group: first day ─▶ onionperf.json ─▶ onionperf/DAY.HOST.… ─▶ index.xml
//! ```
//!
//! Lines go into files in order, so one number tells which lines are in files. If a day has a file
//! already, because a clock jumped back, its lines go into the next file.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ff_circuits::onionperf::day;
use ff_circuits::record::CircuitRecord;

use super::Shelf;
use super::day_files::{DayFiles, FOLDER, NextFile, Open, Progress, SCHEMA};
use crate::clocks::Now;
use crate::store::error::{StoreError, io_error};
use crate::store::lines;
use crate::store::replace::replace;
use crate::store::rotation::{MOST_NUMBER, Name};
use crate::store::state::StateFile;

/// File that tells which lines are in files.
const STATE: StateFile = StateFile {
    name: "onionperf.json",
    schema: SCHEMA,
    wrong: "this does not say which lines are in files",
    remedy: "delete the file; days that have a file in onionperf keep it",
};
/// Name of a file of [`FOLDER`] while it is written.
const UNFINISHED: &str = "unfinished.new";

/// The first lines that are in no file, up to the first of another day without a file.
#[derive(Debug, Default)]
struct Group {
    /// Their position.
    open: Option<Open>,
    /// Those with a download.
    lines: Vec<CircuitRecord>,
    /// Number after the last circuit.
    end: u64,
    /// Position of the lines after them.
    rest: Option<Open>,
}

impl Group {
    /// Adds a line of this file of lines, with its day if that has no file; returns whether it
    /// belongs to the group.
    fn add(&mut self, file: u64, day: Option<u64>, circuit: CircuitRecord) -> bool {
        let open = self.open.get_or_insert(Open { file, day });
        if day.is_some() && open.day.is_some() && open.day != day {
            self.rest = Some(Open { file, day });
            return false;
        }
        open.day = open.day.or(day);
        self.end = circuit.number.saturating_add(1);
        if circuit.download.is_some() {
            self.lines.push(circuit);
        }
        true
    }
}

impl Shelf {
    /// Enables OnionPerf's files, for a host with this name and address, and includes them in the
    /// folder's limit. The next circuit has the number `next`.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub fn keep_days(
        &mut self,
        host: &str,
        address: Option<String>,
        next: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let folder = self.dir.join(FOLDER);
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        // Left by a killed process, if it exists.
        let _ = fs::remove_file(folder.join(UNFINISHED));
        for (day, bytes) in day_files(&folder, host)? {
            self.rotation.put_day(day, bytes);
        }
        let mut progress = match STATE.read(&self.dir)? {
            Some(progress) => progress,
            None => Progress { schema: SCHEMA, first: self.first_without_file(next)?, next: None },
        };
        if let Some(file) = progress.next.take().filter(|file| self.rotation.has_day(file.day)) {
            progress.first = file.first;
        }
        progress.first = progress.first.min(next);
        let host = host.to_owned();
        let (open, ahead_since, is_index_old) = (None, None, true);
        self.days = Some(DayFiles { host, address, progress, open, ahead_since, is_index_old });
        let open = self.find_open()?;
        self.set_open(open);
        self.trim(now)
    }

    /// Writes the file of the first past day without one, if any, and returns its path. Call it
    /// while no circuit is in flight, as a circuit belongs to the day on which its download began.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name; may be retried.
    pub fn write_day(&mut self, now: Now) -> Result<Option<PathBuf>, StoreError> {
        self.write_index()?;
        let Some(days) = &mut self.days else { return Ok(None) };
        let (Some(day), Some(open)) = (days.due(now), days.open) else { return Ok(None) };
        let group = self.group(open.file)?;
        if group.open.and_then(|open| open.day) != Some(day) {
            // Its lines were removed because of the limit.
            self.set_open(group.open);
            return Ok(None);
        }
        let path = self.put(day, &group)?;
        self.set_open(group.rest);
        // If the disk is full now, the next start finds the file.
        let _ = self.write_progress(None);
        self.write_index()?;
        Ok(Some(path))
    }

    /// Writes the file of a day, after recording which lines it has, and returns its path.
    fn put(&mut self, day: u64, group: &Group) -> Result<PathBuf, StoreError> {
        let Some(days) = &self.days else { return Err(no_days(&self.dir)) };
        let (path, made) = (days.path(&self.dir, day), days.make(&self.dir, day, &group.lines)?);
        let bytes = made.bytes.len() as u64;
        self.write_progress(Some(NextFile { day, first: group.end }))?;
        let full = || {
            io_error(&path)(io::Error::other(
                "it does not fit into --disk, even without older files",
            ))
        };
        for old in self.rotation.place_day(bytes).ok_or_else(full)? {
            self.remove(old)?;
        }
        replace(&self.dir.join(FOLDER), &made.name, UNFINISHED, &made.bytes)?;
        self.rotation.put_day(day, bytes);
        if let Some(days) = &mut self.days {
            (days.progress.first, days.is_index_old) = (group.end, true);
        }
        Ok(path)
    }

    /// Writes which lines are in files, and which file is next.
    fn write_progress(&self, next: Option<NextFile>) -> Result<(), StoreError> {
        let Some(days) = &self.days else { return Ok(()) };
        let progress = Progress { next, ..days.progress.clone() };
        STATE.write(&self.dir, &progress)
    }

    /// Writes the index, if files were added or removed.
    fn write_index(&mut self) -> Result<(), StoreError> {
        let Some(days) = self.days.as_mut().filter(|days| days.is_index_old) else { return Ok(()) };
        let folder = self.dir.join(FOLDER);
        let index = day::index(&folder).map_err(io_error(&folder))?;
        replace(&folder, day::INDEX, UNFINISHED, index.as_bytes())?;
        days.is_index_old = false;
        Ok(())
    }

    /// Sets the position of the first lines that are in no file.
    fn set_open(&mut self, open: Option<Open>) {
        if let Some(days) = &mut self.days {
            (days.open, days.ahead_since) = (open, None);
            self.rotation.hold(days.held());
        }
    }

    /// Finds the first lines that are in no file. For their file of lines, reads one line per file,
    /// newest first; from there on, lines up to the first whose day has no file.
    fn find_open(&self) -> Result<Option<Open>, StoreError> {
        let first = self.days.as_ref().map_or(0, |days| days.progress.first);
        let mut open: Option<Open> = None;
        self.each_line(self.file_of(first)?, |name, circuit| {
            if circuit.number < first {
                return ControlFlow::Continue(());
            }
            let day = self.open_day(&circuit);
            let open = open.get_or_insert(Open { file: name.number, day });
            open.day = open.day.or(day);
            if open.day.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(open)
    }

    /// Number of the newest file of lines that begins with this circuit or an earlier one; all
    /// files before it have earlier circuits. 0 if there is none.
    fn file_of(&self, circuit: u64) -> Result<u64, StoreError> {
        for name in self.rotation.names().rev() {
            let mut is_there = false;
            let _ = self.lines_of(name, &mut |_: Name, first: CircuitRecord| {
                is_there = first.number <= circuit;
                ControlFlow::Break(())
            })?;
            if is_there {
                return Ok(name.number);
            }
        }
        Ok(0)
    }

    /// The first lines that are in no file, searched from this file of lines on.
    fn group(&self, file: u64) -> Result<Group, StoreError> {
        let first = self.days.as_ref().map_or(0, |days| days.progress.first);
        let mut group = Group::default();
        self.each_line(file, |name, circuit| {
            if circuit.number < first || group.add(name.number, self.open_day(&circuit), circuit) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(group)
    }

    /// Number of the first circuit whose day has no file; `next` if there is none.
    fn first_without_file(&self, next: u64) -> Result<u64, StoreError> {
        let mut first = next;
        self.each_line(0, |_, circuit| {
            if self.open_day(&circuit).is_none() {
                return ControlFlow::Continue(());
            }
            first = circuit.number;
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Day of a line, if it has one that has no file.
    pub(super) fn open_day(&self, circuit: &CircuitRecord) -> Option<u64> {
        day::day_of(circuit).filter(|day| !self.rotation.has_day(*day))
    }

    /// Passes lines to `take`, from this file of lines on, until it breaks. Lines that are not
    /// circuits are skipped.
    fn each_line(
        &self,
        first: u64,
        mut take: impl FnMut(Name, CircuitRecord) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        for name in self.rotation.names().filter(|name| name.number >= first) {
            if self.lines_of(name, &mut take)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The same for one file.
    fn lines_of(
        &self,
        name: Name,
        take: &mut impl FnMut(Name, CircuitRecord) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let path = self.dir.join(name.file());
        let file = match File::open(&path) {
            // An operator has moved it away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ControlFlow::Continue(()));
            }
            file => file.map_err(io_error(&path))?,
        };
        let mut end = ControlFlow::Continue(());
        let read = lines::each(BufReader::new(file), |_, line| {
            let circuit = line.and_then(|line| serde_json::from_slice::<CircuitRecord>(line).ok());
            if let Some(circuit) = circuit.filter(|circuit| circuit.number <= MOST_NUMBER) {
                end = take(name, circuit);
            }
            end
        });
        read.map_err(io_error(&path))?;
        Ok(end)
    }
}

/// Error of a folder without files of days.
fn no_days(dir: &Path) -> StoreError {
    io_error(dir)(io::ErrorKind::NotFound.into())
}

/// Days that have a file in a folder, with its length in bytes.
fn day_files(folder: &Path, host: &str) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let entry = entry.map_err(io_error(folder))?;
        let file = entry.file_name();
        let Some((day, of)) = file.to_str().and_then(day::read_name) else { continue };
        if of != host {
            let difference = format!("host {host:?} instead of {of:?}");
            return Err(StoreError::Other { path: entry.path(), difference });
        }
        let about = entry.metadata().map_err(io_error(&entry.path()))?;
        // A folder of such a name could not be removed for the limit, and lines would wait for
        // that.
        if !about.is_dir() {
            all.push((day, about.len()));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
