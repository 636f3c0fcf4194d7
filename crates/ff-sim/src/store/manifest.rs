//! What a store says of a month's documents: what they were read from, and what came of it.

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

/// The format that a manifest names.
const FORMAT: &str = "ff-sim manifest";
/// How much of a file is hashed at once.
const CHUNK: usize = 1 << 16;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path within the folder of archives, with `/` between its parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A partition that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its table.
    pub table: String,
    /// How many rows it has.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    schema: u32,
    /// Which documents.
    pub documents: String,
    /// The month.
    pub month: Month,
    /// The files that were read, in order.
    pub sources: Vec<SourceFile>,
    /// The files that were written.
    pub parts: Vec<Part>,
    /// How many documents were read.
    pub read: u64,
    /// How many of other kinds were passed over, which is not a fault.
    pub passed_over: u64,
    /// How many were there twice.
    pub duplicates: u64,
    /// Hours between the first and the last of a flavour that are not there.
    pub missing_hours: u64,
    /// Which hours are there, by flavour; an older manifest does not say.
    #[serde(default)]
    pub hours: Vec<Hours>,
    /// How many lines were read of documents whose lines are left out one by one.
    #[serde(default)]
    pub lines: u64,
    /// How many of those that were left out are such lines.
    #[serde(default)]
    pub lines_left_out: u64,
    /// What was left out, those that were there twice among it.
    pub skipped: Vec<Skipped>,
}

/// What came of a month's documents, for its manifest.
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
    /// That of these documents.
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

    /// Reads one.
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

/// The fields that every manifest has, of any schema.
#[derive(Deserialize)]
struct Head {
    format: String,
    schema: u32,
}

/// The length of a file and its SHA-256, in hexadecimal digits.
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

/// Whether a file has this length.
pub(super) fn has_len(path: &Path, bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
}
