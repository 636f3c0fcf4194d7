//! Decides into which file the next line goes, and which files are removed for it. It has no clock
//! and no disk; callers provide both.
//!
//! ```text
//!  Rotation::place(line, now) ─▶ remove old files ─▶ forgot ─▶ create a new one, if any ─▶ began
//!                                                                     └▶ write ─▶ added
//! ```
//!
//! Files are ordered by their numbers, never by a clock, which may jump. A day that goes back
//! begins no file. A day that is too late because of a wrong clock ends after a day of the
//! monotonic clock at the latest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ff_base::utc::{DAY_SECS, Utc};

use crate::clocks::Now;

/// Bytes of a day's file besides its length: its entry in the index, also while the index is
/// rewritten.
const DAY_BYTES: u64 = 512;
/// Largest daily file of lines, in bytes; then the day gets another one.
pub const DAILY_BYTES: u64 = 32 << 20;

/// Largest number of a file or a circuit, 2^53. A greater one is damage, and would leave no room
/// for the next ones.
pub const MOST_NUMBER: u64 = 1 << 53;

/// When a new file begins, and how many are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Number of files kept, including the current one; at least two.
    pub keep: usize,
    /// Whether each day of UTC begins a file.
    pub is_daily: bool,
    /// Largest file in bytes, unless its first line alone is longer.
    pub file_bytes: u64,
    /// Limit of all files together in bytes, including those of days: old ones are removed before a
    /// line that would exceed it ([`Rotation::place`]). [`u64::MAX`] for no limit. No line may be
    /// longer.
    pub disk_bytes: u64,
}

/// Name of a file of lines.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Number; the file before has a smaller one.
    pub number: u64,
    /// Day of UTC on which it began, counted since 1970.
    pub day: u64,
}

impl Name {
    /// The file name.
    #[must_use]
    pub fn file(&self) -> String {
        let begin = self.day.saturating_mul(DAY_SECS).min(Utc::LAST_UNIX_SECS);
        let begin = Utc::from_unix_secs(begin).map_or_else(|_| String::new(), Utc::file_stamp);
        // Only the day of the stamp.
        format!("circuits-{:06}-{}.jsonl", self.number, begin.get(..10).unwrap_or_default())
    }

    /// Parses a file name; `None` for other files.
    #[must_use]
    pub fn parse(file: &str) -> Option<Self> {
        let rest = file.strip_prefix("circuits-")?.strip_suffix(".jsonl")?;
        let (number, day) = rest.split_once('-')?;
        let begin = Utc::from_file_stamp(&format!("{day}-00-00-00"))?;
        let name = Self { number: number.parse().ok()?, day: begin.unix_secs() / DAY_SECS };
        (name.number <= MOST_NUMBER && name.file() == file).then_some(name)
    }
}

/// A file to remove.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OldFile {
    /// A file of lines.
    Lines(Name),
    /// The file of this day of UTC, counted since 1970.
    Day(u64),
}

/// The file for a line, and the files to remove before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LinePlace {
    /// Files to remove, in this order.
    pub forget: Vec<OldFile>,
    /// New file for the line; `None` for the current one.
    pub new: Option<Name>,
}

/// The files, oldest first; the last one is the current one.
#[derive(Debug)]
pub struct Rotation {
    rule: Rule,
    /// Files of lines, with their lengths in bytes.
    files: VecDeque<(Name, u64)>,
    /// Lengths of the files of days, in bytes.
    days: BTreeMap<u64, u64>,
    /// Number of the first file with lines that are in no day's file yet, if any.
    held: Option<u64>,
    /// Number of the next file.
    next: u64,
    /// When the current file was begun or continued.
    begun: Duration,
}

impl Rotation {
    /// For these existing files, with their lengths in bytes.
    #[must_use]
    pub fn new(rule: Rule, mut files: Vec<(Name, u64)>, now: Now) -> Self {
        files.sort_unstable();
        let next = files.last().map_or(1, |(last, _)| last.number.saturating_add(1));
        let (days, held) = (BTreeMap::new(), None);
        Self { rule, files: files.into(), days, held, next, begun: now.elapsed }
    }

    /// The file for a line of this many bytes. If the limit requires it, files are removed in this
    /// order: lines that are in files of days, files of days, other lines; each oldest first.
    /// Nothing changes until [`Self::forgot`] and [`Self::began`], so it may be called again.
    #[must_use]
    pub fn place(&self, line_bytes: u64, now: Now) -> LinePlace {
        let is_over = self.files.back().is_none_or(|last| self.is_over(last, line_bytes, now));
        let most = self.rule.keep.saturating_sub(1);
        let surplus = if is_over { self.files.len().saturating_sub(most) } else { 0 };
        let first = self.held.unwrap_or(u64::MAX);
        let (forget, _) = self.removals(surplus, line_bytes, first, self.files.len());
        let is_last = |old: &OldFile| self.last().is_some_and(|last| *old == OldFile::Lines(last));
        let is_new = is_over || forget.iter().any(is_last);
        let name = Name { number: self.next, day: now.unix_secs / DAY_SECS };
        LinePlace { forget, new: is_new.then_some(name) }
    }

