//! Rows that are kept in memory until they are written as a group.
//!
//! Each column stores distinct values once, and for each row the number of its value, like
//! Parquet's dictionaries on disk. A relay's row is nearly the same in successive hours, between
//! the same neighbours, so most rows are copied as numbers, many rows at once.

mod values;

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

pub(super) use self::values::{NONE, Values};
use super::schema::{Column, ColumnKind, Table};
use crate::spare::Spare;

/// Memory of rows that have been written.
static SPARE: Spare<Batch> = Spare::new();

/// The number of values looked up together, see [`Values::touch`].
const AT_ONCE: usize = 256;

/// The value of a row in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    /// No value.
    None,
    /// A number, or a time in seconds since 1970.
    Int(u64),
    /// A boolean.
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

pub(super) fn parquet_schema(table: &Table) -> Result<TypePtr> {
    let fields = table.columns.iter().map(|column| Ok(Arc::new(field(column)?)));
    let fields = fields.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?))
}

/// A column's type in Parquet.
fn field(column: &Column) -> Result<Type> {
    let (physical, logical) = match column.kind {
        ColumnKind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        ColumnKind::Int => (Physical::INT64, None),
        ColumnKind::Small => (Physical::INT32, None),
        ColumnKind::Bool => (Physical::BOOLEAN, None),
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Bytes(_) => (Physical::FIXED_LEN_BYTE_ARRAY, None),
    };
    let len =
        if let ColumnKind::Bytes(len) = column.kind { i32::try_from(len).unwrap_or(0) } else { 0 };
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_length(len)
        .with_repetition(repetition)
        .build()
}

/// Rows of a table.
pub(super) struct Batch {
    table: &'static Table,
    columns: Vec<Filled>,
    /// The number of rows, including repeated rows that are still to be copied.
    rows: usize,
    /// The rows of the last document.
    document: Range<usize>,
    /// Rows of the last document that are repeated after the present end of the columns.
    again: Range<usize>,
    /// The column that has the same value in all repeated rows, and the number of that value.
    fixed: Option<(usize, u32)>,
}

/// The rows of a column.
struct Filled {
    values: Values,
    /// The number of each row's value.
    keys: Vec<u32>,
    /// The numbers of the last document's values, if its rows were taken out.
    before: Vec<u32>,
    /// Differences in repeated rows.
    changes: Vec<Change>,
    /// The values of these differences, one after another.
    changed: Vec<u8>,
}

/// A value in a repeated row that differs from the original.
#[derive(Clone, Copy)]
struct Change {
    row: usize,
    /// The end of its value; an empty value means none.
    end: usize,
    /// The value's hash.
    hash: u32,
}

impl Batch {
    /// No rows yet.
    pub(super) fn new(table: &'static Table) -> Self {
        Self::spare(table).unwrap_or_else(|| Self::of(table, table.columns.iter().map(Values::new)))
    }

    /// An empty batch with memory for many rows, if one was put aside.
    fn spare(table: &'static Table) -> Option<Self> {
        SPARE.take(|one| one.table == table)
    }

    /// Keeps the allocated memory for another batch.
    pub(super) fn put_aside(mut self) {
        (self.rows, self.document, self.again, self.fixed) = (0, 0..0, 0..0, None);
        for column in &mut self.columns {
            column.values.clear();
            column.keys.clear();
            column.before.clear();
            column.changes.clear();
            column.changed.clear();
        }
        SPARE.put(self);
    }

    /// No rows yet, with these values.
    fn of(table: &'static Table, values: impl Iterator<Item = Values>) -> Self {
        let filled = |values| Filled {
            values,
            keys: Vec::new(),
            before: Vec::new(),
            changes: Vec::new(),
            changed: Vec::new(),
        };
        Self {
            table,
            columns: values.map(filled).collect(),
            rows: 0,
            document: 0..0,
            again: 0..0,
            fixed: None,
        }
    }

    /// Takes all rows out; the last document can still be repeated. New rows use the memory of
    /// `space`, or of a batch that was put aside.
    pub(super) fn take(&mut self, space: Option<Self>) -> Self {
        self.copy_again();
        let values = || self.columns.iter().map(|column| Values::like(&column.values));
        let space = space.or_else(|| Self::spare(self.table));
        let mut next = space.unwrap_or_else(|| Self::of(self.table, values()));
        (next.rows, next.document) = (0, 0..0);
        for (to, from) in next.columns.iter_mut().zip(&self.columns) {
            to.follow(from, &self.document);
        }
        std::mem::replace(self, next)
    }

