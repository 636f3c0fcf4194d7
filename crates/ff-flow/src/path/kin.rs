//! Relays that cannot be in one circuit: no relay twice, no two of the same family, IPv4 /16 or
//! IPv6 /32 (path-spec 2.2). Two relays are in the same family if each names the other, or if the
//! same family key has signed both (proposal 321).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use ff_archives::network::{Network, Relay};

/// Subnets of one relay only are numbered from here on; shared subnets are numbered from 0.
const OWN_NET: u32 = 1 << 31;
/// Marks a relay without a family.
const NO_FAMILY: u32 = u32::MAX;

/// The relays that cannot be in a circuit with each relay.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    /// One for each relay of the network.
    relays: Vec<Tied>,
    /// Sets of relays that exclude each other by family; each sorted, and with the relay itself.
    families: Vec<Vec<u32>>,
}

/// A relay and what it shares with others. Kept small, because each line on which the relay lies
/// has a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tied {
    pub(super) relay: u32,
    /// The number of its IPv4 address's /16; a unique number if it has none.
    v4: u32,
    /// The number of its IPv6 address's /32; a unique number if it has none.
    v6: u32,
    /// The index of its set in [`Kin::families`], or [`NO_FAMILY`].
    family: u32,
}

impl Kin {
    /// For the relays of a network.
    pub(super) fn of(network: &Network) -> Self {
        let mut kin = Self { relays: Vec::with_capacity(network.relays.len()), families: vec![] };
        let (mut nets, mut numbers) = (Nets::default(), HashMap::new());
        for ((number, relay), family) in (0..).zip(&network.relays).zip(families(network)) {
            let mut tied = nets.tie(relay, number);
            if family.len() > 1 {
                // Relays of one family usually have the same set, so memory does not grow with the
                // square of the family's size.
                tied.family = *numbers.entry(family).or_insert_with_key(|family| {
                    kin.families.push(family.clone());
                    u32::try_from(kin.families.len() - 1).unwrap_or(NO_FAMILY)
                });
            }
            kin.relays.push(tied);
        }
        kin
    }

    /// The same without the rule of subnets.
    pub(super) fn with_any_subnets(mut self) -> Self {
        for tied in &mut self.relays {
            *tied = Tied { family: tied.family, ..Tied::alone(tied.relay) };
        }
        self
    }

    /// A relay with what it shares with others.
    pub(super) fn tied(&self, relay: u32) -> Tied {
        self.relays[relay as usize]
    }

    /// Whether two relays can be in one circuit.
    pub(super) fn can_meet(&self, one: Tied, other: Tied) -> bool {
        let family = || self.families.get(one.family as usize);
        one.relay != other.relay
            && one.v4 != other.v4
            && one.v6 != other.v6
            && family().is_none_or(|family| family.binary_search(&other.relay).is_err())
    }
}

impl Tied {
    /// A relay that shares nothing with others.
    const fn alone(relay: u32) -> Self {
        Self { relay, v4: OWN_NET | relay, v6: OWN_NET | relay, family: NO_FAMILY }
    }
}

/// The subnets of a network, numbered in order of appearance.
#[derive(Debug, Default)]
struct Nets {
    /// Numbers by the first 32 bits of IPv6 addresses.
    v6: HashMap<u32, u32>,
}

impl Nets {
    /// The relay with this number, with the numbers of its subnets. Clients know one address of
    /// each kind, the first that is listed.
    fn tie(&mut self, relay: &Relay, number: u32) -> Tied {
        let addresses = || relay.addresses.iter().map(IpAddr::to_canonical);
        let v4 = addresses().find_map(|address| match address {
            IpAddr::V4(address) => Some(address.to_bits() >> 16),
            IpAddr::V6(_) => None,
        });
        let v6 = addresses().find_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits() >> 96),
        });
        let next = u32::try_from(self.v6.len()).unwrap_or(OWN_NET);
        let v6 = v6.and_then(|net| u32::try_from(net).ok());
        let v6 = v6.map(|net| *self.v6.entry(net).or_insert(next));
        let alone = Tied::alone(number);
        Tied { v4: v4.unwrap_or(alone.v4), v6: v6.unwrap_or(alone.v6), ..alone }
    }
}

/// For each relay, the relays that it excludes by family, and itself.
fn families(network: &Network) -> impl Iterator<Item = Vec<u32>> {
    let mut of_ids: HashMap<&str, Vec<u32>> = HashMap::new();
    for (number, relay) in (0..).zip(&network.relays) {
        for id in &relay.family_ids {
            of_ids.entry(id).or_default().push(number);
        }
    }
    let relays = (0..).zip(&network.relays).zip(mutual(network));
    relays.map(move |((number, relay), mut family)| {
        family.insert(number);
        let of_ids = relay.family_ids.iter().filter_map(|id| of_ids.get(id.as_str()));
        family.extend(of_ids.flatten());
        family.into_iter().collect()
    })
}

/// For each relay, the relays that it names and that name it.
fn mutual(network: &Network) -> Vec<BTreeSet<u32>> {
    let indices: HashMap<_, u32> =
        network.relays.iter().zip(0..).map(|(relay, index)| (relay.fingerprint, index)).collect();
    let named: Vec<Vec<u32>> = network
        .relays
        .iter()
        .map(|relay| {
            let mut named: Vec<u32> =
                relay.family.iter().filter_map(|one| indices.get(one).copied()).collect();
            named.sort_unstable();
            named
        })
        .collect();
    let is_mutual = |one: u32, other: u32| named[other as usize].binary_search(&one).is_ok();
    let mutual = |(one, named): (u32, &Vec<u32>)| {
        named.iter().copied().filter(|&other| is_mutual(one, other)).collect()
    };
    (0..).zip(&named).map(mutual).collect()
}
