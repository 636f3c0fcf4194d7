//! Reads successive consensuses, most relays of which are unchanged.
//!
//! A relay's entry is compared byte by byte with the next entry of the previous document. If they
//! are equal, the relay is taken over without parsing; if they differ only in the weight, only the
//! weight is parsed. Both documents list their relays in the same order, so one pass over both is
//! enough. A document is kept in memory until the next one has been read.

use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_dir::DocumentError;

use super::scan::{Line, Lines};
use super::{Consensus, Text};
use crate::read::archive::Shared;
use crate::spare::Spare;

/// Allocated memory of sequences that have ended.
static SPARE: Spare<Sequence> = Spare::new();

/// Reads one consensus after another.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The last document.
    now: Read,
    before: Read,
    /// Whether the last document was read without an error.
    is_read: bool,
}

/// The relation of a relay to the previous consensus; with its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Not listed in the previous consensus.
    New,
    /// Listed, but something may have changed.
    Changed(usize),
    /// Unchanged.
    Same(usize),
}

/// A document with the data read from it.
#[derive(Debug, Default)]
struct Read {
    consensus: Consensus,
    /// The document, until the next one has been read.
    text: Shared,
    /// The entry of each relay except the last, which has no definite end.
    entries: Vec<Entry>,
    /// The relation of each relay to the previous document.
    again: Vec<Again>,
    /// The number of relays taken over from there.
    taken: usize,
}

/// The entry of a relay.
#[derive(Clone, Debug)]
struct Entry {
    /// Its place in the document.
    at: Range<usize>,
    /// The number of its lines.
    lines: usize,
    /// The place of its weight in the entry, if there is exactly one such line; otherwise empty.
    weight: Range<usize>,
}

/// The entry that is being read.
#[derive(Clone, Debug)]
struct Open {
    /// Its start in the document.
    start: usize,
    /// The number of its first line.
    line: usize,
    /// The number of its lines `w`.
    weights: usize,
    /// The place of the last of these in the entry.
    weight: Range<usize>,
}

impl Sequence {
    /// A sequence before its first document.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with the memory of an ended sequence, if there is one.
    #[must_use]
    pub(crate) fn with_space() -> Self {
        SPARE.take(|_| true).unwrap_or_default()
    }

    /// Keeps the allocated memory for another sequence.
    pub(crate) fn put_aside(mut self) {
        for read in [&mut self.now, &mut self.before] {
            read.consensus.clear();
            read.text = Shared::default();
            read.entries.clear();
            read.again.clear();
            read.taken = 0;
        }
        self.is_read = false;
        SPARE.put(self);
    }

    /// The last consensus; empty if reading it failed.
    #[must_use]
    pub const fn now(&self) -> &Consensus {
        &self.now.consensus
    }

    /// The consensus before the last.
    #[must_use]
    pub const fn before(&self) -> &Consensus {
        &self.before.consensus
    }

    /// The relation of a relay in the last consensus to the one before.
    #[must_use]
    pub fn again(&self, index: usize) -> Again {
        self.now.again.get(index).copied().unwrap_or(Again::New)
    }

    /// Reads the next document.
    ///
    /// # Errors
    /// As for [`Consensus::read`]; the next document is then compared with the previous valid one.
    pub fn read(&mut self, document: &[u8]) -> Result<&Consensus, DocumentError> {
        self.read_shared(&Shared::copy(document))
    }

    /// Reads the next document without copying it.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_shared(&mut self, document: &Shared) -> Result<&Consensus, DocumentError> {
        if self.is_read {
            std::mem::swap(&mut self.now, &mut self.before);
        }
        let Read { consensus, text, entries, again, taken } = &mut self.now;
        entries.clear();
        again.clear();
        *taken = 0;
        let before = &self.before;
        let text_before = before.text.bytes();
        let mut known = Known { before, text_before, next: 0, open: None, entries, again, taken };
        let result = consensus.read_with(document.bytes(), Some(&mut known));
        self.is_read = result.is_ok();
        result?;
        text.clone_from(document);
        // The buffer of the older document can be reused.
        self.before.text = Shared::default();
        Ok(&self.now.consensus)
    }
}

