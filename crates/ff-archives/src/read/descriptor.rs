//! The fields of server descriptors that are used here, scanned as bytes (dir-spec 2.1.1), and
//! networks joined from a consensus and descriptors.
//!
//! Descriptors are appended to one vector, their texts to one string and their families to two more
//! vectors, so nothing is allocated per descriptor. Signatures are not checked: a descriptor
//! belongs to a consensus if its SHA-1 is listed there. So a descriptor that is truncated within
//! its signature counts as complete. Family certificates are checked as in `ff_dir`: they must be
//! complete and name this relay.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_dir::DocumentError;
use ff_dir::family::{FamilyCert, family_id};
use ff_proto::units::BytesPerSec;
use sha1::{Digest as _, Sha1};

use crate::network::{CapacitySource, Network};
use crate::read::archive::{self, FileDocument};
use crate::read::consensus::scan::{self, Line, Lines};
use crate::read::consensus::{Consensus, Digest};

/// The greatest bandwidth that is accepted, in bytes per second: 2^53.
pub const MOST_BANDWIDTH: u64 = 1 << 53;

/// The fields of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// SHA-1 from `router` to the end of the line `router-signature`.
    pub digest: [u8; 20],
    /// The relay's fingerprint.
    pub fingerprint: Fingerprint,
    /// The relay's IPv4 address.
    pub address: Ipv4Addr,
    /// The OR port at that address.
    pub or_port: u16,
    /// When the descriptor was published, in seconds since 1970.
    pub published_unix_secs: u64,
    /// The average rate allowed by the operator, in bytes per second.
    pub rate: u64,
    /// The burst rate allowed by the operator, in bytes per second.
    pub burst: u64,
    /// The observed bandwidth, in bytes per second.
    pub observed: u64,
    /// When it was last overloaded, in seconds since 1970, if stated.
    pub overloaded_unix_secs: Option<u64>,
    /// The relay's uptime at publication, in seconds, if stated.
    pub uptime_secs: Option<u64>,
    /// The place of its nickname among all texts.
    nickname: Range<usize>,
    /// The place of its platform among all texts; empty if it has none.
    platform: Range<usize>,
    /// The place of its family among all.
    family: Range<usize>,
    /// The place of its family keys among all.
    family_keys: Range<usize>,
}

impl Descriptor {
    /// The limit set by the operator, in bytes per second: the lower of rate and burst.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.rate.min(self.burst)
    }

    /// The advertised bandwidth in bytes per second: the lowest of rate, burst and observed
    /// bandwidth.
    #[must_use]
    pub fn advertised(&self) -> u64 {
        self.limit().min(self.observed)
    }
}

/// The fields of many descriptors, with shared memory for texts and families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The descriptors, in the order of reading.
    pub all: Vec<Descriptor>,
    /// Their texts, one after another.
    texts: String,
    /// Their families, one after another.
    families: Vec<Fingerprint>,
    /// The family keys that have signed their relays, one after another.
    family_keys: Vec<[u8; 32]>,
}

