//! OnionPerf's files of a shelf: one for each day of UTC that is over. Each download is in one of
//! them, once.
//!
//! ```text
//!  lines in no file yet ─▶ Group: those of the first day ─▶ onionperf.json: its end ─▶ onionperf/DAY.HOST.… ─▶ index.xml
//! ```
//!
//! Lines go into files in their order, so one number says which lines are in files. A line of a day
//! that has a file already, because a clock jumped back, goes into the next file.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ff_base::utc::DAY_SECS;
use ff_circuits::onionperf::day::{self, DayFile, Maker};
use ff_circuits::record::CircuitRecord;
use serde::{Deserialize, Serialize};

use super::Shelf;
use crate::store::rotation::{MOST_NUMBER, Name, Now};
use crate::store::state::StateFile;
use crate::store::{StoreError, io_error, lines, replace};

/// The folder of these files, in the folder of lines.
const FOLDER: &str = "onionperf";
/// The file that says which lines are in files.
const STATE: StateFile = StateFile {
    name: "onionperf.json",
    schema: SCHEMA,
    wrong: "this does not say which lines are in files",
    remedy: "delete the file; days that have a file in onionperf keep it",
};
/// A file of [`FOLDER`] while it is written.
const UNFINISHED: &str = "unfinished.new";
/// The version of [`Progress`] that is written.
const SCHEMA: u32 = 1;
/// How long the clock must be before a line's day until that day counts as over: a clock that is
/// set back by some seconds at midnight ends no day.
const AHEAD: Duration = Duration::from_secs(3600);

/// Which lines are in files.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Progress {
    schema: u32,
    /// The number of the first circuit that is in no file.
    first: u64,
    /// The file that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<NextFile>,
}

/// A file that is being written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct NextFile {
    /// Its day of UTC, since 1970.
    day: u64,
    /// The number of the first circuit that is in no file once it is there.
    first: u64,
}

/// The files of a host.
#[derive(Debug)]
pub(super) struct DayFiles {
    /// The host's name.
    host: String,
    /// Its public address, if it is to be told.
    address: Option<String>,
    /// Which lines are in files.
    progress: Progress,
    /// The lines that are in none, if there are any.
    open: Option<Open>,
    /// Since when the clock has been before their day.
    ahead_since: Option<Duration>,
    /// Whether the index is to be written anew.
    is_index_old: bool,
}

/// Where the lines begin that are in no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Open {
    /// The number of their first file of lines.
    file: u64,
    /// The day of the first of them whose day has no file, if there is one.
    day: Option<u64>,
}

/// The first lines that are in no file, up to the first one of another day without a file.
#[derive(Debug, Default)]
struct Group {
    /// Where they begin.
    open: Option<Open>,
    /// Those with a download.
    lines: Vec<CircuitRecord>,
    /// The number after the last one.
    end: u64,
    /// Where the lines after them begin.
    rest: Option<Open>,
}

impl DayFiles {
    /// The path of a day's file in a folder of lines.
    pub(super) fn path(&self, dir: &Path, day: u64) -> PathBuf {
        dir.join(FOLDER).join(day::file_name(day, &self.host))
    }

    /// A line stands in the file with this number; its day, if that has no file.
    pub(super) fn added(&mut self, file: u64, day: Option<u64>) {
        let open = self.open.get_or_insert(Open { file, day });
        open.day = open.day.or(day);
    }

    /// A day's file was removed.
    pub(super) const fn removed(&mut self) {
        self.is_index_old = true;
    }

    /// The number of the first file of lines that are in no file, if there are any.
    pub(super) fn held(&self) -> Option<u64> {
        self.open.map(|open| open.file)
    }

    /// The day that is over and has no file, if there is one.
    fn due(&mut self, now: Now) -> Option<u64> {
        let (day, today) = (self.open?.day?, now.unix_secs / DAY_SECS);
        if day <= today {
            self.ahead_since = None;
            return (day < today).then_some(day);
        }
        let since = *self.ahead_since.get_or_insert(now.elapsed);
        (now.elapsed.saturating_sub(since) >= AHEAD).then_some(day)
    }