/// The previous document, and the entries of the present one.
pub(super) struct Known<'a> {
    /// The previous document.
    before: &'a Read,
    text_before: &'a [u8],
    /// The first relay there that was not passed.
    next: usize,
    /// The entry that is being read.
    open: Option<Open>,
    /// The entries of the present document.
    entries: &'a mut Vec<Entry>,
    /// The relation of its relays to the previous document.
    again: &'a mut Vec<Again>,
    /// The number of relays taken over.
    taken: &'a mut usize,
}

impl Known<'_> {
    /// Takes over the relay with the next entry and skips its lines; returns `false` if the entry
    /// must be parsed.
    pub(super) fn take(
        &mut self,
        to: &mut Consensus,
        document: &[u8],
        lines: &mut Lines<'_>,
    ) -> bool {
        self.close(lines.at(), lines.number() + 1);
        let Some((entry, again)) = self.take_next(to, document, lines.at()) else { return false };
        lines.pass(entry.at.len(), entry.lines);
        self.entries.push(entry);
        self.again.push(again);
        self.next += 1;
        *self.taken += 1;
        true
    }

    /// Records the first line of a relay that is being read.
    pub(super) fn begin(&mut self, line: Line<'_>) {
        self.close(line.start, line.number);
        self.open = Some(Open { start: line.start, line: line.number, weights: 0, weight: 0..0 });
    }

    /// Takes over the next relay if its entry follows, possibly with another weight.
    fn take_next(
        &self,
        to: &mut Consensus,
        document: &[u8],
        start: usize,
    ) -> Option<(Entry, Again)> {
        let entry = self.before.entries.get(self.next)?;
        let (left, text) = (document.get(start..)?, self.text_before.get(entry.at.clone())?);
        let (head, rest) = text.split_at_checked(entry.weight.start)?;
        let behind = left.strip_prefix(head)?;
        if behind.strip_prefix(rest).is_some_and(is_end) {
            to.take_over(&self.before.consensus, self.next)?;
            let entry = Entry { at: start..start + text.len(), ..entry.clone() };
            return Some((entry, Again::Same(self.next)));
        }
        let tail = rest.get(entry.weight.len()..).filter(|_| !entry.weight.is_empty())?;
        let (line, behind) = behind.split_at_checked(memchr::memchr(b'\n', behind)? + 1)?;
        if !line.starts_with(b"w ") || !behind.strip_prefix(tail).is_some_and(is_end) {
            return None;
        }
        to.take_over(&self.before.consensus, self.next)?;
        if to.read_weight_again(line).is_none() {
            // The reader reports the error.
            to.relays.pop();
            return None;
        }
        let weight = head.len()..head.len() + line.len();
        let end = start + weight.end + tail.len();
        let entry = Entry { at: start..end, lines: entry.lines, weight };
        Some((entry, Again::Changed(self.next)))
    }

    /// Ends the entry that is being read, before this line.
    fn close(&mut self, start: usize, line: usize) {
        let Some(open) = self.open.take() else { return };
        let weight = if open.weights == 1 { open.weight } else { 0..0 };
        self.entries.push(Entry { at: open.start..start, lines: line - open.line, weight });
    }

    /// Records a line `w` of the relay that is being read.
    pub(super) fn weight(&mut self, document: &[u8], line: Line<'_>) {
        let Some(open) = &mut self.open else { return };
        let is_plain = document.get(line.start..).is_some_and(|left| left.starts_with(b"w "));
        open.weights += 1;
        open.weight = if is_plain { line.start - open.start..line.end - open.start } else { 0..0 };
    }

    /// Passes all relays up to one that was read.
    pub(super) fn pass(&mut self, fingerprint: &Fingerprint) {
        let left = self.before.consensus.relays.get(self.next..).unwrap_or_default();
        self.next += left.iter().take_while(|relay| relay.fingerprint <= *fingerprint).count();
        let last = self.next.checked_sub(1).filter(|last| {
            let relay = self.before.consensus.relays.get(*last);
            relay.is_some_and(|relay| relay.fingerprint == *fingerprint)
        });
        self.again.push(last.map_or(Again::New, Again::Changed));
    }
}

/// Whether an entry ends before these bytes; otherwise the relay has another line.
fn is_end(behind: &[u8]) -> bool {
    behind.starts_with(b"r ") || behind.starts_with(b"directory-")
}

