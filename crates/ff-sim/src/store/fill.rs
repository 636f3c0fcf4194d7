//! Documents as rows of tables.

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

/// What takes the documents of a unit.
pub(super) trait Fill {
    /// Takes a document, or says why it cannot.
    fn take(&mut self, document: Document<'_>) -> Result<(), DocumentError>;

    /// Lines of the document that was taken last which were left out, the rest of it being kept.
    fn left_out(&mut self) -> Vec<DocumentError> {
        Vec::new()
    }

    /// What came of them.
    fn finish(self: Box<Self>) -> Result<Filled, ArchiveStoreError>;
}

/// What came of a unit's documents.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The partitions.
    pub(super) parts: Vec<(&'static Table, Written)>,
    /// How many documents of which sort there were; those that were read are counted elsewhere.
    pub(super) counts: Counts,
}

/// What documents have to be like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) month: Month,
    /// When they are read, in seconds since 1970.
    pub(super) now: u64,
}

impl Bounds {
    /// Whether a document may have this time.
    fn check(&self, unix_secs: u64) -> Result<(), DocumentError> {
        span::wrong_at(unix_secs, self.now).map_or(Ok(()), |why| Err(wrong(format!("it {why}"))))
    }

    /// Whether a document of this time is of the month.
    fn check_month(&self, unix_secs: u64) -> Result<(), DocumentError> {
        self.check(unix_secs)?;
        if Month::of(unix_secs) != Some(self.month) {
            return Err(wrong(format!("it is not of {}, the month of its file", self.month)));
        }
        Ok(())
    }
}

/// Whether a document has no more bytes than any of its kind: what one may have bounds the memory
/// for all.
fn check_len(document: Document<'_>, kind: &str, most_bytes: usize) -> Result<(), DocumentError> {
    if document.bytes.len() > most_bytes {
        let most = most_bytes >> 20;
        return Err(wrong(format!("it has more than {most} MiB, which no {kind} has")));
    }
    Ok(())
}

/// What takes these documents; its partitions are in the order of [`Documents::tables`].
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

/// What is wrong with a document as a whole.
fn wrong(reason: impl Into<String>) -> DocumentError {
    DocumentError { line: 1, reason: reason.into() }
}

/// Finishes partitions.
fn finish(parts: impl IntoIterator<Item = Partition>) -> Result<Filled, ArchiveStoreError> {
    let finish = |part: Partition| Ok((part.table(), part.finish()?));
    let parts = parts.into_iter().map(finish).collect::<Result<_, ArchiveStoreError>>()?;
    Ok(Filled { parts, counts: Counts::default() })
}
