//! Turns server descriptors into rows.

use std::collections::HashSet;

use ff_dir::DocumentError;

use super::{Bounds, Fill, Filled, check_len, finish, wrong};
use crate::read::archive::{Document, FileDocument};
use crate::read::descriptor::Descriptors;
use crate::store::batch::Cell;
use crate::store::error::ArchiveStoreError;
use crate::store::partition::Partition;

/// The greatest size of a descriptor, in bytes; tor accepts none above 20 kB.
const MOST_BYTES: usize = 1 << 20;
/// The greatest number of descriptors in a month.
const MOST: usize = 1_800_000;

/// Receives server descriptors.
pub(super) struct Servers {
    bounds: Bounds,
    rows: Partition,
    /// The descriptor that is being read; its memory is reused.
    now: Descriptors,
    /// The digests of all descriptors: a month has less than a million. There are at most [`MOST`].
    digests: HashSet<[u8; 20]>,
    /// The number of duplicate descriptors.
    duplicates: u64,
}

impl Servers {
    /// Before the first descriptor.
    pub(super) fn new(bounds: Bounds, rows: Partition) -> Self {
        let (now, digests) = (Descriptors::default(), HashSet::new());
        Self { bounds, rows, now, digests, duplicates: 0 }
    }
}

impl Fill for Servers {
    fn take(&mut self, document: Document<'_>) -> Result<(), DocumentError> {
        if self.rows.is_lost() {
            return Ok(());
        }
        check_len(document, "server descriptor", MOST_BYTES)?;
        if self.digests.len() >= MOST {
            return Err(wrong(format!("there are more than {MOST} descriptors of this month")));
        }
        self.now.clear();
        self.now.add_one(FileDocument { first_line: 1, bytes: document.bytes })?;
        let Some(one) = self.now.all.last() else { return Ok(()) };
        self.bounds.check(one.published_unix_secs)?;
        if !self.digests.insert(one.digest) {
            self.duplicates += 1;
            return Err(wrong("the descriptor is there twice: the first is kept"));
        }
        let family: Vec<String> = self.now.family(one).iter().map(hex::encode_upper).collect();
        let family_ids: Vec<String> = self.now.family_ids(one).collect();
        let (address, family) = (one.address.to_string(), family.join(" "));
        let family_ids = family_ids.join(" ");
        self.rows.push(&[
            Cell::Bytes(&one.digest),
            Cell::Bytes(&one.fingerprint),
            Cell::Int(one.published_unix_secs),
            self.now.nickname(one).into(),
            address.as_str().into(),
            Cell::Int(one.or_port.into()),
            Cell::Int(one.rate),
            Cell::Int(one.burst),
            Cell::Int(one.observed),
            self.now.platform(one).into(),
            one.uptime_secs.into(),
            one.overloaded_unix_secs.into(),
            family.as_str().into(),
            family_ids.as_str().into(),
        ]);
        self.rows.end_document();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Filled, ArchiveStoreError> {
        let mut filled = finish([self.rows])?;
        filled.counts.duplicates = self.duplicates;
        Ok(filled)
    }
}
