//! A copy of the times at which relays were asked, in a file next to the store: a new store that
//! replaces a damaged one still knows which relays it must not ask again.
//!
//! `store.sqlite.grants` has a line `FINGERPRINT UNIX_SECS` for each attempt, written at its
//! beginning. It is not synced, and invalid lines are ignored: it is only a copy, and relays also
//! refuse a coordinator that asks too often. It is written anew, without lines older than two days,
//! when a store is opened and each time many lines have been added; of a long file the last 64 MiB
//! are read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use ff_base::files::{Readers, write_atomically};
use ff_base::identity::{Fingerprint, fingerprint_hex};
use ff_base::utc::now_unix_secs;
use rusqlite::{Connection, params};

use super::error::{self, StoreError};
use super::lock::with_suffix;
use super::value::Number;

/// The time for which grants are needed, in seconds: the longest period, and the time until a grant
/// is given.
const KEPT_SECS: u64 = 2 * 24 * 60 * 60;
/// The largest number of bytes that are read, from the end: two days of ten thousand relays take a
/// hundredth of it.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The number of lines after which it is written anew: about a megabyte.
const MAX_ADDED: u64 = 20_000;

/// The copy for a store that is open for writing.
#[derive(Debug)]
pub(super) struct GrantCopy {
    path: PathBuf,
    /// The file; `None` after an error, until it can be written to again.
    file: Option<File>,
    /// The number of lines that were added since it was written anew.
    added: u64,
    /// Whether the last write failed.
    has_failed: bool,
}

impl GrantCopy {
    /// Opens the copy for the store at `path`. A store without attempts gets the copy's content.
    pub(super) fn open(db: &mut Connection, store: &Path) -> Result<Self, StoreError> {
        let path = with_suffix(store, ".grants");
        let fail = error::sqlite(store, "be opened");
        let is_new: bool = db
            .query_row("SELECT NOT EXISTS (SELECT 1 FROM attempts)", [], |row| row.get(0))
            .map_err(&fail)?;
        if is_new {
            take_over(db, &read(&path)).map_err(&fail)?;
        }
        let mut copy = Self { path, file: None, added: 0, has_failed: false };
        copy.write_anew(db, now_unix_secs()).map_err(fail)?;
        Ok(copy)
    }

    /// Removes old lines if many have been added.
    pub(super) fn shorten(&mut self, db: &Connection, now: u64) -> rusqlite::Result<()> {
        if self.added < MAX_ADDED { Ok(()) } else { self.write_anew(db, now) }
    }

    /// Writes the lines that are still needed.
    fn write_anew(&mut self, db: &Connection, now: u64) -> rusqlite::Result<()> {
        let since = needed_since(db, now)?;
        let text = forget_old(db, since).and_then(|()| text(db, since))?;
        let written = write_atomically(&self.path, text.as_bytes(), Readers::Owner);
        let opened = written.map_err(io::Error::other).and_then(|()| append_to(&self.path));
        self.added = 0;
        self.file = self.told(opened);
        Ok(())
    }

    /// Adds a relay that will be asked.
    pub(super) fn add(&mut self, relay: &Fingerprint, unix_secs: u64) {
        self.added += 1;
        let opened = self.file.take().map_or_else(|| append_to(&self.path), Ok);
        let written = opened.and_then(|mut file| {
            writeln!(file, "{} {unix_secs}", hex::encode_upper(relay))?;
            Ok(file)
        });
        self.file = self.told(written);
    }

    /// The result of an operation on the file; logs the first of consecutive errors.
    fn told<T>(&mut self, done: io::Result<T>) -> Option<T> {
        if let Err(error) = &done
            && !self.has_failed
        {
            let path = self.path.display();
            tracing::warn!("cannot write {path}, the copy of when relays were asked: {error}");
        }
        self.has_failed = done.is_err();
        done.ok()
    }
}

/// Opens a file for appending.
fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// The valid lines of a copy.
fn read(path: &Path) -> Vec<(Fingerprint, u64)> {
    let mut bytes = Vec::new();
    // Opening a named pipe would block.
    if !path.is_file() {
        return Vec::new();
    }
    let end = File::open(path).and_then(|mut file| {
        let start = file.metadata()?.len().saturating_sub(MAX_FILE_BYTES);
        file.seek(SeekFrom::Start(start))?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)
    });
    if end.is_err() {
        return Vec::new();
    }
    let line = |line: &str| {
        let (relay, unix_secs) = line.split_once(' ')?;
        Some((fingerprint_hex(relay)?, unix_secs.parse().ok()?))
    };
    // A wrong clock must not keep a relay from being asked.
    let now = now_unix_secs();
    let lines = String::from_utf8_lossy(&bytes);
    lines.lines().filter_map(line).filter(|(_, unix_secs)| *unix_secs <= now).collect()
}

