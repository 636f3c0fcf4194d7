//! Microdescriptors, as many as a file has (dir-spec 3.3): what authorities have made of
//! descriptors. From them come relays' Ed25519 identities and families.
//!
//! Nothing in them is signed; the consensus names each by its digest, so a program that
//! trusts the consensus may trust what is found by [`Microdescriptors::of`]. One that was changed
//! or cut is one that nobody names.

use std::collections::HashMap;

use ff_base::identity::{Fingerprint, fingerprint_hex};
use sha2::{Digest, Sha256};

use super::consensus::Entry;
use super::{DocumentError, Item, Items, ed25519_id, words, x25519_key};

/// The fields read from a microdescriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Microdescriptor {
    /// The relay's Ed25519 identity.
    pub ed25519: Option<[u8; 32]>,
    /// The X25519 key that clients' circuit handshakes are made with.
    pub ntor: Option<[u8; 32]>,
    /// The relays that it declares as its family; authorities put itself among them.
    pub family: Vec<Fingerprint>,
    /// The families whose keys have signed its identity: `ed25519:` and a key, or what may come
    /// later.
    pub family_ids: Vec<String>,
    /// The ports that it lets streams to: `accept` or `reject` and ranges. Without it, it lets none
    /// out.
    pub policy: Option<String>,
}

/// The microdescriptors of a file.
#[derive(Clone, Debug, Default)]
pub struct Microdescriptors {
    /// The microdescriptors by their SHA-256.
    pub by_digest: HashMap<[u8; 32], Microdescriptor>,
    /// Microdescriptors that cannot be read, each by its first line that cannot.
    pub skipped: Vec<DocumentError>,
}

/// A microdescriptor that is being read.
struct Begun {
    /// Where it begins in the text.
    start: usize,
    /// The parsed fields.
    microdescriptor: Microdescriptor,
    /// The first error in it.
    error: Option<DocumentError>,
}

impl Begun {
    /// One that begins here.
    fn new(start: usize) -> Self {
        Self { start, microdescriptor: Microdescriptor::default(), error: None }
    }

    /// Reads a line.
    fn read(&mut self, item: Item<'_>) {
        let said = &mut self.microdescriptor;
        match item.keyword {
            "family" => said.family = words(item.rest).filter_map(fingerprint_hex).collect(),
            // One that cannot be read is one that no circuit can be built with, and no more than
            // that.
            "ntor-onion-key" => said.ntor = x25519_key(item.rest),
            "family-ids" => said.family_ids = words(item.rest).map(str::to_owned).collect(),
            "p" => said.policy = Some(item.rest.to_owned()),
            "id" => match ed25519_id(item.rest) {
                // There may be lines for other kinds of keys.
                Ok(key) => said.ed25519 = said.ed25519.or(key),
                Err(()) => {
                    let error = || DocumentError::new(item.line, "the identity cannot be read");
                    self.error.get_or_insert_with(error);
                }
            },
            _ => {}
        }
    }
}