    /// The number of rows.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// The size of the distinct values of all columns, in bytes.
    pub(super) fn value_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.plain().len()).sum()
    }

    /// For each column its values, and the number of each row's value; only for rows that were
    /// taken out.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&Values, &[u32])> {
        self.columns.iter().map(|column| (&column.values, column.keys.as_slice()))
    }

    /// Adds a row with a cell for each column.
    pub(super) fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.copy_again();
        for (column, &cell) in self.columns.iter_mut().zip(cells) {
            column.keys.push(column.values.key(cell));
        }
        self.rows += 1;
    }

    /// Sets the value of a column in all repeated rows of this document.
    pub(super) fn fix(&mut self, column: usize, cell: Cell<'_>) {
        self.copy_again();
        let filled = self.columns.get_mut(column);
        self.fixed = filled.map(|filled| (column, filled.values.key(cell)));
    }

    /// Repeats a row of the last document, with other cells in some columns; returns `false` if
    /// there is no such row.
    pub(super) fn push_again<'a>(
        &mut self,
        row: usize,
        changes: impl IntoIterator<Item = (usize, Cell<'a>)>,
    ) -> bool {
        if row >= self.len_before() {
            return false;
        }
        // Most rows are repeated in their original order: they are copied together.
        if self.again.end != row || self.again.is_empty() {
            self.copy_again();
            self.again = row..row;
        }
        self.again.end += 1;
        for (column, cell) in changes {
            if let Some(filled) = self.columns.get_mut(column) {
                filled.change(self.rows, cell);
            }
        }
        self.rows += 1;
        true
    }

    /// The number of rows in the last document.
    fn len_before(&self) -> usize {
        let before = self.columns.first().map_or(0, |column| column.before.len());
        if before > 0 { before } else { self.document.len() }
    }

    /// Copies the repeated rows.
    fn copy_again(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let again = std::mem::replace(&mut self.again, 0..0);
        for (index, column) in self.columns.iter_mut().enumerate() {
            match self.fixed {
                Some((fixed, key)) if fixed == index => {
                    column.keys.resize(column.keys.len() + again.len(), key);
                }
                _ => column.copy(&again, self.document.start),
            }
            column.apply();
        }
    }

    /// Ends a document.
    pub(super) fn end_document(&mut self) {
        self.copy_again();
        self.fixed = None;
        self.document = self.document.end..self.rows;
        self.columns.iter_mut().for_each(|column| column.before.clear());
    }
}

impl Filled {
    /// Repeats rows of the last document, which begins at `start` if it was not taken out.
    fn copy(&mut self, rows: &Range<usize>, start: usize) {
        if self.before.is_empty() {
            // Earlier rows are long enough, see `push_again`.
            self.keys.extend_from_within(start + rows.start..start + rows.end);
        } else {
            self.keys.extend_from_slice(self.before.get(rows.clone()).unwrap_or_default());
        }
    }

    /// Records a difference in a row.
    fn change(&mut self, row: usize, cell: Cell<'_>) {
        let start = self.changed.len();
        self.values.encode(cell, &mut self.changed);
        let hash = self.values.hash(self.changed.get(start..).unwrap_or_default());
        self.changes.push(Change { row, end: self.changed.len(), hash });
    }

    /// Applies the recorded differences.
    fn apply(&mut self) {
        let mut start = 0;
        for changes in self.changes.chunks(AT_ONCE) {
            self.values.touch(changes.iter().map(|change| change.hash));
            for &Change { row, end, hash } in changes {
                let value = self.changed.get(start..end).filter(|value| !value.is_empty());
                let key = value.map_or(NONE, |value| self.values.key_of(hash, value));
                self.keys.get_mut(row).into_iter().for_each(|place| *place = key);
                start = end;
            }
        }
        self.changes.clear();
        self.changed.clear();
    }

    /// Replaces the content by the last document of another column, which may be repeated.
    fn follow(&mut self, other: &Self, document: &Range<usize>) {
        self.keys.clear();
        self.before.clear();
        self.before.extend_from_slice(other.keys.get(document.clone()).unwrap_or_default());
        self.values.follow(&other.values, &mut self.before);
    }
}
