//! Reads rows: columns in order, and errors that name the row.

use rusqlite::types::FromSql;
use rusqlite::{Error, Params, Row};

use super::Reader;
use super::error::{self, StoreError};
use super::value::{Of, Stored};

/// The columns of a row in order. The first one is the row's number, for errors.
pub(super) struct Columns<'a, 'b> {
    /// The row.
    row: &'a Row<'b>,
    /// The next column.
    next: usize,
}

impl Columns<'_, '_> {
    /// The next column.
    pub(super) fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let column = self.next;
        self.next += 1;
        self.row.get(column)
    }

    /// The next column, converted to its type.
    pub(super) fn of<T: Stored>(&mut self) -> rusqlite::Result<T> {
        self.take::<Of<T>>().map(|of| of.0)
    }

    /// The next column, converted to its type, if it is not NULL.
    pub(super) fn maybe<T: Stored>(&mut self) -> rusqlite::Result<Option<T>> {
        self.take::<Option<Of<T>>>().map(|of| of.map(|of| of.0))
    }

    /// An error about the last column taken.
    pub(super) fn bad<T>(&self, what: String) -> rusqlite::Result<T> {
        let column = self.next.saturating_sub(1);
        let kind = self.row.get_ref(column)?.data_type();
        Err(Error::FromSqlConversionFailure(column, kind, what.into()))
    }
}

/// An error in a table's row, in words.
fn describe(row: &Row<'_>, error: Error) -> Result<String, Error> {
    let (column, what) = match error {
        Error::FromSqlConversionFailure(column, _, error) => (column, error.to_string()),
        Error::InvalidColumnType(column, _, kind) => (column, format!("a {kind}")),
        Error::IntegralValueOutOfRange(column, number) => (column, number.to_string()),
        other => return Err(other),
    };
    let name = row.as_ref().column_name(column).unwrap_or("a column");
    Ok(format!("{what} as its {name}"))
}

impl Reader {
    /// Visits the rows of a query on `table`, one at a time.
    pub(super) fn each<T, E: From<StoreError>>(
        &self,
        table: &'static str,
        sql: &str,
        params: impl Params,
        read: impl Fn(&mut Columns<'_, '_>) -> rusqlite::Result<T>,
        mut visit: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let fail = error::sqlite(&self.path, "be read");
        let mut statement = self.db.prepare_cached(sql).map_err(&fail)?;
        let mut rows = statement.query(params).map_err(&fail)?;
        while let Some(row) = rows.next().map_err(&fail)? {
            let value = read(&mut Columns { row, next: 0 }).or_else(|error| {
                let what = describe(row, error).map_err(&fail)?;
                let (path, row) = (self.path.clone(), row.get(0).unwrap_or_default());
                Err(StoreError::BadRow { path, table, row, what })
            })?;
            visit(value)?;
        }
        Ok(())
    }

    /// All rows of a query.
    pub(super) fn all<T>(
        &self,
        table: &'static str,
        sql: &str,
        params: impl Params,
        read: impl Fn(&mut Columns<'_, '_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.each(table, sql, params, read, |row| {
            found.push(row);
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }
}
