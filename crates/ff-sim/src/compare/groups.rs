//! Shares of weight by position, country and family.

use std::collections::BTreeMap;

use ff_archives::network::Network;
use serde::Serialize;

use super::ComparedRelay;

/// The property by which relays are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedBy {
    /// The flags Guard and Exit.
    Position,
    /// Country.
    Country,
    /// Family: relays that name each other, or with identities signed by the same family key.
    Family,
}

/// Relays with the same property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedGroup {
    /// The property; for a family, the fingerprint of its first relay.
    pub name: String,
    /// The number of relays.
    pub relays: usize,
    /// Their share of total weight in the old file.
    pub old_share: f64,
    /// Their share of total weight in the new file.
    pub new_share: f64,
}

/// The groups of a network, by decreasing new share.
pub(super) fn of(
    network: &Network,
    compared: &[ComparedRelay],
    by: GroupedBy,
) -> Vec<ComparedGroup> {
    let families = if by == GroupedBy::Family { network.families() } else { Vec::new() };
    let mut groups: BTreeMap<String, ComparedGroup> = BTreeMap::new();
    for one in compared {
        let Some(relay) = network.relays.get(one.relay) else { continue };
        let name = match by {
            GroupedBy::Position => relay.position().name().to_owned(),
            GroupedBy::Country => relay.country_name(),
            GroupedBy::Family => {
                match families.get(one.relay).and_then(|first| network.relays.get(*first)) {
                    Some(first) => hex::encode_upper(first.fingerprint),
                    None => continue,
                }
            }
        };
        let new =
            || ComparedGroup { name: name.clone(), relays: 0, old_share: 0.0, new_share: 0.0 };
        let group = groups.entry(name.clone()).or_insert_with(new);
        group.relays += 1;
        group.old_share += one.shares[0];
        group.new_share += one.shares[1];
    }
    let mut groups: Vec<ComparedGroup> = groups.into_values().collect();
    groups.retain(|group| by != GroupedBy::Family || group.relays > 1);
    groups.sort_by(|one, other| other.new_share.total_cmp(&one.new_share));
    groups
}

#[cfg(test)]
mod tests {
    use ff_archives::network::Relay;

    use super::*;

    #[test]
    fn a_family_is_who_names_each_other() {
        let relay = |number: u8, family: &[u8]| Relay {
            fingerprint: [number; 20],
            family: family.iter().map(|&other| [other; 20]).collect(),
            ..Relay::default()
        };
        // 3 names 0, but 0 does not name 3; 9 does not exist.
        let relays = vec![relay(0, &[1, 9]), relay(1, &[0, 2]), relay(2, &[1]), relay(3, &[0])];
        let network = Network { relays, ..Network::default() };
        assert_eq!(network.families(), [0, 0, 0, 3]);
        let compared: Vec<_> =
            (0..4).map(|relay| ComparedRelay { relay, shares: [0.25, 0.25] }).collect();
        let found = of(&network, &compared, GroupedBy::Family);
        assert_eq!((found.len(), found[0].relays), (1, 3));
        assert!(found[0].name.starts_with("0000") && (found[0].new_share - 0.75).abs() < 1e-12);
        assert_eq!(of(&network, &compared, GroupedBy::Country)[0].name, "not known");
    }
}
