//! A partition that is being written: rows are gathered here, and a thread of its own packs them.

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

/// A group of rows is closed when it has this number, at the end of a document: some 16 MB of
/// consensuses.
const GROUP_ROWS: usize = 1 << 17;
/// Or when the values of its columns, each of them once, have this number of bytes: the parts of
/// archives that matter have fewer.
const GROUP_BYTES: usize = 1 << 23;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) rows: u64,
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// Their SHA-256, in hexadecimal digits.
    pub(super) sha256: String,
}

/// A partition that is being written; what is not finished is removed.
pub(super) struct Partition {
    table: &'static Table,
    /// Where it is written.
    path: PathBuf,
    /// Rows that are not written yet.
    batch: Batch,
    /// How many rows went before.
    rows: u64,
    /// Where groups go; nothing once all went there.
    to: Option<SyncSender<Batch>>,
    /// Where their space comes back from.
    back: Receiver<Batch>,
    /// Whether a group went there and its space has not come back.
    is_lent: bool,
    /// What writes them; nothing once it has ended.
    thread: Option<Receiver<Result<Written, ArchiveStoreError>>>,
    /// Whether that has given up.
    is_lost: bool,
}

impl Partition {
    /// Begins a file at this path, in place of what is there.
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

    /// How many rows it has.
    pub(super) const fn rows(&self) -> u64 {
        self.rows + self.batch.rows() as u64
    }

    /// Whether what writes it has given up: [`Self::finish`] says why.
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Adds a row.
    pub(super) fn push(&mut self, cells: &[Cell<'_>]) {
        self.batch.push(cells);
    }

    /// Says what a column has in all rows of this document that come again.
    pub(super) fn fix(&mut self, column: usize, cell: Cell<'_>) {
        self.batch.fix(column, cell);
    }

    /// Adds a row of the last document again, with other cells in some columns; `false` if it is
    /// not at hand.
    pub(super) fn push_again<'a>(
        &mut self,
        row: usize,
        changes: impl IntoIterator<Item = (usize, Cell<'a>)>,
    ) -> bool {
        self.batch.push_again(row, changes)
    }

    /// Says that a document ends here: groups of rows have whole documents.
    pub(super) fn end_document(&mut self) {
        self.batch.end_document();
        if self.batch.rows() >= GROUP_ROWS || self.batch.value_bytes() >= GROUP_BYTES {
            self.flush();
        }
    }

    /// Hands over what there is.
    fn flush(&mut self) {
        // The last group has to be written before this one is taken anyway, and then there are at
        // most two.
        let space = if self.is_lent { self.back.recv().ok() } else { None };
        self.is_lent = false;
        let batch = self.batch.take(space);
        self.rows += batch.rows() as u64;
        if let Some(to) = self.to.as_ref().filter(|_| batch.rows() > 0) {
            self.is_lent = to.send(batch).is_ok();
            self.is_lost |= !self.is_lent;
        }
    }

    /// Writes the rest, and has it on the disk.
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
            // Nothing is left to be removed.
            self.path = PathBuf::new();
        }
        written
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // Why it failed does not matter now.
            let _ = thread.recv();
        }
        if !self.path.as_os_str().is_empty() {
            // If it stays, the next run puts another in its place.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes groups of rows as they come.
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
        // It is freed if nobody waits for it.
        let _ = empty.try_send(batch);
    }
    let out = to.into_inner().map_err(fail())?;
    let file = out.inner.into_inner().map_err(|error| error.into_error());
    let synced = file.and_then(|file| file.sync_all());
    synced.map_err(ArchiveStoreError::io(path, "written"))?;
    Ok(Written { rows, bytes: out.bytes, sha256: hex::encode(out.hash.finalize()) })
}

/// A writer that hashes and counts what passes through it.
struct Hashed<W> {
    /// Where it goes.
    inner: W,
    hash: Sha256,
    /// Its length.
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
