//! Tables of one number per relay and time, and of one day a row.
//!
//! [`Series::read`] reads the CSV of relays and times: lines that begin with `#` are comments; a
//! header names the times; one row per relay follows, its fingerprint first. A blank cell says that
//! the relay was not listed, `=` repeats the value that was listed last, and a row may end early.
//! Rows of words before the first relay (commits, say) are passed over. Plain text or xz.
//!
//! A row that breaks these rules is left out whole and listed with its line. A column whose time
//! cannot be read, or does not come after the ones before it, is left out too; what `=` repeats may
//! still stand in it. Of a file that is cut, what came before the cut stays.
//!
//! In memory a row is runs of equal values, 16 bytes each, so that what `=` saved in the file is
//! saved here too.

use std::collections::BTreeSet;
use std::io::{self, BufRead};

use ff_base::identity::Fingerprint;
use ff_base::utc::Utc;
use ff_report::skipped::Skips;

use super::span;

mod cursor;
pub mod daily;
mod lines;

pub use cursor::Cursor;
pub use lines::MOST_LINE_BYTES;
use lines::{Line, Lines};

/// No number of bytes a second may be above this: floating point would round it.
pub const MOST_VALUE: u64 = 1 << 53;
/// More relays than these are not read.
pub const MOST_RELAYS: usize = 1 << 20;
/// More times than these are not read.
pub const MOST_TIMES: usize = 1 << 17;
/// More runs of equal values than these are not read: a gigabyte.
pub const MOST_RUNS: usize = 1 << 26;
/// One, as a table of [`SeriesKind::Probability`] has it.
pub const ONE: u64 = 1_000_000_000_000_000_000;

/// What the numbers of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Whole bytes a second, at most [`MOST_VALUE`].
    BytesPerSec,
    /// Decimal fractions from 0 to 1, kept in units of 10^-18 ([`ONE`]).
    Probability,
    /// Whole weights of any unit, at most [`MOST_VALUE`].
    Weight,
}

impl SeriesKind {
    /// What kind of weights a table that is not packed has: its first number above 1, or with a
    /// point in it, says so. Where none does, they are parts, which comes to the same.
    #[must_use]
    pub fn of_weights(table: &[u8]) -> Self {
        let relays = table.split(|&byte| byte == b'\n').filter_map(|line| {
            let mut cells = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            fingerprint(cells.next()?).map(|_| cells)
        });
        let kind = |cell: &[u8]| match number(Self::Weight, cell) {
            Some(0 | 1) => None,
            Some(_) => Some(Self::Weight),
            None => number(Self::Probability, cell).map(|_| Self::Probability),
        };
        relays.flatten().find_map(kind).unwrap_or(Self::Probability)
    }

    /// Why a cell has no number of this kind.
    fn wrong(self, cell: &[u8]) -> &'static str {
        match self {
            Self::Probability if whole(cell).is_some() => {
                "is a whole weight, but the table began with parts of all weight"
            }
            Self::Weight if number(Self::Probability, cell).is_some() => {
                "is a part of all weight, but the table began with whole weights"
            }
            _ => "is not a valid number",
        }
    }
}

/// One number per relay and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// What the numbers are.
    pub kind: SeriesKind,
    /// The times, in seconds since 1970, each later than the one before.
    pub times: Vec<u64>,
    /// The relays, in the order of the file.
    pub relays: Vec<Fingerprint>,
    /// The runs of all relays, one relay after another.
    runs: Vec<Run>,
    /// For each relay, where its runs end.
    ends: Vec<usize>,
}

/// A value that holds for some times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The index of its first time.
    pub(crate) first: u32,
    /// For how many times it holds.
    pub(crate) times: u32,
    pub(crate) value: u64,
}

/// The run after the last one: no time has its index.
const NO_RUN: Run = Run { first: u32::MAX, times: 0, value: 0 };

impl Series {
    /// Reads a table; `name` names it in the list of what was left out.
    ///
    /// # Errors
    /// When nothing can be read at all. Later errors of reading are listed among what was left out.
    pub fn read(name: &str, kind: SeriesKind, from: impl BufRead) -> io::Result<(Self, Skips)> {
        let mut reader = Reader::new(name, kind);
        let mut lines = Lines::new(from)?;
        while let Some((number, line)) = lines.next() {
            match line {
                Line::Whole(text) => reader.line(number, text),
                Line::TooLong => reader.skip(number, "the line is too long for a table"),
                // What is too large is taken for a mistake, and not for a part of something.
                Line::Cut(why) if why.kind() == io::ErrorKind::FileTooLarge => return Err(why),
                Line::Cut(why) => reader.skip(number, &format!("it cannot be read further: {why}")),
            }
            if reader.is_full {
                break;
            }
        }
        Ok((reader.series, reader.skips))
    }

