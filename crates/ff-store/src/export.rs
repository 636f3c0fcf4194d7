//! Exports the store as tables for other programs, in CSV and Parquet (doc/store.md has the
//! columns).
//!
//! Rows are read and written in groups, so that a year takes no more memory than a day.

mod error;
mod parquet;
mod sink;
mod tables;

use std::io::Write;
use std::ops::Range;

pub use self::error::ExportError;
use self::parquet::ParquetSink;
use self::sink::{CsvSink, Sink};
use self::tables::{Scheduled, SecondOf};
use super::table::{Cell, Column};
use super::{Attempt, DisputeRow, Reader, Seconds};

/// A table to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A row for each finished attempt.
    Results,
    /// A row for each second that is still kept.
    Seconds,
    /// A row for each attempt that failed.
    Failures,
    /// A row for each measurer and attempt in which it reports more cells than the relay.
    Disputes,
    /// A row for each row of the plans.
    Schedule,
    /// A row for each measurer, past or present.
    Measurers,
}

impl What {
    /// All tables.
    pub const ALL: &[Self] = &[
        Self::Results,
        Self::Seconds,
        Self::Failures,
        Self::Disputes,
        Self::Schedule,
        Self::Measurers,
    ];

    /// The table's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Results => "results",
            Self::Seconds => "seconds",
            Self::Failures => "failures",
            Self::Disputes => "disputes",
            Self::Schedule => "schedule",
            Self::Measurers => "measurers",
        }
    }
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 4180, with a header.
    Csv,
    /// Apache Parquet, compressed with Snappy.
    Parquet,
}

impl Reader {
    /// Writes the rows that began in a span of time, the oldest first, and returns their number.
    ///
    /// # Errors
    /// [`ExportError`]; an incomplete file is useless.
    pub fn export(
        &self,
        what: What,
        format: Format,
        span: Range<u64>,
        out: impl Write + Send,
    ) -> Result<u64, ExportError> {
        let to = To { format, out };
        match what {
            What::Results => to.fill(tables::results(), |row| {
                self.attempts(span, Seconds::Without, |attempt| row(&attempt))
            }),
            What::Failures => to.fill(tables::failures(), |row| {
                self.attempts(span, Seconds::Without, |attempt: Attempt| {
                    if attempt.outcome.result.is_err() { row(&attempt) } else { Ok(()) }
                })
            }),
            What::Seconds => to.fill(tables::seconds(), |row| {
                self.attempts(span, Seconds::With, |attempt| {
                    SecondOf::all(&attempt).try_for_each(|second| row(&second))
                })
            }),
            What::Disputes => to.fill(tables::disputes(), |row| {
                self.disputes(span, |dispute: DisputeRow| row(&dispute))
            }),
            What::Schedule => to.fill(tables::schedule(), |row| {
                self.scheduled(span, |scheduled: Scheduled| row(&scheduled))
            }),
            What::Measurers => {
                to.fill(tables::measurers(), |row| self.measurers()?.iter().try_for_each(row))
            }
        }
    }
}

/// The output of a table.
struct To<W> {
    format: Format,
    out: W,
}

impl<W: Write + Send> To<W> {
    /// Writes a table with these columns from the rows that `rows` passes.
    fn fill<R>(
        self,
        columns: Vec<Column<R>>,
        rows: impl FnOnce(&mut dyn FnMut(&R) -> Result<(), ExportError>) -> Result<(), ExportError>,
    ) -> Result<u64, ExportError> {
        let shape: Vec<_> = columns.iter().map(|column| column.shape).collect();
        let mut sink: Box<dyn Sink + '_> = match self.format {
            Format::Csv => Box::new(CsvSink::new(&shape, self.out)?),
            Format::Parquet => Box::new(ParquetSink::new(&shape, self.out)?),
        };
        let mut count = 0;
        rows(&mut |row| {
            let cells: Vec<Cell<'_>> = columns.iter().map(|column| (column.of)(row)).collect();
            count += 1;
            sink.row(&cells)
        })?;
        sink.finish()?;
        Ok(count)
    }
}