impl Microdescriptors {
    /// Reads a file's: of a directory's answer, or of a cache with notes between them.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let mut begun: Option<Begun> = None;
        let mut items = Items::of(text);
        for item in items.by_ref() {
            if item.keyword == "onion-key" {
                all.add(begun.replace(Begun::new(item.start)), text, item.start);
            } else if item.keyword.starts_with('@') {
                all.add(begun.take(), text, item.start);
            } else if let Some(begun) = &mut begun {
                begun.read(item);
            } else if !item.keyword.is_empty() && all.skipped.is_empty() && all.by_digest.is_empty()
            {
                let what = "this belongs to no microdescriptor: each begins with onion-key";
                all.skipped.push(DocumentError::new(item.line, what));
            }
        }
        if items.is_cut && begun.take().is_some() {
            all.skipped.push(DocumentError::new(items.line, "the microdescriptor ends too early"));
        }
        all.add(begun, text, text.len());
        all
    }

    /// The microdescriptor of a relay in a consensus of the microdesc flavour.
    #[must_use]
    pub fn of(&self, entry: &Entry) -> Option<&Microdescriptor> {
        self.by_digest.get(&entry.microdescriptor?)
    }

    /// Adds what was begun and ends here.
    fn add(&mut self, begun: Option<Begun>, text: &str, end: usize) {
        match begun {
            Some(Begun { error: Some(error), .. }) => self.skipped.push(error),
            Some(Begun { start, microdescriptor, error: None }) => {
                let digest = Sha256::digest(text.get(start..end).unwrap_or_default());
                self.by_digest.insert(digest.into(), microdescriptor);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::consensus::Consensus;
    use crate::descriptors::Descriptors;

    /// Relays of the real network, with the consensus that names them.
    const REAL: &str = include_str!("../tests/data/microdescriptors");
    /// That consensus.
    const CONSENSUS: &str = include_str!("../tests/data/microdesc-consensus");

    #[test]
    fn real_ones_are_found_by_the_consensus_digests() {
        let all = Microdescriptors::parse(REAL);
        assert_eq!((all.by_digest.len(), all.skipped.len()), (5, 0));
        let consensus = Consensus::parse(CONSENSUS).expect("a consensus");
        let of = |nickname: &str| {
            let relay = consensus.relays.iter().find(|relay| relay.nickname == nickname);
            (relay.expect("listed"), all.of(relay.expect("listed")).expect("named"))
        };
        let (entry, ukko) = of("Ukko");
        let described = Descriptors::parse(include_str!("../tests/data/descriptors"));
        let described = &described.relays[&entry.fingerprint];
        assert_eq!((ukko.ed25519, &ukko.family_ids), (described.ed25519, &described.family_ids));
        assert_eq!(ukko.family, described.family);
        let policies: Vec<_> =
            all.by_digest.values().filter_map(|one| one.policy.as_deref()).collect();
        assert!(policies.len() == 1 && policies[0].starts_with("accept 20-23,43,"), "{policies:?}");
        let (_, akka) = of("Akka");
        assert_eq!(akka.family_ids, ukko.family_ids, "one family");
        assert_eq!(consensus.relays.iter().filter(|relay| all.of(relay).is_some()).count(), 5);
        // Without notes between them, and with other line ends.
        let plain: String =
            REAL.lines().filter(|line| !line.starts_with('@')).flat_map(|l| [l, "\n"]).collect();
        assert_eq!(Microdescriptors::parse(&plain).by_digest, all.by_digest);
        let changed = Microdescriptors::parse(&plain.replace('\n', "\r\n"));
        assert!(consensus.relays.iter().all(|relay| changed.of(relay).is_none()), "other text");
    }

    #[test]
    fn odd_ones_are_skipped_by_line() {
        let whole = "onion-key\nid ed25519 ZvqpuklQLcKavDEtXqanT2qZow3ShBA9bRjj3wODzrQ\n";
        for (text, lines, read) in [
            (format!("{whole}onion-key\nid ed25519 xyz\nfamily-ids a\n{whole}"), vec![4], 1),
            (format!("id ed25519 x\nfamily-ids a\n{whole}"), vec![1], 1),
            (format!("{whole}onion-key\n-----BEGIN RSA PUBLIC KEY-----\nonion-key\n"), vec![5], 1),
            ("<html>\n<body>\n".to_owned(), vec![1], 0),
            (String::new(), vec![], 0),
            ("onion-key".to_owned(), vec![], 1),
            (format!("\n\n@last-listed x\n{whole}"), vec![], 1),
        ] {
            let all = Microdescriptors::parse(&text);
            let skipped: Vec<_> = all.skipped.iter().map(|error| error.line).collect();
            assert_eq!((skipped, all.by_digest.len()), (lines, read), "{text}");
        }
    }

    #[test]
    fn families_of_any_form_are_names() {
        let text =
            "onion-key\nfamily-ids\nonion-key\nfamily-ids ed25519:x  other:y\t\nid rsa1024 z\n";
        let all = Microdescriptors::parse(text);
        let mut ids: Vec<_> = all.by_digest.values().map(|one| one.family_ids.clone()).collect();
        ids.sort();
        assert_eq!(ids, [vec![], vec!["ed25519:x".to_owned(), "other:y".to_owned()]]);
    }

    proptest! {
        #[test]
        fn nothing_makes_a_scanner_panic(
            lines in proptest::collection::vec(
                "(onion-key|id ed25519|family-ids|family|r|m|s|a|w|@|router|family-cert|fingerprint|opt|-----BEGIN X-----|-----END X-----|é?)( [ -~é]{0,60})?(\r?\n)?",
                0..40,
            ),
        ) {
            let text = lines.concat();
            _ = Microdescriptors::parse(&text);
            _ = Descriptors::parse(&text);
            _ = Consensus::parse(&text);
        }
    }
}
