//! Into which file the next line goes, and which files are forgotten for it. No clock and no disk; drivers bring both.
//!
//! ```text
//!  Rotation::place(line, now) ─▶ the driver forgets old files ─▶ forgot ─▶ makes a new one, if need be ─▶ began
//!                                                                                      └▶ writes ─▶ added
//! ```
//!
//! The order of files is that of their numbers, never that of a clock, which may jump: a day that goes back begins no
//! file, and one that is too late by a wrong clock is left after a day of the monotonic clock at the latest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ff_bwauth::utc::Utc;

/// Seconds of a day.
pub(crate) const DAY_SECS: u64 = 86_400;
/// What a day's file takes in addition to its length, in bytes: its row in the index, also while that is rewritten.
const DAY_BYTES: u64 = 512;
/// The most that a file of a day has, in bytes; then the day has another one.
pub const DAILY_BYTES: u64 = 32 << 20;

/// When a new file begins, and how many there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// How many files are kept, with the one that is written: two at least.
    pub keep: usize,
    /// Whether each day of UTC begins a file.
    pub is_daily: bool,
    /// How long a file gets, in bytes, unless its first line alone is longer.
    pub file_bytes: u64,
    /// How long all files together may be, in bytes, those of days included: old ones are removed before one is written that
    /// would exceed this ([`Rotation::place`]). No limit if it is [`u64::MAX`]. No line may be longer than this.
    pub disk_bytes: u64,
}

