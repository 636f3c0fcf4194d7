//! What a store says of hours: who was listed, with what weight, and what it advertised.
//!
//! A relay's descriptor is the one whose digest its consensus lists. It is looked for among the descriptors of the
//! consensus' month and of the month before, because a consensus of the first hours lists descriptors of the last
//! day. Where a whole store has no such descriptors, but others, they are of other months, and joined only on demand:
//! by fingerprint then, the newest of each relay.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ff_bwauth::period::Fingerprint;
use ff_proto::units::BytesPerSec;

use super::error::StoreError;
use super::load::{Loaded, PartFile};
use super::month::Month;
use super::place::Store;
use super::plan::Documents;
use super::schema::{CONSENSUS_RELAYS, CONSENSUSES, DESCRIPTORS};
use crate::analysis::engine::Reading;
use crate::network::{CapacitySource, Network, Relay};
use crate::read::consensus::FlagBits;

/// A relay of one hour cannot have a number above all relays there can be.
const NO_NUMBER: u32 = u32::MAX;

/// What a descriptor says of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    /// Whose it is.
    fingerprint: Fingerprint,
    /// When it was made.
    published: u64,
    /// The lesser of rate and burst.
    limit: u64,
    /// What the relay has observed.
    observed: u64,
}

/// Descriptors of a month, by digest.
type ByDigest = HashMap<[u8; 20], Said>;

/// A consensus of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// Its time.
    time: u64,
    /// Its first row among the relays.
    first_row: u64,
    /// How many rows there are.
    rows: u64,
}

/// Hours of a store, one after the other.
pub struct History<'a> {
    /// The store.
    store: &'a Store,
    /// The months with consensuses that are asked for, in order.
    months: Vec<Month>,
    /// Descriptors of all months by fingerprint, where such are wanted.
    by_fingerprint: Option<HashMap<Fingerprint, Said>>,
    /// The numbers of relays.
    numbers: HashMap<Fingerprint, u32>,
    /// The relays, by their numbers.
    relays: Vec<Fingerprint>,
    /// How many relays had a descriptor, in all hours.
    joined: u64,
}

impl<'a> History<'a> {
    /// The hours of these months, both included; every month without bounds.
    ///
    /// # Errors
    /// [`StoreError`] if there are no consensuses, or no descriptors of the same months: with `allow_mixed`, those of
    /// other months stand for those that are not there.
    pub fn new(
        store: &'a Store,
        since: Option<Month>,
        until: Option<Month>,
        allow_mixed: bool,
    ) -> Result<Self, StoreError> {
        let mut months = store.months(Documents::Consensuses)?;
        months.retain(|&month| {
            since.is_none_or(|since| since <= month) && until.is_none_or(|until| month <= until)
        });
        let broken = |reason: &str| StoreError::broken(store.dir(), reason);
        if months.is_empty() {
            return Err(broken("there are no consensuses of these months in it"));
        }
        let described = store.months(Documents::Descriptors)?;
        let near =
            |month: &&Month| described.contains(month) || described.contains(&month.before());
        if described.is_empty() {
            return Err(broken(
                "there are no server descriptors in it, so no relay has a capacity",
            ));
        }
        if !allow_mixed && !months.iter().any(|month| near(&month)) {
            return Err(broken(
                "its consensuses and its descriptors are of different months; --allow-mixed joins them",
            ));
        }
        let mut history = Self {
            store,
            months,
            by_fingerprint: None,
            numbers: HashMap::new(),
            relays: Vec::new(),
            joined: 0,
        };
        if allow_mixed {
            history.by_fingerprint = Some(newest(store, &described)?);
        }
        Ok(history)
    }

    /// The manifests of all that is read.
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

