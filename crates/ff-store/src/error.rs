//! What can go wrong with a store, each with what to do.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::{AttemptId, PlanId};

/// A store that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no file.
    #[error("there is no store {}: give the path of one, or start the coordinator that makes it", .0.display())]
    Missing(PathBuf),
    /// Another process writes to it.
    #[error(
        "{} is in use by process {}: only one coordinator may write to a store",
        path.display(), pid.map_or("(unknown)".to_owned(), |pid| pid.to_string())
    )]
    InUse {
        /// The store.
        path: PathBuf,
        /// Who, as far as its lock file says.
        pid: Option<u32>,
    },
    /// It is another coordinator's.
    #[error(
        "{} belongs to the coordinator {found}, and this one is {expected}: give each coordinator a store of \
         its own, or this one the other's key", path.display()
    )]
    OtherCoordinator {
        /// The store.
        path: PathBuf,
        /// Whose it is, in hexadecimal.
        found: String,
        /// Who wants it, in hexadecimal.
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
        /// The newest that is known here.
        known: i64,
    },
    /// It has to be brought up to date first, by whoever writes to it.
    #[error(
        "{} has version {found} and wants {known}: start the coordinator once, which brings it up to date",
        path.display()
    )]
    Older {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The one that is read here.
        known: i64,
    },
    /// It is a database of something else.
    #[error("{} is a database, but not a store of FlashFlow: give another path", .0.display())]
    NotAStore(PathBuf),
    /// It is damaged.
    #[error(
        "{path} is damaged ({detail}): move it aside with {path}-wal and {path}-shm and put a copy in its place, \
         or start with --new-store, which keeps the damaged files under another name",
        path = path.display()
    )]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// What is wrong, in SQLite's words.
        detail: String,
    },
    /// There is no room for more.
    #[error("the disk is full: {} cannot {action}; make room, nothing is lost that was stored", path.display())]
    Full {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
    },
    /// It or its directory may not be written to.
    #[error(
        "{} cannot {action}: the coordinator's user must own it and be allowed to write to its directory",
        path.display()
    )]
    Unwritable {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
    },
    /// Another program holds its lock.
    #[error(
        "{path} cannot {action}: another program keeps it locked, as sqlite3 does in a transaction; `fuser {path}` \
         shows which: end it", path = path.display()
    )]
    Locked {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
    },
    /// It is on a read-only disk, with a log that must be written back first.
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
        "{} cannot be read by this user: run as the coordinator's user, because as long as no coordinator runs \
         a reader must be allowed to write to the store's directory", .0.display()
    )]
    Unreadable(PathBuf),
    /// A file beside it cannot be had.
    #[error("{} cannot {action}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite failed otherwise.
    #[error("{} cannot {action}", path.display())]
    Sqlite {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A row has something in it that this version does not know.
    #[error(
        "{}: row {row} of {table} has {what}: a newer version may have written it", path.display()
    )]
    BadRow {
        /// The store.
        path: PathBuf,
        /// Which table.
        table: &'static str,
        /// Which row.
        row: i64,
        /// What is wrong.
        what: String,
    },
    /// The period is planned already, and its plan stands.
    #[error("period {0} already has a plan, which stays in force")]
    AlreadyPlanned(u64),
    /// There is no such period.
    #[error("there is no period {0} in the store")]
    NoSuchPeriod(u64),
    /// There is no such row of the plan, or it is of another relay, or left out.
    #[error("row {} of the plan cannot be carried out: {what}", plan.0)]
    NotPlanned {
        /// Which.
        plan: PlanId,
        /// Why.
        what: &'static str,
    },
    /// There is no such attempt that is begun and not finished.
    #[error("attempt {} does not exist or is already finished: the store is unchanged", .0.0)]
    NotBegun(AttemptId),
}

/// Makes an error of what SQLite said when something was tried with the store at `path`.
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

/// Makes an error of what the system said when something was tried with a file.
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
