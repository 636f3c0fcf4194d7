//! What the directory client itself needs of a consensus: times, signatures' keys, and the digests
//! of the documents that it lists.
//!
//! [`ff_dir::consensus`] reads what a schedule needs; the digests are of no use there.

use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64Unpadded, Encoding};
use ff_base::identity::{Fingerprint, fingerprint_base64};
use ff_dir::{Item, Items, words};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;
use tor_netdoc::doc::netstatus::ConsensusFlavor;
use tor_netdoc::types::Iso8601TimeSp;

/// Which of the two consensuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavor {
    /// The one with descriptors' digests.
    Ns,
    /// The one with microdescriptors' digests.
    Microdesc,
}

impl Flavor {
    /// As Arti calls it.
    pub(super) fn arti(self) -> ConsensusFlavor {
        match self {
            Self::Ns => ConsensusFlavor::Plain,
            Self::Microdesc => ConsensusFlavor::Microdesc,
        }
    }

    /// As documents and files call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Microdesc => "microdesc",
        }
    }
}

/// A consensus' first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Which one it is.
    pub(super) flavor: Flavor,
    /// When it became valid, in seconds since 1970.
    pub(super) valid_after_secs: u64,
    /// When there should be a newer one.
    pub(super) fresh_until_secs: u64,
    /// When it ceases to be valid.
    pub(super) valid_until_secs: u64,
}

impl Head {
    /// Reads them; `None` if this is not a consensus.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (mut flavor, mut is_consensus, mut times) = (None, false, [None; 3]);
        for Item { keyword, rest, .. } in Items::of(text) {
            match keyword {
                "network-status-version" => {
                    flavor = match words(rest).collect::<Vec<_>>()[..] {
                        ["3"] | ["3", "ns"] => Some(Flavor::Ns),
                        ["3", "microdesc"] => Some(Flavor::Microdesc),
                        _ => None,
                    };
                }
                "vote-status" => is_consensus = rest == "consensus",
                "valid-after" => times[0] = unix_secs(rest),
                "fresh-until" => times[1] = unix_secs(rest),
                "valid-until" => times[2] = unix_secs(rest),
                "dir-source" | "r" => break,
                _ => {}
            }
        }
        let [Some(valid_after_secs), Some(fresh_until_secs), Some(valid_until_secs)] = times else {
            return None;
        };
        let is_ordered = valid_after_secs < fresh_until_secs && fresh_until_secs < valid_until_secs;
        let head = Self { flavor: flavor?, valid_after_secs, fresh_until_secs, valid_until_secs };
        (is_consensus && is_ordered).then_some(head)
    }
}

/// The keys that a consensus says it is signed with.
pub(super) fn signing_keys(text: &str) -> Vec<AuthCertKeyIds> {
    // Signatures stand at the end, and there are as many as there are authorities.
    let Some(start) = text.rfind("\ndirectory-footer") else { return Vec::new() };
    let mut keys = Vec::new();
    for Item { keyword, rest, .. } in Items::of(text.get(start + 1..).unwrap_or_default()) {
        if keyword != "directory-signature" {
            continue;
        }
        let words: Vec<_> = words(rest).collect();
        // An algorithm may stand before the two.
        if let [.., id, key] = words[..]
            && let (Some(id), Some(key)) = (RsaIdentity::from_hex(id), RsaIdentity::from_hex(key))
        {
            keys.push(AuthCertKeyIds { id_fingerprint: id, sk_fingerprint: key });
        }
    }
    keys
}

/// The relays of an ns consensus, with the digests of their descriptors.
pub(super) fn descriptor_digests(text: &str) -> Vec<(Fingerprint, [u8; 20])> {
    let entries = Items::of(text).filter_map(|Item { keyword, rest, .. }| {
        if keyword != "r" {
            return None;
        }
        let mut words = words(rest).skip(1);
        let (fingerprint, digest) = (words.next()?, words.next()?);
        Some((fingerprint_base64(fingerprint)?, fingerprint_base64(digest)?))
    });
    entries.collect()
}