    /// Goes through all hours in the order of time. A consensus of the flavour `microdesc` names no descriptors and
    /// is passed over.
    ///
    /// # Errors
    /// What the store or whoever takes the hours says.
    pub fn each<E: From<StoreError>>(
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

    /// A relay of an hour.
    fn reading(
        &mut self,
        group: &[Loaded; 3],
        row: usize,
        said: [&ByDigest; 2],
    ) -> Option<Reading> {
        let [fingerprints, digests, weights] = group;
        let fingerprint = fingerprints.id(row)?;
        let digest = digests.id(row);
        let found = digest.and_then(|digest| said.iter().find_map(|said| said.get(&digest)));
        let found = found.filter(|found| found.fingerprint == fingerprint);
        let other = self.by_fingerprint.as_ref().and_then(|all| all.get(&fingerprint));
        let found = found.or(other);
        self.joined += u64::from(found.is_some());
        let advertised = found.map(|found| found.limit.min(found.observed));
        let next = u32::try_from(self.relays.len()).unwrap_or(NO_NUMBER);
        let relay = *self.numbers.entry(fingerprint).or_insert_with(|| {
            self.relays.push(fingerprint);
            next
        });
        Some(Reading { relay, advertised, weight: weights.int(row) })
    }

    /// The relays, by the numbers that readings have.
    #[must_use]
    pub fn relays(&self) -> &[Fingerprint] {
        &self.relays
    }

    /// How many relays had a descriptor, all hours together.
    #[must_use]
    pub const fn joined(&self) -> u64 {
        self.joined
    }
}

/// The relays of a month's consensuses, a group of rows at a time.
struct Relays {
    /// The partition.
    part: PartFile,
    /// The first row of each group, and behind them the number of all.
    starts: Vec<u64>,
    /// The group that was read last.
    group: Option<(usize, [Loaded; 3])>,
}

impl Relays {
    /// Those of a month.
    fn open(store: &Store, month: Month) -> Result<Self, StoreError> {
        let part = PartFile::open(&store.part(&CONSENSUS_RELAYS, month), &CONSENSUS_RELAYS)?;
        let mut starts = vec![0];
        for rows in part.groups() {
            starts.push(starts.last().map_or(0, |last: &u64| last.saturating_add(rows)));
        }
        Ok(Self { part, starts, group: None })
    }

    /// The group that a consensus is in, and where in it the consensus begins.
    fn group_index(&self, listed: Listed) -> Option<(usize, usize)> {
        let index =
            self.starts.partition_point(|&start| start <= listed.first_row).checked_sub(1)?;
        let (start, end) = (*self.starts.get(index)?, *self.starts.get(index + 1)?);
        (listed.first_row.checked_add(listed.rows)? <= end).then_some(())?;
        Some((index, usize::try_from(listed.first_row - start).ok()?))
    }

