//! Hands the entries of a tar from the unpacking thread to the scanning one.
//!
//! Entries are unpacked directly into the buffers in which they are scanned, many small ones per
//! buffer. Buffers are returned and reused, unless they are long; there are at most [`MOST_LENT`]
//! in addition to the one that is being filled, with at most [`MOST_BUFFERS_BYTES`] in total.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::MOST_BYTES;
use crate::spare::Spare;

/// A buffer with this number of bytes is handed over.
const ENOUGH_BYTES: usize = 1 << 18;
/// A buffer with this number of entries is handed over.
const ENOUGH_ENTRIES: usize = 1000;
/// Bytes reserved for an entry before its content arrives.
const FIRST_BYTES: usize = 1 << 16;
/// The greatest number of buffers handed over: one that is scanned, one before it that is still in
/// use, one that waits.
const MOST_LENT: usize = 3;

/// A longer buffer is not reused, and the scanner returns it before the next one arrives.
const MOST_KEPT_BYTES: usize = 1 << 23;
/// The greatest size of all buffers together: the longest entry, and one that is still in use.
const MOST_BUFFERS_BYTES: usize = MOST_BYTES + MOST_KEPT_BYTES;

/// Buffers of tars that have been read.
static SPARE: Spare<Vec<u8>> = Spare::new();

/// Entries of a tar, in order.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// A buffer with the contents one after another, and unused bytes after them.
    pub(super) bytes: Vec<u8>,
    pub(super) all: Vec<Found>,
}

/// An entry.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    /// The place of its content in the buffer, or the reason for leaving it out.
    pub(super) content: Result<Range<usize>, &'static str>,
}

/// The unpacking side.
#[derive(Debug)]
pub(super) struct HandOver {
    /// Hands entries over.
    to: SyncSender<Entries>,
    /// Returns buffers.
    back: Receiver<Returned>,
    /// The entries gathered so far.
    now: Entries,
    /// The bytes of content in the buffer.
    len: usize,
    /// The number of buffers handed over and not returned.
    lent: usize,
    /// The total size of these buffers, in bytes.
    lent_bytes: usize,
    /// Returned buffers.
    spare: Vec<Vec<u8>>,
    /// Buffers of other tars, which are reused first, and to which buffers are added at the end.
    kept: &'static Spare<Vec<u8>>,
}

/// The scanning side: receives entries and returns buffers.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub(super) from: Receiver<Entries>,
    /// Returns buffers.
    back: Sender<Returned>,
}

/// The remaining buffers of the unpacking side.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Buffers that are not in use.
    spare: Vec<Vec<u8>>,
    /// Returns further buffers.
    back: Receiver<Returned>,
    /// Where buffers are kept for other tars.
    kept: &'static Spare<Vec<u8>>,
}

/// A returned buffer.
#[derive(Debug)]
struct Returned {
    /// The buffer; empty if another holder still has it.
    buffer: Vec<u8>,
    /// The size of the buffer in bytes when it was handed over.
    bytes: usize,
}

pub(super) fn sides() -> (HandOver, TakeOver) {
    sides_with(&SPARE)
}

/// Both sides; buffers are reused from `kept` and added to it.
fn sides_with(kept: &'static Spare<Vec<u8>>) -> (HandOver, TakeOver) {
    let ((to, from), (give, back)) = (sync_channel(MOST_LENT), channel());
    let now = Entries::default();
    let hand_over =
        HandOver { to, back, now, len: 0, lent: 0, lent_bytes: 0, spare: Vec::new(), kept };
    (hand_over, TakeOver { from, back: give })
}

impl HandOver {
    /// Hands over an entry that is left out.
    pub(super) fn skip(&mut self, name: String, why: &'static str) -> io::Result<()> {
        self.now.all.push(Found { name, content: Err(why) });
        if self.now.all.len() < ENOUGH_ENTRIES { Ok(()) } else { self.flush() }
    }

