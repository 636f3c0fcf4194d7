//! Server descriptors, as many as a file has (dir-spec 2.1.1): what relays say of their rates and
//! families.
//!
//! Signatures are not checked: the file must come from somebody who has, as directory authorities
//! do.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ff_base::identity::{Fingerprint, fingerprint_hex, key_base64};
use sha1::{Digest as _, Sha1};

use super::consensus::Consensus;
use super::family::{FamilyCert, family_id};
use super::{DocumentError, Item, Items, unix_secs, words};

/// The fields read from a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// SHA-1 of it, without its signature's value: by this a consensus names it (dir-spec 3.4.1).
    pub digest: [u8; 20],
    /// The relay's Ed25519 identity.
    pub ed25519: Option<[u8; 32]>,
    /// The operator's limit for sustained traffic, in bytes a second.
    pub rate_bytes_per_sec: u64,
    /// And for a short while.
    pub burst_bytes_per_sec: u64,
    /// The relay's own observation of its traffic, in bytes a second.
    pub observed_bytes_per_sec: u64,
    /// When it was made, in seconds since 1970.
    pub published_unix_secs: Option<u64>,
    /// When the relay was last overloaded, to the hour, if it says so, in seconds since 1970.
    pub overloaded_unix_secs: Option<u64>,
    /// The relays that it declares as its family.
    pub family: Vec<Fingerprint>,
    /// The families whose keys have signed its identity, named as in `family-ids`.
    pub family_ids: Vec<String>,
}

impl Descriptor {
    /// The advertised bandwidth: the least of the three.
    #[must_use]
    pub fn advertised_bytes_per_sec(&self) -> u64 {
        let rate = self.rate_bytes_per_sec.min(self.burst_bytes_per_sec);
        rate.min(self.observed_bytes_per_sec)
    }
}

/// The descriptors of a file.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// The descriptors by relay; of one that has several, the newest, and of equally old ones the
    /// last.
    pub relays: HashMap<Fingerprint, Descriptor>,
    /// The other ones.
    older: Vec<(Fingerprint, Descriptor)>,
    /// Descriptors that cannot be read, each by its first line that cannot. One relay's is no
    /// reason to do without the others.
    pub skipped: Vec<DocumentError>,
}

/// A descriptor that is being read.
#[derive(Default)]
struct Begun {
    /// Its first line.
    start: usize,
    /// Where that begins in the text.
    start_byte: usize,
    /// Its relay.
    fingerprint: Option<Fingerprint>,
    /// The parsed fields.
    descriptor: Descriptor,
    /// Whom its families' keys have signed, and in which line.
    signed: Vec<([u8; 32], usize)>,
    /// The first error in it.
    error: Option<DocumentError>,
}

impl Begun {
    /// Reads a line.
    fn read(&mut self, item: Item<'_>) {
        let Item { line, keyword, rest, object, .. } = item;
        let is_read = match keyword {
            "fingerprint" => {
                self.fingerprint = fingerprint_hex(&words(rest).collect::<String>());
                self.fingerprint.is_some()
            }
            "bandwidth" => self.read_bandwidth(rest).is_some(),
            "master-key-ed25519" => {
                self.descriptor.ed25519 = key_base64(rest.trim());
                self.descriptor.ed25519.is_some()
            }
            "published" => {
                self.descriptor.published_unix_secs = unix_secs(rest);
                self.descriptor.published_unix_secs.is_some()
            }
            // The form has a version; an unknown version is ignored.
            "overload-general" => {
                let time = rest.strip_prefix("1 ").and_then(unix_secs);
                self.descriptor.overloaded_unix_secs = time;
                true
            }
            // Nicknames among them say nothing for certain.
            "family" => {
                self.descriptor.family = words(rest).filter_map(fingerprint_hex).collect();
                true
            }
            "family-cert" => self.read_family_cert(line, object).is_some(),
            _ => true,
        };
        if !is_read {
            let error =
                || DocumentError::new(line, format!("the {} cannot be read", name(keyword)));
            self.error.get_or_insert_with(error);
        }
    }

    /// Takes over the three numbers of `bandwidth`.
    fn read_bandwidth(&mut self, rest: &str) -> Option<()> {
        let mut numbers = words(rest).map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        (self.descriptor.rate_bytes_per_sec, self.descriptor.burst_bytes_per_sec) =
            (next()?, next()?);
        self.descriptor.observed_bytes_per_sec = next()?;
        Some(())
    }

