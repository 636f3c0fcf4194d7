//! The network's documents that a coordinator has stored, for other readers.
//!
//! Parsing ten thousand descriptors takes too long when one relay is shown. So only their positions
//! are noted, and only the descriptors of the relay and of relays measured with it are parsed.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use ff_base::identity::{Fingerprint, fingerprint_hex};
use ff_base::text::read_bytes;
use ff_dir::consensus::{Consensus, Entry};
use ff_dir::descriptors::{Descriptor, Descriptors, readable};
use ff_live::{descriptors, newest_consensus};
use ff_plan::publish::v3bw::Publication;
use ff_plan::publish::view::publication;

use crate::config::NetworkConfig;

/// The largest size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The last line of a descriptor.
const LAST_LINE: &str = "-----END SIGNATURE-----";

/// The last consensus.
///
/// # Errors
/// A sentence with the reason.
pub fn consensus(network: &NetworkConfig) -> Result<Consensus, String> {
    let path = match network {
        NetworkConfig::Files(files) => files.consensus.clone(),
        NetworkConfig::Live(live) => newest_consensus(&live.cache_dir)?,
    };
    let text = read(&path)?;
    let read = Consensus::parse(&String::from_utf8_lossy(&text));
    read.map_err(|error| format!("{}: {error}", path.display()))
}

/// The documents' data about a relay and about relays that are or were measured with it; the others
/// are only counted. `beside` are the relays that were measured with it.
#[must_use]
pub fn publication_around(
    consensus: &Consensus,
    descriptions: Option<&Descriptions>,
    beside: &[Fingerprint],
    relay: &Fingerprint,
    now_unix_secs: u64,
) -> Publication {
    let mut around = Around::new(consensus, descriptions);
    around.go(beside.iter().copied().chain([*relay]).collect());
    let is_near = |entry: &&Entry| around.near.contains(&entry.fingerprint);
    let relays = consensus.relays.iter().filter(is_near).cloned().collect();
    let near = Consensus {
        valid_after: consensus.valid_after.clone(),
        fresh_until: consensus.fresh_until.clone(),
        valid_until: consensus.valid_until.clone(),
        shared_random: consensus.shared_random,
        relays,
    };
    let mut publication = publication(&near, &around.described, now_unix_secs);
    publication.consensus_relays = consensus.relays.len() as u64;
    publication
}

/// Finds the relays that may be measured with one relay. Groups of these are the same as groups of
/// all relays.
struct Around<'a> {
    /// All relays' descriptors.
    descriptions: Option<&'a Descriptions>,
    /// The relays at each address.
    at: HashMap<IpAddr, Vec<Fingerprint>>,
    /// The addresses of each relay of the consensus.
    addresses: HashMap<Fingerprint, &'a Entry>,
    /// The relays of each family with a key that has not been followed, when there is need of them.
    families: Option<HashMap<String, Vec<Fingerprint>>>,
    /// The relays found.
    near: BTreeSet<Fingerprint>,
    /// The descriptors of relays found.
    described: HashMap<Fingerprint, Descriptor>,
}

impl<'a> Around<'a> {
    /// Starts with this consensus.
    fn new(consensus: &'a Consensus, descriptions: Option<&'a Descriptions>) -> Self {
        let mut at = HashMap::<_, Vec<_>>::new();
        for entry in &consensus.relays {
            for address in entry.addresses() {
                at.entry(address.to_canonical()).or_default().push(entry.fingerprint);
            }
        }
        let addresses = consensus.relays.iter().map(|entry| (entry.fingerprint, entry)).collect();
        let (near, described) = (BTreeSet::new(), HashMap::new());
        Self { descriptions, at, addresses, families: None, near, described }
    }