    /// Files to remove, in the same order, for a day's file of this many bytes; the current file of
    /// lines stays. `None` if there is no room even so.
    #[must_use]
    pub fn place_day(&self, bytes: u64) -> Option<Vec<OldFile>> {
        let last = self.files.len().saturating_sub(1);
        let bytes = bytes.saturating_add(DAY_BYTES);
        let (forget, fits) = self.removals(0, bytes, self.held.unwrap_or(u64::MAX), last);
        fits.then_some(forget)
    }

    /// Files to remove so that `bytes` more fit into the limit, and whether they do then: the first
    /// `surplus` of lines in any case, then lines before the file of number `first`, then days,
    /// then other lines. Only the first `most` files of lines are removed, and the last file after
    /// all others.
    fn removals(
        &self,
        surplus: usize,
        bytes: u64,
        first: u64,
        most: usize,
    ) -> (Vec<OldFile>, bool) {
        let last = self.files.len().saturating_sub(1);
        let is_free = |at: usize, name: &Name| at < last && name.number < first;
        let lines = |wanted: bool| {
            let files = self.files.iter().enumerate().take(most).skip(surplus);
            let files = files.filter(move |(at, (name, _))| is_free(*at, name) == wanted);
            files.map(|(_, (name, bytes))| (OldFile::Lines(*name), *bytes))
        };
        let days = self.days.iter().map(|(day, bytes)| (OldFile::Day(*day), bytes + DAY_BYTES));
        let begin = self.files.iter().take(surplus);
        let mut all = self.bytes().saturating_sub(begin.clone().map(|(_, bytes)| bytes).sum());
        let mut forget: Vec<_> = begin.map(|(name, _)| OldFile::Lines(*name)).collect();
        for (old, length) in lines(true).chain(days).chain(lines(false)) {
            if all.saturating_add(bytes) <= self.rule.disk_bytes {
                break;
            }
            all = all.saturating_sub(length);
            forget.push(old);
        }
        (forget, all.saturating_add(bytes) <= self.rule.disk_bytes)
    }

    /// Records that a file was removed.
    pub fn forgot(&mut self, old: OldFile) {
        match old {
            OldFile::Lines(old) => self.files.retain(|(name, _)| *name != old),
            OldFile::Day(day) => drop(self.days.remove(&day)),
        }
    }

    /// Records a day's file of this many bytes.
    pub fn put_day(&mut self, day: u64, bytes: u64) {
        self.days.insert(day, bytes);
    }

    /// Whether a day has a file.
    #[must_use]
    pub fn has_day(&self, day: u64) -> bool {
        self.days.contains_key(&day)
    }

    /// Sets the first file with lines that are in no day's file yet; `None` if there is none.
    pub fn hold(&mut self, from: Option<u64>) {
        self.held = from;
    }

    /// Files of lines, oldest first.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = Name> {
        self.files.iter().map(|(name, _)| *name)
    }

    /// Records that the new file was created.
    pub fn began(&mut self, name: Name, now: Now) {
        self.next = name.number.saturating_add(1);
        self.files.push_back((name, 0));
        self.begun = now.elapsed;
    }

    /// Records a line added to the current file.
    pub fn added(&mut self, line_bytes: u64) {
        if let Some((_, bytes)) = self.files.back_mut() {
            *bytes += line_bytes;
        }
    }

    /// The current file, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<Name> {
        self.files.back().map(|(name, _)| *name)
    }

    /// Length of all files in bytes, including those of days.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lines: u64 = self.files.iter().map(|(_, bytes)| bytes).sum();
        let days: u64 = self.days.values().map(|bytes| bytes + DAY_BYTES).sum();
        lines + days
    }

    /// Limit of all files, in bytes.
    #[must_use]
    pub const fn disk_bytes(&self) -> u64 {
        self.rule.disk_bytes
    }

    /// Whether a line needs a new file.
    fn is_over(&self, (last, bytes): &(Name, u64), line_bytes: u64, now: Now) -> bool {
        let is_full = *bytes > 0 && bytes.saturating_add(line_bytes) > self.rule.file_bytes;
        let age = now.elapsed.saturating_sub(self.begun);
        let is_old = now.unix_secs / DAY_SECS > last.day || age.as_secs() >= DAY_SECS;
        is_full || (self.rule.is_daily && *bytes > 0 && is_old)
    }
}

#[cfg(test)]
mod tests;
