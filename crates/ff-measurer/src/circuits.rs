//! The circuits of one link whose cells are in transit, on the hot path.
//!
//! What has arrived at the other end of a circuit is told by a number that both ends have in common,
//! so both must be in one process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ff_proto::cell::{CMD_DESTROY, Cell, CellRef};
use ff_proto::onion::circuit::CircuitError;
use ff_proto::onion::extend::CMD_RELAY;
use ff_proto::session::cells::{Drain, Source};

use crate::fault::Fault;
use crate::order::LinkFailure;

/// Cells of a circuit that are on the way in one direction at most. Tor ends a circuit of which it has
/// 2,500 in its queue; Tor's public network has set that to 1,000 and more.
const MAX_ON_WAY: u64 = 900;
/// Cells of one circuit that follow one another, as in records of relays.
const CELLS_A_TURN: u64 = 6;

/// How many cells of a circuit have arrived in one direction.
pub(crate) type Arrived = Arc<AtomicU64>;

/// What a circuit sends.
pub(crate) struct Outgoing {
    /// Makes the cells.
    source: Source,
    /// How many the other end has.
    arrived: Arrived,
    /// How many more may be on the way.
    free: u64,
}

/// What a circuit receives.
pub(crate) struct Incoming {
    /// Takes the cells.
    drain: Drain,
    /// Tells the other end how many.
    arrived: Arrived,
}

/// One end of a circuit.
#[derive(Default)]
pub(crate) struct Circuit {
    /// What it sends, if it does.
    outgoing: Option<Outgoing>,
    /// What it receives, if it does.
    incoming: Option<Incoming>,
}

impl Circuit {
    /// Sends these cells, of which so many have arrived.
    pub(crate) fn send(&mut self, source: Source, arrived: Arrived) {
        self.outgoing = Some(Outgoing { source, arrived, free: MAX_ON_WAY });
    }

    /// Receives these cells, and tells how many.
    pub(crate) fn receive(&mut self, drain: Drain, arrived: Arrived) {
        self.incoming = Some(Incoming { drain, arrived });
    }
}

/// A link and its circuits.
#[derive(Default)]
pub(crate) struct TransitLink {
    /// The circuits.
    circuits: Vec<Circuit>,
    /// Which has which id.
    by_id: HashMap<u32, usize>,
    /// The id that was looked up last, and what came of it: cells of a circuit follow one another.
    last: Option<(u32, usize)>,
    /// The circuit whose turn it is to send.
    writer: usize,
    /// Cells left of its turn.
    left: u64,
    /// Cells that may be sent, of all circuits.
    room: u64,
    /// Cells that have arrived, of all circuits.
    arrived: u64,
}

impl TransitLink {
    /// Adds a circuit.
    pub(crate) fn add(&mut self, circ_id: u32, circuit: Circuit) {
        self.by_id.insert(circ_id, self.circuits.len());
        self.circuits.push(circuit);
    }

    /// Whether any circuit sends.
    pub(crate) fn is_sending(&self) -> bool {
        self.circuits.iter().any(|circuit| circuit.outgoing.is_some())
    }

    /// Looks at what has arrived; returns how many cells that are more than the last time.
    pub(crate) fn look(&mut self) -> u64 {
        let before = self.arrived;
        (self.arrived, self.room) = (0, 0);
        for outgoing in self.circuits.iter_mut().filter_map(|circuit| circuit.outgoing.as_mut()) {
            let arrived = outgoing.arrived.load(Ordering::Relaxed);
            let on_way = outgoing.source.sent().saturating_sub(arrived);
            outgoing.free = MAX_ON_WAY.saturating_sub(on_way);
            self.room += outgoing.free;
            self.arrived += arrived;
        }
        self.arrived.saturating_sub(before)
    }

    /// Cells that may be sent.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Writes the next cell, for which there must be room; else it is padding.
    #[inline]
    pub(crate) fn write(&mut self, cell: &mut Cell) {
        let is_next = |circuit: &Circuit| circuit.outgoing.as_ref().is_some_and(|out| out.free > 0);
        if self.left == 0 || !self.circuits.get(self.writer).is_some_and(is_next) {
            let (behind, before) =
                self.circuits.split_at((self.writer + 1).min(self.circuits.len()));
            let step = before.iter().chain(behind).position(is_next);
            let count = self.circuits.len().max(1);
            self.writer = (self.writer + 1 + step.unwrap_or(0)) % count;
            self.left = CELLS_A_TURN;
        }
        let circuit =
            self.circuits.get_mut(self.writer).and_then(|circuit| circuit.outgoing.as_mut());
        match circuit.filter(|outgoing| outgoing.free > 0) {
            Some(outgoing) => {
                outgoing.source.write(cell);
                outgoing.free -= 1;
                self.left -= 1;
                self.room -= 1;
            }
            None => cell.fill(0),
        }
    }