    /// Hands over an entry of `size` bytes.
    pub(super) fn content(
        &mut self,
        name: String,
        size: usize,
        from: &mut impl Read,
    ) -> io::Result<()> {
        if self.len > 0 && self.len.saturating_add(size) > ENOUGH_BYTES {
            self.flush()?;
        }
        self.make_room(size)?;
        match self.read_whole(size, from) {
            Ok(true) => {
                let content = self.len..self.len + size;
                self.len = content.end;
                self.now.all.push(Found { name, content: Ok(content) });
                let is_enough = self.len >= ENOUGH_BYTES || self.now.all.len() >= ENOUGH_ENTRIES;
                if is_enough { self.flush() } else { Ok(()) }
            }
            Ok(false) => self.skip(name, CUT),
            Err(error) => {
                self.skip(name, CUT)?;
                Err(error)
            }
        }
    }

    /// Reads an entry after the present content of the buffer. The buffer is never shortened:
    /// filling it before reading would take as long as reading. Returns `false` if the entry ends
    /// too early.
    fn read_whole(&mut self, size: usize, from: &mut impl Read) -> io::Result<bool> {
        let (buffer, mut at, end) = (&mut self.now.bytes, self.len, self.len + size);
        while at < end {
            if at == buffer.len() {
                // Sizes in headers may be false.
                let more = end.min((at * 2).max(at + FIRST_BYTES));
                buffer.reserve_exact(more - at);
                buffer.resize(more, 0);
            }
            let room = end.min(buffer.len());
            match from.read(buffer.get_mut(at..room).unwrap_or_default()) {
                Ok(0) => return Ok(false),
                Ok(read) => at += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until an entry of `size` bytes may be read, and provides a buffer for it.
    fn make_room(&mut self, size: usize) -> io::Result<()> {
        while let Ok(returned) = self.back.try_recv() {
            self.take_back(returned);
        }
        while self.lent > 0
            && (self.lent >= MOST_LENT || self.lent_bytes.saturating_add(size) > MOST_BUFFERS_BYTES)
        {
            let returned = self.back.recv().map_err(|_| nobody_listens())?;
            self.take_back(returned);
        }
        if self.now.bytes.is_empty() {
            let spare = self.spare.pop().or_else(|| self.kept.take(|_| true));
            self.now.bytes = spare.unwrap_or_default();
        }
        Ok(())
    }

    /// Takes a returned buffer.
    fn take_back(&mut self, returned: Returned) {
        self.lent = self.lent.saturating_sub(1);
        self.lent_bytes = self.lent_bytes.saturating_sub(returned.bytes);
        if is_spare(&returned.buffer) && self.spare.len() < MOST_LENT {
            self.spare.push(returned.buffer);
        }
    }

    /// Ends the handing over, and returns the remaining buffers.
    pub(super) fn end(self) -> Buffers {
        let Self { back, now, mut spare, kept, .. } = self;
        spare.push(now.bytes);
        Buffers { spare, back, kept }
    }

    /// Hands over the entries gathered so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.now.all.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.now);
        self.len = 0;
        self.lent += 1;
        self.lent_bytes = self.lent_bytes.saturating_add(entries.bytes.len());
        self.to.send(entries).map_err(|_| nobody_listens())
    }
}

impl Buffers {
    /// Keeps the buffers for another tar.
    pub(super) fn put_aside(self) {
        let back = self.back.try_iter().map(|returned| returned.buffer);
        let all = self.spare.into_iter().chain(back);
        all.filter(|one| is_spare(one)).for_each(|one| self.kept.put(one));
    }
}

impl TakeOver {
    /// Returns a scanned buffer, unless there are other holders.
    pub(super) fn give_back(&self, buffer: Arc<Vec<u8>>) {
        let bytes = buffer.len();
        let buffer = Arc::into_inner(buffer).unwrap_or_default();
        // The unpacking side may have ended.
        let _ = self.back.send(Returned { buffer, bytes });
    }
}

/// Whether a buffer is worth keeping.
fn is_spare(buffer: &[u8]) -> bool {
    !buffer.is_empty() && is_kept(buffer)
}

/// Whether a buffer may stay in use after it was scanned.
pub(super) const fn is_kept(buffer: &[u8]) -> bool {
    buffer.len() <= MOST_KEPT_BYTES
}

/// The reason for leaving out a truncated entry.
const CUT: &str = "it is cut";

/// The error if the scanning side has stopped, which has the actual reason.
fn nobody_listens() -> io::Error {
    io::Error::from(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Both sides with separate buffers: those of the process are shared with other tests.
    fn own_sides() -> (HandOver, TakeOver, &'static Spare<Vec<u8>>) {
        let kept = Box::leak(Box::new(Spare::new()));
        let (to, from) = sides_with(kept);
        (to, from, kept)
    }

    /// Hands over entries of these sizes, and takes each buffer; returns the greatest total size of
    /// buffers in bytes.
    fn hand_over(sizes: &[usize], mut take: impl FnMut(&TakeOver, Arc<Vec<u8>>)) -> usize {
        let (mut hand_over, take_over, kept) = own_sides();
        let (there, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for &size in sizes {
                    hand_over.content("x".to_owned(), size, &mut io::repeat(7)).expect("listened");
                    most.fetch_max(
                        hand_over.lent_bytes + hand_over.now.bytes.len(),
                        Ordering::Relaxed,
                    );
                }
                hand_over.flush().expect("listened");
                assert!(hand_over.lent <= MOST_LENT, "{}", hand_over.lent);
                hand_over.end().put_aside();
            });
            for Entries { bytes, all } in &take_over.from {
                for found in all {
                    there.fetch_add(found.content.expect("whole").len(), Ordering::Relaxed);
                }
                take(&take_over, Arc::new(bytes));
            }
        });
        assert_eq!(there.into_inner(), sizes.iter().sum::<usize>());
        assert!(kept.take(|one| !is_kept(one)).is_none(), "long ones are not kept");
        most.into_inner()
    }

