//! The hours of a store: listed relays, their weights and advertised bandwidths.
//!
//! A relay's descriptor is the one with the digest that the consensus lists. It is looked up among
//! the descriptors of the consensus's month and of the month before, because the first consensuses
//! of a month list descriptors of the day before. If both months have no descriptors but others do,
//! these are joined only if allowed: by fingerprint, using the newest of each relay.

use std::collections::HashMap;
use std::path::PathBuf;

use ff_base::identity::Fingerprint;
use ff_plan::period;

use super::described::{ByDigest, Kin, Said, descriptors, newest, newest_families};
use super::error::ArchiveStoreError;
use super::listed::{Relays, consensuses};
use super::load::Loaded;
use super::month::Month;
use super::place::ArchiveStore;
use super::plan::Documents;
use crate::network;
use crate::read::consensus::FlagBits;
use crate::reading::Reading;

/// Iterates over the hours of a store.
pub struct History<'a> {
    store: &'a ArchiveStore,
    /// The months with consensuses, in order.
    months: Vec<Month>,
    /// The newest descriptors of all months by fingerprint, if those may be used.
    by_fingerprint: Option<HashMap<Fingerprint, Said>>,
    /// Relays' numbers by fingerprint.
    numbers: HashMap<Fingerprint, u32>,
    /// The relays, by number.
    relays: Vec<Fingerprint>,
    /// The last data of each relay, by number.
    labels: Vec<Label>,
    /// The number of relays with a descriptor, summed over all hours.
    joined: u64,
}

/// The last listing of a relay, and whether it reported overload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The flags when it was last listed.
    pub flags: FlagBits,
    /// The series of its version, such as 0.4.8; empty if unknown.
    pub series: String,
    /// Whether any descriptor with which it was listed reported overload; `None` if it was listed
    /// without one.
    pub overloaded: Option<bool>,
}

impl Label {
    /// Whether it was overloaded, if its version can report that: tor does since 0.4.6.
    #[must_use]
    pub fn is_overloaded(&self) -> Option<bool> {
        let mut numbers = self.series.split('.').map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let says_so = next().zip(next()).zip(next()).is_some_and(|number| number >= ((0, 4), 6));
        self.overloaded.filter(|&is_overloaded| is_overloaded || says_so)
    }

    /// Sets the series from a version.
    fn set_version(&mut self, version: &str) {
        let number = version.split([' ', '-']).next().unwrap_or_default();
        let end = number.match_indices('.').nth(2).map_or(number.len(), |(end, _)| end);
        let series = number.get(..end).unwrap_or_default();
        // It is mostly unchanged.
        if self.series != series {
            series.clone_into(&mut self.series);
        }
    }
}

impl<'a> History<'a> {
    /// The hours of these months, both included; all months without bounds.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] if there are no consensuses, or if a month of them has no descriptors
    /// of its own or of the month before; with `allow_mixed`, those of other months are used
    /// instead.
    pub fn new(
        store: &'a ArchiveStore,
        since: Option<Month>,
        until: Option<Month>,
        allow_mixed: bool,
    ) -> Result<Self, ArchiveStoreError> {
        let all = store.months(Documents::Consensuses)?;
        let is_wanted = |month: &Month| {
            since.is_none_or(|since| since <= *month) && until.is_none_or(|until| *month <= until)
        };
        let months: Vec<_> = all.iter().copied().filter(is_wanted).collect();
        let broken = |reason: &str| ArchiveStoreError::broken(store.dir(), reason);
        if months.is_empty() {
            return Err(broken(&match &all[..] {
                [] => "it has no consensuses: ingest them first".to_owned(),
                [first, .., last] => {
                    format!("it has no consensuses of these months, but of {first} to {last}")
                }
                [month] => format!("it has no consensuses of these months, but of {month}"),
            }));
        }
        let described = store.months(Documents::Descriptors)?;
        let is_far =
            |month: &&Month| !described.contains(month) && !described.contains(&month.before());
        if described.is_empty() {
            return Err(broken(
                "it has no server descriptors, so no relay has a capacity: ingest them, too",
            ));
        }
        if let Some(month) = months.iter().find(is_far).filter(|_| !allow_mixed) {
            return Err(broken(&format!(
                "its consensuses and descriptors are of different months; --allow-mixed joins them (there are no \
                 descriptors of {} or {month}; --since and --until leave months out)",
                month.before()
            )));
        }
        let mut history = Self {
            store,
            months,
            by_fingerprint: None,
            numbers: HashMap::new(),
            relays: Vec::new(),
            labels: Vec::new(),
            joined: 0,
        };
        if allow_mixed {
            history.by_fingerprint = Some(newest(store, &described)?);
        }
        Ok(history)
    }