impl Descriptors {
    /// Removes all descriptors but keeps allocated memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.texts.clear();
        self.families.clear();
        self.family_keys.clear();
    }

    /// Adds the descriptors in a file, one or more. Returns the errors of invalid ones, each with
    /// the first invalid line of the file.
    pub fn add(&mut self, file: &[u8]) -> Vec<DocumentError> {
        archive::documents(file).filter_map(|part| self.add_one(part).err()).collect()
    }

    /// Adds one descriptor.
    ///
    /// # Errors
    /// [`DocumentError`] if the text is not a descriptor, is truncated, lacks a line, or has an
    /// invalid one.
    pub fn add_one(&mut self, part: FileDocument<'_>) -> Result<(), DocumentError> {
        let (texts, families) = (self.texts.len(), self.families.len());
        let keys = self.family_keys.len();
        let result = self.read(part.bytes);
        if result.is_err() {
            self.texts.truncate(texts);
            self.families.truncate(families);
            self.family_keys.truncate(keys);
        }
        let line = |line: usize| part.first_line.saturating_add(line).saturating_sub(1);
        let at = |error: DocumentError| DocumentError { line: line(error.line), ..error };
        self.all.extend(result.map_err(at)?);
        Ok(())
    }

    /// Reads a descriptor; `None` if the text is blank.
    fn read(&mut self, document: &[u8]) -> Result<Option<Descriptor>, DocumentError> {
        let mut lines = Lines::of(document);
        let head = lines.by_ref().find(|line| !matches!(line.keyword, [] | [b'@', ..]));
        let Some(head) = head else { return Ok(None) };
        if head.keyword != b"router" {
            return Err(scan::error(head.number, "this is not a server descriptor"));
        }
        let keys = self.family_keys.len();
        let mut begun = Begun { family_keys: keys..keys, ..Begun::default() };
        let bad = |line: Line<'_>, wrong: &str| scan::error(line.number, wrong);
        begun.read_router(head.rest, self).map_err(|wrong| bad(head, wrong))?;
        for line in lines {
            let read = match line.keyword {
                b"router-signature" => Ok(()),
                b"family-cert" => {
                    let object = scan::object(document.get(line.end..).unwrap_or_default());
                    begun.read_family_cert(line, object, self)
                }
                _ => begun.read(line, self),
            };
            read.map_err(|wrong| bad(line, wrong))?;
            if line.keyword != b"router-signature" {
                continue;
            }
            begun.check_family_certs()?;
            let signed = document.get(head.start..line.end).filter(|text| text.ends_with(b"\n"));
            let digest = signed.map(|text| Sha1::digest(text).into());
            let descriptor = digest.ok_or(CUT).and_then(|digest| begun.finish(digest));
            return descriptor.map(Some).map_err(|wrong| bad(head, wrong));
        }
        Err(bad(head, if begun.is_of_bridge { BRIDGE } else { CUT }))
    }

    /// Stores a text, if it is UTF-8.
    fn keep(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        let start = self.texts.len();
        self.texts.push_str(scan::text(bytes)?);
        Some(start..self.texts.len())
    }

    /// Stores a family. Nicknames among its members are ambiguous and ignored.
    fn keep_family(&mut self, rest: &[u8]) -> Range<usize> {
        let start = self.families.len();
        self.families.extend(scan::words(rest).filter_map(member));
        start..self.families.len()
    }
}

impl Descriptors {
    /// The nickname of a relay.
    #[must_use]
    pub fn nickname(&self, of: &Descriptor) -> &str {
        self.texts.get(of.nickname.clone()).unwrap_or_default()
    }

    /// The platform of a relay: its version of Tor and its system.
    #[must_use]
    pub fn platform(&self, of: &Descriptor) -> &str {
        self.texts.get(of.platform.clone()).unwrap_or_default()
    }

    /// The relays that a relay names as its family, by fingerprint.
    #[must_use]
    pub fn family(&self, of: &Descriptor) -> &[Fingerprint] {
        self.families.get(of.family.clone()).unwrap_or_default()
    }

    /// The families with keys that have signed a relay's identity, named as in `family-ids`
    /// (proposal 321).
    pub fn family_ids(&self, of: &Descriptor) -> impl Iterator<Item = String> {
        self.family_keys.get(of.family_keys.clone()).unwrap_or_default().iter().map(family_id)
    }
}

