//! Reads columns of a partition, one group of rows at a time.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::batch::parquet_schema;
use super::error::ArchiveStoreError;
use super::manifest;
use super::month::Month;
use super::place::ArchiveStore;
use super::plan::Documents;
use super::schema::{ColumnKind, Table};

/// A partition.
pub(super) struct PartFile {
    path: PathBuf,
    table: &'static Table,
    reader: SerializedFileReader<File>,
}

/// A column of a group of rows.
#[derive(Clone, Debug)]
pub(super) enum Loaded {
    /// Numbers; times in seconds since 1970.
    Int(Vec<Option<u64>>),
    /// Booleans.
    Bool(Vec<Option<bool>>),
    /// Text or bytes.
    Bytes(Vec<Option<ByteArray>>),
}

impl Loaded {
    /// The number in a row.
    pub(super) fn int(&self, row: usize) -> Option<u64> {
        let Self::Int(values) = self else { return None };
        values.get(row).copied().flatten()
    }

    /// Whether a row is true.
    pub(super) fn is_true(&self, row: usize) -> bool {
        matches!(self, Self::Bool(values) if values.get(row) == Some(&Some(true)))
    }

    /// The bytes in a row.
    pub(super) fn bytes(&self, row: usize) -> Option<&[u8]> {
        let Self::Bytes(values) = self else { return None };
        values.get(row)?.as_ref().map(ByteArray::data)
    }

    /// The fingerprint or digest in a row.
    pub(super) fn id(&self, row: usize) -> Option<[u8; 20]> {
        self.bytes(row)?.try_into().ok()
    }

    /// The text in a row; empty if it has none.
    pub(super) fn text(&self, row: usize) -> &str {
        self.bytes(row).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl PartFile {
    /// Opens a month's partition, which must agree with its manifest and have the table's columns.
    pub(super) fn open(
        store: &ArchiveStore,
        table: &'static Table,
        month: Month,
    ) -> Result<Self, ArchiveStoreError> {
        let path = &store.part(table, month);
        check(store, table, month, path)?;
        Self::open_checked(path, table)
    }

    /// The same for a file that was checked already.
    pub(super) fn open_checked(
        path: &Path,
        table: &'static Table,
    ) -> Result<Self, ArchiveStoreError> {
        guarded(path, || Self::open_unguarded(path, table))
    }

    /// The same without protection from panics.
    fn open_unguarded(path: &Path, table: &'static Table) -> Result<Self, ArchiveStoreError> {
        let fail = || ArchiveStoreError::parquet(path);
        let file = File::open(path).map_err(ArchiveStoreError::io(path, "read"))?;
        let reader = SerializedFileReader::new(file).map_err(fail())?;
        let expected = parquet_schema(table).map_err(fail())?;
        if reader.metadata().file_metadata().schema() != &*expected {
            return Err(ArchiveStoreError::broken(
                path,
                format!("it does not have the columns of {}", table.name),
            ));
        }
        Ok(Self { path: path.to_owned(), table, reader })
    }

    /// The number of rows in each group.
    pub(super) fn groups(&self) -> Vec<u64> {
        let groups = self.reader.metadata().row_groups().iter();
        groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).collect()
    }

    /// Reads columns of a group, by name.
    pub(super) fn columns<const N: usize>(
        &self,
        group: usize,
        names: [&str; N],
    ) -> Result<[Loaded; N], ArchiveStoreError> {
        let mut all = Vec::with_capacity(N);
        for name in names {
            all.push(self.column(group, name)?);
        }
        let broken = |_| ArchiveStoreError::broken(&self.path, "columns are missing");
        all.try_into().map_err(broken)
    }

    fn column(&self, group: usize, name: &str) -> Result<Loaded, ArchiveStoreError> {
        guarded(&self.path, || self.column_unguarded(group, name))
    }

    /// The same without protection from panics.
    fn column_unguarded(&self, group: usize, name: &str) -> Result<Loaded, ArchiveStoreError> {
        let fail = || ArchiveStoreError::parquet(&self.path);
        let broken =
            || ArchiveStoreError::broken(&self.path, format!("column {name} cannot be read"));
        let index = self.table.columns.iter().position(|column| column.name == name);
        let index = index.ok_or_else(broken)?;
        let kind = self.table.columns.get(index).map(|column| column.kind);
        let group = self.reader.get_row_group(group).map_err(fail())?;
        let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| broken())?;
        let divisor = if kind == Some(ColumnKind::Time) { 1000 } else { 1 };
        let int = |value: i64| u64::try_from(value).unwrap_or(0) / divisor;
        let loaded = match group.get_column_reader(index).map_err(fail())? {
            ColumnReader::Int64ColumnReader(from) => {
                Loaded::Int(read(from, rows, int).map_err(fail())?)
            }
            ColumnReader::Int32ColumnReader(from) => {
                Loaded::Int(read(from, rows, |value| int(value.into())).map_err(fail())?)
            }
            ColumnReader::BoolColumnReader(from) => {
                Loaded::Bool(read(from, rows, |value| value).map_err(fail())?)
            }
            ColumnReader::ByteArrayColumnReader(from) => {
                Loaded::Bytes(read(from, rows, |value| value).map_err(fail())?)
            }
            ColumnReader::FixedLenByteArrayColumnReader(from) => {
                Loaded::Bytes(read(from, rows, ByteArray::from).map_err(fail())?)
            }
            _ => return Err(broken()),
        };
        Ok(loaded)
    }
}

/// Turns a panic of the parquet crate into an error about a broken file. A manifest's hash detects
/// broken disks, but not files written on purpose.
fn guarded<T>(
    path: &Path,
    body: impl FnOnce() -> Result<T, ArchiveStoreError>,
) -> Result<T, ArchiveStoreError> {
    let broken = |_| Err(ArchiveStoreError::broken(path, "it is not Parquet, or cannot be read"));
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(broken)
}

/// Checks that a partition agrees with its manifest.
fn check(
    store: &ArchiveStore,
    table: &Table,
    month: Month,
    path: &Path,
) -> Result<(), ArchiveStoreError> {
    let is_of = |documents: &Documents| documents.tables().iter().any(|one| one.name == table.name);
    let documents = Documents::ALL.into_iter().find(is_of);
    let manifest = documents.map(|documents| store.manifest(documents, month)).transpose()?;
    let manifest = manifest.flatten();
    let part = manifest.iter().flat_map(|one| &one.parts).find(|part| part.table == table.name);
    let (bytes, sha256) = manifest::hash(path)?;
    match part {
        Some(part) if part.bytes == bytes && part.sha256 == sha256 => Ok(()),
        _ => Err(ArchiveStoreError::broken(
            path,
            "it differs from its manifest: remove the manifest and ingest the month again",
        )),
    }
}

/// Reads all rows of a column.
fn read<T: DataType, V>(
    mut from: ColumnReaderImpl<T>,
    rows: usize,
    value: impl Fn(T::T) -> V,
) -> parquet::errors::Result<Vec<Option<V>>> {
    let (mut values, mut levels, mut done) = (Vec::new(), Vec::new(), 0);
    while done < rows {
        let (records, _, _) =
            from.read_records(rows - done, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            break;
        }
        done += records;
    }
    let mut values = values.into_iter();
    if levels.is_empty() {
        return Ok(values.map(|one| Some(value(one))).collect());
    }
    Ok(levels.iter().map(|level| (*level > 0).then(|| values.next().map(&value))?).collect())
}
