//! The records of measurers.

use ff_plan::period::carried::Carried;
use ff_proto::units::BytesPerSec;
use rusqlite::params;

use super::row::Columns;
use super::value::Number;
use super::{Reader, Store, StoreError, Writing};

/// A measurer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerRow {
    /// Its Ed25519 identity.
    pub identity: [u8; 32],
    /// The name in the config.
    pub name: String,
    /// The configured capacity of its network.
    pub stated: Option<BytesPerSec>,
    /// The measured capacity of its network.
    pub measured: Option<Measured>,
    /// Why the last exchange did not measure it, if so.
    pub not_measured: Option<String>,
    /// The number of all attempts in which it counted more cells than the relay reports as echoed
    /// to it.
    pub disputes: u64,
}

/// A measured capacity of a measurer's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The capacity.
    pub carried: Carried,
    /// Its configured address at that time.
    pub address: String,
    /// The time, in seconds since 1970.
    pub unix_secs: u64,
}

impl Store {
    /// Stores the configured data of a measurer; its measured capacity stays.
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
        self.write("store a measurer", |writing| {
            writing.execute(sql, params![identity, name, number(stated)]).map(drop)
        })
    }

    /// Stores the measured capacity of a measurer at this address, or why it was not measured; then
    /// the earlier capacity stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn set_measured(
        &mut self,
        identity: [u8; 32],
        address: &str,
        found: &Result<Carried, String>,
        now_unix_secs: u64,
    ) -> Result<(), StoreError> {
        self.write("store a measurer's capacity", |writing| {
            let id = measurer(writing, &identity)?;
            let carried = match found {
                Ok(carried) => carried,
                Err(reason) => {
                    let sql = "UPDATE measurers SET not_measured = ?2 WHERE id = ?1";
                    return writing.execute(sql, params![id, reason]).map(drop);
                }
            };
            let sql = "UPDATE measurers SET measured_bytes_per_sec = ?2, measured_sent_bytes_per_sec = ?3,
                       measured_received_bytes_per_sec = ?4, measured_tested_bytes_per_sec = ?5,
                       measured_loss_permille = ?6, measured_address = ?7, measured_unix_secs = ?8,
                       not_measured = NULL WHERE id = ?1";
            let Carried { rate, sent, received, tested, loss_permille } = *carried;
            let [rate, sent, received, tested] =
                [rate, sent, received, tested].map(|rate| Number(rate.get()));
            let now = Number(now_unix_secs);
            let values = params![id, rate, sent, received, tested, loss_permille, address, now];
            writing.execute(sql, values).map(drop)
        })
    }
}

impl Reader {
    /// All measurers that were ever stored, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn measurers(&self) -> Result<Vec<MeasurerRow>, StoreError> {
        let sql = "SELECT id, identity, name, stated_bytes_per_sec, disputes, not_measured,
                   measured_bytes_per_sec, measured_sent_bytes_per_sec, measured_received_bytes_per_sec,
                   measured_tested_bytes_per_sec, measured_loss_permille, measured_address, measured_unix_secs
                   FROM measurers ORDER BY name, identity";
        self.all("measurers", sql, [], |columns| {
            let _id: i64 = columns.take()?;
            let (identity, name, stated) = (columns.take()?, columns.take()?, columns.maybe()?);
            let (disputes, not_measured) = (columns.of()?, columns.take()?);
            Ok(MeasurerRow {
                identity,
                name,
                stated,
                measured: measured(columns)?,
                not_measured,
                disputes,
            })
        })
    }
}

/// Reads a measured capacity; `None` if a part of it is missing.
fn measured(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Option<Measured>> {
    let (rate, sent) = (columns.maybe()?, columns.maybe()?);
    let (received, tested) = (columns.maybe()?, columns.maybe()?);
    let (loss_permille, address) = (columns.maybe()?, columns.take::<Option<String>>()?);
    let unix_secs = columns.maybe()?;
    let all = || {
        let (rate, sent, received, tested) = (rate?, sent?, received?, tested?);
        let carried = Carried { rate, sent, received, tested, loss_permille: loss_permille? };
        Some(Measured { carried, address: address?, unix_secs: unix_secs? })
    };
    Ok(all())
}

/// The row of a measurer, which is added if it is missing.
pub(super) fn measurer(writing: &Writing<'_>, identity: &[u8; 32]) -> Result<i64, StoreError> {
    let sql = "SELECT id FROM measurers WHERE identity = ?1";
    if let Some(id) = writing.find(sql, [identity], |row| row.get(0))? {
        return Ok(id);
    }
    writing.execute("INSERT INTO measurers (identity, name) VALUES (?1, '')", [identity])?;
    Ok(writing.db.last_insert_rowid())
}

/// A rate in its stored form.
pub(super) fn number(rate: Option<BytesPerSec>) -> Option<Number> {
    rate.map(|rate| Number(rate.get()))
}