/// The network of a consensus with data from descriptors: observed bandwidths are capacities, and
/// the lower of rate and burst is the limit. Relays with missing descriptors, by digest, have no
/// capacity.
#[must_use]
pub fn join(consensus: &Consensus, descriptors: &Descriptors) -> Network {
    let by_digest: HashMap<[u8; 20], &Descriptor> =
        descriptors.all.iter().map(|one| (one.digest, one)).collect();
    let mut network = consensus.to_network();
    network.capacities = CapacitySource::Observed;
    for (relay, listed) in network.relays.iter_mut().zip(&consensus.relays) {
        relay.capacity = None;
        let Digest::Descriptor(digest) = listed.digest else { continue };
        let found = by_digest.get(&digest);
        let Some(found) = found.filter(|found| found.fingerprint == listed.fingerprint) else {
            continue;
        };
        relay.capacity = Some(BytesPerSec::new(found.observed));
        relay.rate = Some(BytesPerSec::new(found.limit()));
        relay.family = descriptors.family(found).to_vec();
        relay.family_ids = descriptors.family_ids(found).collect();
    }
    network
}

/// The error for a truncated descriptor.
const CUT: &str = "the descriptor ends too early";
/// The error for a bridge's descriptor.
const BRIDGE: &str = "this is a bridge's descriptor; only relays' are read";

/// A descriptor that is being read.
#[derive(Default)]
struct Begun {
    /// The relay's address and OR port.
    router: Option<(Ipv4Addr, u16)>,
    fingerprint: Option<Fingerprint>,
    published: Option<u64>,
    /// Rate, burst and observed bandwidth.
    bandwidth: Option<[u64; 3]>,
    overloaded: Option<u64>,
    uptime: Option<u64>,
    /// The place of its nickname.
    nickname: Range<usize>,
    /// The place of its platform.
    platform: Range<usize>,
    /// The place of its family.
    family: Range<usize>,
    /// The place of its family keys.
    family_keys: Range<usize>,
    /// The relay's Ed25519 identity.
    ed25519: Option<[u8; 32]>,
    /// The identities signed by family keys, each with the number of its line.
    signed: Vec<([u8; 32], usize)>,
    /// Whether it is a bridge's descriptor, in which CollecTor replaces the signature by a digest.
    is_of_bridge: bool,
}

