//! Tables with one number per relay and time, and tables with one row per day.
//!
//! [`Series::read`] reads the CSV of relays and times: lines that begin with `#` are comments; a
//! header has the times; then follows one row per relay, its fingerprint first. A blank cell means
//! that the relay was not listed, `=` repeats the last listed value, and a row may end early. Rows
//! of words before the first relay (such as commits) are skipped. The file is plain text or xz.
//!
//! A row that breaks these rules is left out and listed with its line. A column with a time that is
//! invalid, or not later than the one before, is left out too; `=` may still repeat a value in it.
//! Of a truncated file, the rows before the cut are kept.
//!
//! In memory a row consists of runs of equal values, 16 bytes each, so repeated values save memory
//! as they do in the file.

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

/// The greatest value in bytes per second or of a weight: above it floating point would round.
pub const MOST_VALUE: u64 = 1 << 53;
/// The greatest number of relays.
pub const MOST_RELAYS: usize = 1 << 20;
/// The greatest number of times.
pub const MOST_TIMES: usize = 1 << 17;
/// The greatest number of runs of equal values: a gigabyte.
pub const MOST_RUNS: usize = 1 << 26;
/// The value 1 in a table of [`SeriesKind::Probability`].
pub const ONE: u64 = 1_000_000_000_000_000_000;

/// The kind of the numbers of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Whole bytes per second, at most [`MOST_VALUE`].
    BytesPerSec,
    /// Decimal fractions from 0 to 1, stored in units of 10^-18 ([`ONE`]).
    Probability,
    /// Whole weights in any unit, at most [`MOST_VALUE`].
    Weight,
}

impl SeriesKind {
    /// The kind of weights in an unpacked table, by its first number above 1 or with a decimal
    /// point. Without such a number they are fractions, which gives the same shares.
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

    /// The error for an invalid cell of this kind.
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
    /// The kind of the numbers.
    pub kind: SeriesKind,
    /// The times in seconds since 1970, each later than the one before.
    pub times: Vec<u64>,
    /// The relays, in the order of the file.
    pub relays: Vec<Fingerprint>,
    /// The runs of all relays, one relay after another.
    runs: Vec<Run>,
    /// For each relay, the end of its runs.
    ends: Vec<usize>,
}

/// A value that holds for consecutive times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The index of the first time.
    pub first: u32,
    /// The number of times.
    pub times: u32,
    /// The value, in the unit of the series.
    pub value: u64,
}

/// Marks the end of runs: no time has this index.
const NO_RUN: Run = Run { first: u32::MAX, times: 0, value: 0 };

impl Series {
    /// Reads a table; `name` is its name in the list of omissions.
    ///
    /// # Errors
    /// If nothing can be read at all. Later read errors are listed as omissions.
    pub fn read(name: &str, kind: SeriesKind, from: impl BufRead) -> io::Result<(Self, Skips)> {
        let mut reader = Reader::new(name, kind);
        let mut lines = Lines::new(from)?;
        while let Some((number, line)) = lines.next() {
            match line {
                Line::Whole(text) => reader.line(number, text),
                Line::TooLong => reader.skip(number, "the line is too long for a table"),
                // A file that is too large is an error, not a truncated one.
                Line::Cut(why) if why.kind() == io::ErrorKind::FileTooLarge => return Err(why),
                Line::Cut(why) => reader.skip(number, &format!("it cannot be read further: {why}")),
            }
            if reader.is_full {
                break;
            }
        }
        Ok((reader.series, reader.skips))
    }

    /// The value of a relay at a time, both by index.
    #[must_use]
    pub fn value(&self, relay: usize, time: usize) -> Option<u64> {
        let runs = self.runs_of(relay)?;
        let after = runs.partition_point(|run| run.first as usize <= time);
        let run = runs.get(after.checked_sub(1)?)?;
        (time < run.first as usize + run.times as usize).then_some(run.value)
    }

    /// The runs of a relay, in order of time.
    #[must_use]
    pub fn runs_of(&self, relay: usize) -> Option<&[Run]> {
        self.runs.get(self.start(relay)..*self.ends.get(relay)?)
    }

    /// The start of a relay's runs.
    fn start(&self, relay: usize) -> usize {
        relay.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }
}

/// A table that is being read.
struct Reader<'a> {
    /// The file's name.
    name: &'a str,
    /// The data read so far.
    series: Series,
    /// For each column, the index of its time unless the column is left out; `None` before the
    /// header.
    columns: Option<Vec<Option<u32>>>,
    /// The relays read so far.
    known: BTreeSet<Fingerprint>,
    /// The omissions.
    skips: Skips,
    /// Whether a limit was reached.
    is_full: bool,
}

impl<'a> Reader<'a> {
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

    /// Processes a line.
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

    /// Takes the header, if the row is one.
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

    /// Takes a relay's row; an invalid row is removed again.
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

    /// Lists a line as an omission.
    fn skip(&mut self, line: usize, why: &str) {
        self.skips.add(self.name, None, Some(line), why);
    }
}

/// The remaining cells of a line, without surrounding spaces.
struct Cells<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Cells<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // Most cells are blank or `=`.
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

/// Parses a fingerprint of 40 hexadecimal digits.
fn fingerprint(text: &[u8]) -> Option<Fingerprint> {
    let mut bytes = Fingerprint::default();
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// Whether a row with this first cell may be a header: the cell is a word.
fn is_word(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_lowercase)
        && text.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_')
}

/// Parses a time; returns seconds since 1970.
fn time(text: &[u8]) -> Option<u64> {
    let utc: Utc = str::from_utf8(text).ok()?.parse().ok()?;
    Some(utc.unix_secs())
}

/// The time, or the error if data cannot have it.
fn within_span(unix_secs: u64) -> Result<u64, &'static str> {
    span::wrong(unix_secs).map_or(Ok(unix_secs), Err)
}

/// Parses a cell's number.
fn number(kind: SeriesKind, digits: &[u8]) -> Option<u64> {
    match kind {
        SeriesKind::BytesPerSec | SeriesKind::Weight => {
            whole(digits).filter(|&value| value <= MOST_VALUE)
        }
        SeriesKind::Probability => fraction(digits).filter(|&value| value <= ONE),
    }
}

/// Parses an integer of digits only.
fn whole(digits: &[u8]) -> Option<u64> {
    let more = |all: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { all.checked_mul(10)?.checked_add(digit.into()) } else { None }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, more) }
}

/// Parses a decimal number such as `1.5612843e-05`, in units of 10^-18; further digits are cut off.
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