/// The relays of a microdesc consensus, with the digests of their microdescriptors.
pub(super) fn microdescriptor_digests(text: &str) -> Vec<(Fingerprint, [u8; 32])> {
    let mut relay = None;
    let entries = Items::of(text).filter_map(|Item { keyword, rest, .. }| match (keyword, rest) {
        ("r", rest) => {
            relay = words(rest).nth(1).and_then(fingerprint_base64);
            None
        }
        ("m", rest) => {
            let digest = Base64Unpadded::decode_vec(words(rest).next()?).ok()?;
            Some((relay.take()?, digest.try_into().ok()?))
        }
        _ => None,
    });
    entries.collect()
}

/// Reads `2026-11-22 18:00:00` as seconds since 1970.
pub(super) fn unix_secs(text: &str) -> Option<u64> {
    let time: Iso8601TimeSp = text.parse().ok()?;
    time.0.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// Seconds since 1970.
pub(super) fn secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consensus of this flavor and these entries, which nobody has signed.
    fn text(flavor: &str, entries: &str) -> String {
        format!(
            "network-status-version 3{flavor}\nvote-status consensus\nconsensus-method 33\n\
             valid-after 2026-11-22 18:00:00\nfresh-until 2026-11-22 19:00:00\nvalid-until 2026-11-22 21:00:00\n\
             {entries}directory-footer\n\
             directory-signature sha256 {} {}\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n\
             directory-signature {} {}\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n",
            "11".repeat(20),
            "22".repeat(20),
            "33".repeat(20),
            "44".repeat(20)
        )
    }

    /// A relay of the ns flavor.
    const NS: &str = "r seele AAoQ1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 \
                      192.0.2.1 9001 0\ns Running\n";
    /// A relay of the microdesc flavor, behind one without a microdescriptor.
    const MD: &str = "r none AAAAAAAAAAAAAAAAAAAAAAAAAAA 2022-11-18 21:31:58 192.0.2.2 443 0\n\
                      r titan ABElTMhEQ2myDvERVriZBDgiGlQ 2022-11-18 21:31:58 192.0.2.2 443 0\n\
                      m AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n";

    #[test]
    fn flavor_and_times_are_read() {
        let head = Head::read(&text("", NS)).expect("a consensus");
        let hour = head.fresh_until_secs - head.valid_after_secs;
        assert_eq!((head.flavor, head.valid_after_secs, hour), (Flavor::Ns, 1_795_370_400, 3600));
        assert_eq!(Head::read(&text(" microdesc", MD)).expect("one").flavor, Flavor::Microdesc);
        for (from, to) in [
            ("status consensus", "status vote"),
            ("valid-after", "x"),
            ("version 3", "version 4"),
            ("version 3", "version 3 other"),
            ("fresh-until 2026-11-22 19", "fresh-until 2026-11-22 17"),
            ("18:00:00", "18:00"),
        ] {
            assert_eq!(Head::read(&text("", NS).replace(from, to)), None, "{from} {to}");
        }
        assert_eq!(Head::read(""), None);
    }

    #[test]
    fn digests_and_keys_are_read() {
        let digests = descriptor_digests(&text("", NS));
        assert_eq!(hex::encode(digests[0].1), "a72f00109038e8cc15066e76934cebd4fe53adc8");
        let digests = microdescriptor_digests(&text(" microdesc", MD));
        let [(relay, digest)] = digests[..] else { panic!("{digests:?}") };
        assert_eq!((relay[0], relay[1], digest[31]), (0, 0x11, 31));
        let keys = signing_keys(&text("", NS));
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[1].sk_fingerprint.as_bytes(), [0x44; 20]);
        assert_eq!(signing_keys("directory-signature 1 2"), []);
    }
}
