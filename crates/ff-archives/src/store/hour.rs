//! Reads one hour of a store as a network.

use std::collections::HashMap;
use std::net::IpAddr;

use ff_proto::units::BytesPerSec;

use super::described::{ByDigest, Families, descriptors, families};
use super::error::ArchiveStoreError;
use super::hours::utc;
use super::listed::{Relays, consensuses};
use super::load::Loaded;
use super::month::Month;
use super::place::ArchiveStore;
use super::plan::Documents;
use crate::network::{CapacitySource, Network, Relay};
use crate::read::consensus::FlagBits;

/// The network of the consensus of this time, with data from relays' descriptors. In a store
/// without descriptors weights are used as capacities, as for a consensus alone.
///
/// # Errors
/// [`ArchiveStoreError`] if there is no consensus of exactly this time.
pub fn network(store: &ArchiveStore, unix_secs: u64) -> Result<Network, ArchiveStoreError> {
    let wanted = Month::of(unix_secs);
    let month = wanted.filter(|&month| {
        store.manifest(Documents::Consensuses, month).is_ok_and(|found| found.is_some())
    });
    let none = |reason: String| ArchiveStoreError::broken(store.dir(), reason);
    let month = month.ok_or_else(|| {
        let wanted = wanted.map_or_else(|| "this month".to_owned(), |month| month.to_string());
        none(format!("it has no consensuses of {wanted}"))
    })?;
    let all = consensuses(store, month)?;
    let Some(&listed) = all.iter().find(|listed| listed.time == unix_secs) else {
        let near = all.iter().min_by_key(|listed| listed.time.abs_diff(unix_secs));
        let near = near.map(|near| format!("; the nearest is of {}", utc(near.time)));
        let near = near.unwrap_or_default();
        let reason = format!("it has no consensus of {}{near}", utc(unix_secs));
        return Err(none(reason));
    };
    let relays = Relays::open(store, month)?;
    let has_descriptors = !store.months(Documents::Descriptors)?.is_empty();
    let (index, first) = match relays.group_index(listed) {
        Some(place) => place,
        None if listed.rows == 0 => return Err(none("this consensus has no relays".to_owned())),
        None => return Err(none("rows of this consensus are missing".to_owned())),
    };
    let (mut said, mut kin) = ([ByDigest::new(), ByDigest::new()], HashMap::new());
    if has_descriptors {
        said = [descriptors(store, month)?, descriptors(store, month.before())?];
        kin = families(store, month.before())?;
        kin.extend(families(store, month)?);
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
    let relay = |row| relay(&columns, row, &said, &kin);
    let mut found: Vec<Relay> = rows.filter_map(relay).collect();
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

/// A weight in bytes per second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "weights are whole numbers between 0 and 2^53"
)]
const fn kilobytes(weight: f64) -> u64 {
    (weight as u64).saturating_mul(1000)
}

/// A relay of the network.
#[expect(clippy::cast_precision_loss, reason = "weights do not lie above 2^53")]
fn relay(columns: &[Loaded; 8], row: usize, said: &[ByDigest; 2], kin: &Families) -> Option<Relay> {
    let [fingerprints, digests, nicknames, addresses, others, flags, weights, unmeasured] = columns;
    let fingerprint = fingerprints.id(row)?;
    let digest = digests.id(row);
    let said = digest.and_then(|digest| said.iter().find_map(|said| said.get(&digest)));
    let said = said.filter(|said| said.fingerprint == fingerprint);
    let words = std::iter::once(addresses.text(row)).chain(others.text(row).split(' '));
    let addresses = words.filter_map(|word| word.parse::<IpAddr>().ok()).collect();
    let bits = flags.int(row).and_then(|bits| bits.try_into().ok()).unwrap_or(0);
    let kin = said.and_then(|_| kin.get(&digest?)).cloned().unwrap_or_default();
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
        family: kin.family,
        family_ids: kin.family_ids,
        ..Relay::default()
    })
}
