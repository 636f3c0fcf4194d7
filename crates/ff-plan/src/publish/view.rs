//! Data about relays from the network's documents, for bandwidth files.

use std::collections::{BTreeMap, HashMap};

use ff_base::identity::Fingerprint;
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_dir::consensus::{Consensus, Entry};
use ff_dir::descriptors::Descriptor;
use ff_proto::units::BytesPerSec;

use super::v3bw::{DirectoryFacts, Publication};
use crate::period::{ScheduledRelay, group};

/// The relays as a period's schedule needs them: expected capacities, addresses and families.
/// Coordinators with the same documents have the same list: a relay's estimate is its weight in the
/// consensus.
#[must_use]
pub fn relays(
    consensus: &Consensus,
    described: &HashMap<Fingerprint, Descriptor>,
) -> Vec<ScheduledRelay> {
    let relay = |entry: &Entry| {
        let descriptor = described.get(&entry.fingerprint);
        ScheduledRelay {
            fingerprint: entry.fingerprint,
            estimate: entry.estimate(),
            addresses: entry.addresses(),
            family: descriptor.map(|one| one.family.clone()).unwrap_or_default(),
            family_ids: descriptor.map(|one| one.family_ids.clone()).unwrap_or_default(),
            tied_to: Vec::new(),
        }
    };
    consensus.relays.iter().map(relay).collect()
}

/// Groups of relays on one address, which no schedule divides. With `families`, the groups of a
/// schedule whose team is large enough.
#[must_use]
pub fn groups(relays: &[ScheduledRelay], families: bool) -> Vec<Vec<Fingerprint>> {
    let lists = if families { group::together(relays) } else { group::by_address(relays) };
    named(lists.into_iter(), relays)
}

/// The fingerprints of groups' members.
fn named(
    lists: impl Iterator<Item = Vec<usize>>,
    relays: &[ScheduledRelay],
) -> Vec<Vec<Fingerprint>> {
    let several = lists.filter(|list| list.len() > 1);
    several.map(|list| list.into_iter().map(|index| relays[index].fingerprint).collect()).collect()
}

/// The data of directory documents about the relays of this consensus. Descriptors of others are
/// ignored.
#[must_use]
pub fn directory(
    consensus: &Consensus,
    described: &HashMap<Fingerprint, Descriptor>,
) -> BTreeMap<Fingerprint, DirectoryFacts> {
    let facts = |entry: &Entry| {
        let descriptor = described.get(&entry.fingerprint);
        let rate = |bytes: fn(&Descriptor) -> u64| descriptor.map(bytes).map(BytesPerSec::new);
        DirectoryFacts {
            is_listed: true,
            ed_identity: descriptor.and_then(|descriptor| descriptor.ed25519),
            bandwidth_avg: rate(|descriptor| descriptor.rate_bytes_per_sec),
            bandwidth_burst: rate(|descriptor| descriptor.burst_bytes_per_sec),
            bandwidth_observed: rate(|descriptor| descriptor.observed_bytes_per_sec),
            consensus_bandwidth: entry.weight.map(|kb| BytesPerSec::new(u64::from(kb) * 1000)),
            consensus_is_unmeasured: entry.weight.map(|_| entry.is_unmeasured),
            ..DirectoryFacts::default()
        }
    };
    consensus.relays.iter().map(|entry| (entry.fingerprint, facts(entry))).collect()
}

/// The inputs of a bandwidth file from the documents of this consensus: relays on one address are a
/// group. A store adds the groups that were measured together (`complete` of its reader).
#[must_use]
pub fn publication(
    consensus: &Consensus,
    described: &HashMap<Fingerprint, Descriptor>,
    now_unix_secs: u64,
) -> Publication {
    Publication {
        now_unix_secs,
        max_age_secs: MAX_FILE_AGE_SECS,
        consensus_relays: consensus.relays.len() as u64,
        consensus_valid_after_unix_secs: consensus.valid_after_unix_secs(),
        directory: directory(consensus, described),
        groups: groups(&relays(consensus, described), false),
        nicknames: consensus
            .relays
            .iter()
            .map(|entry| (entry.fingerprint, entry.nickname.clone()))
            .collect(),
        ..Publication::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_those_of_lines_and_of_keys() {
        let entry = |number: u8| Entry {
            fingerprint: [number; 20],
            or_ports: vec![([192, 0, 2, number], 9001).into()],
            weight: Some(70),
            ..Entry::default()
        };
        let consensus = Consensus { relays: (1..=5).map(entry).collect(), ..Consensus::default() };
        let family = |names: &[u8], ids: &[&str]| Descriptor {
            family: names.iter().map(|&name| [name; 20]).collect(),
            family_ids: ids.iter().map(|&id| id.to_owned()).collect(),
            ..Descriptor::default()
        };
        let described = HashMap::from([
            ([1; 20], family(&[2], &[])),
            ([2; 20], family(&[1], &["ed25519:x"])),
            ([3; 20], family(&[], &["ed25519:x"])),
            ([4; 20], family(&[1], &["ed25519:y"])),
        ]);
        let relays = relays(&consensus, &described);
        assert_eq!(relays[0].estimate, Some(BytesPerSec::new(70_000)));
        assert_eq!(groups(&relays, true), [vec![[1; 20], [2; 20], [3; 20]]]);
        assert!(groups(&relays, false).is_empty(), "all have addresses of their own");
    }
}
