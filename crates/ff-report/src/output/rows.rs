//! The rows of a table, as one text: cells by themselves would cost more memory than what is in
//! them.

use std::fmt::{Display, Write as _};

/// Rows of a table, each of any number of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// All cells, one after the other.
    text: String,
    /// Where each cell ends.
    cells: Vec<usize>,
    /// For each row, how many cells there are until its end.
    rows: Vec<usize>,
}

impl Rows {
    /// How many rows there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends a row.
    pub fn push<C: Display>(&mut self, row: impl IntoIterator<Item = C>) {
        for cell in row {
            self.cell(cell);
        }
        self.end_row();
    }

    /// Appends a cell to the row that is not ended yet.
    pub fn cell(&mut self, cell: impl Display) -> &mut Self {
        // A text takes all that is written to it.
        let _ = write!(self.text, "{cell}");
        self.cells.push(self.text.len());
        self
    }

    /// Appends a cell with untrusted text. If it begins like a spreadsheet's formula, a `'` is put
    /// before it.
    pub fn foreign(&mut self, text: &str) -> &mut Self {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        self.cell(format_args!("{}{text}", if is_formula { "'" } else { "" }))
    }

    /// Appends a cell with a number, or a blank one.
    pub fn optional(&mut self, cell: Option<impl Display>) -> &mut Self {
        match cell {
            Some(cell) => self.cell(cell),
            None => self.cell(""),
        }
    }

    /// Ends a row.
    pub fn end_row(&mut self) {
        self.rows.push(self.cells.len());
    }

    /// A row's cells; those of the first row have number 0.
    pub fn row(&self, number: usize) -> impl ExactSizeIterator<Item = &str> {
        let end = |number: usize| self.rows.get(number).copied();
        let begin = number.checked_sub(1).and_then(end).unwrap_or(0);
        let range = begin..end(number).unwrap_or(begin);
        let cell = |cell: usize| cell.checked_sub(1).and_then(|cell| self.cells.get(cell)).copied();
        range.map(move |at| {
            let text = cell(at).unwrap_or(0)..cell(at + 1).unwrap_or(0);
            self.text.get(text).unwrap_or_default()
        })
    }

    /// All rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = impl ExactSizeIterator<Item = &str>> {
        (0..self.len()).map(|number| self.row(number))
    }
}

impl<R: IntoIterator<Item: Display>> FromIterator<R> for Rows {
    fn from_iter<T: IntoIterator<Item = R>>(rows: T) -> Self {
        let mut all = Self::default();
        rows.into_iter().for_each(|row| all.push(row));
        all
    }
}

impl From<Vec<Vec<String>>> for Rows {
    fn from(rows: Vec<Vec<String>>) -> Self {
        rows.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_as_they_were_written() {
        let written = [vec!["a", "", "b,"], vec![], vec!["", ""], vec!["é\n"]];
        let rows: Rows = written.iter().collect();
        let read: Vec<Vec<&str>> = rows.iter().map(Iterator::collect).collect();
        assert_eq!((read.as_slice(), rows.len()), (written.as_slice(), 4));
        assert_eq!((rows.row(4).len(), Rows::default().row(0).len()), (0, 0));
        let mut other = Rows::default();
        assert!(other.is_empty());
        other.cell(1.5).optional(None::<u8>).optional(Some(7)).end_row();
        assert_eq!(other.row(0).collect::<Vec<_>>(), ["1.5", "", "7"]);
        other.foreign("=1+1").foreign("-x").foreign("op-nl").foreign("").end_row();
        assert_eq!(other.row(1).collect::<Vec<_>>(), ["'=1+1", "'-x", "op-nl", ""]);
    }
}
