//! Consensuses one after the other, of which each has most of its relays just as the one before it has them.
//!
//! A relay's entry is compared, byte for byte, with the entry that follows in the last document what was found there
//! last; if they are the same, what was read of it then is taken over. Both documents have their relays in the same
//! order, so that one pass over both finds them all.

use ff_bwauth::network::DocumentError;
use ff_bwauth::period::Fingerprint;

use super::scan::{Line, Lines};
use super::{Consensus, Text};

/// Reads one consensus after the other.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The one that was read last.
    now: Read,
    /// The one before it.
    before: Read,
    /// Whether the last reading went well.
    is_read: bool,
}

/// A document and what was read of it.
#[derive(Debug, Default)]
struct Read {
    /// The document.
    document: Vec<u8>,
    /// What it says.
    consensus: Consensus,
    /// The entry of each relay.
    entries: Vec<Entry>,
    /// How many relays were taken over from the document before.
    taken: usize,
}

/// Where a relay's entry stands.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its first byte.
    start: usize,
    /// The number of its first line, from 1.
    line: usize,
}

impl Sequence {
    /// Before the first.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The consensus that was read last; nothing is in it if that failed.
    #[must_use]
    pub const fn now(&self) -> &Consensus {
        &self.now.consensus
    }

    /// Reads the next document.
    ///
    /// # Errors
    /// As for [`Consensus::read`]; the one after it is then compared with the one before.
    pub fn read(&mut self, document: &[u8]) -> Result<&Consensus, DocumentError> {
        if self.is_read {
            std::mem::swap(&mut self.now, &mut self.before);
        }
        let Read { document: kept, consensus, entries, taken } = &mut self.now;
        entries.clear();
        *taken = 0;
        let mut known = Known { before: &self.before, next: 0, entries, taken };
        let result = consensus.read_with(document, Some(&mut known));
        self.is_read = result.is_ok();
        result?;
        kept.clear();
        kept.extend_from_slice(document);
        Ok(consensus)
    }
}

/// What is known from the document before.
pub(super) struct Known<'a> {
    /// That document.
    before: &'a Read,
    /// The first of its relays that has not been passed.
    next: usize,
    /// The entries of the document that is being read.
    entries: &'a mut Vec<Entry>,
    /// How many of its relays were taken over.
    taken: &'a mut usize,
}

impl Known<'_> {
    /// Takes over the relay whose entry begins with this line, and passes over its lines; `false` if it has to be read.
    pub(super) fn take(
        &mut self,
        to: &mut Consensus,
        document: &[u8],
        line: Line<'_>,
        lines: &mut Lines<'_>,
    ) -> bool {
        self.entries.push(Entry { start: line.start, line: line.number });
        let known = &self.before.consensus;
        let Some((entry, line_count)) = self.candidate() else { return false };
        let left = document.get(line.start..).unwrap_or_default();
        let Some(behind) = left.strip_prefix(entry) else { return false };
        // Otherwise there is another line about it.
        let ends = behind.starts_with(b"r ") || behind.starts_with(b"directory-");
        if !ends || known.flavour != to.flavour || to.take_over(known, self.next).is_none() {
            return false;
        }
        lines.pass(entry.len() - (line.end - line.start), line_count - 1);
        self.next += 1;
        *self.taken += 1;
        true
    }

    /// The entry of the next relay, with how many lines it has. That of the last relay is left out: what stands behind
    /// it ends elsewhere.
    fn candidate(&self) -> Option<(&[u8], usize)> {
        let (entry, next) =
            (self.before.entries.get(self.next)?, self.before.entries.get(self.next + 1)?);
        Some((self.before.document.get(entry.start..next.start)?, next.line - entry.line))
    }

    /// Passes all relays up to one that was read.
    pub(super) fn pass(&mut self, fingerprint: &Fingerprint) {
        let left = self.before.consensus.relays.get(self.next..).unwrap_or_default();
        self.next += left.iter().take_while(|relay| relay.fingerprint <= *fingerprint).count();
    }
}

impl Consensus {
    /// Adds a relay of another consensus, if it may stand behind those that are there.
    fn take_over(&mut self, from: &Self, index: usize) -> Option<()> {
        let mut relay = *from.relays.get(index)?;
        if self.relays.last().is_some_and(|last| last.fingerprint >= relay.fingerprint) {
            return None;
        }
        let place = |index: u32| usize::try_from(index).ok();
        let end = relay.nickname.end.max(relay.version.end);
        let texts = from.texts.get(place(relay.nickname.start)?..place(end)?)?;
        let (others, len) = (place(relay.others_start)?, place(relay.others_len)?);
        let others = from.others.get(others..others.checked_add(len)?)?;
        // Its texts stand one behind the other, first its nickname.
        let (old, new) = (relay.nickname.start, u32::try_from(self.texts.len()).ok()?);
        let moved = |text: Text| match text {
            Text { start, .. } if start < old => text,
            Text { start, end } => Text { start: start - old + new, end: end - old + new },
        };
        (relay.nickname, relay.version) = (moved(relay.nickname), moved(relay.version));
        relay.others_start = u32::try_from(self.others.len()).ok()?;
        self.texts.push_str(texts);
        self.others.extend_from_slice(others);
        self.relays.push(relay);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/read-2020-02-29-consensus");

    /// How many relays of the second document are taken over, if it is read as it is alone.
    fn taken(second: &str) -> usize {
        let mut sequence = Sequence::new();
        let relays = sequence.read(SAMPLE.as_bytes()).expect("a consensus").relays.len();
        assert!(relays > 10);
        let read = sequence.read(second.as_bytes()).cloned();
        assert_eq!(read, Consensus::parse(second.as_bytes()));
        sequence.now.taken
    }

    #[test]
    fn relays_are_read_again_only_where_something_has_changed() {
        let relays = SAMPLE.matches("\nr ").count();
        let w = SAMPLE.find("\nw Bandwidth=").expect("a weight") + 1;
        let (before, from) = SAMPLE.split_at(w);
        let (line, behind) = from.split_once('\n').expect("lines");
        let entry = SAMPLE.find("\nr ").expect("a relay") + 1;
        // What stands behind the last relay is another thing in the next document.
        assert_eq!(taken(SAMPLE), relays - 1);
        assert_eq!(taken(&format!("{before}w Bandwidth=77\n{behind}")), relays - 2);
        assert_eq!(taken(&format!("{before}{line}\nw Unmeasured=1\n{behind}")), relays - 2);
        let second = SAMPLE[entry + 1..].find("\nr ").expect("a relay") + entry + 2;
        let without = format!("{}{}", &SAMPLE[..entry], &SAMPLE[second..]);
        // Where one is missing, the next is read.
        assert_eq!(taken(&without), relays - 3);
        let third = SAMPLE[second + 1..].find("\nr ").expect("a relay") + second + 2;
        let more = format!("{}v none\n{}", &SAMPLE[..third], &SAMPLE[third..]);
        assert_eq!(taken(&more), relays - 2);
    }
}
