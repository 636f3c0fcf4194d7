//! The order of groups without slots: fair queueing by networks of addresses, so that an owner's
//! flood of relays delays mainly itself.
//!
//! Groups are served in the order of their finish numbers (Demers, Keshav and Shenker, 1989): the
//! capacity that the group's network has got in this period, plus the capacity up to and including
//! the group. So before a group with the number F, no network gets more than F, however many relays
//! it has.
//!
//! There are two levels: within a network (a /24, for IPv6 a /48) the same rule orders its hosts,
//! so that a host whose relays come and go with new identities does not delay other hosts of its
//! network. Relays of one host or family are already one group. Groups with equal numbers are
//! ordered by their first relay.
//!
//! Decisions: doc/decisions.md, "New relays wait in a fair queue over networks".

use std::borrow::Borrow;
use std::collections::HashMap;
use std::net::IpAddr;

use super::group::{host, network};

/// A group that waits for slots.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// Its first relay; relays that came earlier have smaller numbers.
    pub(super) first: u32,
    /// The capacity with which it is measured.
    pub(super) demand: u64,
    /// The addresses of its relays.
    pub(super) addresses: Vec<IpAddr>,
}

impl Waiting {
    /// Adds a relay to be measured with the group.
    pub(super) fn join(&mut self, relay: u32, demand: u64, addresses: &[IpAddr]) {
        self.first = self.first.min(relay);
        self.demand = self.demand.saturating_add(demand);
        self.addresses.extend(addresses);
    }
}

/// The capacity given to hosts, or to networks, in a period.
type Given = HashMap<IpAddr, u64>;

/// The capacity given to hosts and networks in a period.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// To hosts.
    hosts: Given,
    /// To networks.
    networks: Given,
}

impl Served {
    /// Notes that a group has been served.
    pub(super) fn add(&mut self, group: &Waiting) {
        finish(&mut self.hosts, group, host);
        finish(&mut self.networks, group, network);
    }

    /// The indices of these groups in the order in which they are served.
    pub(super) fn order<W: Borrow<Waiting>>(mut self, waiting: &[W]) -> Vec<usize> {
        let mut as_they_came: Vec<_> = (0..waiting.len()).collect();
        as_they_came.sort_by_key(|&index| waiting[index].borrow().first);
        let by_host = in_turn(&mut self.hosts, host, waiting, as_they_came);
        in_turn(&mut self.networks, network, waiting, by_host)
    }
}

/// Sorts groups by their finish numbers, which are computed in the given order.
fn in_turn<W: Borrow<Waiting>>(
    given: &mut Given,
    part: fn(IpAddr) -> IpAddr,
    waiting: &[W],
    order: Vec<usize>,
) -> Vec<usize> {
    let number = |index: usize| {
        let group = waiting[index].borrow();
        (finish(given, group, part), group.first, index)
    };
    let mut numbered: Vec<_> = order.into_iter().map(number).collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, _, index)| index).collect()
}

/// A group's finish number. It counts in each of its networks, and is computed from the one that
/// has got the most: otherwise relays in a second network would bypass the queue of the first one.
fn finish(given: &mut Given, group: &Waiting, part: fn(IpAddr) -> IpAddr) -> u64 {
    let parts = parts(&group.addresses, part);
    let before = parts.iter().filter_map(|part| given.get(part)).max();
    let finish = before.copied().unwrap_or(0).saturating_add(group.demand);
    for part in parts {
        let sum = given.entry(part).or_default();
        *sum = sum.saturating_add(group.demand);
    }
    finish
}

/// The distinct networks, or hosts, of these addresses.
pub(super) fn parts(addresses: &[IpAddr], part: fn(IpAddr) -> IpAddr) -> Vec<IpAddr> {
    let mut parts: Vec<_> = addresses.iter().map(|&address| part(address)).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Groups with these demands on these addresses, in the order in which they came.
    fn waiting(groups: &[(u64, &[&str])]) -> Vec<Waiting> {
        let address = |text: &&str| text.parse().expect("an address");
        (0..)
            .zip(groups)
            .map(|(first, (demand, addresses))| Waiting {
                first,
                demand: *demand,
                addresses: addresses.iter().map(address).collect(),
            })
            .collect()
    }

    #[test]
    fn networks_take_turns_and_of_equal_ones_who_came_first_is_first() {
        let groups = waiting(&[
            (1, &["192.0.2.1"]),
            (1, &["192.0.2.2"]),
            (1, &["192.0.2.3"]),
            (1, &["198.51.100.1"]),
            (1, &[]),
            (1, &["198.51.100.2"]),
            (1, &["2001:db8::1"]),
            (1, &["2001:db8:0:7::1"]),
            (1, &["2001:db8:1::1"]),
        ]);
        assert_eq!(Served::default().order(&groups), [0, 3, 4, 6, 8, 1, 5, 7, 2]);
        let mut served = Served::default();
        served.add(&groups[0]);
        assert_eq!(served.order(&groups[1..]), [2, 3, 5, 7, 0, 4, 6, 1], "it was served before");
    }

    #[test]
    fn who_needs_little_waits_for_no_more_from_any_network() {
        // A full host in each of two networks, and small hosts in the same networks before and
        // after them.
        let groups = waiting(&[
            (20, &["192.0.2.1"]),
            (20, &["198.51.100.1"]),
            (1, &["192.0.2.2"]),
            (1, &["203.0.113.1"]),
        ]);
        assert_eq!(Served::default().order(&groups), [2, 3, 1, 0]);
    }

    #[test]
    fn a_host_whose_relays_come_anew_waits_behind_others_of_its_network() {
        let mut served = Served::default();
        served.add(&waiting(&[(1, &["192.0.2.1"])])[0]);
        let groups = waiting(&[(1, &["192.0.2.1"]), (1, &["192.0.2.2"])]);
        assert_eq!(served.order(&groups), [1, 0]);
    }

    #[test]
    fn a_second_network_is_no_way_round_the_first() {
        let groups = waiting(&[
            (1, &["192.0.2.1"]),
            (1, &["192.0.2.2", "2001:db8::1"]),
            (1, &["192.0.2.3", "2001:db8:1::1"]),
            (1, &["198.51.100.1"]),
        ]);
        assert_eq!(Served::default().order(&groups), [0, 3, 1, 2]);
    }

    proptest! {
        #[test]
        fn before_a_group_no_network_gets_more_than_its_finish_number(
            groups in proptest::collection::vec((1_u64..9, 0_u8..6, 1_u8..20), 1..60),
        ) {
            let groups: Vec<Waiting> = (0..).zip(groups).map(|(first, (demand, net, host))| {
                Waiting { first, demand, addresses: vec![IpAddr::from([192, 0, net, host])] }
            }).collect();
            let order = Served::default().order(&groups);
            let mut given = [0_u64; 6];
            for index in order {
                let IpAddr::V4(address) = groups[index].addresses[0] else { unreachable!("IPv4") };
                let own = usize::from(address.octets()[2]);
                given[own] += groups[index].demand;
                prop_assert!(given.iter().all(|&other| other <= given[own]), "{given:?} at {own}");
            }
        }
    }
}