    /// Takes over a family's key and whom it has signed.
    fn read_family_cert(&mut self, line: usize, object: Option<&str>) -> Option<()> {
        let certificate = FamilyCert::parse(object?)?;
        self.descriptor.family_ids.push(family_id(&certificate.family));
        self.signed.push((certificate.relay, line));
        Some(())
    }

    /// The descriptor, if all of it is there.
    fn finish(self, is_whole: bool) -> Result<(Fingerprint, Descriptor), DocumentError> {
        let lacks = |what: &str| DocumentError::new(self.start, format!("the descriptor {what}"));
        let own = self.descriptor.ed25519;
        let foreign = self.signed.iter().find(|(signed, _)| Some(*signed) != own);
        let foreign = foreign.map(|(_, line)| {
            DocumentError::new(*line, "the family's certificate is another relay's")
        });
        match (self.error.or(foreign.filter(|_| is_whole)), self.fingerprint) {
            (Some(error), _) => Err(error),
            _ if !is_whole => Err(lacks("ends too early")),
            (None, None) => Err(lacks("has no fingerprint")),
            (None, Some(fingerprint)) => Ok((fingerprint, self.descriptor)),
        }
    }
}

impl Descriptors {
    /// Reads the descriptors of a file. Contact lines may have any encoding; digests are of the
    /// file's bytes.
    #[must_use]
    pub fn parse(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let text = readable(bytes);
        let mut all = Self::default();
        let mut begun: Option<Begun> = None;
        for item in Items::of(&text) {
            if item.keyword == "router" {
                let next = Begun { start: item.line, start_byte: item.start, ..Begun::default() };
                all.add(begun.replace(next), false);
            }
            if item.keyword == "router-signature" {
                if let Some(begun) = &mut begun {
                    begun.descriptor.digest =
                        digest(&bytes[begun.start_byte..], item.start - begun.start_byte);
                }
                all.add(begun.take(), true);
            }
            if let Some(begun) = &mut begun {
                begun.read(item);
            }
        }
        all.add(begun, false);
        all
    }

    /// Adds what another file has.
    pub fn extend(&mut self, other: Self) {
        let all = other.older.into_iter().chain(other.relays);
        all.for_each(|(fingerprint, descriptor)| self.insert(fingerprint, descriptor));
        self.skipped.extend(other.skipped);
    }

    /// The descriptors by relay: the one that a consensus names, if it is there, or the newest.
    #[must_use]
    pub fn named_by(self, consensus: &Consensus) -> HashMap<Fingerprint, Descriptor> {
        let mut relays = self.relays;
        if self.older.is_empty() {
            return relays;
        }
        let named = consensus.relays.iter().map(|entry| (entry.fingerprint, entry.descriptor));
        let named: HashMap<_, _> = named.collect();
        for (fingerprint, descriptor) in self.older {
            if named.get(&fingerprint) == Some(&Some(descriptor.digest)) {
                relays.insert(fingerprint, descriptor);
            }
        }
        relays
    }

    /// Adds one.
    fn insert(&mut self, fingerprint: Fingerprint, descriptor: Descriptor) {
        match self.relays.entry(fingerprint) {
            Entry::Vacant(place) => _ = place.insert(descriptor),
            Entry::Occupied(mut place) => {
                let is_newer = descriptor.published_unix_secs >= place.get().published_unix_secs;
                let older = if is_newer { place.insert(descriptor) } else { descriptor };
                self.older.push((fingerprint, older));
            }
        }
    }

    /// Adds what was begun.
    fn add(&mut self, begun: Option<Begun>, is_whole: bool) {
        match begun.map(|begun| begun.finish(is_whole)) {
            Some(Ok((fingerprint, descriptor))) => self.insert(fingerprint, descriptor),
            Some(Err(error)) => self.skipped.push(error),
            None => {}
        }
    }
}

/// Text of the same length in bytes, with a `?` for each byte that is not UTF-8: everything that is
/// parsed is ASCII.
#[must_use]
pub fn readable(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    Cow::Owned(text)
}

/// The digest of the descriptor at the start of a file's rest; its line `router-signature` starts
/// at byte `last`.
fn digest(bytes: &[u8], last: usize) -> [u8; 20] {
    let end = bytes[last..].iter().position(|byte| *byte == b'\n');
    let end = end.map_or(bytes.len(), |end| last + end + 1);
    Sha1::digest(&bytes[..end]).into()
}

