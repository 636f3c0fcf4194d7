//! The events of a period, from which its timetable can be restored.

use rusqlite::params;

use super::value::Number;
use super::{Reader, Store, StoreError, Writing};

impl Store {
    /// Adds an event to a period. The events of periods before the preceding one in the store are
    /// deleted, because those periods are never continued. If the clock was far ahead for a moment,
    /// in a period that does not exist, the events of the real period stay.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_event(&mut self, period: u64, event: &str) -> Result<(), StoreError> {
        self.write("store an event", |writing| add(writing, period, event))
    }
}

/// Adds an event, and deletes old ones.
pub(super) fn add(writing: &Writing<'_>, period: u64, event: &str) -> Result<(), StoreError> {
    writing.execute(
        "INSERT INTO events (period, number, event)
         SELECT ?1, ifnull(max(number) + 1, 0), ?2 FROM events WHERE period = ?1",
        params![Number(period), event],
    )?;
    let old =
        "DELETE FROM events WHERE period < (SELECT max(period) FROM events WHERE period < ?1)";
    writing.execute(old, [Number(period)]).map(drop)
}

impl Reader {
    /// The events of a period in their order, beginning with its start.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn events(&self, period: u64) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT event FROM events WHERE period = ?1 ORDER BY number";
        self.all("events", sql, [Number(period)], |columns| columns.take())
    }
}
