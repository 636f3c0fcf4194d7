//! Relays that a store's consensuses list for the first time, hour by hour.
//!
//! A relay in any earlier consensus of the store is not new, however long ago that was; so relays
//! of the store's first consensus are never new. Relays that arrived in hours without a consensus
//! are listed with the next one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ff_base::identity::Fingerprint;

use super::error::ArchiveStoreError;
use super::hours::utc;
use super::listed::{Listed, Relays, consensuses};
use super::load::Loaded;
use super::month::Month;
use super::place::ArchiveStore;
use super::plan::Documents;
use super::schema::CONSENSUS_RELAYS;

/// Seconds between two consensuses.
const HOUR_SECS: u64 = 3600;

/// Relays listed for the first time by consensuses of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstListed {
    /// The relays with the hour of their first listing, counted from the start of the span, from 1;
    /// in order.
    pub relays: Vec<(u32, Fingerprint)>,
    /// The number of hours of the span without a consensus.
    pub missing_hours: u64,
    /// The manifests of all data that were read.
    pub manifests: Vec<PathBuf>,
}

/// Finds the relays first listed in the hours after `from` up to `to`, in seconds since 1970.
/// `read` is called for each consensus.
///
/// # Errors
/// [`ArchiveStoreError`] if the store cannot be read, or has no consensus in these hours.
pub fn first_listed(
    store: &ArchiveStore,
    from: u64,
    to: u64,
    mut read: impl FnMut(),
) -> Result<FirstListed, ArchiveStoreError> {
    let (mut found, mut seen, mut hours) = (FirstListed::default(), HashSet::new(), HashSet::new());
    let mut is_first = true;
    let months = store.months(Documents::Consensuses)?;
    for month in months.into_iter().filter(|&month| Month::of(to).is_some_and(|to| month <= to)) {
        found.manifests.push(store.manifest_path(Documents::Consensuses, month));
        let mut names = Names { relays: Relays::open(store, month)?, group: None };
        for listed in consensuses(store, month)?.into_iter().filter(|one| one.time <= to) {
            read();
            let behind = listed.time.saturating_sub(from).div_ceil(HOUR_SECS);
            let hour = u32::try_from(behind).unwrap_or(u32::MAX);
            if listed.time >= from {
                hours.insert(hour);
            }
            for relay in names.of(listed)? {
                if seen.insert(relay) && hour > 0 && !is_first {
                    found.relays.push((hour, relay));
                }
            }
            is_first = false;
        }
    }
    if hours.is_empty() {
        let reason = format!("it has no consensus from {} to {}", utc(from), utc(to));
        return Err(ArchiveStoreError::broken(store.dir(), reason));
    }
    let all = to.saturating_sub(from) / HOUR_SECS + 1;
    found.missing_hours = all.saturating_sub(hours.len() as u64);
    Ok(found)
}

/// The relays in a month's consensuses.
struct Names {
    relays: Relays,
    /// The fingerprints of the last group that was read.
    group: Option<(usize, Loaded)>,
}

impl Names {
    /// The relays of a consensus.
    fn of(&mut self, listed: Listed) -> Result<Vec<Fingerprint>, ArchiveStoreError> {
        let broken =
            || ArchiveStoreError::broken(Path::new(CONSENSUS_RELAYS.name), "rows are missing");
        if listed.rows == 0 {
            return Ok(Vec::new());
        }
        let (index, first) = self.relays.group_index(listed).ok_or_else(broken)?;
        if self.group.as_ref().is_none_or(|(last, _)| *last != index) {
            let [column] = self.relays.part.columns(index, ["fingerprint"])?;
            self.group = Some((index, column));
        }
        let (_, column) = self.group.as_ref().ok_or_else(broken)?;
        let rows = first..first + usize::try_from(listed.rows).unwrap_or(0);
        Ok(rows.filter_map(|row| column.id(row)).collect())
    }
}