    /// The value of a relay at a time, by their indexes.
    #[must_use]
    pub fn value(&self, relay: usize, time: usize) -> Option<u64> {
        let runs = self.runs_of(relay)?;
        let after = runs.partition_point(|run| run.first as usize <= time);
        let run = runs.get(after.checked_sub(1)?)?;
        (time < run.first as usize + run.times as usize).then_some(run.value)
    }

    /// The runs of a relay, in the order of time.
    pub(crate) fn runs_of(&self, relay: usize) -> Option<&[Run]> {
        self.runs.get(self.start(relay)..*self.ends.get(relay)?)
    }

    /// Where the runs of a relay begin.
    fn start(&self, relay: usize) -> usize {
        relay.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }
}

/// A table that is being read.
struct Reader<'a> {
    /// The file's name.
    name: &'a str,
    /// What was read so far.
    series: Series,
    /// For each column, the index of its time if it is not left out; nothing before the header.
    columns: Option<Vec<Option<u32>>>,
    /// The relays so far.
    known: BTreeSet<Fingerprint>,
    /// The parts that were left out.
    skips: Skips,
    /// Whether no more may be read.
    is_full: bool,
}

impl<'a> Reader<'a> {
    /// Before the first line.
    fn new(name: &'a str, kind: SeriesKind) -> Self {
        let (times, relays, runs, ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            series: Series { kind, times, relays, runs, ends },
            columns: None,
            known: BTreeSet::new(),
            skips: Skips::default(),
            is_full: false,
        }
    }

    /// Takes a line.
    fn line(&mut self, number: usize, line: &[u8]) {
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            return;
        }
        let mut cells = Cells(Some(line));
        let first = cells.next().unwrap_or_default();
        let done = match (fingerprint(first), &self.columns) {
            (Some(relay), Some(_)) => self.row(relay, cells),
            (Some(_), None) => Err("a relay before the row of times".to_owned()),
            (None, _) if self.series.relays.is_empty() && is_word(first) => {
                if self.columns.is_none() {
                    self.header(number, cells);
                }
                return;
            }
            (None, _) => Err("it does not begin with a fingerprint".to_owned()),
        };
        match done {
            Ok(()) => self.skips.read += 1,
            Err(why) => self.skip(number, &why),
        }
    }

    /// Takes the row of times, if it is one.
    fn header<'b>(&mut self, number: usize, cells: impl Iterator<Item = &'b [u8]>) {
        let cells: Vec<Option<u64>> = cells.take(MOST_TIMES + 1).map(time).collect();
        if cells.len() > MOST_TIMES {
            self.skip(number, "more times than can be read");
            self.is_full = true;
            return;
        }
        if cells.iter().all(Option::is_none) {
            return;
        }
        let mut columns = Vec::with_capacity(cells.len());
        for (column, time) in (2_usize..).zip(cells) {
            let last = self.series.times.last().copied().unwrap_or(0);
            match time.ok_or("is not a time").and_then(within_span) {
                Ok(time) if time > last => {
                    columns.push(u32::try_from(self.series.times.len()).ok());
                    self.series.times.push(time);
                }
                found => {
                    columns.push(None);
                    let why = found.err().unwrap_or("is not after the one before");
                    self.skip(number, &format!("the time of column {column} {why}"));
                }
            }
        }
        self.columns = Some(columns);
    }

    /// Takes a relay's row; of a bad one nothing stays.
    fn row<'b>(
        &mut self,
        relay: Fingerprint,
        cells: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), String> {
        let before = self.series.runs.len();
        if self.series.relays.len() == MOST_RELAYS || before >= MOST_RUNS {
            self.is_full = true;
            return Err("the table ends here: more relays or values than can be read".to_owned());
        }
        if !self.known.insert(relay) {
            return Err("the relay already has a row".to_owned());
        }
        if let Err(why) = self.cells(cells) {
            self.series.runs.truncate(before);
            self.known.remove(&relay);
            return Err(why);
        }
        self.series.relays.push(relay);
        self.series.ends.push(self.series.runs.len());
        Ok(())
    }

    /// Appends the runs of a row.
    fn cells<'b>(&mut self, cells: impl Iterator<Item = &'b [u8]>) -> Result<(), String> {
        let columns = self.columns.as_deref().unwrap_or_default();
        let (mut run, mut last) = (NO_RUN, None);
        for (index, cell) in cells.enumerate() {
            let Some(&column) = columns.get(index) else {
                return Err(format!("more than {} cells", columns.len() + 1));
            };
            let value = match cell {
                b"" => continue,
                b"=" => last.ok_or("a = without a value before it")?,
                digits => number(self.series.kind, digits).ok_or_else(|| {
                    format!("column {} {}", index + 2, self.series.kind.wrong(digits))
                })?,
            };
            last = Some(value);
            let Some(first) = column else { continue };
            if run.times > 0 && run.value == value && run.first + run.times == first {
                run.times += 1;
                continue;
            }
            if run.times > 0 {
                self.series.runs.push(run);
            }
            run = Run { first, times: 1, value };
        }
        if run.times > 0 {
            self.series.runs.push(run);
        }
        Ok(())
    }

    /// Notes a line that is left out.
    fn skip(&mut self, line: usize, why: &str) {
        self.skips.add(self.name, None, Some(line), why);
    }
}

