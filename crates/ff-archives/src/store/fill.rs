//! Turns documents into rows of tables.

mod bandwidth;
mod consensus;
mod descriptor;

use ff_dir::DocumentError;

use super::error::ArchiveStoreError;
use super::manifest::Counts;
use super::month::Month;
use super::partition::{Partition, Written};
use super::plan::Documents;
use super::schema::Table;
use crate::read::archive::Document;
use crate::read::span;

/// Receives the documents of a unit.
pub(super) trait Fill {
    /// Takes a document, or returns why it is left out.
    fn take(&mut self, document: Document<'_>) -> Result<(), DocumentError>;

    /// The lines left out of the last document, the rest of which was kept.
    fn left_out(&mut self) -> Vec<DocumentError> {
        Vec::new()
    }

    /// Finishes the partitions.
    fn finish(self: Box<Self>) -> Result<Filled, ArchiveStoreError>;
}

/// The results for a unit's documents.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The partitions that were written.
    pub(super) parts: Vec<(&'static Table, Written)>,
    /// The numbers of documents by sort; documents that were read are counted elsewhere.
    pub(super) counts: Counts,
}

/// The times that documents may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) month: Month,
    /// When they are read, in seconds since 1970.
    pub(super) now: u64,
}

impl Bounds {
    /// Checks that a document may have this time.
    fn check(&self, unix_secs: u64) -> Result<(), DocumentError> {
        span::wrong_at(unix_secs, self.now).map_or(Ok(()), |why| Err(wrong(format!("it {why}"))))
    }

    /// Checks that a document of this time belongs to the month.
    fn check_month(&self, unix_secs: u64) -> Result<(), DocumentError> {
        self.check(unix_secs)?;
        if Month::of(unix_secs) != Some(self.month) {
            return Err(wrong(format!("it is not of {}, the month of its file", self.month)));
        }
        Ok(())
    }
}

/// Checks the size of a document, which bounds the memory for all.
fn check_len(document: Document<'_>, kind: &str, most_bytes: usize) -> Result<(), DocumentError> {
    if document.bytes.len() > most_bytes {
        let most = most_bytes >> 20;
        return Err(wrong(format!("it has more than {most} MiB, which no {kind} has")));
    }
    Ok(())
}

/// The receiver of these documents; its partitions are in the order of [`Documents::tables`].
pub(super) fn fill(
    documents: Documents,
    bounds: Bounds,
    parts: Vec<Partition>,
) -> Option<Box<dyn Fill>> {
    let mut parts = parts.into_iter();
    let mut next = || parts.next();
    Some(match documents {
        Documents::Consensuses => Box::new(consensus::Consensuses::new(bounds, next()?, next()?)),
        Documents::Descriptors => Box::new(descriptor::Servers::new(bounds, next()?)),
        Documents::BandwidthFiles => Box::new(bandwidth::Files::new(bounds, next()?, next()?)),
    })
}

/// The error for a document as a whole.
fn wrong(reason: impl Into<String>) -> DocumentError {
    DocumentError { line: 1, reason: reason.into() }
}

/// Finishes partitions.
fn finish(parts: impl IntoIterator<Item = Partition>) -> Result<Filled, ArchiveStoreError> {
    let finish = |part: Partition| Ok((part.table(), part.finish()?));
    let parts = parts.into_iter().map(finish).collect::<Result<_, ArchiveStoreError>>()?;
    Ok(Filled { parts, counts: Counts::default() })
}
