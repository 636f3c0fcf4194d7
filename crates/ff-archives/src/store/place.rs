//! The folder of a store: paths of its files, atomic writes, and locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ArchiveStoreError;
use super::manifest::Manifest;
use super::month::Month;
use super::plan::Documents;
use super::schema::{SCHEMA, Table};

/// The file that marks a folder as a store.
const MARK: &str = "store.json";
/// The prefix of temporary files.
const UNFINISHED: &str = ".store-";
/// The format named in the mark.
const FORMAT: &str = "ff-sim store";
/// The greatest size of a manifest, in bytes.
const MOST_MANIFEST_BYTES: u64 = 256 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    format: String,
    schema: u32,
}

/// A store in a folder: archives as Parquet.
#[derive(Clone, Debug)]
pub struct ArchiveStore {
    dir: PathBuf,
}

impl ArchiveStore {
    /// Whether a folder is a store, of any schema.
    #[must_use]
    pub fn is_at(dir: &Path) -> bool {
        dir.join(MARK).is_file()
    }

    /// Opens the store in a folder.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] if there is no store, or one with another schema.
    pub fn open(dir: &Path) -> Result<Self, ArchiveStoreError> {
        let path = dir.join(MARK);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ArchiveStoreError::None(dir.to_owned()));
            }
            Err(error) => return Err(ArchiveStoreError::io(&path, "read")(error)),
        };
        let mark: Mark = serde_json::from_slice(&text)
            .map_err(|error| ArchiveStoreError::broken(&path, error.to_string()))?;
        if mark.format != FORMAT {
            return Err(ArchiveStoreError::Foreign(dir.to_owned()));
        }
        if mark.schema != SCHEMA {
            return Err(ArchiveStoreError::Schema { path, found: mark.schema, known: SCHEMA });
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Opens the store in a folder, or creates one if the folder is empty or missing.
    ///
    /// # Errors
    /// [`ArchiveStoreError`]; a folder with other content is left unchanged.
    pub fn create(dir: &Path) -> Result<Self, ArchiveStoreError> {
        match Self::open(dir) {
            Err(ArchiveStoreError::None(_)) => {}
            opened => return opened,
        }
        fs::create_dir_all(dir).map_err(ArchiveStoreError::io(dir, "created"))?;
        let entries = fs::read_dir(dir).map_err(ArchiveStoreError::io(dir, "read"))?;
        for entry in entries {
            let name = entry.map_err(ArchiveStoreError::io(dir, "read"))?.file_name();
            let name = name.to_string_lossy();
            // Another run may be creating the same store.
            if name != MARK && !name.starts_with(UNFINISHED) {
                return Err(ArchiveStoreError::Foreign(dir.to_owned()));
            }
        }
        let mark = Mark { format: FORMAT.to_owned(), schema: SCHEMA };
        let path = dir.join(MARK);
        write_json(&path, &format!("{UNFINISHED}{}.tmp", std::process::id()), &mark)?;
        Self::open(dir)
    }

    /// The folder of the store.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a table's partition of a month.
    #[must_use]
    pub fn part(&self, table: &Table, month: Month) -> PathBuf {
        self.dir.join(table.name).join(format!("month={month}")).join("part.parquet")
    }

    /// The path of the manifest of a month's documents.
    #[must_use]
    pub fn manifest_path(&self, documents: Documents, month: Month) -> PathBuf {
        self.dir.join("manifests").join(format!("{}-{month}.json", documents.name()))
    }

    /// The manifest of a month's documents; `None` if they are not in the store, or incomplete.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] if the manifest cannot be read, or has another schema.
    pub fn manifest(
        &self,
        documents: Documents,
        month: Month,
    ) -> Result<Option<Manifest>, ArchiveStoreError> {
        let path = self.manifest_path(documents, month);
        let len = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ArchiveStoreError::io(&path, "read")(error)),
        };
        if len > MOST_MANIFEST_BYTES {
            return Err(ArchiveStoreError::broken(&path, "it is too long for a manifest"));
        }
        let text = fs::read(&path).map_err(ArchiveStoreError::io(&path, "read"))?;
        Manifest::parse(&path, &text).map(Some)
    }

    /// The months with these documents, in order.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] if the folder cannot be read.
    pub fn months(&self, documents: Documents) -> Result<Vec<Month>, ArchiveStoreError> {
        let dir = self.dir.join("manifests");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ArchiveStoreError::io(&dir, "read")(error)),
        };
        let mut months = Vec::new();
        for entry in entries {
            let name = entry.map_err(ArchiveStoreError::io(&dir, "read"))?.file_name();
            let name = name.to_string_lossy();
            let month = name.strip_prefix(documents.name()).and_then(|rest| rest.strip_prefix('-'));
            let month: Option<Month> =
                month.and_then(|rest| rest.strip_suffix(".json")?.parse().ok());
            months.extend(month);
        }
        months.sort_unstable();
        Ok(months)
    }

    /// Locks a month's documents against other runs, as long as the lock lives.
    ///
    /// # Errors
    /// [`ArchiveStoreError::InUse`] if another run holds the lock.
    pub fn lock(&self, documents: Documents, month: Month) -> Result<Lock, ArchiveStoreError> {
        let dir = self.dir.join("locks");
        fs::create_dir_all(&dir).map_err(ArchiveStoreError::io(&dir, "created"))?;
        let path = dir.join(format!("{}-{month}.lock", documents.name()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(ArchiveStoreError::io(&path, "opened"))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(ArchiveStoreError::InUse(path)),
            Err(TryLockError::Error(error)) => Err(ArchiveStoreError::io(&path, "locked")(error)),
        }
    }
}

/// A lock, which is released when its process ends at the latest. The file is kept: a process that
/// removed it could remove another's.
#[derive(Debug)]
pub struct Lock {
    /// The locked file.
    _file: File,
}

/// The temporary name of a file in the same folder.
pub(super) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Renames a file to its final path, and syncs the folder.
pub(super) fn put_in_place(from: &Path, to: &Path) -> Result<(), ArchiveStoreError> {
    fs::rename(from, to).map_err(ArchiveStoreError::io(to, "put in place"))?;
    sync_folder_of(to)
}

/// Syncs the folder of a file to disk.
pub(super) fn sync_folder_of(path: &Path) -> Result<(), ArchiveStoreError> {
    let Some(dir) = path.parent() else { return Ok(()) };
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(ArchiveStoreError::io(dir, "written"))
}

/// Writes JSON to a temporary file in the same folder, and renames it.
pub(super) fn write_json(
    path: &Path,
    beside: &str,
    value: &impl Serialize,
) -> Result<(), ArchiveStoreError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ArchiveStoreError::broken(path, error.to_string()))?;
    write_whole(path, beside, format!("{text}\n").as_bytes())
}

/// Writes a temporary file in the same folder, and renames it.
pub(super) fn write_whole(
    path: &Path,
    beside: &str,
    bytes: &[u8],
) -> Result<(), ArchiveStoreError> {
    let temporary = path.with_file_name(beside);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = write().map_err(ArchiveStoreError::io(path, "written"));
    if written.is_err() {
        // If it cannot be removed, the next run replaces it.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    put_in_place(&temporary, path)
}
