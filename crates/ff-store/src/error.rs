//! The errors of a store, each with advice.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::id::{AttemptId, PlanId};

/// Why a store cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store's file does not exist.
    #[error("there is no store {}: give the path of one, or start the coordinator, which creates it", .0.display())]
    Missing(PathBuf),
    /// Another process has it open for writing.
    #[error(
        "{} is in use by process {}: only one coordinator may write to a store",
        path.display(), pid.map_or("(unknown)".to_owned(), |pid| pid.to_string())
    )]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process id in the lock file, if any.
        pid: Option<u32>,
    },
    /// The store belongs to another coordinator.
    #[error(
        "{} belongs to the coordinator {found}, and this one is {expected}: give each coordinator a store of \
         its own, or this one the other's key", path.display()
    )]
    OtherCoordinator {
        /// The store.
        path: PathBuf,
        /// The owner's identity, in hexadecimal.
        found: String,
        /// This coordinator's identity, in hexadecimal.
        expected: String,
    },
    /// A newer program has written it.
    #[error(
        "{} has version {found}, and this program reads up to {known}: install the version of FlashFlow that \
         wrote it, or a newer one", path.display()
    )]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The store has an older version; a coordinator must migrate it first.
    #[error(
        "{} has version {found}, and this program reads version {known}: start the coordinator once, which converts it",
        path.display()
    )]
    Older {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// The file is a database of other software.
    #[error("{} is a database, but not a store of FlashFlow: give another path", .0.display())]
    NotAStore(PathBuf),
    /// The store is damaged.
    #[error(
        "{path} is damaged ({detail}): move it aside with {path}-wal and {path}-shm and put a copy in its place, \
         or start with --new-store, which keeps the damaged files under another name",
        path = path.display()
    )]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// SQLite's description of the damage.
        detail: String,
    },
    /// The disk is full.
    #[error("the disk is full: {} cannot {action}; free some space (stored records are safe)", path.display())]
    Full {
        /// The store.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
    },
    /// The store or its directory is not writable.
    #[error(
        "{} cannot {action}: the coordinator's user must own it and be allowed to write to its directory",
        path.display()
    )]
    Unwritable {
        /// The store.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
    },
    /// Another program holds the lock.
    #[error(
        "{path} cannot {action}: another program keeps it locked, such as sqlite3 in a transaction: find it with \
         `fuser {path}` and end it", path = path.display()
    )]
    Locked {
        /// The store.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
    },
    /// The store is on a read-only disk, with a log that must be written back first.
    #[error(
        "{path} is on a read-only disk, and its last changes are in {path}-wal: copy both to a writable disk and give the \
         path of the copy", path = path.display()
    )]
    LogOnReadOnlyDisk {
        /// The store.
        path: PathBuf,
    },
    /// This user may not read it.
    #[error(
        "{} cannot be read by this user: run as the coordinator's user; while no coordinator runs, a reader must be \
         allowed to write to the store's directory", .0.display()
    )]
    Unreadable(PathBuf),
    /// A file next to the store cannot be read or written.
    #[error("{} cannot {action}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// SQLite failed otherwise.
    #[error("{} cannot {action}", path.display())]
    Sqlite {
        /// The store.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A row has a value that this version does not know.
    #[error(
        "{}: row {row} of {table} has {what}: a newer version may have written it", path.display()
    )]
    BadRow {
        /// The store.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// The row's number.
        row: i64,
        /// A description of the problem.
        what: String,
    },
    /// The period is planned already, and its plan is kept.
    #[error("period {0} already has a plan, which stays in force")]
    AlreadyPlanned(u64),
    /// The period does not exist.
    #[error("there is no period {0} in the store")]
    NoSuchPeriod(u64),
    /// The row of the plan does not exist, belongs to another relay, or is left out.
    #[error("row {} of the plan cannot be carried out: {what}", plan.0)]
    NotPlanned {
        /// The row.
        plan: PlanId,
        /// The reason.
        what: &'static str,
    },
    /// The attempt does not exist, has not begun, or has finished.
    #[error("attempt {} does not exist or is already finished: the store is unchanged", .0.0)]
    NotBegun(AttemptId),
}

/// The error for an error of SQLite during an action on the store at `path`.
pub(super) fn sqlite(
    path: &Path,
    action: &'static str,
) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| {
        let path = path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Corrupt { path, detail: source.to_string() }
            }
            Some(ErrorCode::DiskFull) => StoreError::Full { path, action },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Locked { path, action }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::Unwritable { path, action }
            }
            _ => StoreError::Sqlite { path, action, source },
        }
    }
}

/// The error for an error of the system during an action on a file.
pub(super) fn io(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full { path, action }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::Unwritable { path, action }
        }
        _ => StoreError::Io { action, path, source },
    }
}