    /// The file of a day.
    fn make(&self, dir: &Path, day: u64, lines: &[CircuitRecord]) -> Result<DayFile, StoreError> {
        let maker = Maker { host: &self.host, address: self.address.as_deref() };
        let lines: Vec<&CircuitRecord> = lines.iter().collect();
        let failed = |error| io_error(&self.path(dir, day))(io::Error::other(error));
        day::file(day, &lines, maker).map_err(failed)
    }
}

impl Group {
    /// Adds a line of the file with this number, with its day if that has no file; whether it belongs to them.
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
    /// From now on writes OnionPerf's files, of a host with this name and address, and counts them
    /// for the bound of the folder. The next circuit has the number `next`.
    ///
    /// # Errors
    /// [`StoreError`], which names the file.
    pub fn keep_days(
        &mut self,
        host: &str,
        address: Option<String>,
        next: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let folder = self.dir.join(FOLDER);
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        // What a kill has left, if anything.
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

    /// Writes the file of the first day that is over and has none, if there is one; its path. To be
    /// called while no circuit is in flight, because a circuit belongs to the day on which its
    /// download began.
    ///
    /// # Errors
    /// [`StoreError`], which names the file; it can be tried again.
    pub fn write_day(&mut self, now: Now) -> Result<Option<PathBuf>, StoreError> {
        self.write_index()?;
        let Some(days) = &mut self.days else { return Ok(None) };
        let (Some(day), Some(open)) = (days.due(now), days.open) else { return Ok(None) };
        let group = self.group(open.file)?;
        if group.open.and_then(|open| open.day) != Some(day) {
            // Its lines have been removed for the bound.
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

    /// Writes the file of a day, and before it which lines that has; its path.
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

    /// Writes the index, if files have come or gone.
    fn write_index(&mut self) -> Result<(), StoreError> {
        let Some(days) = self.days.as_mut().filter(|days| days.is_index_old) else { return Ok(()) };
        let folder = self.dir.join(FOLDER);
        let index = day::index(&folder).map_err(io_error(&folder))?;
        replace(&folder, day::INDEX, UNFINISHED, index.as_bytes())?;
        days.is_index_old = false;
        Ok(())
    }

    /// The lines that are in no file begin there.
    fn set_open(&mut self, open: Option<Open>) {
        if let Some(days) = &mut self.days {
            (days.open, days.ahead_since) = (open, None);
            self.rotation.hold(days.held());
        }
    }

    /// Where the lines begin that are in no file. To find their first file, one line of each file
    /// of lines is read, from the newest file back; from there on, the lines up to the first one
    /// whose day has no file.
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

    /// The number of the newest file of lines that begins with this circuit or one before it: all
    /// files before it have circuits before this one. 0 if there is none.
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

    /// The first lines that are in no file, which the file of lines with this number or later ones
    /// have.
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

    /// The number of the first line whose day has no file; `next` if there is none.
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

    /// The day of a line, if it has one, and that has no file.
    pub(super) fn open_day(&self, circuit: &CircuitRecord) -> Option<u64> {
        day::day_of(circuit).filter(|day| !self.rotation.has_day(*day))
    }

    /// Hands over each line from the file of lines with this number on, until `take` says that it
    /// is enough. Lines that are not circuits are skipped.
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

    /// The same for one file; whether `take` said that it is enough.
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

/// A folder that has no files of days.
fn no_days(dir: &Path) -> StoreError {
    io_error(dir)(io::ErrorKind::NotFound.into())
}

/// The days that have a file in a folder, and its length in bytes.
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
        // A folder of this name cannot be removed for the bound, and lines would wait for that.
        if !about.is_dir() {
            all.push((day, about.len()));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
