#![doc = include_str!("../README.md")]

mod aside;
mod attempt;
mod attempts;
mod columns;
mod copy;
mod disputes;
mod error;
mod events;
mod export;
mod grant;
mod id;
mod in_columns;
mod lock;
mod open;
mod paths;
mod plan;
mod publication;
mod query;
mod retain;
mod row;
mod seconds;
mod slots;
mod table;
mod team;
mod value;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

pub use self::attempt::{Attempt, Begin, RunningAttempt, Seconds, Share};
pub use self::disputes::DisputeRow;
pub use self::error::StoreError;
pub use self::export::{ExportError, Format, What};
pub use self::id::{AttemptId, PlanId};
pub use self::plan::{GONE, Kind, Period, Planned, State, ToPlan};
pub use self::publication::Memory;
pub use self::query::{Coverage, Estimate, FailureCount, Known};
pub use self::retain::{Deleted, Retention};
pub use self::slots::SlotCount;
pub use self::team::{Measured, MeasurerRow};

use self::lock::Lock;

/// How long a write waits for another program's lock, during which the coordinator is blocked.
const PATIENCE: Duration = Duration::from_secs(1);

/// A store opened for reading, also while a coordinator writes to it.
#[derive(Debug)]
pub struct Reader {
    /// The database.
    db: Connection,
    /// The store's file, for errors.
    path: PathBuf,
}

/// A store that only this process writes to. It has all methods of a [`Reader`].
#[derive(Debug)]
pub struct Store {
    /// The database. It is declared before the lock because it must be closed first.
    reader: Reader,
    /// A copy of the times at which relays were asked.
    copy: copy::GrantCopy,
    /// Whether the last write found the database locked; then the next one does not wait.
    is_locked: bool,
    /// Locks out other coordinators.
    _lock: Lock,
}

impl Deref for Store {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl Store {
    /// Opens the store of this coordinator, or makes it; reads all of it once to find damage.
    ///
    /// Attempts that the last process has not finished remain begun, until
    /// [`Store::close_interrupted`].
    ///
    /// # Errors
    /// [`StoreError`], with advice.
    pub fn open(path: &Path, coordinator: [u8; 32]) -> Result<Self, StoreError> {
        let lock = Lock::take(path)?;
        let mut db = open::writable(path, &coordinator)?;
        let copy = copy::GrantCopy::open(&mut db, path)?;
        let reader = Reader { db, path: path.to_owned() };
        Ok(Self { reader, copy, is_locked: false, _lock: lock })
    }

    /// Opens a store for reading, also while a coordinator writes to it.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Missing`] if it does not exist, because it is not made.
    pub fn open_read_only(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader { db: open::read_only(path)?, path: path.to_owned() })
    }

    /// The damage of a store; `None` if it is undamaged or of an older version.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be tested: it does not exist, or another version wrote it.
    pub fn damage(path: &Path) -> Result<Option<StoreError>, StoreError> {
        let opened = Self::open_read_only(path).and_then(|reader| {
            open::check_pages(&reader.db, path)?;
            reader.running().map(drop)
        });
        match opened {
            Ok(()) | Err(StoreError::Older { .. }) => Ok(None),
            Err(damage @ (StoreError::Corrupt { .. } | StoreError::BadRow { .. })) => {
                Ok(Some(damage))
            }
            Err(error) => Err(error),
        }
    }

    /// Checks, without changing it, that this coordinator can use the store at `path`. A missing
    /// store is accepted, because it will be made, and so is one of an older version, because it
    /// will be migrated.
    ///
    /// # Errors
    /// [`StoreError`], with advice.
    pub fn check(path: &Path, coordinator: &[u8; 32]) -> Result<(), StoreError> {
        let reader = match Self::open_read_only(path) {
            Err(StoreError::Missing(_) | StoreError::Older { .. }) => return Ok(()),
            opened => opened?,
        };
        open::check_pages(&reader.db, path)?;
        reader.running()?;
        open::check_owner(&reader.db, path, coordinator)
    }

    /// Renames the store at `path`, damaged or not, and its other files to
    /// `….corrupt-2026-11-20-09-30-00`, and returns the new name. Nothing is overwritten.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while a coordinator runs, [`StoreError::Missing`] if it does not
    /// exist.
    pub fn move_aside(path: &Path, now_unix_secs: u64) -> Result<PathBuf, StoreError> {
        aside::move_aside(path, now_unix_secs)
    }

    /// Tests whether the store can be written to, by writing a value that it already has.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written to.
    pub fn try_to_write(&mut self) -> Result<(), StoreError> {
        self.write("be written to", |writing| {
            writing.execute("UPDATE meta SET coordinator = coordinator", []).map(drop)
        })
    }

    /// Begins changes that belong together: they reach the disk when
    /// [`end_together`](Self::end_together) ends them. Thousands of changes one by one would each
    /// wait for the disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn begin_together(&mut self) -> Result<(), StoreError> {
        let Reader { db, path } = &self.reader;
        db.execute_batch("BEGIN IMMEDIATE").map_err(error::sqlite(path, "begin changes"))
    }

    /// Ends changes that belong together: keeps all of them, or none if `result` is an error.
    ///
    /// # Errors
    /// That error, or [`StoreError`] if they cannot be kept; then none is.
    pub fn end_together<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let Reader { db, path } = &self.reader;
        let ended = result.and_then(|value| {
            db.execute_batch("COMMIT").map_err(error::sqlite(path, "end changes"))?;
            Ok(value)
        });
        // An error may have ended the transaction already.
        if ended.is_err() && !db.is_autocommit() {
            db.execute_batch("ROLLBACK").map_err(error::sqlite(path, "take back changes"))?;
        }
        ended
    }

    /// Writes all changes of `work` or none. They are on the disk when this returns, or with the
    /// other changes to which they belong.
    fn write<T>(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&Writing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Reader { db, path } = &mut self.reader;
        let fail = error::sqlite(path, action);
        if !db.is_autocommit() {
            let part = db.savepoint().map_err(&fail)?;
            let value = work(&Writing { db: &part, path, action })?;
            part.commit().map_err(&fail)?;
            return Ok(value);
        }
        let patience = if self.is_locked { Duration::ZERO } else { PATIENCE };
        db.busy_timeout(patience).map_err(&fail)?;
        let begun = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&fail);
        self.is_locked = matches!(begun, Err(StoreError::Locked { .. }));
        let transaction = begun?;
        let value = work(&Writing { db: &transaction, path, action })?;
        transaction.commit().map_err(&fail)?;
        Ok(value)
    }
}

/// A transaction with its action.
struct Writing<'a> {
    /// The connection, in the transaction.
    db: &'a Connection,
    /// The store, for errors.
    path: &'a Path,
    /// The current action, for errors.
    action: &'static str,
}

impl Writing<'_> {
    /// Converts errors of SQLite.
    fn fail(&self) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        error::sqlite(self.path, self.action)
    }

    /// Executes a statement and returns the number of changed rows.
    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let mut statement = self.db.prepare_cached(sql).map_err(self.fail())?;
        statement.execute(params).map_err(self.fail())
    }

    /// The first row of a query.
    fn find<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut statement = self.db.prepare_cached(sql).map_err(self.fail())?;
        let mut rows = statement.query(params).map_err(self.fail())?;
        let row = rows.next().map_err(self.fail())?;
        row.map(read).transpose().map_err(self.fail())
    }
}
