//! The two ends of a circuit's random cells: a [`CellSource`] makes them, a [`CellDrain`] counts
//! and checks them after a relay. Both are on the hot path: no allocation, no lock.

use super::PeerViolation;
use crate::cell::{Body, Cell, HEADER_LEN};
use crate::cgo::{TAG_LEN, Tag};
use crate::circuit::Passage;
use crate::content::{Checker, Content, Sampler};

/// The number of neighbours on each side that are compared with a wrong cell, to distinguish
/// disorder from damage.
const NEAR_CELLS: u64 = 64;

/// Makes a circuit's cells.
#[derive(Debug)]
pub struct CellSource {
    /// The first five bytes of every cell.
    header: [u8; HEADER_LEN],
    /// The number of cells made.
    sent: u64,
    content: Content,
}

impl CellSource {
    /// The source of cells with this command on this circuit, with this content.
    #[must_use]
    pub fn new(circ_id: u32, command: u8, content: &[u8; 16]) -> Self {
        let [a, b, c, d] = circ_id.to_be_bytes();
        Self { header: [a, b, c, d, command], sent: 0, content: Content::new(content) }
    }

    /// Writes the next cell.
    #[inline]
    pub fn write(&mut self, cell: &mut Cell) {
        let (header, body) = cell.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&self.header);
        if let Ok(body) = <&mut Body>::try_from(body) {
            self.content.fill(body);
        }
        self.sent += 1;
    }

    /// The number of cells made.
    #[inline]
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether this is the circuit of its cells.
    #[inline]
    #[must_use]
    pub fn is_on(&self, circ_id: u32) -> bool {
        circ_id.to_be_bytes() == self.header[..4]
    }
}

/// Counts and checks a circuit's cells.
#[derive(Debug)]
pub struct CellDrain {
    /// The number of cells taken.
    taken: u64,
    /// The number of cells taken of all circuits that are counted together.
    taken_in_all: u64,
    /// The tag of the cell before the next one to check, once it has arrived.
    tag_before: Tag,
    /// Draws the cells to check.
    sampler: Sampler,
    /// Computes what must arrive.
    checker: Box<Checker>,
}

impl CellDrain {
    /// The drain of cells with this content after this encryption by the relay. `sampling` draws
    /// the cells to check, each with at least this probability.
    #[must_use]
    pub fn new(
        content: &[u8; 16],
        passage: &Passage,
        sampling: &[u8; 16],
        check_probability: f64,
    ) -> Self {
        Self {
            taken: 0,
            taken_in_all: 0,
            tag_before: passage.tag,
            sampler: Sampler::new(sampling, check_probability),
            checker: Box::new(Checker::new(content, passage)),
        }
    }

    /// Sets the number of cells taken of all circuits that are counted together. The larger it is,
    /// the smaller the part that is checked; without this call, each circuit is checked as if it
    /// were the only one.
    pub fn note_taken_in_all(&mut self, cells: u64) {
        self.taken_in_all = cells;
    }

    /// The number of cells taken.
    #[inline]
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the next cell's body. Returns whether it was checked and is right.
    ///
    /// # Errors
    /// [`PeerViolation::WrongContent`] and [`PeerViolation::OutOfOrder`].
    #[inline]
    pub fn take(&mut self, body: &[u8]) -> Result<bool, PeerViolation> {
        self.taken += 1;
        // One comparison finds the cell to check and the one before it.
        if self.taken >= self.sampler.next() {
            return self.look_at(self.taken - 1, body);
        }
        Ok(false)
    }

    /// Checks the cell if it was drawn, and keeps its tag if the next one was.
    #[cold]
    fn look_at(&mut self, index: u64, body: &[u8]) -> Result<bool, PeerViolation> {
        let Ok(body) = <&Body>::try_from(body) else {
            return Err(PeerViolation::WrongContent { index });
        };
        let is_checked = index == self.sampler.next();
        if is_checked {
            if self.checker.expected(index, &self.tag_before) != *body {
                return Err(self.explain(index, body));
            }
            self.sampler.advance(self.taken_in_all);
        }
        if self.taken == self.sampler.next() {
            self.tag_before.copy_from_slice(&body[..TAG_LEN]);
        }
        Ok(is_checked)
    }

    /// The violation by a body that arrived as cell `place`.
    fn explain(&mut self, place: u64, body: &Body) -> PeerViolation {
        let near = place.saturating_sub(NEAR_CELLS)..=place.saturating_add(NEAR_CELLS);
        near.into_iter()
            .find(|&index| index != place && self.checker.is_echo_of(index, body))
            .map_or(PeerViolation::WrongContent { index: place }, |index| {
                PeerViolation::OutOfOrder { index, place }
            })
    }

    /// Bytes of memory that it uses, without itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Checker>()
    }
}
