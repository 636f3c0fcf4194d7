//! The pieces that are there, each with the time when a consensus last listed it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ff_base::identity::Fingerprint;
use tor_netdoc::types::Iso8601TimeSp;

use super::head::unix_secs;
use super::parts::Part;

/// How long pieces are kept that consensuses no longer list: relays return.
const KEEP_UNLISTED_SECS: u64 = 2 * 24 * 3600;
/// The prefix of the time in a file, as in tor's cached-microdescs.
const LAST_LISTED: &str = "@last-listed ";

/// The pieces of one kind that are there.
#[derive(Debug)]
pub(super) struct Shelf<P: Part> {
    /// The pieces.
    pieces: HashMap<P::Digest, Piece>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Piece {
    /// Its text.
    text: Arc<str>,
    /// When a consensus last listed it, in seconds since 1970.
    last_listed_secs: u64,
}

impl<P: Part> Default for Shelf<P> {
    fn default() -> Self {
        Self { pieces: HashMap::new() }
    }
}

impl<P: Part> Shelf<P> {
    /// Reads a file that [`Self::render`] has written. A piece that has been damaged has another
    /// digest, so that no consensus lists it.
    pub(super) fn read(text: &str) -> Self {
        let mut shelf = Self::default();
        let mut rest = text;
        while let Some((piece, behind)) = P::first(rest) {
            let between = rest.len() - behind.len() - piece.len();
            let listed = rest[..between].lines().rev().find_map(|l| l.strip_prefix(LAST_LISTED));
            let last_listed_secs = listed.and_then(unix_secs).unwrap_or(0);
            shelf.add(P::digest(piece), piece, last_listed_secs);
            rest = behind;
        }
        shelf
    }

    /// Puts a piece there.
    pub(super) fn add(&mut self, digest: P::Digest, text: &str, last_listed_secs: u64) {
        self.pieces.insert(digest, Piece { text: Arc::from(text), last_listed_secs });
    }

    /// Whether it is there.
    pub(super) fn has(&self, digest: &P::Digest) -> bool {
        self.pieces.contains_key(digest)
    }

    /// The pieces of these relays, in their order, without those that are not theirs.
    pub(super) fn texts(&self, listed: &[(Fingerprint, P::Digest)]) -> Vec<Arc<str>> {
        let pieces = listed.iter().filter_map(|(relay, digest)| {
            let text = &self.pieces.get(digest)?.text;
            P::is_of(text, relay).then(|| Arc::clone(text))
        });
        pieces.collect()
    }

    /// Notes that a consensus of this time lists these.
    pub(super) fn note_listed(&mut self, listed: &[(Fingerprint, P::Digest)], at_secs: u64) {
        for (_, digest) in listed {
            if let Some(piece) = self.pieces.get_mut(digest) {
                piece.last_listed_secs = piece.last_listed_secs.max(at_secs);
            }
        }
    }

    /// Drops what was listed too long before this time. A time from the future is not believed.
    pub(super) fn drop_unlisted(&mut self, now_secs: u64) {
        self.pieces.retain(|_, piece| {
            piece.last_listed_secs = piece.last_listed_secs.min(now_secs);
            now_secs - piece.last_listed_secs <= KEEP_UNLISTED_SECS
        });
    }

    /// Drops all that was listed before this time.
    pub(super) fn drop_listed_before(&mut self, secs: u64) {
        self.pieces.retain(|_, piece| piece.last_listed_secs >= secs);
    }

    /// Bytes of the texts of these.
    pub(super) fn bytes_of(&self, listed: &[(Fingerprint, P::Digest)]) -> u64 {
        let pieces = listed.iter().filter_map(|(_, digest)| self.pieces.get(digest));
        pieces.map(|piece| piece.text.len() as u64).sum()
    }

    /// Bytes of all their texts, with what stands before them in the file.
    pub(super) fn bytes(&self) -> u64 {
        let annotation = LAST_LISTED.len() + "2026-11-22 18:00:00\n".len();
        self.pieces.values().map(|piece| (piece.text.len() + annotation) as u64).sum()
    }

    /// The file's text: each piece after a line with its time, in the order of their digests.
    pub(super) fn render(&self) -> String {
        let mut sorted: Vec<_> = self.pieces.iter().collect();
        sorted.sort_unstable_by_key(|(digest, _)| **digest);
        let mut text = String::new();
        for (_, piece) in sorted {
            let time = Iso8601TimeSp(UNIX_EPOCH + Duration::from_secs(piece.last_listed_secs));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{LAST_LISTED}{time}");
            text.push_str(&piece.text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::ServerDescriptor;
    use super::super::parts::tests::descriptor;
    use super::*;

    /// A shelf with a descriptor for each of these relays, listed so many seconds after a day.
    fn shelf(relays: &[(u8, u64)]) -> Shelf<ServerDescriptor> {
        let mut shelf = Shelf::default();
        for &(relay, secs) in relays {
            let text = descriptor([relay; 20], "");
            shelf.add(ServerDescriptor::digest(&text), &text, 1_795_370_400 + secs);
        }
        shelf
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let before = shelf(&[(1, 0), (2, 3600)]);
        let text = before.render();
        assert_eq!(text.len() as u64, before.bytes());
        let after = Shelf::<ServerDescriptor>::read(&text);
        assert_eq!(after.render(), text);
        assert!(text.contains("@last-listed 2026-11-22 19:00:00\nrouter"), "{text}");
    }

    #[test]
    fn a_damaged_piece_is_not_what_a_consensus_lists() {
        let before = shelf(&[(1, 0), (2, 0)]);
        let text = before.render().replacen("bandwidth 1 2", "bandwidth 9 9", 1);
        let after = Shelf::<ServerDescriptor>::read(&text);
        let lost = before.pieces.keys().filter(|digest| !after.has(digest)).count();
        assert_eq!((after.pieces.len(), lost), (2, 1));
    }

    #[test]
    fn pieces_are_kept_for_two_days_after_they_were_listed() {
        let day = 24 * 3600;
        let mut kept = shelf(&[(1, 0), (2, day), (3, 9 * day)]);
        let now = 1_795_370_400 + 2 * day + 1;
        kept.drop_unlisted(now);
        assert_eq!(kept.pieces.len(), 2);
        // The third one's time was not believed.
        kept.drop_unlisted(now + 2 * day + 1);
        assert_eq!(kept.pieces.len(), 0);
    }

    #[test]
    fn another_relays_piece_is_not_given() {
        let shelf = shelf(&[(1, 0)]);
        let digest = *shelf.pieces.keys().next().expect("one");
        assert_eq!(shelf.texts(&[([1; 20], digest)]).len(), 1);
        assert_eq!(shelf.texts(&[([2; 20], digest)]).len(), 0);
    }
}