    /// Finds all relays connected to these, directly or through others.
    fn go(&mut self, mut ahead: Vec<Fingerprint>) {
        while let Some(relay) = ahead.pop() {
            if !self.near.insert(relay) {
                continue;
            }
            let Some(entry) = self.addresses.get(&relay) else { continue };
            let addresses = entry.addresses();
            let neighbours =
                addresses.iter().filter_map(|address| self.at.get(&address.to_canonical()));
            ahead.extend(neighbours.flatten());
            let Some(own) = self.describe(&relay) else { continue };
            // Two relays are a family only if both name each other.
            for other in own.family {
                if self.describe(&other).is_some_and(|other| other.family.contains(&relay)) {
                    ahead.push(other);
                }
            }
            if let Some(descriptions) = self.descriptions.filter(|_| !own.family_ids.is_empty()) {
                let families = self.families.get_or_insert_with(|| descriptions.families());
                // Each is followed once, and not again from each of its relays.
                ahead.extend(own.family_ids.iter().filter_map(|id| families.remove(id)).flatten());
            }
        }
    }

    /// The descriptor of a relay.
    fn describe(&mut self, relay: &Fingerprint) -> Option<Descriptor> {
        if let Some(known) = self.described.get(relay) {
            return Some(known.clone());
        }
        let named = self.addresses.get(relay).and_then(|entry| entry.descriptor);
        let descriptor = self.descriptions?.of(relay, named)?;
        self.described.insert(*relay, descriptor.clone());
        Some(descriptor)
    }
}

/// Descriptors with their positions.
#[derive(Debug, Default)]
pub struct Descriptions {
    /// The files.
    files: Vec<Vec<u8>>,
    /// Positions of descriptors that name this fingerprint, by file.
    places: HashMap<Fingerprint, Vec<(usize, Range<usize>)>>,
    /// Positions of descriptors with a family's key.
    with_family_key: Vec<(usize, Range<usize>)>,
}

impl Descriptions {
    /// Reads the descriptors of a coordinator.
    ///
    /// # Errors
    /// A sentence that names the file that cannot be read.
    pub fn read(network: &NetworkConfig) -> Result<Self, String> {
        let paths = match network {
            NetworkConfig::Files(files) => files.descriptors.clone(),
            NetworkConfig::Live(live) => vec![descriptors(&live.cache_dir)],
        };
        let mut all = Self::default();
        for path in paths {
            all.add(read(&path)?);
        }
        Ok(all)
    }

    /// Notes the positions of a file's descriptors.
    fn add(&mut self, bytes: Vec<u8>) {
        let file = self.files.len();
        let text = readable(&bytes);
        let (mut start, mut at) = (0, 0);
        let (mut named, mut has_key) = (Vec::new(), false);
        for line in text.split_inclusive('\n') {
            at += line.len();
            match line.trim_end() {
                LAST_LINE => {
                    for fingerprint in named.drain(..) {
                        self.places.entry(fingerprint).or_default().push((file, start..at));
                    }
                    self.with_family_key
                        .extend(std::mem::take(&mut has_key).then_some((file, start..at)));
                    start = at;
                }
                line => {
                    let line = line.strip_prefix("opt ").unwrap_or(line);
                    has_key |= line.starts_with("family-cert");
                    if let Some(digits) = line.strip_prefix("fingerprint") {
                        let digits = digits.split_ascii_whitespace().collect::<String>();
                        named.extend(fingerprint_hex(&digits));
                    }
                }
            }
        }
        drop(text);
        self.files.push(bytes);
    }

    /// The descriptor at a position; none if the line there only looks like a relay's name.
    fn at(&self, (file, place): &(usize, Range<usize>)) -> HashMap<Fingerprint, Descriptor> {
        let bytes = self.files.get(*file).and_then(|bytes| bytes.get(place.clone()));
        Descriptors::parse(bytes.unwrap_or_default()).relays
    }

    /// The descriptor of a relay: the one with this digest, or else the newest.
    fn of(&self, relay: &Fingerprint, named: Option<[u8; 20]>) -> Option<Descriptor> {
        let places = self.places.get(relay)?.iter();
        let all = places.filter_map(|place| self.at(place).remove(relay));
        all.max_by_key(|one| (Some(one.digest) == named, one.published_unix_secs))
    }

    /// The relays of each family with a key.
    fn families(&self) -> HashMap<String, Vec<Fingerprint>> {
        let mut families = HashMap::<_, Vec<_>>::new();
        for (relay, descriptor) in self.with_family_key.iter().flat_map(|place| self.at(place)) {
            for id in descriptor.family_ids {
                families.entry(id).or_default().push(relay);
            }
        }
        families
    }
}