    /// Takes the next cell. Whether it is one of ours, and then, whether it was checked.
    #[inline]
    pub(crate) fn handle(&mut self, cell: CellRef<'_>, in_all: u64) -> Result<Option<bool>, Fault> {
        let Some(index) = self.find(cell.circ_id) else { return Ok(None) };
        match (cell.command, &mut self.circuits[index].incoming) {
            (CMD_RELAY, Some(incoming)) => {
                incoming.drain.note_taken_in_all(in_all);
                let checked =
                    incoming.drain.take(cell.body).map_err(|e| Fault::Session(e.into()))?;
                incoming.arrived.store(incoming.drain.taken(), Ordering::Relaxed);
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

    /// Bytes of memory the link holds on to.
    pub(crate) fn held_bytes(&self) -> usize {
        let drains = self.circuits.iter().filter_map(|circuit| circuit.incoming.as_ref());
        size_of::<Self>()
            + self.circuits.capacity() * size_of::<Circuit>()
            + self.by_id.capacity() * size_of::<(u32, usize)>()
            + drains.map(|incoming| incoming.drain.held_bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::cell::{CELL_LEN, CMD_PADDING, fixed_cell, peek_cell};
    use ff_proto::circuit::{ForwardKey, Passage};

    use super::*;

    /// Two ends of a link with these circuits, of which the first has cells go through, and what has arrived.
    fn ends(busy: &[u32], idle: &[u32]) -> (TransitLink, TransitLink, Vec<Arrived>) {
        let (mut near, mut far, mut all) =
            (TransitLink::default(), TransitLink::default(), Vec::new());
        for &circ_id in busy {
            let (mut sending, mut receiving) = (Circuit::default(), Circuit::default());
            let (arrived, content) = (Arrived::default(), [circ_id.to_be_bytes()[3]; 16]);
            sending.send(Source::new(circ_id, CMD_RELAY, &content), arrived.clone());
            // A relay that does nothing: its keystream is taken off again below.
            let passage = Passage {
                key: ForwardKey::Aes128Ctr([9; 16]),
                command: CMD_RELAY,
                first_cell: 0,
                tag: [0; 16],
            };
            receiving.receive(Drain::new(&content, &passage, &[1; 16], 1.0), arrived.clone());
            near.add(circ_id, sending);
            far.add(circ_id, receiving);
            all.push(arrived);
        }
        for &circ_id in idle {
            near.add(circ_id, Circuit::default());
            far.add(circ_id, Circuit::default());
        }
        (near, far, all)
    }

    /// So many cells of a link, by the ids of their circuits.
    fn write(link: &mut TransitLink, count: u64) -> Vec<u32> {
        (0..count)
            .map(|_| {
                let mut cell = [0; CELL_LEN];
                link.write(&mut cell);
                peek_cell(&cell).expect("a whole cell").circ_id
            })
            .collect()
    }

    #[test]
    fn no_circuit_has_more_on_the_way_than_it_may() {
        let (mut link, _, arrived) = ends(&[1, 2, 3], &[4]);
        assert_eq!((link.look(), link.room()), (0, 3 * MAX_ON_WAY));
        let ids = write(&mut link, 3 * MAX_ON_WAY);
        assert_eq!(link.room(), 0);
        for id in 1..=3 {
            assert_eq!(ids.iter().filter(|&&other| other == id).count() as u64, MAX_ON_WAY);
        }
        assert!(ids[..36].chunks(6).all(|turn| turn.iter().all(|id| *id == turn[0])), "{ids:?}");
        assert_eq!(write(&mut link, 1), [0], "padding, if somebody insists");
        arrived[1].store(10, Ordering::Relaxed);
        assert_eq!((link.look(), link.room()), (10, 10));
        assert_eq!(write(&mut link, 10), [2; 10]);
        assert_eq!((link.look(), link.room()), (0, 0));
    }

    #[test]
    fn cells_of_strangers_are_dropped_and_an_end_is_an_end() {
        let (mut near, mut far, arrived) = ends(&[1], &[7]);
        near.look();
        let mut cell = [0; CELL_LEN];
        near.write(&mut cell);
        let mut relay = ff_proto::keystream::Keystream::new(&[9; 16]);
        relay.apply(&mut cell[5..]);
        let taken = far.handle(peek_cell(&cell).expect("a cell"), 1).expect("it is right");
        assert_eq!((taken, arrived[0].load(Ordering::Relaxed)), (Some(true), 1));
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
