//! Makes, opens and migrates stores.
//!
//! Decisions: doc/decisions.md, "A new store is made under another name".

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::error::{self, StoreError};
use super::lock::with_suffix;

/// "FFbw": distinguishes FlashFlow's stores from other databases, also for `file`.
const APPLICATION_ID: i64 = 0x4646_6277;
/// The SQL that converts each version to the next, from version 0, which is empty.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/001.sql"),
    include_str!("schema/002.sql"),
    include_str!("schema/003.sql"),
    include_str!("schema/004.sql"),
    include_str!("schema/005.sql"),
    include_str!("schema/006.sql"),
    include_str!("schema/007.sql"),
    include_str!("schema/008.sql"),
];
/// How long opening and reading wait for another connection's lock: a reader's, or that of
/// `sqlite3`.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of SQLite's page cache, in KiB: the system caches the rest.
const CACHE_KIB: i64 = 4096;
/// The size to which the log is truncated after it has been written back, in bytes.
const LOG_LIMIT_BYTES: i64 = 16 << 20;

/// Bytes of a path that a URI does not have as they are: all but `/` and the unreserved characters
/// (RFC 3986, section 2.3).
const IN_URI: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The version that this program writes.
pub(super) fn version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Opens the store at `path`, to which no other process writes, or makes it.
pub(super) fn writable(path: &Path, coordinator: &[u8; 32]) -> Result<Connection, StoreError> {
    if !exists(path)? {
        make(path, coordinator)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = connect(path, flags)?;
    let found = check_version(&db, path)?;
    check_pages(&db, path)?;
    // Before the store is changed: the program of another coordinator may be older.
    check_owner(&db, path, coordinator)?;
    let fail = error::sqlite(path, "be opened");
    db.pragma_update(None, "journal_mode", "WAL").map_err(&fail)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(&fail)?;
    db.pragma_update(None, "journal_size_limit", LOG_LIMIT_BYTES).map_err(&fail)?;
    migrate(&mut db, path, found)?;
    Ok(db)
}

/// Opens the store at `path` for reading, while a coordinator may write to it.
pub(super) fn read_only(path: &Path) -> Result<Connection, StoreError> {
    if !exists(path)? {
        return Err(StoreError::Missing(path.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = |db: Connection| Ok::<_, StoreError>((check_version(&db, path)?, db));
    let opened = match connect(path, flags).and_then(checked) {
        Err(StoreError::Unwritable { .. }) if is_on_read_only_disk(path) => {
            immutable(path, flags).and_then(checked)
        }
        opened => opened,
    };
    let (found, db) = opened.map_err(|error| match error {
        StoreError::Unwritable { path, .. } => StoreError::Unreadable(path),
        other => other,
    })?;
    let known = version();
    if found < known {
        return Err(StoreError::Older { path: path.to_owned(), found, known });
    }
    Ok(db)
}

/// Whether the store exists. A store is made atomically, so an empty file is the remainder of a
/// lost store, and so is a log without its store, which SQLite would delete.
fn exists(path: &Path) -> Result<bool, StoreError> {
    let corrupt = |detail: &str| {
        Err(StoreError::Corrupt { path: path.to_owned(), detail: detail.to_owned() })
    };
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(StoreError::NotAStore(path.to_owned())),
        Ok(found) if found.len() == 0 => corrupt("the file is empty"),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let log = with_suffix(path, "-wal");
            if log.exists() { corrupt("only its log is there") } else { Ok(false) }
        }
        Err(error) => Err(error::io("be opened", path)(error)),
    }
}

/// Whether the disk of a file is mounted read-only.
fn is_on_read_only_disk(path: &Path) -> bool {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let made = tempfile::tempfile_in(dir.unwrap_or(Path::new(".")));
    made.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

/// A connection to a store that cannot change. It needs no other files in the directory.
fn immutable(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let log = fs::metadata(with_suffix(path, "-wal"));
    if log.is_ok_and(|log| log.len() > 0) {
        return Err(StoreError::LogOnReadOnlyDisk { path: path.to_owned() });
    }
    let whole = fs::canonicalize(path).map_err(error::io("be opened", path))?;
    let name = percent_encode(whole.as_os_str().as_bytes(), IN_URI);
    let uri = format!("file:{name}?immutable=1");
    connect_at(path, Path::new(&uri), flags | OpenFlags::SQLITE_OPEN_URI)
}

/// A connection with the settings that all need.
fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    connect_at(path, path, flags)
}

/// A connection to the store at `path`, opened by the name that SQLite needs.
fn connect_at(path: &Path, name: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let fail = error::sqlite(path, "be opened");
    let db = Connection::open_with_flags(name, flags).map_err(&fail)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(&fail)?;
    db.pragma_update(None, "foreign_keys", true).map_err(&fail)?;
    db.pragma_update(None, "cache_size", -CACHE_KIB).map_err(&fail)?;
    // A damaged or foreign file may have a malicious schema.
    db.pragma_update(None, "trusted_schema", false).map_err(&fail)?;
    Ok(db)
}

/// Makes the store under another name, and renames it when it is complete.
fn make(path: &Path, coordinator: &[u8; 32]) -> Result<(), StoreError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir: PathBuf = dir.unwrap_or(Path::new(".")).to_owned();
    let fail_io = || error::io("be created", path);
    let mut name = tempfile::Builder::new();
    let made = name.prefix(".ff-").suffix(".tmp").tempfile_in(&dir).map_err(fail_io())?;
    let made = made.into_temp_path();
    let fail = error::sqlite(path, "be created");
    let mut db = connect(&made, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // For returning space after retention; must be set before anything is written.
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(&fail)?;
    db.pragma_update(None, "application_id", APPLICATION_ID).map_err(&fail)?;
    migrate(&mut db, path, 0)?;
    db.execute("INSERT INTO meta (id, coordinator) VALUES (1, ?1)", [coordinator.as_slice()])
        .map_err(&fail)?;
    db.close().map_err(|(_, error)| fail(error))?;
    made.persist_noclobber(path).map_err(|error| fail_io()(error.error))?;
    fs::File::open(&dir).and_then(|dir| dir.sync_all()).map_err(fail_io())
}

/// The version of a store, if this program knows it.
fn check_version(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    let fail = error::sqlite(path, "be opened");
    let pragma =
        |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(&fail);
    if pragma("application_id")? != APPLICATION_ID {
        return Err(StoreError::NotAStore(path.to_owned()));
    }
    let (found, known) = (pragma("user_version")?, version());
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    Ok(found)
}

/// Reads every page once, so that damage is found first.
pub(super) fn check_pages(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let fail = error::sqlite(path, "be checked");
    let found: String =
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fail)?;
    if found == "ok" {
        return Ok(());
    }
    let detail = found.lines().next_back().unwrap_or_default().to_owned();
    Err(StoreError::Corrupt { path: path.to_owned(), detail })
}

/// Migrates a store, each version in its own transaction.
fn migrate(db: &mut Connection, path: &Path, found: i64) -> Result<(), StoreError> {
    let fail = error::sqlite(path, "be brought up to date");
    let done = usize::try_from(found).unwrap_or(0);
    for (migration, version) in MIGRATIONS.iter().zip(1_i64..).skip(done) {
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&fail)?;
        step.execute_batch(migration).map_err(&fail)?;
        step.pragma_update(None, "user_version", version).map_err(&fail)?;
        step.commit().map_err(&fail)?;
    }
    Ok(())
}

