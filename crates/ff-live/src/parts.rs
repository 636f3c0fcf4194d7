//! Server descriptors and microdescriptors as pieces of text that are known by their digests.
//!
//! A consensus names each by its digest, and a majority of the authorities has signed the
//! consensus, so a piece whose digest is named in it is the one that the authorities have checked:
//! their signatures in the pieces need not be checked again. A server descriptor's digest is a
//! SHA-1; a relay that can make two descriptors with one digest can show us another of its own than
//! it showed the authorities, and the line `fingerprint` is compared so that it stays one of its
//! own.

use std::fmt::Debug;
use std::hash::Hash;

use ff_base::identity::{Fingerprint, fingerprint_hex};
use ff_dir::{Item, Items, words};
use sha2::{Digest as _, Sha256};
use tor_llcrypto::d::Sha1;

/// A kind of such pieces.
pub(super) trait Part: Debug + Send + Sync + 'static {
    /// The digest that identifies a piece.
    type Digest: Copy + Debug + Eq + Ord + Hash + Send + Sync + AsRef<[u8]>;
    /// The name of such pieces.
    const NAME: &'static str;

    /// Finds the first piece in a text; returns it and the rest.
    fn first(text: &str) -> Option<(&str, &str)>;

    /// The digest of a piece.
    fn digest(piece: &str) -> Self::Digest;

    /// Whether it is this relay's, as far as it says.
    fn is_of(piece: &str, relay: &Fingerprint) -> bool;

    /// All pieces of a text, with their digests.
    fn all(text: &str) -> impl Iterator<Item = (Self::Digest, &str)> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (piece, behind) = Self::first(rest)?;
            rest = behind;
            Some((Self::digest(piece), piece))
        })
    }
}

/// Server descriptors (dir-spec 2.1.1).
#[derive(Debug)]
pub(super) struct ServerDescriptor;

impl Part for ServerDescriptor {
    type Digest = [u8; 20];
    const NAME: &'static str = "descriptors";

    fn first(text: &str) -> Option<(&str, &str)> {
        let start = line_start(text, "router ")?;
        let text = text.get(start..)?;
        let signature = text.find(SIGNATURE)? + SIGNATURE.len();
        let end = signature + text.get(signature..)?.find(SIGNATURE_END)? + SIGNATURE_END.len();
        text.split_at_checked(end)
    }

    fn digest(piece: &str) -> [u8; 20] {
        // dir-spec 2.1.1: from `router` through the newline after `router-signature`.
        let end = piece.find(SIGNATURE).map_or(piece.len(), |start| start + SIGNATURE.len());
        Sha1::digest(&piece.as_bytes()[..end]).into()
    }

    fn is_of(piece: &str, relay: &Fingerprint) -> bool {
        let mut said =
            Items::of(piece).filter_map(|Item { keyword, rest, .. }| match (keyword, rest) {
                ("fingerprint", rest) => Some(fingerprint_hex(&words(rest).collect::<String>())),
                _ => None,
            });
        said.next().flatten().as_ref() == Some(relay) && said.next().is_none()
    }
}

/// The line before a descriptor's last signature.
const SIGNATURE: &str = "\nrouter-signature\n";
/// The last line of a descriptor.
const SIGNATURE_END: &str = "-----END SIGNATURE-----\n";

/// Microdescriptors (dir-spec 3.3).
#[derive(Debug)]
pub(super) struct Microdescriptor;

impl Part for Microdescriptor {
    type Digest = [u8; 32];
    const NAME: &'static str = "microdescriptors";

    fn first(text: &str) -> Option<(&str, &str)> {
        let start = line_start(text, "onion-key")?;
        let text = text.get(start..)?;
        // The piece ends where the next one begins; tor and we put lines with @ before them.
        let end = text.match_indices('\n').map(|(index, _)| index + 1).find(|&next| {
            let line = &text[next..];
            line.is_empty() || line.starts_with("onion-key") || line.starts_with('@')
        });
        text.split_at_checked(end?)
    }

    fn digest(piece: &str) -> [u8; 32] {
        Sha256::digest(piece.as_bytes()).into()
    }

    fn is_of(_piece: &str, _relay: &Fingerprint) -> bool {
        // SHA-256 lets nobody make two of one digest, and a microdescriptor may lack the identity.
        true
    }
}

/// Where the first line that begins like this begins.
fn line_start(text: &str, beginning: &str) -> Option<usize> {
    if text.starts_with(beginning) {
        return Some(0);
    }
    let mut found = text.match_indices(beginning).map(|(index, _)| index);
    found.find(|&index| text.as_bytes()[index - 1] == b'\n')
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A descriptor of the relay with this fingerprint.
    pub(in super::super) fn descriptor(relay: Fingerprint, more: &str) -> String {
        let hex = hex::encode_upper(relay);
        format!(
            "router x 192.0.2.1 443 0 0\nfingerprint {hex}\nbandwidth 1 2 3\n{more}router-signature\n\
             -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
        )
    }

    #[test]
    fn descriptors_are_found_between_annotations_and_known_by_their_digest() {
        let (one, two) = (descriptor([1; 20], ""), descriptor([2; 20], "family $X\n"));
        let text = format!("@downloaded-at x\n@source \"y\"\n{one}junk\n\n{two}router cut 1\n");
        let found: Vec<_> = ServerDescriptor::all(&text).collect();
        assert_eq!(found.iter().map(|found| found.1).collect::<Vec<_>>(), [&one, &two]);
        let signed = one.split_inclusive("router-signature\n").next().expect("its first part");
        assert_eq!(found[0].0, <[u8; 20]>::from(Sha1::digest(signed.as_bytes())));
        assert!(
            ServerDescriptor::is_of(&one, &[1; 20]) && !ServerDescriptor::is_of(&one, &[2; 20])
        );
        let twice = descriptor([1; 20], &format!("opt fingerprint {}\n", "02".repeat(20)));
        assert!(!ServerDescriptor::is_of(&twice, &[1; 20]), "which of the two is not clear");
    }

    #[test]
    fn microdescriptors_end_where_the_next_begins() {
        let one = "onion-key\n-----BEGIN RSA PUBLIC KEY-----\nAA\n-----END RSA PUBLIC KEY-----\nntor-onion-key x\n";
        let two = "onion-key\nntor-onion-key y\nid ed25519 z\n";
        for text in [format!("{one}{two}"), format!("@last-listed 1\n{one}@last-listed 2\n{two}")] {
            let found: Vec<_> = Microdescriptor::all(&text).map(|found| found.1).collect();
            assert_eq!(found, [one, two]);
        }
        assert_eq!(Microdescriptor::all("onion-key\ncut").count(), 0);
        assert_eq!(Microdescriptor::all("").count(), 0);
    }
}
