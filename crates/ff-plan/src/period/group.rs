//! Groups of relays that may share a machine or a line. They are measured at the same time, so that
//! shared capacity is not counted for each of them (FlashFlow, §5).

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ff_base::identity::Fingerprint;

use super::ScheduledRelay;

/// Disjoint sets of relays that are merged step by step.
struct Sets(Vec<usize>);

impl Sets {
    /// Each relay in its own set.
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The first relay of the set with this one.
    fn find(&mut self, mut index: usize) -> usize {
        while self.0[index] != index {
            self.0[index] = self.0[self.0[index]];
            index = self.0[index];
        }
        index
    }

    /// Merges the sets of two relays.
    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other)] = one.min(other);
    }

    /// Merges relays with the same name. Sorts instead of hashing: for a million relays this reads
    /// memory in order.
    fn join_by<K: Ord>(&mut self, names: impl Iterator<Item = (K, usize)>) {
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [(one, first), (other, second)] = pair
                && one == other
            {
                self.join(*first, *second);
            }
        }
    }

    /// The sets, each in order, sorted by their first members.
    fn into_lists(mut self) -> Vec<Vec<usize>> {
        // A set is known by its first member, so its list exists before any other member needs it.
        let mut places = vec![0; self.0.len()];
        let mut lists: Vec<Vec<usize>> = Vec::new();
        for index in 0..self.0.len() {
            let first = self.find(index);
            if first == index {
                places[index] = lists.len();
                lists.push(vec![index]);
            } else {
                lists[places[first]].push(index);
            }
        }
        lists
    }
}

/// The hosts' part of all addresses, with the relay's index.
fn addresses<R: Borrow<ScheduledRelay>>(relays: &[R]) -> impl Iterator<Item = (IpAddr, usize)> {
    relays.iter().map(Borrow::borrow).enumerate().flat_map(|(index, relay)| {
        relay.addresses.iter().map(move |address| (host(*address), index))
    })
}

/// The part of an address that belongs to one host: of IPv6 the first 64 bits.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    first_bits(address, 32, 64)
}

/// The part of an address that often belongs to one customer: of IPv4 the first 24 bits, of IPv6
/// the first 48.
pub fn network(address: IpAddr) -> IpAddr {
    first_bits(address, 24, 48)
}

/// An address with this many leading bits, followed by zeros.
fn first_bits(address: IpAddr, of_ipv4: u32, of_ipv6: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX << (32 - of_ipv4)).into()),
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & u128::MAX << (128 - of_ipv6)).into())
        }
    }
}

/// Groups of relays on one address, or in one IPv6 network of 64 bits.
#[must_use]
pub fn by_address<R: Borrow<ScheduledRelay>>(relays: &[R]) -> Vec<Vec<usize>> {
    let mut sets = Sets::new(relays.len());
    sets.join_by(addresses(relays));
    sets.into_lists()
}

/// Groups of relays that are measured together: on one address or in one IPv6 network of 64 bits,
/// in one family, or tied together, directly or through others. Each list is in the order of the
/// relays.
#[must_use]
pub fn together<R: Borrow<ScheduledRelay>>(relays: &[R]) -> Vec<Vec<usize>> {
    let mut sets = Sets::new(relays.len());
    sets.join_by(addresses(relays));
    let all = || relays.iter().map(Borrow::borrow);
    let ids = all().enumerate();
    sets.join_by(ids.flat_map(|(i, relay)| relay.family_ids.iter().map(move |id| (id, i))));
    let has_others = all().any(|relay| !relay.family.is_empty() || !relay.tied_to.is_empty());
    if has_others {
        join_named(&mut sets, &all().collect::<Vec<_>>());
    }
    sets.into_lists()
}

/// Merges relays that name each other, or are tied to others.
fn join_named(sets: &mut Sets, relays: &[&ScheduledRelay]) {
    let indices: HashMap<Fingerprint, usize> =
        relays.iter().enumerate().map(|(index, relay)| (relay.fingerprint, index)).collect();
    let mut declared = HashSet::new();
    for (index, relay) in relays.iter().enumerate() {
        for &other in relay.family.iter().filter_map(|name| indices.get(name)) {
            // A declaration by one side only makes no family.
            if declared.insert((index, other)) && declared.contains(&(other, index)) {
                sets.join(index, other);
            }
        }
        for &other in relay.tied_to.iter().filter_map(|name| indices.get(name)) {
            sets.join(index, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay with this number.
    fn relay(number: u8) -> ScheduledRelay {
        ScheduledRelay { fingerprint: [number; 20], ..ScheduledRelay::default() }
    }

    /// The relay with this number at these addresses.
    fn at(number: u8, addresses: &[&str]) -> ScheduledRelay {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        ScheduledRelay { addresses, ..relay(number) }
    }

    #[test]
    fn addresses_join() {
        let relays = [
            at(0, &["192.0.2.1"]),
            at(1, &["192.0.2.2", "2001:db8::1"]),
            at(2, &["::ffff:192.0.2.1"]),
            at(3, &["2001:db8:0::1"]),
            at(4, &["2001:db8:0:1::2"]),
            at(5, &[]),
            at(6, &["2001:db8::ffff:1"]),
        ];
        let expected = vec![vec![0, 2], vec![1, 3, 6], vec![4], vec![5]];
        assert_eq!(together(&relays), expected);
        assert_eq!(by_address(&relays), expected);
    }

    #[test]
    fn families_need_both_sides_and_chains_hold() {
        let mut relays: Vec<_> = (0..8).map(relay).collect();
        // 0 and 1 name each other; 2 names 0, which does not name it.
        (relays[0].family, relays[1].family) = (vec![[1; 20], [9; 20]], vec![[0; 20]]);
        relays[2].family = vec![[0; 20]];
        // 1, 3 and 4 have a family's key; 5 was observed to move with 4.
        for index in [1, 3, 4] {
            relays[index].family_ids = vec!["ed25519:x".to_owned()];
        }
        relays[5].tied_to = vec![[4; 20]];
        relays[6].tied_to = vec![[99; 20]];
        let expected = vec![vec![0, 1, 3, 4, 5], vec![2], vec![6], vec![7]];
        assert_eq!(together(&relays), expected);
    }

    #[test]
    fn a_long_chain_is_no_problem() {
        let mut relays: Vec<_> = (0..100_000_u32)
            .map(|number| {
                let mut relay = ScheduledRelay::default();
                relay.fingerprint[..4].copy_from_slice(&number.to_be_bytes());
                relay.addresses = vec![IpAddr::V4((number / 2).into())];
                relay.family_ids = vec![format!("{}", number.div_ceil(2))];
                relay
            })
            .collect();
        relays.reverse();
        assert_eq!(together(&relays).len(), 1);
    }
}
