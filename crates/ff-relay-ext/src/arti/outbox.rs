//! The control cells that a link has not sent yet.

use ff_proto::cell::{CELL_LEN, Cell};

/// The largest number of cells that wait on one link: 64 KB (PROTOCOL.md §7.1), more than a peer
/// that reads ever causes.
const MAX_CELLS: usize = 127;

/// Control cells to the peer, at most [`MAX_CELLS`].
///
/// While [`is_mid_cell`](Self::is_mid_cell), nothing else may be written to the link.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The cells, one after the other.
    bytes: Vec<u8>,
    /// The number of these bytes, from the front, that have been written.
    written: usize,
}

impl Outbox {
    /// Adds a cell; `false` when the buffer is full, because the peer does not read.
    #[must_use]
    pub(super) fn push(&mut self, cell: &Cell) -> bool {
        self.bytes.drain(..self.written - self.written % CELL_LEN);
        self.written %= CELL_LEN;
        let has_room = self.bytes.len() < MAX_CELLS * CELL_LEN;
        if has_room {
            self.bytes.extend_from_slice(cell);
        }
        has_room
    }

    /// The bytes to write.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Notes that `bytes` of them have been written.
    pub(super) fn on_written(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.bytes.len() {
            (self.bytes, self.written) = (Vec::new(), 0);
        }
    }

    /// Whether a cell is partly written.
    pub(super) fn is_mid_cell(&self) -> bool {
        !self.written.is_multiple_of(CELL_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_reads_may_cause_any_number_of_cells() {
        let mut outbox = Outbox::default();
        for round in 0..4 * MAX_CELLS {
            assert!(outbox.push(&[7; CELL_LEN]), "round {round}");
            outbox.on_written(if round % 2 == 0 { 100 } else { 2 * CELL_LEN - 100 });
            assert_eq!(outbox.is_mid_cell(), round % 2 == 0);
        }
        assert!(outbox.unwritten().is_empty());
    }

    #[test]
    fn a_peer_that_does_not_read_causes_a_bounded_number() {
        let mut outbox = Outbox::default();
        let taken = (0..10_000).filter(|_| outbox.push(&[7; CELL_LEN])).count();
        assert_eq!(taken, MAX_CELLS);
        assert_eq!(outbox.unwritten().len(), MAX_CELLS * CELL_LEN);
    }
}
