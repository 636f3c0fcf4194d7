//! The circuits of a link for cells in transit, on the hot path.
//!
//! The two ends of a circuit share a counter of arrived cells, so both must be in one process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ff_proto::cell::{CMD_DESTROY, Cell, CellRef};
use ff_proto::onion::circuit::CircuitError;
use ff_proto::onion::extend::CMD_RELAY;
use ff_proto::session::PeerViolation;
use ff_proto::session::cells::{CellDrain, CellSource};

use crate::fault::Fault;
use crate::order::LinkFailure;

/// Largest number of a circuit's cells in flight in one direction. Tor closes a circuit with 2,500
/// cells in its queue; Tor's public network has set that limit to 1,000 or more.
const MAX_ON_WAY: u64 = 900;
/// Consecutive cells of one circuit, as in relays' records.
const CELLS_A_TURN: u64 = 6;

/// A circuit's counter of cells that have arrived in one direction, shared by both ends.
#[derive(Clone, Default)]
pub(crate) struct Arrived {
    /// Cells of this circuit.
    own: Arc<AtomicU64>,
    /// Cells of all quiet circuits of the sending link, if this is one of them.
    quiet: Option<Arc<AtomicU64>>,
}

impl Arrived {
    /// The number of this circuit's cells.
    fn get(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Notes an arrived cell; `count` is this circuit's number with it.
    #[inline]
    fn note(&self, count: u64) {
        self.own.store(count, Ordering::Relaxed);
        if let Some(quiet) = &self.quiet {
            quiet.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The sending side of a circuit.
struct Outgoing {
    source: CellSource,
    /// The cells that have arrived at the other end.
    arrived: Arrived,
    /// Cells that may be sent before more arrive.
    free: u64,
}

impl Outgoing {
    /// Reads the number of arrived cells; returns how many are new.
    fn look(&mut self) -> Result<u64, Fault> {
        let (arrived, sent) = (self.arrived.get(), self.source.sent());
        let on_way = sent.checked_sub(arrived).ok_or_else(|| more_than(sent))?;
        self.free = MAX_ON_WAY.saturating_sub(on_way);
        Ok(arrived)
    }

    /// Writes the next cell.
    #[inline]
    fn write(&mut self, cell: &mut Cell) {
        self.source.write(cell);
        self.free = self.free.saturating_sub(1);
    }
}

/// The fault that more cells have arrived than were sent.
fn more_than(sent: u64) -> Fault {
    Fault::Session(PeerViolation::MoreThanSent { sent }.into())
}

/// The receiving side of a circuit.
struct Incoming {
    /// Checks and counts the cells.
    drain: CellDrain,
    /// Tells the other end the number of arrived cells.
    arrived: Arrived,
}

/// A link and its circuits.
#[derive(Default)]
pub(crate) struct TransitLink {
    /// The receiving sides, of circuits that have one.
    incoming: Vec<Option<Box<Incoming>>>,
    /// The index of the circuit with an id.
    by_id: HashMap<u32, usize>,
    /// The id that was looked up last, with the result: consecutive cells are often of one circuit.
    last: Option<(u32, usize)>,
    /// The sending sides of busy circuits, which always send.
    busy: Vec<Outgoing>,
    /// The index of the busy circuit whose turn it is.
    writer: usize,
    /// Cells left in its turn.
    left: u64,
    /// Cells that all busy circuits may send.
    room: u64,
    /// Cells of all circuits that have arrived.
    arrived: u64,
    /// The sending sides of quiet circuits, which send one cell in [`Self::quiet_one_in`].
    quiet: Vec<Outgoing>,
    /// Cells that quiet circuits have sent.
    quiet_sent: u64,
    /// Of these, the cells that have arrived.
    quiet_arrived: Arc<AtomicU64>,
    /// The index of the quiet circuit that sent last.
    quiet_writer: usize,
    /// One cell in this number is of a quiet circuit; 0 for none.
    quiet_one_in: u32,
    /// Cells until the next cell of a quiet circuit.
    until_quiet: u32,
}

impl TransitLink {
    /// A link without circuits, on which one cell in `quiet_one_in` will be of quiet circuits; 0
    /// for none.
    pub(crate) fn new(quiet_one_in: u32) -> Self {
        Self { quiet_one_in, until_quiet: quiet_one_in, ..Self::default() }
    }

    /// Adds an idle circuit.
    pub(crate) fn add(&mut self, circ_id: u32) {
        self.by_id.insert(circ_id, self.incoming.len());
        self.incoming.push(None);
    }

    /// Makes a circuit send cells of this source whenever there is room; returns the counter for
    /// the receiving end.
    pub(crate) fn send(&mut self, source: CellSource) -> Arrived {
        let arrived = Arrived::default();
        self.busy.push(Outgoing { source, arrived: arrived.clone(), free: MAX_ON_WAY });
        arrived
    }

    /// As [`send`](Self::send), but only one cell in a number; returns the counter for the
    /// receiving end.
    pub(crate) fn send_quietly(&mut self, source: CellSource) -> Arrived {
        let quiet = Some(self.quiet_arrived.clone());
        let arrived = Arrived { own: Arc::default(), quiet };
        self.quiet.push(Outgoing { source, arrived: arrived.clone(), free: MAX_ON_WAY });
        arrived
    }

    /// Makes a circuit receive cells and count them for the sending end.
    pub(crate) fn receive(&mut self, circ_id: u32, drain: CellDrain, arrived: Arrived) {
        if let Some(&index) = self.by_id.get(&circ_id) {
            self.incoming[index] = Some(Box::new(Incoming { drain, arrived }));
        }
    }

    /// Whether a busy or quiet circuit sends.
    pub(crate) fn is_sending(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Reads the counters of arrived cells; returns how many are new.
    ///
    /// # Errors
    /// When more have arrived than were sent.
    pub(crate) fn look(&mut self) -> Result<u64, Fault> {
        let before = self.arrived;
        let quiet = self.quiet_arrived.load(Ordering::Relaxed);
        if quiet > self.quiet_sent {
            return Err(more_than(self.quiet_sent));
        }
        (self.arrived, self.room) = (quiet, 0);
        for outgoing in &mut self.busy {
            self.arrived += outgoing.look()?;
            self.room += outgoing.free;
        }
        Ok(self.arrived.saturating_sub(before))
    }

    /// Cells that may be sent.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Writes the next cell; without room, it is padding.
    #[inline]
    pub(crate) fn write(&mut self, cell: &mut Cell) {
        if self.quiet_one_in > 0 {
            self.until_quiet -= 1;
            if self.until_quiet == 0 {
                self.until_quiet = self.quiet_one_in;
                if self.write_quietly(cell) {
                    return;
                }
            }
        }
        if self.left == 0 || self.busy.get(self.writer).is_none_or(|outgoing| outgoing.free == 0) {
            self.next_turn();
        }
        match self.busy.get_mut(self.writer).filter(|outgoing| outgoing.free > 0) {
            Some(outgoing) => {
                outgoing.write(cell);
                self.left -= 1;
                self.room -= 1;
            }
            None => cell.fill(0),
        }
    }

    /// Finds the next busy circuit that has room.
    fn next_turn(&mut self) {
        let (before, behind) = self.busy.split_at((self.writer + 1).min(self.busy.len()));
        let step = behind.iter().chain(before).position(|outgoing| outgoing.free > 0);
        let count = self.busy.len().max(1);
        self.writer = (self.writer + 1 + step.unwrap_or(0)) % count;
        self.left = CELLS_A_TURN;
    }

    /// Writes a cell of the next quiet circuit if that has room; returns whether it did.
    #[cold]
    fn write_quietly(&mut self, cell: &mut Cell) -> bool {
        self.quiet_writer = (self.quiet_writer + 1) % self.quiet.len().max(1);
        let Some(outgoing) = self.quiet.get_mut(self.quiet_writer) else { return false };
        if outgoing.look().is_err() || outgoing.free == 0 {
            return false;
        }
        outgoing.write(cell);
        self.quiet_sent += 1;
        true
    }

    /// Takes the next cell. Returns whether it is of one of our circuits, and if so, whether it was
    /// checked.
    #[inline]
    pub(crate) fn handle(&mut self, cell: CellRef<'_>, in_all: u64) -> Result<Option<bool>, Fault> {
        let Some(index) = self.find(cell.circ_id) else { return Ok(None) };
        match (cell.command, &mut self.incoming[index]) {
            (CMD_RELAY, Some(incoming)) => {
                incoming.drain.note_taken_in_all(in_all);
                let checked =
                    incoming.drain.take(cell.body).map_err(|e| Fault::Session(e.into()))?;
                incoming.arrived.note(incoming.drain.taken());
                Ok(Some(checked))
            }
            (CMD_DESTROY, _) => {
                let reason = cell.body.first().copied().unwrap_or(0);
                Err(Fault::Link(LinkFailure::Circuit(CircuitError::Destroyed(reason))))
            }
            _ => Ok(None),
        }
    }

    /// The circuit with this id.
    #[inline]
    fn find(&mut self, circ_id: u32) -> Option<usize> {
        if let Some((id, index)) = self.last
            && id == circ_id
        {
            return Some(index);
        }
        let index = *self.by_id.get(&circ_id)?;
        self.last = Some((circ_id, index));
        Some(index)
    }

    /// Bytes of memory that the link uses.
    pub(crate) fn held_bytes(&self) -> usize {
        let incoming = self.incoming.iter().flatten();
        size_of::<Self>()
            + self.incoming.capacity() * size_of::<Option<Box<Incoming>>>()
            + (self.busy.capacity() + self.quiet.capacity()) * size_of::<Outgoing>()
            + self.by_id.capacity() * size_of::<(u32, usize)>()
            + incoming.map(|one| size_of::<Incoming>() + one.drain.held_bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::cell::{CELL_LEN, CMD_PADDING, fixed_cell, peek_cell};
    use ff_proto::circuit::{ForwardKey, Passage};
    use ff_proto::session::SessionFailure;

    use super::*;

    /// Two ends of a link with these circuits, the first of which sends cells, and the counters of
    /// arrived cells.
    fn ends(busy: &[u32], idle: &[u32]) -> (TransitLink, TransitLink, Vec<Arrived>) {
        let (mut near, mut far, mut all) =
            (TransitLink::default(), TransitLink::default(), Vec::new());
        for &circ_id in busy.iter().chain(idle) {
            near.add(circ_id);
            far.add(circ_id);
        }
        for &circ_id in busy {
            let content = [circ_id.to_be_bytes()[3]; 16];
            let arrived = near.send(CellSource::new(circ_id, CMD_RELAY, &content));
            // A relay that does nothing; its keystream is removed again below.
            let passage = Passage {
                key: ForwardKey::Aes128Ctr([9; 16]),
                command: CMD_RELAY,
                first_cell: 0,
                tag: [0; 16],
            };
            let drain = CellDrain::new(&content, &passage, &[1; 16], 1.0);
            far.receive(circ_id, drain, arrived.clone());
            all.push(arrived);
        }
        (near, far, all)
    }

    /// Writes `count` cells and returns the ids of their circuits.
    fn write(link: &mut TransitLink, count: u64) -> Vec<u32> {
        (0..count)
            .map(|_| {
                let mut cell = [0; CELL_LEN];
                link.write(&mut cell);
                peek_cell(&cell).expect("a whole cell").circ_id
            })
            .collect()
    }

    /// The number of arrived cells; fails if there are more than were sent.
    fn look(link: &mut TransitLink) -> u64 {
        link.look().expect("no more than was sent")
    }

    fn is_violation<T>(result: Result<T, Fault>, expected: &PeerViolation) -> bool {
        matches!(result, Err(Fault::Session(SessionFailure::Violation(found))) if found == *expected)
    }

    #[test]
    fn cells_that_nobody_has_sent_are_found() {
        let (mut link, _, arrived) = ends(&[1, 2], &[]);
        look(&mut link);
        write(&mut link, 9);
        arrived[1].note(7);
        assert!(is_violation(link.look(), &PeerViolation::MoreThanSent { sent: 6 }));
    }

    #[test]
    fn no_circuit_has_more_on_the_way_than_it_may() {
        let (mut link, _, arrived) = ends(&[1, 2, 3], &[4]);
        assert_eq!((look(&mut link), link.room()), (0, 3 * MAX_ON_WAY));
        let ids = write(&mut link, 3 * MAX_ON_WAY);
        assert_eq!(link.room(), 0);
        for id in 1..=3 {
            assert_eq!(ids.iter().filter(|&&other| other == id).count() as u64, MAX_ON_WAY);
        }
        assert!(ids[..36].chunks(6).all(|turn| turn.iter().all(|id| *id == turn[0])), "{ids:?}");
        assert_eq!(write(&mut link, 1), [0], "padding, if somebody insists");
        arrived[1].note(10);
        assert_eq!((look(&mut link), link.room()), (10, 10));
        assert_eq!(write(&mut link, 10), [2; 10]);
        assert_eq!((look(&mut link), link.room()), (0, 0));
    }

    #[test]
    fn quiet_circuits_have_one_cell_in_so_many_each_in_turn() {
        let mut link = TransitLink::new(10);
        let source = |id| CellSource::new(id, CMD_RELAY, &[1; 16]);
        link.send(source(1));
        let quiet = [link.send_quietly(source(2)), link.send_quietly(source(3))];
        look(&mut link);
        let ids = write(&mut link, 40);
        let expected =
            |index: usize| [1, 3, 1, 2][usize::from(index % 10 == 9) * (1 + index / 10 % 2 * 2)];
        for (index, &id) in ids.iter().enumerate() {
            assert_eq!(id, expected(index), "cell {index} of {ids:?}");
        }
        assert_eq!(link.room(), MAX_ON_WAY - 36, "they take no room from the others");
        quiet[0].note(1);
        quiet[1].note(1);
        assert_eq!(look(&mut link), 2, "what has arrived of them counts");
        quiet[0].note(2);
        quiet[1].note(2);
        quiet[1].note(3);
        let expected = PeerViolation::MoreThanSent { sent: 4 };
        assert!(is_violation(link.look(), &expected), "five have arrived of four");
    }

    #[test]
    fn quiet_circuits_have_no_more_on_the_way_than_others() {
        let mut link = TransitLink::new(1);
        link.send(CellSource::new(1, CMD_RELAY, &[1; 16]));
        link.send_quietly(CellSource::new(2, CMD_RELAY, &[1; 16]));
        look(&mut link);
        let ids = write(&mut link, MAX_ON_WAY + 3);
        let quiet = ids.iter().filter(|&&id| id == 2).count();
        assert_eq!(quiet as u64, MAX_ON_WAY);
        assert_eq!(ids[ids.len() - 3..], [1; 3], "the busy one has its turn");
    }

    #[test]
    fn cells_of_strangers_are_dropped_and_an_end_is_an_end() {
        let (mut near, mut far, arrived) = ends(&[1], &[7]);
        look(&mut near);
        let mut cell = [0; CELL_LEN];
        near.write(&mut cell);
        let mut relay = ff_proto::keystream::Keystream::new(&[9; 16]);
        relay.apply(&mut cell[5..]);
        let taken = far.handle(peek_cell(&cell).expect("a cell"), 1).expect("it is right");
        assert_eq!((taken, arrived[0].get()), (Some(true), 1));
        for (id, command) in [(2, CMD_RELAY), (7, CMD_RELAY), (0, CMD_PADDING), (1, CMD_PADDING)] {
            let cell = fixed_cell(id, command, &[3; 9]).expect("it fits");
            let taken = far.handle(peek_cell(&cell).expect("a cell"), 2).expect("it is dropped");
            assert_eq!(taken, None, "circuit {id}, command {command}");
        }
        let destroy = fixed_cell(7, CMD_DESTROY, &[5]).expect("it fits");
        let ended = far.handle(peek_cell(&destroy).expect("a cell"), 2);
        let expected = CircuitError::Destroyed(5);
        assert!(
            matches!(&ended, Err(Fault::Link(LinkFailure::Circuit(e))) if *e == expected),
            "{ended:?}"
        );
    }
}