/// Reads a file.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_bytes(path, MAX_FILE_BYTES).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Descriptors of the real network.
    const REAL: &str = include_str!("../../../ff-dir/tests/data/descriptors");

    /// A relay of a consensus.
    fn entry(fingerprint: Fingerprint, address: &str) -> Entry {
        let or_ports = vec![format!("{address}:9001").parse::<SocketAddr>().expect("an address")];
        Entry { fingerprint, or_ports, nickname: "x".to_owned(), ..Entry::default() }
    }

    /// A descriptor with this family.
    fn descriptor(relay: u8, family: &[u8], more: &str) -> String {
        let family: String =
            family.iter().map(|other| format!(" ${}", hex::encode([*other; 20]))).collect();
        format!(
            "router x 192.0.2.1 1 0 0\nfingerprint {}\nbandwidth {relay} {relay} {relay}\nfamily{family}\n{more}\
             router-signature\n-----BEGIN SIGNATURE-----\nAA\n-----END SIGNATURE-----\n",
            hex::encode([relay; 20])
        )
    }

    #[test]
    fn each_descriptor_is_what_reading_all_gives() {
        let mut some = Descriptions::default();
        some.add(REAL.into());
        let all = Descriptors::parse(REAL).relays;
        assert_eq!(all.len(), 3);
        for (relay, descriptor) in &all {
            assert_eq!(some.of(relay, None).as_ref(), Some(descriptor));
        }
        let families = some.families();
        assert!(!families.is_empty());
        for (relay, descriptor) in &all {
            assert!(descriptor.family_ids.iter().all(|id| families[id].contains(relay)));
        }
        assert_eq!(some.of(&[0; 20], None), None);
    }

    #[test]
    fn each_family_with_a_key_is_followed_once() {
        let mut some = Descriptions::default();
        some.add(REAL.into());
        let (relay, id) = some
            .families()
            .into_iter()
            .find_map(|(id, relays)| Some((*relays.first()?, id)))
            .expect("a family");
        let consensus =
            Consensus { relays: vec![entry(relay, "192.0.2.1")], ..Consensus::default() };
        let mut around = Around::new(&consensus, Some(&some));
        around.go(vec![relay]);
        assert!(around.near.contains(&relay));
        assert!(around.families.is_some_and(|families| !families.contains_key(&id)));
    }

    #[test]
    fn nobody_speaks_for_another_out_of_an_object() {
        let hex = hex::encode([2; 20]);
        let object = format!(
            "x\n-----BEGIN X-----\nrouter y 192.0.2.9 1 0 0\nfingerprint {hex}\nbandwidth 9 9 9\n-----END X-----\n"
        );
        let mut some = Descriptions::default();
        some.add((descriptor(2, &[], "") + &descriptor(1, &[], &object)).into());
        assert_eq!(some.of(&[2; 20], None).expect("its own").rate_bytes_per_sec, 2);
    }

    #[test]
    fn groups_around_a_relay_are_those_of_the_whole_network() {
        // 1 and 2 name each other, 2 and 3 share an address, 4 names 1, which does not name it, 5
        // is alone.
        let text: String = [(1, &[2_u8, 4][..]), (2, &[1]), (3, &[]), (4, &[]), (5, &[])]
            .iter()
            .map(|(relay, family)| descriptor(*relay, family, ""))
            .collect();
        let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.4", "192.0.2.5"];
        let relays = (1..).zip(addresses).map(|(relay, address)| entry([relay; 20], address));
        let consensus = Consensus { relays: relays.collect(), ..Consensus::default() };
        let whole = publication(&consensus, &Descriptors::parse(&text).relays, 7);
        let mut some = Descriptions::default();
        some.add(text.into());
        for relay in 1..=5 {
            let around = publication_around(&consensus, Some(&some), &[], &[relay; 20], 7);
            let group = |of: &Publication| {
                of.groups.iter().find(|group| group.contains(&[relay; 20])).cloned()
            };
            assert_eq!(group(&around), group(&whole), "{relay}");
            assert_eq!(around.directory.get(&[relay; 20]), whole.directory.get(&[relay; 20]));
            assert_eq!(around.consensus_relays, 5);
        }
        let unknown = publication_around(&consensus, None, &[], &[9; 20], 7);
        assert!(unknown.directory.is_empty());
    }
}
