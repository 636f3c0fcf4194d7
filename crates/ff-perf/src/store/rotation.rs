//! Into which file the next line goes, and which files are forgotten for it. No clock and no disk;
//! drivers bring both.
//!
//! ```text
//!  Rotation::place(line, now) ─▶ the driver forgets old files ─▶ forgot ─▶ makes a new one, if need be ─▶ began
//!                                                                                      └▶ writes ─▶ added
//! ```
//!
//! The order of files is that of their numbers, never that of a clock, which may jump: a day that
//! goes back begins no file, and one that is too late by a wrong clock is left after a day of the
//! monotonic clock at the latest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ff_base::utc::{DAY_SECS, Utc};

/// What a day's file takes in addition to its length, in bytes: its row in the index, also while
/// that is rewritten.
const DAY_BYTES: u64 = 512;
/// The most that a file of a day has, in bytes; then the day has another one.
pub const DAILY_BYTES: u64 = 32 << 20;

/// The largest number of a file or of a circuit, 2^53: a greater one is damage, and would leave no
/// room for the next ones.
pub const MOST_NUMBER: u64 = 1 << 53;

/// When a new file begins, and how many there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// How many files are kept, with the one that is written: two at least.
    pub keep: usize,
    /// Whether each day of UTC begins a file.
    pub is_daily: bool,
    /// How long a file gets, in bytes, unless its first line alone is longer.
    pub file_bytes: u64,
    /// How long all files together may be, in bytes, those of days included: old ones are removed
    /// before one is written that would exceed this ([`Rotation::place`]). No limit if it is
    /// [`u64::MAX`]. No line may be longer than this.
    pub disk_bytes: u64,
}

/// The readings of the clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The host's clock, which may jump: seconds since 1970.
    pub unix_secs: u64,
    /// The monotonic clock: since the program began.
    pub elapsed: Duration,
}

/// A file of lines.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Its number: the file before has a smaller one.
    pub number: u64,
    /// The day of UTC on which it began, since 1970.
    pub day: u64,
}

impl Name {
    /// As it is called.
    #[must_use]
    pub fn file(&self) -> String {
        let begin = self.day.saturating_mul(DAY_SECS).min(Utc::LAST_UNIX_SECS);
        let begin = Utc::from_unix_secs(begin).map_or_else(|_| String::new(), Utc::file_stamp);
        // Its day only.
        format!("circuits-{:06}-{}.jsonl", self.number, begin.get(..10).unwrap_or_default())
    }

    /// The file of this name, if it is one of these.
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
    /// One of lines.
    Lines(Name),
    /// The one of this day of UTC, since 1970.
    Day(u64),
}

/// The file that a line goes into, and the files to remove before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LinePlace {
    /// The files to remove first, in this order.
    pub forget: Vec<OldFile>,
    /// The new file that the line goes into; none for the one that is written.
    pub new: Option<Name>,
}

/// The files, oldest first; the last one is written.
#[derive(Debug)]
pub struct Rotation {
    /// When a new one begins.
    rule: Rule,
    /// The files, each with its length in bytes.
    files: VecDeque<(Name, u64)>,
    /// The days that have a file of their own, each with its length in bytes.
    days: BTreeMap<u64, u64>,
    /// The number of the first file with lines that are in no day's file yet, if there is one.
    held: Option<u64>,
    /// The number of the next one.
    next: u64,
    /// When the last one was begun, or gone on with.
    begun: Duration,
}

impl Rotation {
    /// With these files and their lengths in bytes.
    #[must_use]
    pub fn new(rule: Rule, mut files: Vec<(Name, u64)>, now: Now) -> Self {
        files.sort_unstable();
        let next = files.last().map_or(1, |(last, _)| last.number.saturating_add(1));
        let (days, held) = (BTreeMap::new(), None);
        Self { rule, files: files.into(), days, held, next, begun: now.elapsed }
    }

    /// Where a line of this many bytes goes. Where the bound needs it, files are removed in this
    /// order: lines that are in files of days, files of days, other lines; each the oldest first.
    /// Nothing has changed until [`Self::forgot`] and [`Self::began`], so it may be asked again.
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

    /// Which files to remove for a day's file of this many bytes, in the same order; the file of
    /// lines that is written stays. None if it has no room even so.
    #[must_use]
    pub fn place_day(&self, bytes: u64) -> Option<Vec<OldFile>> {
        let last = self.files.len().saturating_sub(1);
        let bytes = bytes.saturating_add(DAY_BYTES);
        let (forget, fits) = self.removals(0, bytes, self.held.unwrap_or(u64::MAX), last);
        fits.then_some(forget)
    }

    /// Which files to remove so that `bytes` more keep to the bound, and whether they do then: the
    /// first `surplus` of lines in any case, of the others those before the file with the number
    /// `first`, then days, then the other lines. Of lines only the first `most` files are removed,
    /// and the last one of all after everything else.
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

    /// A file was removed.
    pub fn forgot(&mut self, old: OldFile) {
        match old {
            OldFile::Lines(old) => self.files.retain(|(name, _)| *name != old),
            OldFile::Day(day) => drop(self.days.remove(&day)),
        }
    }

    /// A day has a file of this many bytes.
    pub fn put_day(&mut self, day: u64, bytes: u64) {
        self.days.insert(day, bytes);
    }

    /// Whether a day has a file.
    #[must_use]
    pub fn has_day(&self, day: u64) -> bool {
        self.days.contains_key(&day)
    }

    /// From the file with this number on, lines are in no day's file yet; nowhere if none.
    pub fn hold(&mut self, from: Option<u64>) {
        self.held = from;
    }

    /// The files of lines, oldest first.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = Name> {
        self.files.iter().map(|(name, _)| *name)
    }

    /// The new file is there.
    pub fn began(&mut self, name: Name, now: Now) {
        self.next = name.number.saturating_add(1);
        self.files.push_back((name, 0));
        self.begun = now.elapsed;
    }

    /// A line stands in the last file.
    pub fn added(&mut self, line_bytes: u64) {
        if let Some((_, bytes)) = self.files.back_mut() {
            *bytes += line_bytes;
        }
    }

    /// The file that is written, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<Name> {
        self.files.back().map(|(name, _)| *name)
    }

    /// How long all files are, in bytes, those of days included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lines: u64 = self.files.iter().map(|(_, bytes)| bytes).sum();
        let days: u64 = self.days.values().map(|bytes| bytes + DAY_BYTES).sum();
        lines + days
    }

    /// How long they may be, in bytes.
    #[must_use]
    pub const fn disk_bytes(&self) -> u64 {
        self.rule.disk_bytes
    }

    /// Whether a line belongs into a new file.
    fn is_over(&self, (last, bytes): &(Name, u64), line_bytes: u64, now: Now) -> bool {
        let is_full = *bytes > 0 && bytes.saturating_add(line_bytes) > self.rule.file_bytes;
        let age = now.elapsed.saturating_sub(self.begun);
        let is_old = now.unix_secs / DAY_SECS > last.day || age.as_secs() >= DAY_SECS;
        is_full || (self.rule.is_daily && *bytes > 0 && is_old)
    }
}

#[cfg(test)]
mod tests;
