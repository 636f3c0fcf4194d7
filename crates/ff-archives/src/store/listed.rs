//! The consensuses of a month, and the places of their relays' rows.

use super::error::ArchiveStoreError;
use super::load::{Loaded, PartFile};
use super::month::Month;
use super::place::ArchiveStore;
use super::schema::{CONSENSUS_RELAYS, CONSENSUSES};

/// A consensus in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) time: u64,
    /// The index of its first relay row.
    first_row: u64,
    /// The number of its relay rows.
    pub(super) rows: u64,
}

/// The relays of a month's consensuses, read one group of rows at a time.
pub(super) struct Relays {
    /// The partition.
    pub(super) part: PartFile,
    /// The first row of each group, followed by the number of all rows.
    starts: Vec<u64>,
    /// The last group that was read.
    group: Option<(usize, [Loaded; 5])>,
}

impl Relays {
    pub(super) fn open(store: &ArchiveStore, month: Month) -> Result<Self, ArchiveStoreError> {
        let part = PartFile::open(store, &CONSENSUS_RELAYS, month)?;
        let mut starts = vec![0];
        for rows in part.groups() {
            starts.push(starts.last().map_or(0, |last: &u64| last.saturating_add(rows)));
        }
        Ok(Self { part, starts, group: None })
    }

    /// The index of a consensus's group, and the consensus's first row in it.
    pub(super) fn group_index(&self, listed: Listed) -> Option<(usize, usize)> {
        let index =
            self.starts.partition_point(|&start| start <= listed.first_row).checked_sub(1)?;
        let (start, end) = (*self.starts.get(index)?, *self.starts.get(index + 1)?);
        (listed.first_row.checked_add(listed.rows)? <= end).then_some(())?;
        Some((index, usize::try_from(listed.first_row - start).ok()?))
    }

    /// Reads a consensus's group; returns it with the consensus's first row in it.
    pub(super) fn group_of(
        &mut self,
        listed: Listed,
    ) -> Result<(&[Loaded; 5], usize), ArchiveStoreError> {
        let broken = || {
            ArchiveStoreError::broken(
                std::path::Path::new(CONSENSUS_RELAYS.name),
                "rows are missing",
            )
        };
        if listed.rows == 0 {
            let none = || Loaded::Int(Vec::new());
            let (_, group) = self.group.insert((usize::MAX, std::array::from_fn(|_| none())));
            return Ok((group, 0));
        }
        let (index, first) = self.group_index(listed).ok_or_else(broken)?;
        if self.group.as_ref().is_none_or(|(last, _)| *last != index) {
            let names = ["fingerprint", "digest", "weight", "flags", "version"];
            self.group = Some((index, self.part.columns(index, names)?));
        }
        let (_, group) = self.group.as_ref().ok_or_else(broken)?;
        Ok((group, first))
    }
}

/// The consensuses of a month that list descriptors, by time.
pub(super) fn consensuses(
    store: &ArchiveStore,
    month: Month,
) -> Result<Vec<Listed>, ArchiveStoreError> {
    let part = PartFile::open(store, &CONSENSUSES, month)?;
    let mut all = Vec::new();
    for (group, rows) in part.groups().into_iter().enumerate() {
        let names = ["valid_after", "flavour", "first_row", "relays"];
        let [times, flavours, first_rows, relays] = part.columns(group, names)?;
        for row in 0..usize::try_from(rows).unwrap_or(0) {
            let listed = || {
                let (time, first_row) = (times.int(row)?, first_rows.int(row)?);
                Some(Listed { time, first_row, rows: relays.int(row)? })
            };
            all.extend(
                Some(flavours.text(row)).filter(|name| *name == "ns").and_then(|_| listed()),
            );
        }
    }
    all.sort_unstable();
    Ok(all)
}
