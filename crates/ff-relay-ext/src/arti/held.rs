//! The cells that wait on a limited link, because the relay has written more than its limit allows.
//!
//! They wait for each circuit separately, and circuits take turns, so that a client's downloads do
//! not hold up its other circuits. Cells of one circuit keep their order, and so do those of none.
//! The end of a circuit waits for nothing, and drops the circuit's cells: until the peer knows of
//! it, it goes on sending, and tor-proto closes a link that gets 3,000 more cells of a circuit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ff_proto::cell::{CELL_LEN, CMD_DESTROY, CellRef};

/// The most bytes that wait on one link. With congestion control a download has some 60 to 150 KB
/// in flight, and without it 500 KB.
pub(super) const MAX_LINK_BYTES: usize = 2 << 20;
/// The most bytes that wait on all links of a relay together; memory for them takes up to a third
/// more, because of small allocations.
pub(super) const MAX_BYTES: usize = 256 << 20;
/// The bytes that may wait on a link even if all links together have too many: each time some of
/// them go out costs a TLS record.
pub(super) const LEAST_BYTES: usize = 8 * 1024;

/// Cells of a link, by circuit. Memory is allocated as it fills, and freed as it empties.
#[derive(Debug)]
pub(super) struct Held {
    /// The waiting cells of each circuit.
    circuits: HashMap<u32, VecDeque<Box<[u8]>>>,
    /// These circuits, in the order of their turns.
    turns: VecDeque<u32>,
    /// The bytes of the waiting cells.
    bytes: usize,
    /// Cells that have had their turn.
    out: Vec<u8>,
    /// The bytes of these that have been written.
    written: usize,
    /// The bytes on all links that have not been written.
    total: Arc<AtomicUsize>,
}