/// Fails unless the store belongs to this coordinator.
pub(super) fn check_owner(
    db: &Connection,
    path: &Path,
    coordinator: &[u8; 32],
) -> Result<(), StoreError> {
    let owner = db
        .query_row("SELECT coordinator FROM meta", [], |row| row.get::<_, [u8; 32]>(0))
        .optional()
        .map_err(error::sqlite(path, "be read"))?;
    match owner {
        Some(owner) if owner == *coordinator => Ok(()),
        Some(owner) => Err(StoreError::OtherCoordinator {
            path: path.to_owned(),
            found: hex::encode(owner),
            expected: hex::encode(coordinator),
        }),
        None => Err(StoreError::Corrupt {
            path: path.to_owned(),
            detail: "no coordinator owns it".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_nobody_can_change_is_read_without_files_beside_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("odd ?#%\u{e9}.sqlite");
        drop(writable(&path, &[7; 32]).expect("a store"));
        let db = immutable(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opened");
        assert_eq!(check_version(&db, &path).expect("a store"), version());
        let names = fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(names, 1, "neither a log nor an index of one");
        fs::write(with_suffix(&path, "-wal"), "x").expect("written");
        let error = immutable(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect_err("a log");
        assert!(error.to_string().contains("copy both"), "{error}");
        assert!(!is_on_read_only_disk(&path));
    }

    /// A coordinator.
    const COORDINATOR: [u8; 32] = [7; 32];

    /// A store of an older version, with one period, one row of its plan and one attempt.
    fn older(path: &Path, version: usize) {
        let db = Connection::open(path).expect("a database");
        db.pragma_update(None, "application_id", APPLICATION_ID).expect("named");
        for migration in &MIGRATIONS[..version] {
            db.execute_batch(migration).expect("a version");
        }
        db.pragma_update(None, "user_version", i64::try_from(version).expect("small"))
            .expect("numbered");
        db.execute_batch(&format!(
            "INSERT INTO meta (id, coordinator) VALUES (1, x'{}');
             INSERT INTO periods VALUES (1, 86400, 86400, 45, 1920, 86400, zeroblob(32), 86400, NULL);
             INSERT INTO plan (period, slot, fingerprint, kind, group_number, demand_bytes_per_sec)
             VALUES (1, 3, zeroblob(20), 'new', 5, 1);
             INSERT INTO targets (fingerprint, ed_identity, address)
             VALUES (zeroblob(20), zeroblob(32), '192.0.2.1:9001');
             INSERT INTO attempts (target, plan, started_unix_secs, grant_used, method, asked_secs, ratio_percent)
             VALUES (1, 1, 90000, 1, 'echo', 30, 25);",
            hex::encode(COORDINATOR)
        ))
        .expect("rows");
    }

    /// The whole schema of a database, with the words that SQLite keeps unchanged.
    fn schema(db: &Connection) -> Vec<String> {
        let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = db.prepare(sql).expect("a statement");
        let texts = statement.query_map([], |row| row.get(0)).expect("rows");
        texts.map(|text| text.expect("a text")).collect()
    }

    /// A value of the first row.
    fn value<T: rusqlite::types::FromSql>(db: &Connection, sql: &str) -> T {
        db.query_row(sql, [], |row| row.get(0)).expect("a value")
    }

    #[test]
    fn a_store_of_each_older_version_becomes_as_a_new_one_and_keeps_its_rows() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = writable(&dir.path().join("new"), &COORDINATOR).expect("a store");
        for version in 1..MIGRATIONS.len() {
            let path = dir.path().join(version.to_string());
            older(&path, version);
            let error = read_only(&path).map(drop).expect_err("a reader changes nothing");
            assert!(matches!(error, StoreError::Older { .. }), "{version}: {error}");
            let db = writable(&path, &COORDINATOR).expect("brought up to date");
            assert_eq!(schema(&db), schema(&new), "{version}");
            assert_eq!(check_version(&db, &path).expect("a store"), super::version());
            assert_eq!(value::<i64>(&db, "SELECT at_arrival FROM plan"), 0);
            assert_eq!(value::<Option<String>>(&db, "SELECT refused FROM plan"), None);
            let estimator: String = value(&db, "SELECT estimator FROM attempts WHERE plan = 1");
            assert_eq!(estimator, "bounded_median");
            assert_eq!(value::<i64>(&db, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
        }
    }

    #[test]
    fn a_migration_that_does_not_end_changes_nothing_and_is_done_the_next_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        older(&path, 6);
        // The last statements of a version fail after earlier ones.
        let db = Connection::open(&path).expect("a database");
        db.execute_batch("CREATE INDEX plan_not_again ON plan (slot)").expect("an index");
        let before = schema(&db);
        writable(&path, &COORDINATOR).map(drop).expect_err("the index is there already");
        assert_eq!((schema(&db), value::<i64>(&db, "PRAGMA user_version")), (before, 6));
        db.execute_batch("DROP INDEX plan_not_again").expect("dropped");
        drop(db);
        let db = writable(&path, &COORDINATOR).expect("brought up to date");
        assert_eq!(check_version(&db, &path).expect("a store"), version());
    }

    #[test]
    fn an_older_store_of_another_coordinator_stays_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        older(&path, 6);
        let before = fs::read(&path).expect("a file");
        let error = writable(&path, &[8; 32]).map(drop).expect_err("another coordinator's");
        assert!(matches!(error, StoreError::OtherCoordinator { .. }), "{error}");
        assert_eq!(fs::read(&path).expect("a file"), before);
    }
}
