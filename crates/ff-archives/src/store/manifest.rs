//! The manifest of a month's documents: their source files, and the results of reading them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use ff_report::skipped::Skipped;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::ArchiveStoreError;
use super::hours::Hours;
use super::month::Month;
use super::schema::SCHEMA;

/// The format named in a manifest.
const FORMAT: &str = "ff-sim manifest";
/// The number of bytes hashed at once.
const CHUNK: usize = 1 << 16;

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// The path within the folder of archives, with `/` as separator.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The table.
    pub table: String,
    /// The number of rows.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// The manifest of a month's documents of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    schema: u32,
    /// The kind of documents.
    pub documents: String,
    /// The month.
    pub month: Month,
    /// The source files, in order.
    pub sources: Vec<SourceFile>,
    /// The partitions.
    pub parts: Vec<Part>,
    /// The number of documents that were read.
    pub read: u64,
    /// The number of documents of other kinds, which are skipped without being errors.
    pub passed_over: u64,
    /// The number of duplicate documents.
    pub duplicates: u64,
    /// The number of missing hours between the first and the last one of a flavour.
    pub missing_hours: u64,
    /// The existing hours by flavour; missing in older manifests.
    #[serde(default)]
    pub hours: Vec<Hours>,
    /// The number of lines read, for documents with lines that are left out individually.
    #[serde(default)]
    pub lines: u64,
    /// The number of omissions that are such lines.
    #[serde(default)]
    pub lines_left_out: u64,
    /// All omissions, including duplicates.
    pub skipped: Vec<Skipped>,
}

/// The counts of a month's documents, for its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// See [`Manifest::read`].
    pub(super) read: u64,
    /// See [`Manifest::passed_over`].
    pub(super) passed_over: u64,
    /// See [`Manifest::duplicates`].
    pub(super) duplicates: u64,
    /// See [`Manifest::missing_hours`].
    pub(super) missing_hours: u64,
    /// See [`Manifest::hours`].
    pub(super) hours: Vec<Hours>,
    /// See [`Manifest::lines`].
    pub(super) lines: u64,
    /// See [`Manifest::lines_left_out`].
    pub(super) lines_left_out: u64,
}

impl Manifest {
    /// The manifest of these documents.
    pub(super) fn new(
        (documents, month): (&str, Month),
        sources: Vec<SourceFile>,
        parts: Vec<Part>,
        counts: Counts,
        skipped: Vec<Skipped>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            schema: SCHEMA,
            documents: documents.to_owned(),
            month,
            sources,
            parts,
            read: counts.read,
            passed_over: counts.passed_over,
            duplicates: counts.duplicates,
            missing_hours: counts.missing_hours,
            hours: counts.hours,
            lines: counts.lines,
            lines_left_out: counts.lines_left_out,
            skipped,
        }
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] names the file.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ArchiveStoreError> {
        let broken = |error: serde_json::Error| ArchiveStoreError::broken(path, error.to_string());
        let head: Head = serde_json::from_slice(text).map_err(broken)?;
        if head.format != FORMAT {
            return Err(ArchiveStoreError::broken(path, "it is not a manifest"));
        }
        if head.schema != SCHEMA {
            let found = head.schema;
            return Err(ArchiveStoreError::Schema { path: path.to_owned(), found, known: SCHEMA });
        }
        serde_json::from_slice(text).map_err(broken)
    }
}

/// The fields of every manifest, whatever its schema.
#[derive(Deserialize)]
struct Head {
    format: String,
    schema: u32,
}

/// The size of a file in bytes, and its SHA-256 in hexadecimal digits.
pub(super) fn hash(path: &Path) -> Result<(u64, String), ArchiveStoreError> {
    let read = || -> io::Result<(u64, String)> {
        let (mut file, mut hash, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; CHUNK]);
        let mut bytes = 0;
        loop {
            let len = file.read(&mut chunk)?;
            if len == 0 {
                return Ok((bytes, hex::encode(hash.finalize())));
            }
            hash.update(chunk.get(..len).unwrap_or_default());
            bytes += len as u64;
        }
    };
    read().map_err(ArchiveStoreError::io(path, "read"))
}

/// Whether a file has this size.
pub(super) fn has_len(path: &Path, bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
}