/// The cells of a line that are left, without spaces around them.
struct Cells<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Cells<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // Most are blank or a sign.
        let (cell, rest) = match self.0? {
            [b',', rest @ ..] => (&[][..], Some(rest)),
            [b'=', b',', rest @ ..] => (&b"="[..], Some(rest)),
            cells => match cells.iter().position(|&byte| byte == b',') {
                Some(at) => (cells.get(..at)?.trim_ascii(), cells.get(at + 1..)),
                None => (cells.trim_ascii(), None),
            },
        };
        self.0 = rest;
        Some(cell)
    }
}

/// A fingerprint of 40 hexadecimal digits.
fn fingerprint(text: &[u8]) -> Option<Fingerprint> {
    let mut bytes = Fingerprint::default();
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// Whether a row that begins so may be a header: it says a word.
fn is_word(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_lowercase)
        && text.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_')
}

/// A time, in seconds since 1970.
fn time(text: &[u8]) -> Option<u64> {
    let utc: Utc = str::from_utf8(text).ok()?.parse().ok()?;
    Some(utc.unix_secs())
}

/// The same time, or why data cannot have it.
fn within_span(unix_secs: u64) -> Result<u64, &'static str> {
    span::wrong(unix_secs).map_or(Ok(unix_secs), Err)
}

/// A cell's number.
fn number(kind: SeriesKind, digits: &[u8]) -> Option<u64> {
    match kind {
        SeriesKind::BytesPerSec | SeriesKind::Weight => {
            whole(digits).filter(|&value| value <= MOST_VALUE)
        }
        SeriesKind::Probability => fraction(digits).filter(|&value| value <= ONE),
    }
}

/// A whole number, digits alone.
fn whole(digits: &[u8]) -> Option<u64> {
    let more = |all: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { all.checked_mul(10)?.checked_add(digit.into()) } else { None }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, more) }
}

/// A decimal number such as `1.5612843e-05`, in units of 10^-18; digits after that are cut off.
fn fraction(text: &[u8]) -> Option<u64> {
    let at = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let (digits, exponent) = text.split_at(at.unwrap_or(text.len()));
    let exponent: i32 = match exponent {
        [] => 0,
        [_, sign @ (b'-' | b'+'), rest @ ..] if rest.len() <= 3 => {
            let size = i32::try_from(whole(rest)?).ok()?;
            if *sign == b'-' { -size } else { size }
        }
        [_, rest @ ..] if rest.len() <= 3 => i32::try_from(whole(rest)?).ok()?,
        _ => return None,
    };
    let dot = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let (before, behind) = (digits.get(..dot)?, digits.get(dot + 1..).unwrap_or_default());
    if before.is_empty() || before.len() + behind.len() > 30 {
        return None;
    }
    let all = [before, behind].concat();
    if !all.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u128 = str::from_utf8(&all).ok()?.parse().ok()?;
    let shift = 18 + exponent - i32::try_from(behind.len()).ok()?;
    let power = 10_u128.checked_pow(shift.unsigned_abs());
    let scaled = match (shift < 0, power) {
        (true, None) => 0,
        (true, Some(power)) => value / power,
        (false, _) if value == 0 => 0,
        (false, power) => value.checked_mul(power?)?,
    };
    u64::try_from(scaled).ok()
}

#[cfg(test)]
mod tests;
