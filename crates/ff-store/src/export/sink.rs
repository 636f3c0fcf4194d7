//! Writes rows: what all formats have, and CSV.

use std::borrow::Cow;
use std::io::Write;

use ff_base::utc::Utc;

use super::error::ExportError;
use crate::table::{Cell, Shape};

/// The output of rows.
pub(super) trait Sink {
    /// Writes a row.
    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), ExportError>;

    /// Writes the remaining rows.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
}

/// Writes rows as CSV.
pub(super) struct CsvSink<W: Write> {
    /// The writer.
    csv: csv::Writer<W>,
}

impl<W: Write> CsvSink<W> {
    /// A table with these columns.
    pub(super) fn new(shape: &[Shape], out: W) -> Result<Self, ExportError> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(shape.iter().map(|column| column.name))?;
        Ok(Self { csv })
    }
}

impl<W: Write> Sink for CsvSink<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        for cell in cells {
            let text: Cow<'_, str> = match cell {
                Cell::Null => "".into(),
                Cell::Int(number) => number.to_string().into(),
                Cell::Time(secs) => rfc3339(*secs).into(),
                Cell::Real(number) => number.to_string().into(),
                Cell::Text(text) => text.as_ref().into(),
                Cell::Bool(is_true) => (if *is_true { "true" } else { "false" }).into(),
            };
            self.csv.write_field(text.as_bytes())?;
        }
        self.csv.write_record(None::<&[u8]>)?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        Ok(self.csv.flush()?)
    }
}

/// A time in RFC 3339, `2026-11-20T09:30:00Z`.
fn rfc3339(unix_secs: i64) -> String {
    let utc = Utc::from_unix_secs(unix_secs.unsigned_abs());
    utc.map_or_else(|_| String::new(), |utc| format!("{utc}Z"))
}