/// What a line is called in messages.
fn name(keyword: &str) -> &str {
    match keyword {
        "master-key-ed25519" => "identity",
        "published" => "time of publication",
        "family-cert" => "family's certificate",
        keyword => keyword,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two descriptors.
    const TEXT: &str = "\
        @type server-descriptor 1.0\nrouter one 192.0.2.1 443 0 0\n\
        fingerprint 846B 3EAA F0C0 7FF7 2FC7 9AEB B11F A3AD C58F 240F\n\
        bandwidth 4594304 4594304 3046428\n\
        family $0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91 $195712E96FD1C1B18D14D09E9E4E7A6416E23B2C~x name\n\
        router-signature\n-----BEGIN SIGNATURE-----\n-----END SIGNATURE-----\n\
        router two 192.0.2.2 443 0 0\nbandwidth 1000  2000\t3000\n\
        opt fingerprint 0BC8 BA32 CC3C B0F5 98E0 C927 78F7 C094 6DFB CE91\nrouter-signature\n";

    /// A fingerprint.
    fn name(text: &str) -> Fingerprint {
        fingerprint_hex(text).expect("a fingerprint")
    }

    #[test]
    fn rates_and_families_are_read() {
        let Descriptors { relays, skipped, .. } = Descriptors::parse(TEXT);
        let two = name("0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91");
        let one = &relays[&name("846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F")];
        assert_eq!(one.advertised_bytes_per_sec(), 3_046_428);
        assert_eq!(one.family, [two, name("195712E96FD1C1B18D14D09E9E4E7A6416E23B2C")]);
        assert_eq!(relays[&two].advertised_bytes_per_sec(), 1000);
        assert_eq!((relays.len(), skipped), (2, vec![]));
    }

    #[test]
    fn of_several_the_one_that_the_consensus_names_counts_or_the_newest() {
        let relay = name("0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91");
        let (_, one) = TEXT.split_once("router two").expect("the second");
        let one = |day: u32| {
            let published =
                format!("published 2026-05-{day:02} 08:00:00\nbandwidth {day} {day} {day}");
            format!("router two{}", one.replace("bandwidth 1000  2000\t3000", &published))
        };
        let days = |text: &str, consensus: &Consensus| {
            Descriptors::parse(text).named_by(consensus)[&relay].advertised_bytes_per_sec()
        };
        let none = Consensus::default();
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [2, 1, 3]] {
            let text: String = order.iter().map(|&day| one(day)).collect();
            assert_eq!(days(&text, &none), 3, "{order:?}");
            for day in 1..=3 {
                let digest = Some(Sha1::digest(one(day)).into());
                let mut consensus = Consensus::default();
                consensus.relays.push(super::super::consensus::Entry {
                    fingerprint: relay,
                    descriptor: digest,
                    ..Default::default()
                });
                assert_eq!(days(&text, &consensus), u64::from(day), "{order:?}");
            }
        }
    }

    #[test]
    fn digests_are_those_of_the_bytes_whatever_their_encoding() {
        let relay = name("0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91");
        let (_, two) = TEXT.split_once("router two").expect("the second");
        for contact in [&b"contact M\xfcller"[..], b"\xff\xfe", b"\xe2\x82", "contact é".as_bytes()]
        {
            let one = |rate: &str| {
                let text = format!("router two{}", two.replace("1000", rate));
                let (begin, end) = text.split_once("bandwidth").expect("its rates");
                [begin.as_bytes(), contact, b"\nbandwidth", end.as_bytes()].concat()
            };
            let [named, newer] = [one("7"), one("8")];
            let mut consensus = Consensus::default();
            consensus.relays.push(super::super::consensus::Entry {
                fingerprint: relay,
                descriptor: Some(Sha1::digest(&named).into()),
                ..Default::default()
            });
            let all = Descriptors::parse([&named[..], &newer[..]].concat());
            assert!(all.skipped.is_empty(), "{contact:?}");
            let found = all.named_by(&consensus)[&relay].rate_bytes_per_sec;
            assert_eq!(found, 7, "{contact:?}");
        }
    }

    #[test]
    fn one_that_cannot_be_read_is_skipped_by_line() {
        for (bad, line, part) in [
            (TEXT.replace("846B 3EAA", "846B"), 3, "the fingerprint"),
            (TEXT.replace("\t3000\n", "\n"), 10, "the bandwidth"),
            (TEXT.replace("CE91\nrouter-signature\n", "CE91\n"), 9, "too early"),
            (TEXT.replacen("router-signature", "x", 1), 2, "too early"),
            (TEXT.replace("opt fingerprint 0B", "x 0B"), 9, "no fingerprint"),
        ] {
            let Descriptors { relays, skipped, .. } = Descriptors::parse(&bad);
            let [error] = &skipped[..] else { panic!("{part}: {skipped:?}") };
            assert!(error.line == line && error.reason.contains(part), "{error}");
            assert_eq!(relays.len(), 1, "the other one is read");
        }
    }

    #[test]
    fn what_stands_in_an_object_is_nobodys_descriptor() {
        let victim = "846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F";
        let object = format!(
            "onion-key\n-----BEGIN RSA PUBLIC KEY-----\nAAAA=\nrouter-signature\nrouter x 192.0.2.9 1 0 0\n\
             fingerprint {victim}\nbandwidth 5 5 5\n-----END RSA PUBLIC KEY-----\nrouter-signature\n"
        );
        let text = format!("{}{object}", TEXT.strip_suffix("router-signature\n").expect("its end"));
        let Descriptors { relays, skipped, .. } = Descriptors::parse(&text);
        assert_eq!(relays[&name(victim)].advertised_bytes_per_sec(), 3_046_428);
        assert_eq!((relays.len(), skipped), (2, vec![]));
    }

    /// What stem 1.8.1 says of the first one: `descriptor.digest()`.
    const UKKO_DIGEST: &str = "8053ef08503cfd709a66068aba5a9fed4481f819";
    /// Descriptors of the real network, from a file.
    const REAL: &str = include_str!("../tests/data/descriptors");

    #[test]
    fn real_ones_are_read_as_stem_reads_them() {
        let Descriptors { relays, skipped, .. } = Descriptors::parse(REAL);
        assert_eq!((relays.len(), skipped), (3, vec![]));
        let ukko = &relays[&name("303509AB910EF207B7438C27435C4A2FD579F1B1")];
        assert_eq!(ukko.rate_bytes_per_sec, 1_073_741_824);
        assert_eq!(ukko.burst_bytes_per_sec, 1_073_741_824);
        assert_eq!(ukko.observed_bytes_per_sec, 50_946_886);
        assert_eq!(ukko.published_unix_secs, Some(1_785_086_910));
        assert_eq!(ukko.overloaded_unix_secs, None);
        assert_eq!(hex::encode(ukko.digest), UKKO_DIGEST);
        assert_eq!(
            (ukko.family.len(), ukko.ed25519.expect("a key")[..2].to_vec()),
            (2, vec![0x66, 0xfa])
        );
        // What the authorities have made of the certificate: its microdescriptor's line.
        assert_eq!(ukko.family_ids, ["ed25519:xiRC4fYUyj3pROyHeAm5dQerbUMHrLkeOJpG21vff44"]);
    }

    #[test]
    fn a_family_needs_a_whole_certificate_of_this_relay() {
        for (from, to, part) in [
            ("AQwAB5PCAWb6qbpJ", "AQwAB5PCAWb6qbpK", "another relay's"),
            ("AQwAB5PCAWb6qbpJ", "AQQAB5PCAWb6qbpJ", "certificate cannot be read"),
            ("AQwAB5PCAWb6qbpJ", "", "certificate cannot be read"),
            ("AQwAB5PCAWb6qbpJ", "!", "certificate cannot be read"),
            ("master-key-ed25519 Zvqp", "master-key-ed25519 Z", "the identity"),
            ("published 2026-07-26", "published 2026-07-32", "time of publication"),
        ] {
            let Descriptors { relays, skipped, .. } =
                Descriptors::parse(REAL.replacen(from, to, 1));
            let reasons: Vec<_> = skipped.iter().map(|error| error.reason.as_str()).collect();
            assert!(reasons.len() == 1 && reasons[0].contains(part), "{part}: {reasons:?}");
            assert_eq!(relays.len(), 2, "the others are read");
        }
    }

    #[test]
    fn overload_is_read_in_the_form_that_is_known() {
        let parse = |line: &str| {
            let text =
                TEXT.replacen("bandwidth", &format!("overload-general {line}\nbandwidth"), 1);
            let all = Descriptors::parse(&text);
            all.relays[&name("846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F")].overloaded_unix_secs
        };
        assert_eq!(parse("1 2026-07-26 17:00:00"), Some(1_785_085_200));
        assert_eq!((parse("2 2026-07-26 17:00:00"), parse("")), (None, None));
    }
}