impl Held {
    /// No cells; the number counts those of all links.
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self {
            circuits: HashMap::new(),
            turns: VecDeque::new(),
            bytes: 0,
            out: Vec::new(),
            written: 0,
            total,
        }
    }

    /// The bytes of the waiting cells.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for this number of bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let own = self.bytes + bytes;
        let all = self.total.load(Ordering::Relaxed) + bytes;
        own <= LEAST_BYTES || own <= MAX_LINK_BYTES && all <= MAX_BYTES
    }

    /// Adds a cell, the first of `bytes`. DESTROY drops its circuit's other cells and has the next
    /// turn.
    pub(super) fn push(&mut self, cell: &CellRef<'_>, bytes: &[u8]) {
        let bytes = &bytes[..cell.wire_len];
        let is_end = cell.command == CMD_DESTROY;
        if is_end {
            self.drop_circuit(cell.circ_id);
        }
        let cells = self.circuits.entry(cell.circ_id).or_default();
        if is_end {
            self.turns.push_front(cell.circ_id);
        } else if cells.is_empty() {
            self.turns.push_back(cell.circ_id);
        }
        cells.push_back(bytes.into());
        self.bytes += bytes.len();
        self.total.fetch_add(bytes.len(), Ordering::Relaxed);
    }

    /// Drops a circuit's cells that have not had their turn.
    pub(super) fn drop_circuit(&mut self, circuit: u32) {
        let Some(cells) = self.circuits.remove(&circuit) else { return };
        let bytes: usize = cells.iter().map(|cell| cell.len()).sum();
        self.turns.retain(|other| *other != circuit);
        self.bytes -= bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Drops the cells that have not had their turn.
    pub(super) fn drop_waiting(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        self.circuits.clear();
        self.turns.clear();
    }

    /// Gives cells of about `room` bytes their turn, and one at least, if there is one; returns
    /// their bytes.
    pub(super) fn take_turns(&mut self, room: usize) -> usize {
        self.out.reserve_exact(room.min(self.bytes) + CELL_LEN);
        let mut taken = 0;
        while taken < room
            && let Some(circuit) = self.turns.pop_front()
            && let Some(cells) = self.circuits.get_mut(&circuit)
        {
            if let Some(cell) = cells.pop_front() {
                self.out.extend_from_slice(&cell);
                taken += cell.len();
            }
            if cells.is_empty() {
                self.circuits.remove(&circuit);
            } else {
                self.turns.push_back(circuit);
            }
        }
        self.bytes -= taken;
        taken
    }

    /// The bytes to write now. Until all are written, nothing else may be written to the link.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// Notes that `bytes` of them have been written.
    pub(super) fn on_written(&mut self, bytes: usize) {
        self.written += bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes + self.unwritten().len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::cell::{CMD_VPADDING, fixed_cell, peek_cell, variable_cell};

    use super::*;

    /// Adds a cell of this circuit with this number in its body; returns whether there was room.
    fn push(held: &mut Held, circuit: u32, number: u8) -> bool {
        let cell = fixed_cell(circuit, 3, &[number]).unwrap();
        let has_room = held.has_room(CELL_LEN);
        if has_room {
            held.push(&peek_cell(&cell).unwrap(), &cell);
        }
        has_room
    }

    /// Writes all that has had its turn; returns circuits and numbers of the cells.
    fn written(held: &mut Held) -> Vec<(u32, u8)> {
        let bytes = held.unwritten().to_vec();
        held.on_written(bytes.len());
        let (mut rest, mut cells) = (&bytes[..], Vec::new());
        while let Some(cell) = peek_cell(rest) {
            cells.push((cell.circ_id, cell.body[0]));
            rest = &rest[cell.wire_len..];
        }
        assert!(rest.is_empty(), "{} bytes of a cell", rest.len());
        cells
    }

    #[test]
    fn circuits_take_turns_and_their_cells_stay_in_order() {
        let mut held = Held::new(Arc::default());
        for number in 1..=4 {
            assert!(push(&mut held, 7, number));
        }
        let padding = variable_cell(CMD_VPADDING, &[9; 100]).unwrap();
        held.push(&peek_cell(&padding).unwrap(), &padding);
        assert!(push(&mut held, 8, 1) && push(&mut held, 8, 2));
        assert_eq!(held.bytes(), 6 * CELL_LEN + padding.len());
        // One at least, and no more than begin within the room.
        assert_eq!(held.take_turns(1), CELL_LEN);
        assert_eq!(written(&mut held), [(7, 1)]);
        assert_eq!(held.take_turns(CELL_LEN), padding.len() + CELL_LEN);
        assert_eq!(written(&mut held), [(0, 9), (8, 1)]);
        assert!(push(&mut held, 9, 1));
        assert_eq!(held.take_turns(usize::MAX), 5 * CELL_LEN);
        assert_eq!(written(&mut held), [(7, 2), (8, 2), (9, 1), (7, 3), (7, 4)]);
        assert_eq!((held.bytes(), held.take_turns(usize::MAX)), (0, 0));
        assert!(held.circuits.is_empty() && held.turns.is_empty());
    }

    #[test]
    fn what_is_partly_written_comes_first() {
        let mut held = Held::new(Arc::default());
        assert!(push(&mut held, 7, 1) && push(&mut held, 8, 1));
        held.take_turns(1);
        held.on_written(500);
        assert_eq!(held.unwritten(), [0; CELL_LEN - 500]);
        held.take_turns(1);
        assert_eq!(held.unwritten().len(), 2 * CELL_LEN - 500);
        held.on_written(CELL_LEN - 500);
        assert!(push(&mut held, 9, 1));
        held.drop_waiting();
        assert_eq!((held.bytes(), held.take_turns(usize::MAX)), (0, 0));
        assert_eq!(written(&mut held), [(8, 1)]);
    }

    #[test]
    fn a_circuit_that_is_gone_leaves_its_turns_to_others() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut held = Held::new(Arc::clone(&total));
        for circuit in [7, 8, 7, 9, 7] {
            assert!(push(&mut held, circuit, 1));
        }
        held.drop_circuit(7);
        held.drop_circuit(10);
        assert_eq!((held.bytes(), total.load(Ordering::Relaxed)), (2 * CELL_LEN, 2 * CELL_LEN));
        held.take_turns(usize::MAX);
        assert_eq!(written(&mut held), [(8, 1), (9, 1)]);
        assert!(held.circuits.is_empty() && held.turns.is_empty());
    }

    #[test]
    fn the_end_of_a_circuit_goes_first_and_its_cells_do_not_go() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut held = Held::new(Arc::clone(&total));
        for circuit in [7, 8, 7, 9, 7, 8] {
            assert!(push(&mut held, circuit, 1));
        }
        for circuit in [8, 10] {
            let end = fixed_cell(circuit, CMD_DESTROY, &[2]).unwrap();
            held.push(&peek_cell(&end).unwrap(), &end);
        }
        assert_eq!((held.bytes(), total.load(Ordering::Relaxed)), (6 * CELL_LEN, 6 * CELL_LEN));
        held.take_turns(usize::MAX);
        assert_eq!(written(&mut held), [(10, 2), (8, 2), (7, 1), (9, 1), (7, 1), (7, 1)]);
        assert!(held.circuits.is_empty() && held.turns.is_empty());
    }

    #[test]
    fn one_link_has_a_bound_and_all_links_have_one() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut held = Held::new(Arc::clone(&total));
        let count = (0..10_000).filter(|_| push(&mut held, 7, 1)).count();
        assert_eq!(count, MAX_LINK_BYTES / CELL_LEN);
        assert_eq!(total.load(Ordering::Relaxed), held.bytes());
        held.take_turns(1);
        assert!(push(&mut held, 8, 1), "there is room again");
        let unwritten = held.bytes() + CELL_LEN;
        assert_eq!(total.load(Ordering::Relaxed), unwritten, "what is not written counts");
        held.on_written(CELL_LEN - 1);
        assert_eq!(total.load(Ordering::Relaxed), held.bytes() + 1);

        let others = MAX_BYTES - total.load(Ordering::Relaxed) - CELL_LEN;
        total.fetch_add(others, Ordering::Relaxed);
        let mut other = Held::new(Arc::clone(&total));
        let count = (0..10_000).filter(|_| push(&mut other, 7, 1)).count();
        assert_eq!(count, LEAST_BYTES / CELL_LEN, "all links are full");
        drop((held, other));
        assert_eq!(total.load(Ordering::Relaxed), others);
    }
}