impl Consensus {
    /// Adds a relay of another consensus, if the order of relays allows it.
    fn take_over(&mut self, from: &Self, index: usize) -> Option<()> {
        let mut relay = *from.relays.get(index).filter(|_| self.flavour == from.flavour)?;
        if self.relays.last().is_some_and(|last| last.fingerprint >= relay.fingerprint) {
            return None;
        }
        let place = |index: u32| usize::try_from(index).ok();
        let end = relay.nickname.end.max(relay.version.end);
        let texts = from.texts.get(place(relay.nickname.start)?..place(end)?)?;
        let (others, len) = (place(relay.others_start)?, place(relay.others_len)?);
        let others = from.others.get(others..others.checked_add(len)?)?;
        // Its texts are adjacent, the nickname first.
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

    /// Replaces the weight of the last relay by that in its only line `w`.
    fn read_weight_again(&mut self, line: &[u8]) -> Option<()> {
        let relay = self.relays.last_mut()?;
        (relay.bandwidth, relay.is_unmeasured) = (None, false);
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.read_bandwidth(line.get(2..)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/read-2020-02-29-consensus");

    /// The number of relays taken over in the second document; asserts that the content is the same
    /// as without the first.
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
        // The part after the last relay differs in the next document.
        assert_eq!(taken(SAMPLE), relays - 1);
        assert_eq!(taken(&format!("{before}w Bandwidth=77\n{behind}")), relays - 1);
        assert_eq!(taken(&format!("{before}{line}\nw Unmeasured=1\n{behind}")), relays - 2);
        let second = SAMPLE[entry + 1..].find("\nr ").expect("a relay") + entry + 2;
        let without = format!("{}{}", &SAMPLE[..entry], &SAMPLE[second..]);
        // After a missing relay the next one is parsed.
        assert_eq!(taken(&without), relays - 3);
        let third = SAMPLE[second + 1..].find("\nr ").expect("a relay") + second + 2;
        let more = format!("{}v none\n{}", &SAMPLE[..third], &SAMPLE[third..]);
        assert_eq!(taken(&more), relays - 2);
    }

    #[test]
    fn a_weight_is_read_in_any_form_and_the_next_hour_knows_it() {
        let relays = SAMPLE.matches("\nr ").count();
        let w = SAMPLE.find("\nw Bandwidth=").expect("a weight") + 1;
        let (before, from) = SAMPLE.split_at(w);
        let (line, behind) = from.split_once('\n').expect("lines");
        let two = format!("{line}\nw Bandwidth=9");
        for (weight, is_taken, is_taken_back) in [
            (line, true, true),
            ("w Bandwidth=77", true, true),
            ("w Bandwidth=77 Unmeasured=1", true, true),
            ("w Unmeasured=1", true, true),
            ("w x", true, true),
            ("w Bandwidth=77\r", true, true),
            ("w", false, false),
            ("w\tBandwidth=77", false, false),
            ("opt w Bandwidth=77", false, false),
            ("v none", false, false),
            ("-----BEGIN X-----\nw Bandwidth=1\n-----END X-----", false, false),
            (&two, false, false),
            ("w Bandwidth=-1", false, true),
        ] {
            let mut sequence = Sequence::new();
            let changed = format!("{before}{weight}\n{behind}");
            for (document, is_taken) in
                [(SAMPLE, None), (&changed, Some(is_taken)), (SAMPLE, Some(is_taken_back))]
            {
                let read = sequence.read(document.as_bytes()).cloned();
                assert_eq!(read, Consensus::parse(document.as_bytes()), "{weight:?}");
                let wanted = is_taken.map_or(0, |is_taken| relays - 2 + usize::from(is_taken));
                assert!(read.is_err() || sequence.now.taken == wanted, "{weight:?}");
            }
        }
    }

    #[test]
    fn of_the_documents_only_the_last_is_kept() {
        let mut sequence = Sequence::new();
        for round in 0..20 {
            let text =
                SAMPLE.replace("\nw Bandwidth=", &format!("\nw Bandwidth={}", 1 + round % 2));
            let read = sequence.read(text.as_bytes()).cloned();
            assert_eq!(read, Consensus::parse(text.as_bytes()));
            assert!(sequence.now.taken + 1 >= sequence.now.consensus.relays.len() || round == 0);
            assert_eq!(sequence.now.text.bytes(), text.as_bytes());
            assert_eq!(sequence.before.text, Shared::default());
        }
    }
}
