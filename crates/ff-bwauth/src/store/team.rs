//! What is known of the measurers.

use ff_proto::units::BytesPerSec;
use rusqlite::params;

use super::value::Number;
use super::{Reader, Store, StoreError, Writing};

/// A measurer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerRow {
    /// Its Ed25519 identity.
    pub identity: [u8; 32],
    /// What the configuration calls it.
    pub name: String,
    /// What its operator says that it carries.
    pub stated: Option<BytesPerSec>,
    /// What it was measured to carry, and when, in seconds since 1970.
    pub measured: Option<(BytesPerSec, u64)>,
    /// In how many attempts, of all that there have been, it counted what the relay says that it has not echoed.
    pub disputes: u64,
}

impl Store {
    /// Notes what the configuration says of a measurer; what has been measured stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put_measurer(
        &mut self,
        identity: [u8; 32],
        name: &str,
        stated: Option<BytesPerSec>,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO measurers (identity, name, stated_bytes_per_sec) VALUES (?1, ?2, ?3)
                   ON CONFLICT (identity) DO UPDATE SET name = ?2, stated_bytes_per_sec = ?3";
        self.write("note a measurer", |writing| {
            writing.execute(sql, params![identity, name, number(stated)]).map(drop)
        })
    }

    /// Notes what a measurer was measured to carry.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn set_measured(
        &mut self,
        identity: [u8; 32],
        capacity: BytesPerSec,
        now_unix_secs: u64,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE measurers SET measured_bytes_per_sec = ?2, measured_unix_secs = ?3 WHERE id = ?1";
        self.write("note a measurer's capacity", |writing| {
            let id = measurer(writing, &identity)?;
            let capacity = Number(capacity.get());
            writing.execute(sql, params![id, capacity, Number(now_unix_secs)]).map(drop)
        })
    }
}

impl Reader {
    /// All measurers that have ever been noted, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn measurers(&self) -> Result<Vec<MeasurerRow>, StoreError> {
        let sql = "SELECT id, identity, name, stated_bytes_per_sec, measured_bytes_per_sec,
                   measured_unix_secs, disputes FROM measurers ORDER BY name, identity";
        self.all("measurers", sql, [], |columns| {
            let _id: i64 = columns.take()?;
            let (identity, name, stated) = (columns.take()?, columns.take()?, columns.maybe()?);
            let (capacity, at): (Option<_>, Option<_>) = (columns.maybe()?, columns.maybe()?);
            let measured = capacity.zip(at);
            Ok(MeasurerRow { identity, name, stated, measured, disputes: columns.of()? })
        })
    }
}

/// The row of a measurer, which is made if it is not there.
pub(super) fn measurer(writing: &Writing<'_>, identity: &[u8; 32]) -> Result<i64, StoreError> {
    let sql = "SELECT id FROM measurers WHERE identity = ?1";
    if let Some(id) = writing.find(sql, [identity], |row| row.get(0))? {
        return Ok(id);
    }
    writing.execute("INSERT INTO measurers (identity, name) VALUES (?1, '')", [identity])?;
    Ok(writing.db.last_insert_rowid())
}

/// A rate as it is stored.
pub(super) fn number(rate: Option<BytesPerSec>) -> Option<Number> {
    rate.map(|rate| Number(rate.get()))
}