impl Begun {
    /// Reads the line `router`.
    fn read_router(&mut self, rest: &[u8], all: &mut Descriptors) -> Result<(), &'static str> {
        let mut words = scan::words(rest);
        let mut read = || {
            let nickname = words.next().filter(|word| scan::is_nickname(word))?;
            let address = scan::ipv4(words.next()?)?;
            Some((all.keep(nickname)?, (address, scan::port(words.next()?)?)))
        };
        let (nickname, router) = read().ok_or("the router cannot be read")?;
        (self.nickname, self.router) = (nickname, Some(router));
        Ok(())
    }

    /// Reads another line.
    fn read(&mut self, line: Line<'_>, all: &mut Descriptors) -> Result<(), &'static str> {
        let rest = line.rest;
        match line.keyword {
            b"fingerprint" => {
                once(&mut self.fingerprint, fingerprint(rest), "the fingerprint cannot be read")
            }
            b"bandwidth" => {
                once(&mut self.bandwidth, bandwidth(rest)?, "the bandwidth cannot be read")
            }
            b"published" => {
                let secs = scan::time(rest)
                    .map_err(|_| "the time of publication cannot be read, or is before 2007");
                once(&mut self.published, Some(secs?), "")
            }
            // The line has a version; unknown versions are ignored.
            b"overload-general" => {
                let time = rest.strip_prefix(b"1 ").and_then(|time| scan::time(time).ok());
                self.overloaded = time;
                Ok(())
            }
            // Relays with a broken clock have published negative values.
            b"uptime" => {
                let secs = scan::words(rest).next().and_then(scan::number);
                self.uptime = secs.filter(|secs| *secs <= MOST_BANDWIDTH);
                Ok(())
            }
            b"platform" => {
                self.platform = all.keep(rest).ok_or("the platform is not text")?;
                Ok(())
            }
            b"family" => {
                self.family = all.keep_family(rest);
                Ok(())
            }
            b"master-key-ed25519" => {
                let key = scan::words(rest).next().unwrap_or_default();
                self.ed25519 = scan::base64(key.strip_suffix(b"=").unwrap_or(key));
                Ok(())
            }
            b"router-digest" | b"router-digest-sha256" => {
                self.is_of_bridge = true;
                Ok(())
            }
            b"router" => Err("another descriptor begins here"),
            _ => Ok(()),
        }
    }

    /// Stores a family key and the identity that it has signed.
    fn read_family_cert(
        &mut self,
        line: Line<'_>,
        object: Option<&[u8]>,
        all: &mut Descriptors,
    ) -> Result<(), &'static str> {
        let certificate = object.and_then(scan::text).and_then(FamilyCert::parse);
        let certificate = certificate.ok_or("the family's certificate cannot be read")?;
        all.family_keys.push(certificate.family);
        self.family_keys.end = all.family_keys.len();
        self.signed.push((certificate.relay, line.number));
        Ok(())
    }

    /// Checks that family keys have signed this relay and no other. The relay's key may come after
    /// their certificates.
    fn check_family_certs(&self) -> Result<(), DocumentError> {
        let mut others = self.signed.iter().filter(|(relay, _)| Some(*relay) != self.ed25519);
        let wrong = others
            .next()
            .map(|&(_, line)| scan::error(line, "the family's certificate is another relay's"));
        wrong.map_or(Ok(()), Err)
    }

    /// The descriptor, if all required fields are present.
    fn finish(self, digest: [u8; 20]) -> Result<Descriptor, &'static str> {
        let [rate, burst, observed] = self.bandwidth.ok_or("the descriptor has no bandwidth")?;
        let (address, or_port) = self.router.ok_or("the descriptor has no router")?;
        Ok(Descriptor {
            digest,
            fingerprint: self.fingerprint.ok_or("the descriptor has no fingerprint")?,
            address,
            or_port,
            published_unix_secs: self.published.ok_or("the descriptor has no time")?,
            rate,
            burst,
            observed,
            overloaded_unix_secs: self.overloaded,
            uptime_secs: self.uptime,
            nickname: self.nickname,
            platform: self.platform,
            family: self.family,
            family_keys: self.family_keys,
        })
    }
}

/// Sets a field that may occur only once.
fn once<T>(field: &mut Option<T>, value: Option<T>, bad: &'static str) -> Result<(), &'static str> {
    let before = field.replace(value.ok_or(bad)?);
    if before.is_some() { Err("the line appears twice") } else { Ok(()) }
}

/// The three values of `bandwidth`.
fn bandwidth(rest: &[u8]) -> Result<Option<[u64; 3]>, &'static str> {
    let mut words = scan::words(rest).map(scan::number);
    let mut next = || words.next().flatten();
    let numbers = [next(), next(), next()];
    let [Some(rate), Some(burst), Some(observed)] = numbers else { return Ok(None) };
    let most = rate.max(burst).max(observed);
    if most > MOST_BANDWIDTH {
        Err("the bandwidth is above 2^53")
    } else {
        Ok(Some([rate, burst, observed]))
    }
}

/// The value of `fingerprint`, in ten groups of four digits or grouped otherwise.
fn fingerprint(rest: &[u8]) -> Option<Fingerprint> {
    let mut digits = [0; 40];
    let mut len = 0;
    for word in scan::words(rest) {
        digits.get_mut(len..len + word.len())?.copy_from_slice(word);
        len += word.len();
    }
    scan::hexadecimal(digits.get(..len)?)
}

/// A family member: 40 digits, optionally with `$` before and a nickname after them.
fn member(word: &[u8]) -> Option<Fingerprint> {
    let word = word.strip_prefix(b"$").unwrap_or(word);
    let (digits, behind) = word.split_at_checked(40)?;
    matches!(behind, [] | [b'=' | b'~', ..]).then(|| scan::hexadecimal(digits))?
}

#[cfg(test)]
mod tests;