    #[test]
    fn long_buffers_wait_for_each_other() {
        let sizes =
            [MOST_BYTES, 1 << 20, MOST_BYTES, MOST_BYTES / 2, MOST_BYTES / 2, 3, MOST_BYTES];
        // The scanner keeps the last short one.
        let mut known = None;
        let most = hand_over(&sizes, |to, buffer| {
            let is_long = !is_kept(&buffer);
            let back = if is_long { Some(buffer) } else { known.replace(buffer) };
            back.into_iter().for_each(|buffer| to.give_back(buffer));
        });
        assert!((MOST_BYTES..=MOST_BUFFERS_BYTES).contains(&most), "{most}");
    }

    #[test]
    fn small_entries_come_together_and_a_slow_taker_is_waited_for() {
        let (mut known, mut count) = (None, 0);
        let most = hand_over(&[1000; 10_000], |to, buffer| {
            count += 1;
            thread::yield_now();
            known.replace(buffer).into_iter().for_each(|buffer| to.give_back(buffer));
        });
        assert!((10_000_000 / ENOUGH_BYTES..200).contains(&count), "{count} buffers");
        assert!(most <= (MOST_LENT + 1) * 2 * ENOUGH_BYTES, "{most}");
        // Empty and omitted entries have no content, but they count.
        let (mut to, from, _) = own_sides();
        for _ in 0..ENOUGH_ENTRIES {
            to.skip("x".to_owned(), CUT).expect("there is room");
        }
        assert_eq!(from.from.try_recv().map(|entries| entries.all.len()), Ok(ENOUGH_ENTRIES));
        drop(from);
        to.skip("x".to_owned(), CUT).expect("nothing is sent yet");
        to.flush().expect_err("nobody listens");
    }

    #[test]
    fn what_a_header_promises_takes_no_room_before_it_comes() {
        let (mut to, _from, _) = own_sides();
        to.content("x".to_owned(), MOST_BYTES, &mut &[7; 10][..]).expect("listened");
        assert!(to.now.bytes.len() <= FIRST_BYTES, "{}", to.now.bytes.len());
        assert_eq!(to.now.all.pop().map(|found| found.content), Some(Err(CUT)));
    }
}
