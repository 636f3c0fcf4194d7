//! A copy of when relays were asked, in a file beside the store: a new store in place of a damaged one still knows whom not to
//! ask again.
//!
//! `store.sqlite.grants` has a line `FINGERPRINT UNIX_SECS` for each attempt, written when that begins. It is not synced, and
//! lines that cannot be read are passed over: it is a copy, and relays refuse who asks too often. A store that is opened
//! writes it anew without what is older than two days.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::error::{self, StoreError};
use super::lock::with_suffix;
use super::value::Number;
use crate::files::{Readers, write_atomically};
use crate::network::fingerprint_hex;
use crate::period::Fingerprint;
use crate::utc::now_unix_secs;

/// For so long grants are of use: the longest period, and what may pass until one is given.
const KEPT_SECS: u64 = 2 * 24 * 60 * 60;
/// The longest file that is read: two days of ten thousand relays have a hundredth of it.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The copy of a store that is written to.
#[derive(Debug)]
pub(super) struct GrantCopy {
    /// Where it is.
    path: PathBuf,
    /// The file, as long as it can be written to.
    file: Option<File>,
}

impl GrantCopy {
    /// The copy beside the store at `path`. A store without attempts takes over what it has.
    pub(super) fn open(db: &mut Connection, store: &Path) -> Result<Self, StoreError> {
        let path = with_suffix(store, ".grants");
        let fail = error::sqlite(store, "be opened");
        let is_new: bool = db
            .query_row("SELECT NOT EXISTS (SELECT 1 FROM attempts)", [], |row| row.get(0))
            .map_err(&fail)?;
        if is_new {
            take_over(db, &read(&path)).map_err(&fail)?;
        }
        let text = forget_old(db).and_then(|()| text(db)).map_err(&fail)?;
        let written = write_atomically(&path, text.as_bytes(), Readers::Owner);
        let opened = written.map_err(io::Error::other).and_then(|()| append_to(&path));
        let mut copy = Self { path, file: None };
        copy.file = copy.told(opened);
        Ok(copy)
    }

    /// Notes that a relay is asked.
    pub(super) fn add(&mut self, relay: &Fingerprint, unix_secs: u64) {
        let Some(file) = &mut self.file else { return };
        let written = writeln!(file, "{} {unix_secs}", hex::encode_upper(relay));
        if self.told(written).is_none() {
            self.file = None;
        }
    }

    /// What was done with the file; an error is told.
    fn told<T>(&self, done: io::Result<T>) -> Option<T> {
        let tell = |error: &io::Error| {
            let path = self.path.display();
            tracing::warn!(
                "{path} cannot be written, so no copy is kept of whom was asked: {error}"
            );
        };
        done.inspect_err(tell).ok()
    }
}

/// Opens a file to add to it.
fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// What can be read of a copy.
fn read(path: &Path) -> Vec<(Fingerprint, u64)> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(path) else { return Vec::new() };
    if file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let line = |line: &str| {
        let (relay, unix_secs) = line.split_once(' ')?;
        Some((fingerprint_hex(relay)?, unix_secs.parse().ok()?))
    };
    // A clock that was wrong keeps no relay from being asked.
    let now = now_unix_secs();
    let lines = String::from_utf8_lossy(&bytes);
    lines.lines().filter_map(line).filter(|(_, unix_secs)| *unix_secs <= now).collect()
}

/// Stores what a copy has.
fn take_over(db: &mut Connection, grants: &[(Fingerprint, u64)]) -> rusqlite::Result<()> {
    let writing = db.transaction()?;
    writing.execute("DELETE FROM copied_grants", [])?;
    for (relay, unix_secs) in grants {
        let sql = "INSERT INTO copied_grants (fingerprint, unix_secs) VALUES (?1, ?2)";
        writing.prepare_cached(sql)?.execute(params![relay, Number(*unix_secs)])?;
    }
    writing.commit()
}

/// Deletes what is so much older than the newest that it is of no use.
fn forget_old(db: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM copied_grants WHERE unix_secs < ?1 + max(
               (SELECT ifnull(max(unix_secs), 0) FROM copied_grants),
               (SELECT ifnull(max(started_unix_secs), 0) FROM attempts))";
    db.execute(sql, [-KEPT_SECS.cast_signed()]).map(drop)
}

/// The copy of what a store has.
fn text(db: &Connection) -> rusqlite::Result<String> {
    let sql = "SELECT fingerprint, started_unix_secs FROM attempts JOIN targets ON targets.id = target
               WHERE grant_used = 1 AND started_unix_secs >= (SELECT max(started_unix_secs) FROM attempts) - ?1
               UNION ALL SELECT fingerprint, unix_secs FROM copied_grants";
    let mut statement = db.prepare(sql)?;
    let grants = statement.query_map([KEPT_SECS.cast_signed()], |row| {
        let (relay, unix_secs): (Fingerprint, Number) = (row.get(0)?, row.get(1)?);
        Ok(format!("{} {}\n", hex::encode_upper(relay), unix_secs.0))
    })?;
    grants.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

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
            store.grants_used(&[relay; 20], now - 5 * 24 * 3600).expect("read")
        };
        assert_eq!(asked(&opened, 1), [now - 3600, now - 60]);
        assert!([2, 3, 4].iter().all(|&relay| asked(&opened, relay).is_empty()));
        drop(opened);
        // The file has what is of use, and so has the store that is opened again.
        let text = std::fs::read_to_string(&copy).expect("a copy");
        assert_eq!(text, format!("{}\n{}\n", lines[0], lines[5]));
        assert_eq!(asked(&Store::open(&store, [7; 32]).expect("a store"), 1).len(), 2);
    }
}
