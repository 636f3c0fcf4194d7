//! Writes a partition: rows are gathered here, and compressed by a separate thread.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ff_report::workers;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use sha2::{Digest, Sha256};

use super::batch::{Batch, Cell, parquet_schema};
use super::chunk::Chunks;
use super::error::ArchiveStoreError;
use super::schema::Table;

/// A group of rows is written at the end of a document when it has this number of rows: some 16 MB
/// of consensuses.
const GROUP_ROWS: usize = 1 << 17;
/// A group is also written when its columns' distinct values have this number of bytes; groups of
/// usual archives stay below it.
const GROUP_BYTES: usize = 1 << 23;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) rows: u64,
    /// Size on disk, in bytes.
    pub(super) bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub(super) sha256: String,
}

/// A partition that is being written; without [`Self::finish`] it is removed.
pub(super) struct Partition {
    table: &'static Table,
    /// The path of the file.
    path: PathBuf,
    /// Rows that are not written yet.
    batch: Batch,
    /// The number of rows already handed over.
    rows: u64,
    /// Sends groups to the writing thread; `None` after the last.
    to: Option<SyncSender<Batch>>,
    /// Returns the memory of groups.
    back: Receiver<Batch>,
    /// Whether the memory of a group has not been returned.
    is_lent: bool,
    /// The result of the writing thread; `None` once it was received.
    thread: Option<Receiver<Result<Written, ArchiveStoreError>>>,
    /// Whether the writing thread has failed.
    is_lost: bool,
}

impl Partition {
    /// Creates a file at this path, replacing an existing one.
    pub(super) fn create(path: &Path, table: &'static Table) -> Result<Self, ArchiveStoreError> {
        let file = File::create(path).map_err(ArchiveStoreError::io(path, "created"))?;
        let (to, from) = sync_channel(0);
        let (empty, back) = sync_channel(2);
        let owned = path.to_owned();
        let thread = workers::run(table.name, move || write(&owned, file, table, &from, &empty))
            .map_err(ArchiveStoreError::io(path, "written by a thread of its own"))?;
        Ok(Self {
            table,
            path: path.to_owned(),
            batch: Batch::new(table),
            rows: 0,
            to: Some(to),
            back,
            is_lent: false,
            thread: Some(thread),
            is_lost: false,
        })
    }

    pub(super) const fn table(&self) -> &'static Table {
        self.table
    }

    /// The number of rows.
    pub(super) const fn rows(&self) -> u64 {
        self.rows + self.batch.rows() as u64
    }

    /// Whether the writing thread has failed; [`Self::finish`] returns the error.
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn push(&mut self, cells: &[Cell<'_>]) {
        self.batch.push(cells);
    }

    /// Sets the value of a column in all repeated rows of this document.
    pub(super) fn fix(&mut self, column: usize, cell: Cell<'_>) {
        self.batch.fix(column, cell);
    }

    /// Repeats a row of the last document, with other cells in some columns; returns `false` if
    /// there is no such row.
    pub(super) fn push_again<'a>(
        &mut self,
        row: usize,
        changes: impl IntoIterator<Item = (usize, Cell<'a>)>,
    ) -> bool {
        self.batch.push_again(row, changes)
    }

    /// Ends a document: groups of rows consist of whole documents.
    pub(super) fn end_document(&mut self) {
        self.batch.end_document();
        if self.batch.rows() >= GROUP_ROWS || self.batch.value_bytes() >= GROUP_BYTES {
            self.flush();
        }
    }

    /// Hands over the gathered rows.
    fn flush(&mut self) {
        // The last group must be written before this one is taken anyway, so there are at most two.
        let space = if self.is_lent { self.back.recv().ok() } else { None };
        self.is_lent = false;
        let batch = self.batch.take(space);
        self.rows += batch.rows() as u64;
        if let Some(to) = self.to.as_ref().filter(|_| batch.rows() > 0) {
            self.is_lent = to.send(batch).is_ok();
            self.is_lost |= !self.is_lent;
        }
    }

    /// Writes the rest, and syncs it to disk.
    pub(super) fn finish(mut self) -> Result<Written, ArchiveStoreError> {
        self.flush();
        self.to = None;
        let ended = self.thread.take().and_then(|thread| thread.recv().ok());
        let written = ended.unwrap_or_else(|| {
            Err(ArchiveStoreError::broken(&self.path, "the thread that writes it ended early"))
        });
        let last = std::mem::replace(&mut self.batch, Batch::new(self.table));
        self.back.try_iter().chain([last]).for_each(Batch::put_aside);
        if written.is_ok() {
            // Prevents the removal of the finished file.
            self.path = PathBuf::new();
        }
        written
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // The error does not matter here.
            let _ = thread.recv();
        }
        if !self.path.as_os_str().is_empty() {
            // If it cannot be removed, the next run replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes groups of rows as they arrive.
fn write(
    path: &Path,
    file: File,
    table: &Table,
    from: &Receiver<Batch>,
    empty: &SyncSender<Batch>,
) -> Result<Written, ArchiveStoreError> {
    let fail = || ArchiveStoreError::parquet(path);
    let properties = WriterProperties::builder()
        .set_created_by(format!("ff-sim {}", env!("CARGO_PKG_VERSION")))
        .build();
    let out = Hashed { inner: BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
    let schema = parquet_schema(table).map_err(fail())?;
    let mut to = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(fail())?;
    let columns = to.schema_descr().columns().to_vec();
    let (mut rows, mut chunks) = (0, Chunks::new().map_err(fail())?);
    for batch in from {
        rows += batch.rows() as u64;
        let group = to.next_row_group().map_err(fail())?;
        chunks.write(&batch, &columns, group).map_err(fail())?;
        // It is freed if the other side has ended.
        let _ = empty.try_send(batch);
    }
    let out = to.into_inner().map_err(fail())?;
    let file = out.inner.into_inner().map_err(|error| error.into_error());
    let synced = file.and_then(|file| file.sync_all());
    synced.map_err(ArchiveStoreError::io(path, "written"))?;
    Ok(Written { rows, bytes: out.bytes, sha256: hex::encode(out.hash.finalize()) })
}

/// A writer that hashes and counts the bytes that pass through it.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    /// The number of bytes written.
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..len).unwrap_or_default());
        self.bytes += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