    /// The manifests of all data that are read.
    #[must_use]
    pub fn manifests(&self) -> Vec<PathBuf> {
        let of = |documents, month| self.store.manifest_path(documents, month);
        let mut all: Vec<_> =
            self.months.iter().map(|&month| of(Documents::Consensuses, month)).collect();
        let mut described: Vec<_> =
            self.months.iter().flat_map(|month| [month.before(), *month]).collect();
        described.dedup();
        all.extend(described.iter().map(|&month| of(Documents::Descriptors, month)));
        all.retain(|path| path.is_file());
        all.dedup();
        all
    }

    /// Calls a function for every hour, in order of time. Consensuses of the flavour `microdesc`
    /// list no descriptors and are skipped.
    ///
    /// # Errors
    /// An error of the store, or of the function.
    pub fn each<E: From<ArchiveStoreError>>(
        &mut self,
        mut take: impl FnMut(u64, &[Reading]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut before, mut now) = (ByDigest::new(), ByDigest::new());
        let mut loaded = None;
        let mut readings = Vec::new();
        for month in self.months.clone() {
            before = match loaded {
                Some(last) if last == month.before() => std::mem::take(&mut now),
                _ => descriptors(self.store, month.before())?,
            };
            now = descriptors(self.store, month)?;
            loaded = Some(month);
            let mut relays = Relays::open(self.store, month)?;
            for listed in consensuses(self.store, month)? {
                readings.clear();
                let (group, first) = relays.group_of(listed)?;
                for row in first..first + usize::try_from(listed.rows).unwrap_or(0) {
                    readings.extend(self.reading(group, row, [&now, &before]));
                }
                take(listed.time, &readings)?;
            }
        }
        drop(before);
        Ok(())
    }

    /// The reading of a relay in an hour.
    fn reading(
        &mut self,
        group: &[Loaded; 5],
        row: usize,
        said: [&ByDigest; 2],
    ) -> Option<Reading> {
        let [fingerprints, digests, weights, flags, versions] = group;
        let fingerprint = fingerprints.id(row)?;
        let digest = digests.id(row);
        let found = digest.and_then(|digest| said.iter().find_map(|said| said.get(&digest)));
        let found = found.filter(|found| found.fingerprint == fingerprint);
        let other = self.by_fingerprint.as_ref().and_then(|all| all.get(&fingerprint));
        let found = found.or(other);
        self.joined += u64::from(found.is_some());
        let advertised = found.map(|found| found.limit.min(found.observed));
        let next = u32::try_from(self.relays.len()).unwrap_or(u32::MAX);
        let relay = *self.numbers.entry(fingerprint).or_insert_with(|| {
            self.relays.push(fingerprint);
            self.labels.push(Label::default());
            next
        });
        if let Some(label) = self.labels.get_mut(relay as usize) {
            let bits = flags.int(row).and_then(|bits| bits.try_into().ok()).unwrap_or(0);
            label.flags = FlagBits::from_bits(bits);
            label.set_version(versions.text(row));
            if let Some(found) = found {
                let before = label.overloaded.unwrap_or(false);
                label.overloaded = Some(before || found.is_overloaded);
            }
        }
        Some(Reading { relay, advertised, weight: weights.int(row) })
    }

    /// The relays; their places are their numbers in readings.
    #[must_use]
    pub fn relays(&self) -> &[Fingerprint] {
        &self.relays
    }

    /// The last data of each relay, by number.
    #[must_use]
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// For each relay, by number, the first member of its family: relays that name each other or
    /// have signatures by the same family key, in their newest descriptors of these months and the
    /// month before, and transitively. A relay without a family is the first of its own.
    ///
    /// # Errors
    /// An error of the store.
    pub fn families(&self) -> Result<Vec<usize>, ArchiveStoreError> {
        let mut months: Vec<_> =
            self.months.iter().flat_map(|month| [month.before(), *month]).collect();
        months.dedup();
        let mut newest = newest_families(self.store, &months)?;
        let relay = |&fingerprint: &Fingerprint| {
            let Kin { family, family_ids } = newest.remove(&fingerprint).unwrap_or_default();
            period::ScheduledRelay {
                fingerprint,
                family,
                family_ids,
                ..period::ScheduledRelay::default()
            }
        };
        Ok(network::families(&self.relays.iter().map(relay).collect::<Vec<_>>()))
    }

    /// The number of relays with a descriptor, summed over all hours.
    #[must_use]
    pub const fn joined(&self) -> u64 {
        self.joined
    }
}
