//! What has happened in a period, so that its timetable can be made anew.

use rusqlite::params;

use super::value::Number;
use super::{Reader, Store, StoreError};

impl Store {
    /// Notes what has happened in a period, behind what happened before. Those of the periods before the last
    /// one are forgotten: nobody takes these up again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_event(&mut self, period: u64, event: &str) -> Result<(), StoreError> {
        self.write("note what has happened", |writing| {
            writing.execute(
                "INSERT INTO events (period, number, event)
                 SELECT ?1, ifnull(max(number) + 1, 0), ?2 FROM events WHERE period = ?1",
                params![Number(period), event],
            )?;
            let before = Number(period.saturating_sub(1));
            writing.execute("DELETE FROM events WHERE period < ?1", [before]).map(drop)
        })
    }
}

impl Reader {
    /// What has happened in a period, in its order; what it began with comes first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn events(&self, period: u64) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT event FROM events WHERE period = ?1 ORDER BY number";
        self.all("events", sql, [Number(period)], |columns| columns.take())
    }
}