    /// The group that a consensus is in, read, and where in it the consensus begins.
    fn group_of(&mut self, listed: Listed) -> Result<(&[Loaded; 3], usize), StoreError> {
        let broken =
            || StoreError::broken(std::path::Path::new(CONSENSUS_RELAYS.name), "rows are missing");
        if listed.rows == 0 {
            let none = || Loaded::Int(Vec::new());
            let (_, group) = self.group.insert((usize::MAX, [none(), none(), none()]));
            return Ok((group, 0));
        }
        let (index, first) = self.group_index(listed).ok_or_else(broken)?;
        if self.group.as_ref().is_none_or(|(last, _)| *last != index) {
            let names = ["fingerprint", "digest", "weight"];
            self.group = Some((index, self.part.columns(index, names)?));
        }
        let (_, group) = self.group.as_ref().ok_or_else(broken)?;
        Ok((group, first))
    }
}

/// The consensuses of a month whose relays are listed with their descriptors, by time.
fn consensuses(store: &Store, month: Month) -> Result<Vec<Listed>, StoreError> {
    let part = PartFile::open(&store.part(&CONSENSUSES, month), &CONSENSUSES)?;
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

/// The descriptors of a month; none if the store has none.
fn descriptors(store: &Store, month: Month) -> Result<ByDigest, StoreError> {
    let mut all = ByDigest::new();
    each_descriptor(store, month, |digest, said| {
        all.insert(digest, said);
    })?;
    Ok(all)
}

/// The newest descriptor of each relay in these months.
fn newest(store: &Store, months: &[Month]) -> Result<HashMap<Fingerprint, Said>, StoreError> {
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

/// Goes through the descriptors of a month.
fn each_descriptor(
    store: &Store,
    month: Month,
    mut take: impl FnMut([u8; 20], Said),
) -> Result<(), StoreError> {
    if store.manifest(Documents::Descriptors, month)?.is_none() {
        return Ok(());
    }
    let part = PartFile::open(&store.part(&DESCRIPTORS, month), &DESCRIPTORS)?;
    for (group, rows) in part.groups().into_iter().enumerate() {
        let names = [
            "digest",
            "fingerprint",
            "published",
            "rate_bytes_per_sec",
            "burst_bytes_per_sec",
            "observed_bytes_per_sec",
        ];
        let [digests, fingerprints, published, rates, bursts, observed] =
            part.columns(group, names)?;
        for row in 0..usize::try_from(rows).unwrap_or(0) {
            let said = || {
                Some(Said {
                    fingerprint: fingerprints.id(row)?,
                    published: published.int(row)?,
                    limit: rates.int(row)?.min(bursts.int(row)?),
                    observed: observed.int(row)?,
                })
            };
            if let (Some(digest), Some(said)) = (digests.id(row), said()) {
                take(digest, said);
            }
        }
    }
    Ok(())
}

/// The network of the consensus of this time, its relays with what their descriptors say. In a store without
/// descriptors weights stand for capacities, as in a consensus alone.
///
/// # Errors
/// [`StoreError`] if there is no consensus of this very time.
pub fn network(store: &Store, unix_secs: u64) -> Result<Network, StoreError> {
    let month = Month::of(unix_secs);
    let month = month.filter(|&month| {
        store.manifest(Documents::Consensuses, month).is_ok_and(|found| found.is_some())
    });
    let none = |reason: String| StoreError::broken(store.dir(), reason);
    let month =
        month.ok_or_else(|| none("there are no consensuses of this month in it".to_owned()))?;
    let all = consensuses(store, month)?;
    let Some(&listed) = all.iter().find(|listed| listed.time == unix_secs) else {
        let near = all.iter().min_by_key(|listed| listed.time.abs_diff(unix_secs));
        let near = near.map(|near| format!("; the nearest is of {} s since 1970", near.time));
        let reason =
            format!("there is no consensus of this time in it{}", near.unwrap_or_default());
        return Err(none(reason));
    };
    let relays = Relays::open(store, month)?;
    let has_descriptors = !store.months(Documents::Descriptors)?.is_empty();
    let (index, first) = match relays.group_index(listed) {
        Some(place) => place,
        None if listed.rows == 0 => return Err(none("this consensus has no relays".to_owned())),
        None => return Err(none("rows of this consensus are missing".to_owned())),
    };
    let mut said = [ByDigest::new(), ByDigest::new()];
    if has_descriptors {
        said = [descriptors(store, month)?, descriptors(store, month.before())?];
    }
    let names = [
        "fingerprint",
        "digest",
        "nickname",
        "address",
        "other_addresses",
        "flags",
        "weight",
        "is_unmeasured",
    ];
    let columns = relays.part.columns(index, names)?;
    let rows = first..first + usize::try_from(listed.rows).unwrap_or(0);
    let mut found: Vec<Relay> = rows.filter_map(|row| relay(&columns, row, &said)).collect();
    if !has_descriptors {
        for relay in found.iter_mut().filter(|relay| !relay.is_unmeasured && relay.weight > 0.0) {
            relay.capacity = Some(BytesPerSec::new(kilobytes(relay.weight)));
        }
    }
    Ok(Network {
        name: format!("{}@{unix_secs}", store.dir().display()),
        unix_secs: Some(unix_secs),
        capacities: if has_descriptors {
            CapacitySource::Observed
        } else {
            CapacitySource::Weights
        },
        relays: found,
    })
}

/// A weight as bytes a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "weights are whole numbers between 0 and 2^53"
)]
const fn kilobytes(weight: f64) -> u64 {
    (weight as u64).saturating_mul(1000)
}

/// A relay of a network.
#[expect(clippy::cast_precision_loss, reason = "weights do not lie above 2^53")]
fn relay(columns: &[Loaded; 8], row: usize, said: &[ByDigest; 2]) -> Option<Relay> {
    let [fingerprints, digests, nicknames, addresses, others, flags, weights, unmeasured] = columns;
    let fingerprint = fingerprints.id(row)?;
    let digest = digests.id(row);
    let said = digest.and_then(|digest| said.iter().find_map(|said| said.get(&digest)));
    let said = said.filter(|said| said.fingerprint == fingerprint);
    let words = std::iter::once(addresses.text(row)).chain(others.text(row).split(' '));
    let addresses = words.filter_map(|word| word.parse::<IpAddr>().ok()).collect();
    let bits = flags.int(row).and_then(|bits| bits.try_into().ok()).unwrap_or(0);
    Some(Relay {
        fingerprint,
        nickname: nicknames.text(row).to_owned(),
        addresses,
        flags: FlagBits::from_bits(bits).into(),
        capacity: said.map(|said| BytesPerSec::new(said.observed)),
        rate: said.map(|said| BytesPerSec::new(said.limit)),
        weight: weights.int(row).map_or(0.0, |weight| weight as f64),
        is_unmeasured: unmeasured.is_true(row),
        running: 1.0,
        ..Relay::default()
    })
}
