//! Descriptors of a month, looked up by digest or relay.

use std::collections::HashMap;

use ff_base::identity::Fingerprint;

use super::error::ArchiveStoreError;
use super::load::PartFile;
use super::month::Month;
use super::place::ArchiveStore;
use super::plan::Documents;
use super::schema::DESCRIPTORS;
use crate::read::consensus::scan;

/// The data of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) fingerprint: Fingerprint,
    /// When it was published, in seconds since 1970.
    published: u64,
    /// The lower of rate and burst, in bytes per second.
    pub(super) limit: u64,
    /// The observed bandwidth, in bytes per second.
    pub(super) observed: u64,
    /// Whether it reports overload in the last three days.
    pub(super) is_overloaded: bool,
}

/// Descriptors of a month, by digest.
pub(super) type ByDigest = HashMap<[u8; 20], Said>;

/// The families of a relay in its descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kin {
    /// The relays that it names as its family.
    pub(super) family: Vec<Fingerprint>,
    /// The families with keys that have signed its identity.
    pub(super) family_ids: Vec<String>,
}

/// Families by the digests of descriptors; descriptors without a family are left out.
pub(super) type Families = HashMap<[u8; 20], Kin>;

/// The descriptors of a month; none if the store has none.
pub(super) fn descriptors(
    store: &ArchiveStore,
    month: Month,
) -> Result<ByDigest, ArchiveStoreError> {
    let mut all = ByDigest::new();
    each_descriptor(store, month, |digest, said| {
        all.insert(digest, said);
    })?;
    Ok(all)
}

/// The newest descriptor of each relay in these months.
pub(super) fn newest(
    store: &ArchiveStore,
    months: &[Month],
) -> Result<HashMap<Fingerprint, Said>, ArchiveStoreError> {
    let mut all: HashMap<Fingerprint, Said> = HashMap::new();
    for &month in months {
        each_descriptor(store, month, |_, said| {
            let known = all.entry(said.fingerprint).or_insert(said);
            if known.published < said.published {
                *known = said;
            }
        })?;
    }
    Ok(all)
}

/// Iterates over the descriptors of a month.
fn each_descriptor(
    store: &ArchiveStore,
    month: Month,
    mut take: impl FnMut([u8; 20], Said),
) -> Result<(), ArchiveStoreError> {
    if store.manifest(Documents::Descriptors, month)?.is_none() {
        return Ok(());
    }
    let part = PartFile::open(store, &DESCRIPTORS, month)?;
    for (group, rows) in part.groups().into_iter().enumerate() {
        let names = [
            "digest",
            "fingerprint",
            "published",
            "rate_bytes_per_sec",
            "burst_bytes_per_sec",
            "observed_bytes_per_sec",
            "overloaded",
        ];
        let [digests, fingerprints, published, rates, bursts, observed, overloaded] =
            part.columns(group, names)?;
        for row in 0..usize::try_from(rows).unwrap_or(0) {
            let said = || {
                Some(Said {
                    fingerprint: fingerprints.id(row)?,
                    published: published.int(row)?,
                    limit: rates.int(row)?.min(bursts.int(row)?),
                    observed: observed.int(row)?,
                    is_overloaded: overloaded.int(row).is_some(),
                })
            };
            if let (Some(digest), Some(said)) = (digests.id(row), said()) {
                take(digest, said);
            }
        }
    }
    Ok(())
}

/// The families in the descriptors of a month, by the descriptors' digests.
pub(super) fn families(store: &ArchiveStore, month: Month) -> Result<Families, ArchiveStoreError> {
    let mut all = Families::new();
    if store.manifest(Documents::Descriptors, month)?.is_none() {
        return Ok(all);
    }
    let part = PartFile::open(store, &DESCRIPTORS, month)?;
    for (group, rows) in part.groups().into_iter().enumerate() {
        let [digests, families, ids] = part.columns(group, ["digest", "family", "family_ids"])?;
        for row in 0..usize::try_from(rows).unwrap_or(0) {
            let names = families.text(row).split(' ');
            let kin = Kin {
                family: names.filter_map(|word| scan::hexadecimal(word.as_bytes())).collect(),
                family_ids: ids.text(row).split_whitespace().map(str::to_owned).collect(),
            };
            let digest = digests.id(row).filter(|_| kin != Kin::default());
            all.extend(digest.map(|digest| (digest, kin)));
        }
    }
    Ok(all)
}

/// The families of each relay, from the newest of its descriptors of these months.
pub(super) fn newest_families(
    store: &ArchiveStore,
    months: &[Month],
) -> Result<HashMap<Fingerprint, Kin>, ArchiveStoreError> {
    let mut published: HashMap<Fingerprint, (u64, [u8; 20])> = HashMap::new();
    let mut all = Families::new();
    for &month in months {
        each_descriptor(store, month, |digest, said| {
            let newest = published.entry(said.fingerprint).or_insert((said.published, digest));
            *newest = (*newest).max((said.published, digest));
        })?;
        all.extend(families(store, month)?);
    }
    let kin = |(relay, (_, digest))| (relay, all.get(&digest).cloned().unwrap_or_default());
    Ok(published.into_iter().map(kin).collect())
}
