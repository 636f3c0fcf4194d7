//! Rows that are held by columns until they are written as a group.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType,
    Int32Type, Int64Type,
};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{Type, TypePtr};

use super::schema::{Column, Kind, Table};

/// What a row has in a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell<'a> {
    /// Nothing.
    None,
    /// A number, or a time in seconds since 1970.
    Int(u64),
    /// True or false.
    Bool(bool),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Cell::Bytes(text.as_bytes())
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::None, Into::into)
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Cell::Int(number)
    }
}

/// A table as Parquet has it.
pub(super) fn parquet_schema(table: &Table) -> Result<TypePtr> {
    let fields = table.columns.iter().map(|column| Ok(Arc::new(field(column)?)));
    let fields = fields.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?))
}

/// A column as Parquet has it.
fn field(column: &Column) -> Result<Type> {
    let (physical, logical) = match column.kind {
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        Kind::Int => (Physical::INT64, None),
        Kind::Small => (Physical::INT32, None),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bytes(_) => (Physical::FIXED_LEN_BYTE_ARRAY, None),
    };
    let len = if let Kind::Bytes(len) = column.kind { i32::try_from(len).unwrap_or(0) } else { 0 };
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_length(len)
        .with_repetition(repetition)
        .build()
}

/// Rows of a table.
pub(super) struct Batch {
    /// What the columns have.
    columns: Vec<Held>,
    /// How many rows these are.
    rows: usize,
}

impl Batch {
    /// None yet.
    pub(super) fn new(table: &Table) -> Self {
        Self { columns: table.columns.iter().map(Held::new).collect(), rows: 0 }
    }

    /// How many rows there are.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, to be written.
    pub(super) fn columns(self) -> impl Iterator<Item = Held> {
        self.columns.into_iter()
    }

    /// Adds a row, which has a cell for each column.
    pub(super) fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        for (column, &cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
    }
}

/// What a column has.
pub(super) struct Held {
    /// Its values, without those that are not there.
    values: Values,
    /// For each row 1 if there is a value; `None` where there always is.
    levels: Option<Vec<i16>>,
}

/// Values of one type.
enum Values {
    /// Times, in milliseconds.
    Time(Vec<i64>),
    /// Numbers.
    Int(Vec<i64>),
    /// Small numbers.
    Small(Vec<i32>),
    /// True or false.
    Bool(Vec<bool>),
    /// Texts, and where each ends.
    Text(Vec<u8>, Vec<usize>),
    /// Bytes, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
}

impl Held {
    /// Nothing yet.
    fn new(column: &Column) -> Self {
        let values = match column.kind {
            Kind::Time => Values::Time(Vec::new()),
            Kind::Int => Values::Int(Vec::new()),
            Kind::Small => Values::Small(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Text => Values::Text(Vec::new(), Vec::new()),
            Kind::Bytes(_) => Values::Bytes(Vec::new(), Vec::new()),
        };
        Self { values, levels: column.is_nullable.then(Vec::new) }
    }

    /// Adds a cell; one of another type counts as none.
    fn push(&mut self, cell: Cell<'_>) {
        let is_there = match (&mut self.values, cell) {
            (Values::Time(values), Cell::Int(secs)) => {
                values.push(whole(secs).saturating_mul(1000));
                true
            }
            (Values::Int(values), Cell::Int(number)) => {
                values.push(whole(number));
                true
            }
            (Values::Small(values), Cell::Int(number)) => {
                values.push(i32::try_from(number).unwrap_or(i32::MAX));
                true
            }
            (Values::Bool(values), Cell::Bool(is_true)) => {
                values.push(is_true);
                true
            }
            (Values::Text(all, ends) | Values::Bytes(all, ends), Cell::Bytes(bytes)) => {
                all.extend_from_slice(bytes);
                ends.push(all.len());
                true
            }
            _ => false,
        };
        if let Some(levels) = &mut self.levels {
            levels.push(is_there.into());
        }
    }

    /// Writes what is held.
    pub(super) fn write(self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels = self.levels.as_deref();
        match self.values {
            Values::Time(values) | Values::Int(values) => put::<Int64Type>(column, &values, levels),
            Values::Small(values) => put::<Int32Type>(column, &values, levels),
            Values::Bool(values) => put::<BoolType>(column, &values, levels),
            Values::Text(all, ends) => {
                let values: Vec<ByteArray> = slices(all, &ends).map(ByteArray::from).collect();
                put::<ByteArrayType>(column, &values, levels)
            }
            Values::Bytes(all, ends) => {
                let values = slices(all, &ends).map(ByteArray::from).map(FixedLenByteArray::from);
                put::<FixedLenByteArrayType>(column, &values.collect::<Vec<_>>(), levels)
            }
        }
    }
}

/// A number as tables have it.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Parts of bytes, which share them.
fn slices(all: Vec<u8>, ends: &[usize]) -> impl Iterator<Item = Bytes> {
    let all = Bytes::from(all);
    let mut start = 0;
    ends.iter().map(move |&end| all.slice(std::mem::replace(&mut start, end)..end))
}

/// Writes values of one type.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    column.typed::<T>().write_batch(values, levels, None)?;
    Ok(())
}
