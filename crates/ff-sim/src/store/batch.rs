//! Rows that are held until they are written as a group.
//!
//! Each column has its values once, and each row has the numbers of its values: that is what Parquet's dictionaries are
//! on the disk. A relay's row of one hour is nearly that of the hour before, so that most rows are numbers copied.

mod values;

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

pub(super) use self::values::{NONE, Values};
use super::schema::{Column, Kind, Table};

/// What a row has in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    /// Nothing.
    None,
    /// A number, or a time in seconds since 1970.
    Int(u64),
    /// True or false.
    Bool(bool),
    /// Text or bytes.
    Bytes(&'a [u8]),
    /// A value of this number, see [`Batch::known`].
    Known(u32),
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
    columns: Vec<Values>,
    /// The numbers of their values, row after row.
    keys: Vec<u32>,
    /// How many rows these are.
    rows: usize,
    /// The rows of the document that was added last.
    document: Range<usize>,
    /// The keys of those rows if they are no longer here.
    before: Vec<u32>,
}

impl Batch {
    /// None yet.
    pub(super) fn new(table: &Table) -> Self {
        let columns = table.columns.iter().map(Values::new).collect();
        Self { columns, keys: Vec::new(), rows: 0, document: 0..0, before: Vec::new() }
    }

    /// Takes all rows out; those of the last document are still known. This is the space for those that come.
    pub(super) fn take(&mut self, mut keys: Vec<u32>) -> Self {
        let width = self.columns.len();
        let columns = self.columns.iter().map(Values::like).collect();
        keys.clear();
        let last = self.document.start * width..self.document.end * width;
        let before = self.keys.get(last).unwrap_or_default().to_vec();
        let mut next = Self { columns, keys, rows: 0, document: 0..0, before };
        for (index, (to, from)) in next.columns.iter_mut().zip(&self.columns).enumerate() {
            let mut moved = vec![NONE; from.len()];
            for key in next.before.iter_mut().skip(index).step_by(width) {
                let Some(place) = usize::try_from(*key).ok().and_then(|at| moved.get_mut(at))
                else {
                    continue;
                };
                if *place == NONE {
                    *place = to.add(from.get(*key));
                }
                *key = *place;
            }
        }
        std::mem::replace(self, next)
    }

    /// A value of a column, to be added to more than one row before [`Self::take`] is called.
    pub(super) fn known(&mut self, column: usize, cell: Cell<'_>) -> Cell<'static> {
        let column = self.columns.get_mut(column);
        Cell::Known(column.map_or(NONE, |column| column.key(cell)))
    }

    /// How many rows there are.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// What the columns have.
    pub(super) fn columns(&self) -> &[Values] {
        &self.columns
    }

    /// The rows, each of which has for each column the number of a value.
    pub(super) fn keys(&self) -> &[u32] {
        &self.keys
    }

    /// The space of the rows.
    pub(super) fn into_keys(self) -> Vec<u32> {
        self.keys
    }

    /// Adds a row, which has a cell for each column.
    pub(super) fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        for (column, &cell) in self.columns.iter_mut().zip(cells) {
            self.keys.push(column.key(cell));
        }
        self.rows += 1;
    }

    /// Adds a row of the last document again, with other cells in some columns; `false` if it is not here.
    pub(super) fn push_again<'a>(
        &mut self,
        row: usize,
        changes: impl IntoIterator<Item = (usize, Cell<'a>)>,
    ) -> bool {
        let (at, width) = (self.keys.len(), self.columns.len());
        if let Some(known) = self.before.get(row * width..(row + 1) * width) {
            self.keys.extend_from_slice(known);
        } else if self.document.contains(&(self.document.start + row)) {
            let row = self.document.start + row;
            self.keys.extend_from_within(row * width..(row + 1) * width);
        } else {
            return false;
        }
        for (index, cell) in changes {
            if let (Some(key), Some(column)) =
                (self.keys.get_mut(at + index), self.columns.get_mut(index))
            {
                *key = column.key(cell);
            }
        }
        self.rows += 1;
        true
    }

    /// Says that a document ends here, so that the next one begins.
    pub(super) fn end_document(&mut self) {
        self.document = self.document.end..self.rows;
        self.before.clear();
    }
}
