//! Writes rows as Parquet, in groups of limited size.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::error::ExportError;
use super::sink::Sink;
use crate::table::{Cell, Kind, Shape};

/// The number of cells that are collected before they are written: about 4 MB.
const GROUP_CELLS: usize = 250_000;

/// Writes rows as Parquet.
pub(super) struct ParquetSink<W: Write + Send> {
    /// The file.
    file: SerializedFileWriter<W>,
    /// Values that have not been written, by column.
    buffers: Vec<Buffer>,
    /// The number of rows in them.
    held: usize,
    /// The number of rows in a group.
    group: usize,
}

impl<W: Write + Send> ParquetSink<W> {
    /// A table with these columns.
    pub(super) fn new(shape: &[Shape], out: W) -> Result<Self, ExportError> {
        let fields = shape.iter().map(|column| Ok(Arc::new(field(column)?)));
        let fields = fields.collect::<ParquetResult<Vec<_>>>()?;
        let schema = Type::group_type_builder("flashflow").with_fields(fields).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        Ok(Self {
            file: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?,
            buffers: shape.iter().map(Buffer::of).collect(),
            held: 0,
            group: (GROUP_CELLS / shape.len().max(1)).max(1),
        })
    }

    /// Writes the collected rows as a group.
    fn flush(&mut self) -> ParquetResult<()> {
        if self.held == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for buffer in &mut self.buffers {
            if let Some(mut column) = group.next_column()? {
                buffer.write(&mut column)?;
                column.close()?;
            }
        }
        group.close()?;
        self.held = 0;
        Ok(())
    }
}

impl<W: Write + Send> Sink for ParquetSink<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        for (buffer, cell) in self.buffers.iter_mut().zip(cells) {
            buffer.push(cell);
        }
        self.held += 1;
        if self.held >= self.group {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        self.flush()?;
        self.file.close()?;
        Ok(())
    }
}

/// A column's type in Parquet.
fn field(column: &Shape) -> ParquetResult<Type> {
    let (physical, logical) = match column.kind {
        Kind::Int => (Physical::INT64, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bool => (Physical::BOOLEAN, None),
    };
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

/// Values of a column that have not been written.
struct Buffer {
    /// The values, without empty ones.
    values: Values,
    /// For each row 1 if it has a value, otherwise 0; `None` if all have one.
    levels: Option<Vec<i16>>,
}

/// Values of one type.
enum Values {
    /// Integers, and milliseconds since 1970.
    Int(Vec<i64>),
    /// Floating-point numbers.
    Real(Vec<f64>),
    /// Text.
    Text(Vec<ByteArray>),
    /// Booleans.
    Bool(Vec<bool>),
}

impl Buffer {
    /// Empty, with the type of a column.
    fn of(column: &Shape) -> Self {
        let values = match column.kind {
            Kind::Int | Kind::Time => Values::Int(Vec::new()),
            Kind::Real => Values::Real(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
        };
        Self { values, levels: column.is_nullable.then(Vec::new) }
    }

    /// Adds a cell; a cell of another type counts as empty.
    fn push(&mut self, cell: &Cell<'_>) {
        let is_there = match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(number)) => {
                values.push(*number);
                true
            }
            (Values::Int(values), Cell::Time(secs)) => {
                values.push(secs.saturating_mul(1000));
                true
            }
            (Values::Real(values), Cell::Real(number)) => {
                values.push(*number);
                true
            }
            (Values::Text(values), Cell::Text(text)) => {
                values.push(text.as_ref().into());
                true
            }
            (Values::Bool(values), Cell::Bool(is_true)) => {
                values.push(*is_true);
                true
            }
            _ => false,
        };
        if let Some(levels) = &mut self.levels {
            levels.push(is_there.into());
        }
    }

    /// Writes the values and clears them.
    fn write(&mut self, column: &mut SerializedColumnWriter<'_>) -> ParquetResult<()> {
        let levels = self.levels.as_mut();
        match &mut self.values {
            Values::Int(values) => put::<Int64Type>(column, values, levels),
            Values::Real(values) => put::<DoubleType>(column, values, levels),
            Values::Text(values) => put::<ByteArrayType>(column, values, levels),
            Values::Bool(values) => put::<BoolType>(column, values, levels),
        }
    }
}

/// Writes values of one type.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: Option<&mut Vec<i16>>,
) -> ParquetResult<()> {
    let given = levels.as_ref().map(|levels| levels.as_slice());
    column.typed::<T>().write_batch(values, given, None)?;
    values.clear();
    levels.into_iter().for_each(Vec::clear);
    Ok(())
}
