//! Server descriptors, as many as a file has (dir-spec 2.1.1): what relays say of their rates and
//! families.
//!
//! Signatures are not checked: the file must come from somebody who has, as directory authorities do.

use std::collections::HashMap;

use base64ct::{Base64Unpadded, Encoding};

use super::{DocumentError, fingerprint_hex, keyword, lines, words};
use crate::period::Fingerprint;

/// What is read of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The least of the three numbers of `bandwidth`, in bytes a second: the advertised bandwidth.
    pub advertised_bytes_per_sec: u64,
    /// The three: what its operator lets it do in the long run, for a moment, and what it has seen itself do.
    pub limits: Limits,
    /// Its Ed25519 identity, if it says one.
    pub ed_identity: Option<[u8; 32]>,
    /// The relays that it declares as its family.
    pub family: Vec<Fingerprint>,
}

/// The numbers of `bandwidth`, in bytes a second (dir-spec 2.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// bandwidth-avg.
    pub average_bytes_per_sec: u64,
    /// bandwidth-burst.
    pub burst_bytes_per_sec: u64,
    /// bandwidth-observed.
    pub observed_bytes_per_sec: u64,
}

/// What is read of a file.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// The descriptors by relay; of one that has several, the last.
    pub relays: HashMap<Fingerprint, Descriptor>,
    /// Descriptors that cannot be read, each by its first line that cannot. One relay's is no reason to do
    /// without the others.
    pub skipped: Vec<DocumentError>,
}

/// A descriptor that is being read.
#[derive(Default)]
struct Begun {
    /// Its first line.
    start: usize,
    /// Its relay.
    fingerprint: Option<Fingerprint>,
    /// What it says.
    descriptor: Descriptor,
    /// What cannot be read.
    error: Option<DocumentError>,
}

impl Begun {
    /// Reads a line.
    fn read(&mut self, number: usize, keyword: &str, rest: &str) {
        let what = match keyword {
            "fingerprint" => {
                self.fingerprint = fingerprint_hex(&words(rest).collect::<String>());
                self.fingerprint.is_none().then_some("the fingerprint")
            }
            "bandwidth" => {
                let numbers: Vec<u64> =
                    words(rest).take(3).filter_map(|word| word.parse().ok()).collect();
                self.descriptor.advertised_bytes_per_sec =
                    numbers.iter().copied().min().unwrap_or(0);
                if let [average_bytes_per_sec, burst_bytes_per_sec, observed_bytes_per_sec] =
                    numbers[..]
                {
                    self.descriptor.limits = Limits {
                        average_bytes_per_sec,
                        burst_bytes_per_sec,
                        observed_bytes_per_sec,
                    };
                }
                (numbers.len() != 3).then_some("the bandwidth")
            }
            "master-key-ed25519" => {
                let identity = Base64Unpadded::decode_vec(rest.trim_end_matches('=')).ok();
                self.descriptor.ed_identity = identity.and_then(|bytes| bytes.try_into().ok());
                self.descriptor.ed_identity.is_none().then_some("the Ed25519 identity")
            }
            // Nicknames among them say nothing for certain.
            "family" => {
                self.descriptor.family = words(rest).filter_map(fingerprint_hex).collect();
                None
            }
            _ => None,
        };
        if let Some(what) = what {
            let error = || DocumentError::new(number, format!("{what} cannot be read"));
            self.error.get_or_insert_with(error);
        }
    }

    /// The descriptor, if all of it is there.
    fn finish(self, is_whole: bool) -> Result<(Fingerprint, Descriptor), DocumentError> {
        let lacks = |what: &str| DocumentError::new(self.start, format!("the descriptor {what}"));
        match (self.error, self.fingerprint) {
            (Some(error), _) => Err(error),
            _ if !is_whole => Err(lacks("ends too early")),
            (None, None) => Err(lacks("has no fingerprint")),
            (None, Some(fingerprint)) => Ok((fingerprint, self.descriptor)),
        }
    }
}

impl Descriptors {
    /// Reads a file's.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let mut begun: Option<Begun> = None;
        for (number, line) in lines(text) {
            let (keyword, rest) = keyword(line);
            if keyword == "router" {
                let next = Begun { start: number, ..Begun::default() };
                all.add(begun.replace(next), false);
            }
            if keyword == "router-signature" {
                all.add(begun.take(), true);
            }
            if let Some(begun) = &mut begun {
                begun.read(number, keyword, rest);
            }
        }
        all.add(begun, false);
        all
    }

    /// Adds what was begun.
    fn add(&mut self, begun: Option<Begun>, is_whole: bool) {
        match begun.map(|begun| begun.finish(is_whole)) {
            Some(Ok((fingerprint, descriptor))) => _ = self.relays.insert(fingerprint, descriptor),
            Some(Err(error)) => self.skipped.push(error),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two descriptors.
    const TEXT: &str = "\
        @type server-descriptor 1.0\nrouter one 192.0.2.1 443 0 0\n\
        fingerprint 846B 3EAA F0C0 7FF7 2FC7 9AEB B11F A3AD C58F 240F\n\
        bandwidth 4594304 4594305 3046428\nmaster-key-ed25519 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\n\
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
        let Descriptors { relays, skipped } = Descriptors::parse(TEXT);
        let two = name("0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91");
        let one = &relays[&name("846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F")];
        assert_eq!(one.advertised_bytes_per_sec, 3_046_428);
        let Limits { average_bytes_per_sec, burst_bytes_per_sec, observed_bytes_per_sec } =
            one.limits;
        let limits = [average_bytes_per_sec, burst_bytes_per_sec, observed_bytes_per_sec];
        assert_eq!(limits, [4_594_304, 4_594_305, 3_046_428]);
        assert_eq!((one.ed_identity, relays[&two].ed_identity), (Some([1; 32]), None));
        assert_eq!(one.family, [two, name("195712E96FD1C1B18D14D09E9E4E7A6416E23B2C")]);
        assert_eq!(relays[&two].advertised_bytes_per_sec, 1000);
        assert_eq!((relays.len(), skipped), (2, vec![]));
    }

    #[test]
    fn one_that_cannot_be_read_is_skipped_by_line() {
        for (bad, line, part) in [
            (TEXT.replace("846B 3EAA", "846B"), 3, "the fingerprint"),
            (TEXT.replace("\t3000\n", "\n"), 11, "the bandwidth"),
            (TEXT.replace("ed25519 AQ", "ed25519 Q"), 5, "the Ed25519 identity"),
            (TEXT.replace("CE91\nrouter-signature\n", "CE91\n"), 10, "too early"),
            (TEXT.replacen("router-signature", "x", 1), 2, "too early"),
            (TEXT.replace("opt fingerprint 0B", "x 0B"), 10, "no fingerprint"),
        ] {
            let Descriptors { relays, skipped } = Descriptors::parse(&bad);
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
        let Descriptors { relays, skipped } = Descriptors::parse(&text);
        assert_eq!(relays[&name(victim)].advertised_bytes_per_sec, 3_046_428);
        assert_eq!((relays.len(), skipped), (2, vec![]));
    }
}