/// What a clock says.
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

    /// What is called so, if it is one of these.
    #[must_use]
    pub fn parse(file: &str) -> Option<Self> {
        let rest = file.strip_prefix("circuits-")?.strip_suffix(".jsonl")?;
        let (number, day) = rest.split_once('-')?;
        let begin = Utc::from_file_stamp(&format!("{day}-00-00-00"))?;
        let name = Self { number: number.parse().ok()?, day: begin.unix_secs() / DAY_SECS };
        (name.file() == file).then_some(name)
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
pub struct Place {
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

    /// Where a line of this many bytes goes. Where the bound needs it, files are removed in this order: lines that are in files
    /// of days, files of days, other lines; each the oldest first. Nothing has changed until [`Self::forgot`] and
    /// [`Self::began`], so it may be asked again.
    #[must_use]
    pub fn place(&self, line_bytes: u64, now: Now) -> Place {
        let is_over = self.files.back().is_none_or(|last| self.is_over(last, line_bytes, now));
        let most = self.rule.keep.saturating_sub(1);
        let surplus = if is_over { self.files.len().saturating_sub(most) } else { 0 };
        let first = self.held.unwrap_or(u64::MAX);
        let (forget, _) = self.removals(surplus, line_bytes, first, self.files.len());
        let is_last = |old: &OldFile| self.last().is_some_and(|last| *old == OldFile::Lines(last));
        let is_new = is_over || forget.iter().any(is_last);
        let name = Name { number: self.next, day: now.unix_secs / DAY_SECS };
        Place { forget, new: is_new.then_some(name) }
    }

    /// Which files to remove for a day's file of this many bytes, in the same order; the file of lines that is written stays.
    /// None if it has no room even so.
    #[must_use]
    pub fn place_day(&self, bytes: u64) -> Option<Vec<OldFile>> {
        let last = self.files.len().saturating_sub(1);
        let bytes = bytes.saturating_add(DAY_BYTES);
        let (forget, fits) = self.removals(0, bytes, self.held.unwrap_or(u64::MAX), last);
        fits.then_some(forget)
    }

    /// Which files to remove so that `bytes` more keep to the bound, and whether they do then: the first `surplus` of lines in
    /// any case, of the others those before the file with the number `first`, then days, then the other lines. Of lines only
    /// the first `most` files are removed, and the last one of all after everything else.
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
    pub fn names(&self) -> impl Iterator<Item = Name> {
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

    /// Whether a line does not go into the last file any more.
    fn is_over(&self, (last, bytes): &(Name, u64), line_bytes: u64, now: Now) -> bool {
        let is_full = *bytes > 0 && bytes.saturating_add(line_bytes) > self.rule.file_bytes;
        let age = now.elapsed.saturating_sub(self.begun);
        let is_old = now.unix_secs / DAY_SECS > last.day || age.as_secs() >= DAY_SECS;
        is_full || (self.rule.is_daily && *bytes > 0 && is_old)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Rule = Rule { keep: 3, is_daily: true, file_bytes: 1000, disk_bytes: u64::MAX };

    /// A moment: a day and an hour of the host's clock, and hours of the monotonic one.
    fn at(day: u64, hour: u64, elapsed_hours: u64) -> Now {
        let unix_secs = day * DAY_SECS + hour * 3600;
        Now { unix_secs, elapsed: Duration::from_secs(elapsed_hours * 3600) }
    }

    /// Adds a line; the file's number and day, and whom that has cost.
    fn add(rotation: &mut Rotation, bytes: u64, now: Now) -> (u64, u64, Vec<u64>) {
        let Place { forget, new } = rotation.place(bytes, now);
        let number = |old: &OldFile| match old {
            OldFile::Lines(name) => Some(name.number),
            OldFile::Day(_) => None,
        };
        let gone = forget.iter().filter_map(number).collect();
        forget.into_iter().for_each(|old| rotation.forgot(old));
        new.into_iter().for_each(|name| rotation.began(name, now));
        rotation.added(bytes);
        let last = rotation.last().expect("a file");
        (last.number, last.day, gone)
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = Name { number: 12, day: 20_782 };
        assert_eq!(name.file(), "circuits-000012-2026-11-25.jsonl");
        assert_eq!(Name::parse(&name.file()), Some(name));
        let late = Name { number: 2_000_000, day: u64::MAX / 2 };
        assert_eq!(late.file(), "circuits-2000000-9999-12-31.jsonl");
        for odd in ["circuits-000.jsonl", "circuits-12-2026-11-25.jsonl", "circuits-000001-x.jsonl"]
        {
            assert_eq!(Name::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_day_begins_a_file_and_so_do_its_bytes() {
        let mut rotation = Rotation::new(DAY, Vec::new(), at(7, 0, 0));
        assert_eq!(add(&mut rotation, 600, at(7, 1, 1)), (1, 7, vec![]));
        assert_eq!(add(&mut rotation, 400, at(7, 2, 2)), (1, 7, vec![]));
        assert_eq!(add(&mut rotation, 1, at(7, 3, 3)), (2, 7, vec![]));
        assert_eq!(add(&mut rotation, 1, at(8, 0, 24)), (3, 8, vec![]));
        assert_eq!(add(&mut rotation, 5000, at(9, 0, 48)), (4, 9, vec![1]), "a long line alone");
        assert_eq!(add(&mut rotation, 1, at(9, 0, 48)), (5, 9, vec![2]));
    }

    #[test]
    fn a_start_goes_on_with_the_last_file() {
        let files = [3, 1, 2, 4].map(|number| (Name { number, day: 6 }, 10));
        let mut rotation = Rotation::new(DAY, files.to_vec(), at(6, 9, 0));
        assert_eq!(add(&mut rotation, 10, at(6, 9, 0)), (4, 6, vec![]));
        assert_eq!(add(&mut rotation, 10, at(7, 9, 5)), (5, 7, vec![1, 2]), "fewer are kept now");
    }

    #[test]
    fn a_clock_that_jumps_costs_one_file_and_orders_none() {
        let mut rotation = Rotation::new(DAY, Vec::new(), at(100, 0, 0));
        assert_eq!(add(&mut rotation, 1, at(100, 1, 1)).0, 1);
        // It goes back over midnight, and to 1970: nothing happens.
        assert_eq!(add(&mut rotation, 1, at(99, 23, 2)).0, 1);
        assert_eq!(add(&mut rotation, 1, at(0, 0, 3)).0, 1);
        // It goes ahead by a century, and back: one file, which ends after a day by the monotonic clock.
        assert_eq!(add(&mut rotation, 1, at(36_600, 0, 4)), (2, 36_600, vec![]));
        for hour in 5..28 {
            assert_eq!(add(&mut rotation, 1, at(100, hour, hour)).0, 2);
        }
        assert_eq!(add(&mut rotation, 1, at(101, 4, 28)), (3, 101, vec![]));
        assert_eq!(add(&mut rotation, 1, at(102, 0, 48)), (4, 102, vec![1]));
    }

    #[test]
    fn files_by_size_know_no_days_and_the_bound_holds() {
        let rule = Rule { keep: 5, is_daily: false, file_bytes: 100, disk_bytes: u64::MAX };
        let mut rotation = Rotation::new(rule, Vec::new(), at(0, 0, 0));
        let mut files: VecDeque<(u64, u64)> = VecDeque::new();
        for step in 0..2000 {
            let bytes = step % 37 + 1;
            let (number, _, gone) = add(&mut rotation, bytes, at(step, 0, step * 24));
            files.retain(|(number, _)| !gone.contains(number));
            match files.back_mut().filter(|(last, _)| *last == number) {
                Some((_, sum)) => *sum += bytes,
                None => files.push_back((number, bytes)),
            }
            let sum: u64 = files.iter().map(|(_, bytes)| bytes).sum();
            assert!(files.len() <= 5 && sum <= 500, "step {step}: {files:?}");
        }
        assert_eq!(files.len(), 5);
    }

    #[test]
    fn a_file_that_could_not_be_made_is_asked_for_again() {
        let mut rotation = Rotation::new(DAY, Vec::new(), at(7, 0, 0));
        add(&mut rotation, 1, at(7, 0, 0));
        let place = rotation.place(1, at(8, 0, 24));
        assert_eq!(rotation.place(1, at(8, 0, 24)), place);
    }

    #[test]
    fn all_files_together_have_a_bound_and_the_oldest_go_for_it() {
        let rule = Rule { keep: 100, is_daily: true, file_bytes: 100, disk_bytes: 250 };
        let mut rotation = Rotation::new(rule, Vec::new(), at(7, 0, 0));
        for expected in [(1, 7, vec![]), (2, 7, vec![]), (3, 7, vec![1]), (4, 7, vec![2])] {
            assert_eq!(add(&mut rotation, 90, at(7, 0, 0)), expected);
        }
        // One more line for the same file: an older file is removed even so.
        let files = [(1, 200), (2, 40)].map(|(number, bytes)| (Name { number, day: 7 }, bytes));
        let mut rotation = Rotation::new(rule, files.to_vec(), at(7, 0, 0));
        assert_eq!(add(&mut rotation, 20, at(7, 1, 1)), (2, 7, vec![1]));
        assert_eq!(rotation.bytes(), 60);
        // The current file is itself too long by a new bound: it is removed, and numbers continue.
        let mut rotation =
            Rotation::new(rule, vec![(Name { number: 9, day: 7 }, 5000)], at(7, 0, 0));
        assert_eq!(add(&mut rotation, 20, at(7, 1, 1)), (10, 7, vec![9]));
        assert_eq!((rotation.bytes(), rotation.disk_bytes()), (20, 250));
    }

    #[test]
    fn lines_in_files_of_days_go_first_then_days_then_other_lines() {
        let rule = Rule { keep: 100, is_daily: false, file_bytes: 100, disk_bytes: 2000 };
        let files = [1, 2, 3].map(|number| (Name { number, day: 7 }, 100));
        let mut rotation = Rotation::new(rule, files.to_vec(), at(7, 0, 0));
        rotation.put_day(5, 400);
        rotation.put_day(6, 300);
        rotation.hold(Some(2));
        assert_eq!(rotation.bytes(), 300 + 700 + 2 * DAY_BYTES);
        let lines = |number| OldFile::Lines(Name { number, day: 7 });
        let order = [lines(1), OldFile::Day(5), OldFile::Day(6), lines(2), lines(3)];
        for (bytes, count) in [(1, 1), (77, 2), (1000, 3), (1700, 3), (1801, 4), (2000, 5)] {
            assert_eq!(rotation.place(bytes, at(7, 0, 0)).forget, order[..count], "{bytes}");
        }
        // For a day's file the file that is written stays.
        for (bytes, count) in [(476, 2), (477, 3), (1288, 3), (1289, 4), (1388, 4)] {
            assert_eq!(rotation.place_day(bytes).as_deref(), Some(&order[..count]), "{bytes}");
        }
        assert_eq!(rotation.place_day(1389), None);
        rotation.forgot(OldFile::Day(5));
        assert!(!rotation.has_day(5) && rotation.has_day(6));
    }

    proptest! {
        #[test]
        fn neither_bound_is_ever_passed(
            keep in 2_usize..9,
            file_bytes in 1_u64..2000,
            disk_bytes in 300_u64..5000,
            lines in proptest::collection::vec((1_u64..300, -50_i64..50, 0_u64..30), 0..300),
        ) {
            let rule = Rule { keep, is_daily: true, file_bytes, disk_bytes };
            let mut rotation = Rotation::new(rule, Vec::new(), at(1000, 0, 0));
            let (mut day, mut elapsed, mut last) = (1000_u64, 0, 0);
            for (bytes, jump, hours) in lines {
                (day, elapsed) = (day.saturating_add_signed(jump), elapsed + hours);
                let (number, ..) = add(&mut rotation, bytes, at(day, 0, elapsed));
                prop_assert!(number >= last, "{number} after {last}");
                last = number;
                prop_assert!(rotation.bytes() <= disk_bytes, "{rotation:?}");
                prop_assert!(rotation.files.len() <= keep, "{rotation:?}");
            }
        }
    }
}