/// Stores the content of a copy.
fn take_over(db: &mut Connection, grants: &[(Fingerprint, u64)]) -> rusqlite::Result<()> {
    let writing = db.transaction()?;
    writing.execute("DELETE FROM copied_grants", [])?;
    for (relay, unix_secs) in grants {
        let sql = "INSERT INTO copied_grants (fingerprint, unix_secs) VALUES (?1, ?2)";
        writing.prepare_cached(sql)?.execute(params![relay, Number(*unix_secs)])?;
    }
    writing.commit()
}

/// Older lines are not needed, in seconds since 1970. A clock that is ahead for a moment must not
/// make all of them old.
fn needed_since(db: &Connection, now: u64) -> rusqlite::Result<Number> {
    let sql = "SELECT max(started_unix_secs) FROM attempts";
    let newest: Option<Number> = db.query_row(sql, [], |row| row.get(0))?;
    let newest = newest.map_or(now, |newest| newest.0.min(now));
    Ok(Number(newest.saturating_sub(KEPT_SECS)))
}

/// Deletes lines that are too old to be needed.
fn forget_old(db: &Connection, since: Number) -> rusqlite::Result<()> {
    db.execute("DELETE FROM copied_grants WHERE unix_secs < ?1", [since]).map(drop)
}

/// The copy of a store's content.
fn text(db: &Connection, since: Number) -> rusqlite::Result<String> {
    let sql =
        "SELECT fingerprint, started_unix_secs FROM attempts JOIN targets ON targets.id = target
               WHERE grant_used = 1 AND started_unix_secs >= ?1
               UNION ALL SELECT fingerprint, unix_secs FROM copied_grants";
    let mut statement = db.prepare(sql)?;
    let grants = statement.query_map([since], |row| {
        let (relay, unix_secs): (Fingerprint, Number) = (row.get(0)?, row.get(1)?);
        Ok(format!("{} {}\n", hex::encode_upper(relay), unix_secs.0))
    })?;
    grants.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Retention, Store};

    #[test]
    fn a_new_store_knows_whom_the_one_before_it_asked() {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, copy) = (dir.path().join("store"), dir.path().join("store.grants"));
        let now = now_unix_secs();
        let hex = |relay: u8| hex::encode_upper([relay; 20]);
        let lines = [
            format!("{} {}", hex(1), now - 3600),
            format!("{} {}", hex(2), now - 3 * 24 * 3600),
            format!("{} {}", hex(3), now + 3600),
            format!("{} x", hex(4)),
            "\u{fffd} nothing".to_owned(),
            format!("{} {}", hex(1), now - 60),
        ];
        std::fs::write(&copy, lines.join("\n")).expect("written");
        let opened = Store::open(&store, [7; 32]).expect("a store");
        let asked = |store: &Store, relay: u8| {
            store.grants_used(&[relay; 20], now - 5 * 24 * 3600, u64::MAX).expect("read")
        };
        assert_eq!(asked(&opened, 1), [now - 3600, now - 60]);
        assert!([2, 3, 4].iter().all(|&relay| asked(&opened, relay).is_empty()));
        drop(opened);
        // The file has the lines that are needed, and so has the store when it is opened again.
        let text = std::fs::read_to_string(&copy).expect("a copy");
        assert_eq!(text, format!("{}\n{}\n", lines[0], lines[5]));
        assert_eq!(asked(&Store::open(&store, [7; 32]).expect("a store"), 1).len(), 2);
    }

    #[test]
    fn a_store_that_stays_open_for_long_forgets_what_is_old() {
        let dir = tempfile::tempdir().expect("a directory");
        let copy = dir.path().join("store.grants");
        let mut store = Store::open(&dir.path().join("store"), [7; 32]).expect("a store");
        let now = now_unix_secs();
        let keep = Retention { samples_days: 1, results_days: 1 };
        let lines = |store: &mut Store, count: u64| {
            (0..count).for_each(|_| store.copy.add(&[1; 20], now - KEPT_SECS - 1));
            while store.retain_some(now, &keep).expect("it deletes").is_some() {}
            std::fs::read_to_string(&copy).expect("a copy").lines().count() as u64
        };
        assert_eq!(lines(&mut store, MAX_ADDED - 1), MAX_ADDED - 1);
        assert_eq!(lines(&mut store, 1), 0);
        assert_eq!(lines(&mut store, 1), 1, "it is still written to");
    }

    #[test]
    fn of_a_long_copy_the_end_is_read_and_what_is_no_file_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, copy) = (dir.path().join("store"), dir.path().join("store.grants"));
        let now = now_unix_secs();
        let relay = hex::encode_upper([1; 20]);
        let mut file = File::create(&copy).expect("a file");
        file.set_len(2 * MAX_FILE_BYTES).expect("a hole");
        file.seek(SeekFrom::End(0)).expect("its end");
        writeln!(file, "\n{relay} {now}").expect("written");
        let opened = Store::open(&store, [7; 32]).expect("a store");
        assert_eq!(opened.grants_used(&[1; 20], now - 1, u64::MAX).expect("read"), [now]);
        let pipe = dir.path().join("other.grants");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        drop(Store::open(&dir.path().join("other"), [7; 32]).expect("it does not wait"));
    }
}
