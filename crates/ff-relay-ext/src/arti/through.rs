//! A measurement link's cells on their way through the relay.
//!
//! The link decrypts a MEAS_ECHO cell as the protocol requires, and turns it into a RELAY cell of a
//! circuit that it has opened through tor-proto itself: the client's end of a circuit whose next
//! hop is a [`NextHop`](super::next_hop::NextHop). There the decrypted cell leaves the relay and
//! goes back to the measurer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ff_proto::cell::{BODY_LEN, CELL_LEN, CMD_DESTROY, CellAssembler, CellRef, HEADER_LEN};
use ff_proto::circuit::{EchoCircuit, ForwardKey, Passage};
use ff_proto::ids::Ed25519Id;
use ff_proto::keystream::Keystream;
use ff_proto::onion::circuit::CircuitError;
use ff_proto::onion::extend::{CMD_RELAY, NextRelay};
use ff_proto::onion::inside::{Inside, Next};
use ff_proto::session::target::LinkId;

use super::next_hop::{Echoes, HopIdentity};

/// The state of the circuit through the relay.
enum Course {
    /// It is being opened; `None` while a cell is handled.
    Building(Option<Box<Inside>>),
    /// It is open; with this keystream the relay decrypts the cells that it forwards.
    Open(Box<Keystream>),
}

/// The cells of one measurement link inside the relay.
pub(super) struct Through {
    /// The measurement's circuit.
    circuit: EchoCircuit,
    /// The relay's circuit.
    course: Course,
    /// Where its cells leave the relay.
    pub(super) echoes: Arc<Echoes>,
    /// The bytes that tor-proto must read first.
    to_relay: Vec<u8>,
    /// Joins the cells that tor-proto sends on the circuit.
    from_relay: CellAssembler,
    /// The number of cells inside the relay.
    inside: usize,
}

impl Through {
    /// Starts opening a circuit to the next hop with this identity at this address, which stands
    /// for `echoes`.
    pub(super) fn new(
        circuit: EchoCircuit,
        hop: &HopIdentity,
        addr: SocketAddr,
        echoes: Arc<Echoes>,
    ) -> Result<Self, CircuitError> {
        let next = NextRelay {
            addr,
            rsa_id: hop.rsa_identity().to_bytes(),
            ed_id: Ed25519Id(hop.ed_identity().into()),
        };
        let (building, cell) = Inside::new(circuit.circ_id(), next, rand::random())?;
        Ok(Self {
            circuit,
            course: Course::Building(Some(Box::new(building))),
            echoes,
            to_relay: cell.to_vec(),
            from_relay: CellAssembler::default(),
            inside: 0,
        })
    }

    /// The measurement's circuit.
    pub(super) fn circuit(&self) -> &EchoCircuit {
        &self.circuit
    }

    /// Writes bytes to `out` that tor-proto must read before the measurer's cells; returns their
    /// number.
    pub(super) fn say(&mut self, out: &mut [u8]) -> usize {
        let len = self.to_relay.len().min(out.len());
        out[..len].copy_from_slice(&self.to_relay[..len]);
        self.to_relay.drain(..len);
        len
    }

    /// Whether the circuit is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.course, Course::Open(_))
    }

    /// Whether the circuit is open and no cell is inside the relay.
    pub(super) fn is_idle(&self) -> bool {
        self.is_open() && self.inside == 0
    }

    /// Decrypts a MEAS_ECHO cell in place, and turns it into one that the relay forwards. The
    /// circuit must be open.
    pub(super) fn send_in(&mut self, cell: &mut [u8; CELL_LEN]) {
        let Course::Open(keystream) = &mut self.course else { return };
        let (header, body) = cell.split_at_mut(HEADER_LEN);
        let Some(body) = body.first_chunk_mut::<BODY_LEN>() else { return };
        self.circuit.echo(body);
        keystream.apply(body);
        header[HEADER_LEN - 1] = CMD_RELAY;
        self.inside += 1;
    }

    /// Notes that `cells` cells have left the relay.
    pub(super) fn came_out(&mut self, cells: usize) {
        self.inside = self.inside.saturating_sub(cells);
    }

    /// Handles bytes that tor-proto sends on the link, which belong to the circuit or are padding.
    pub(super) fn on_relay(&mut self, bytes: &[u8]) -> Result<(), CircuitError> {
        let Self { from_relay, course, to_relay, circuit, .. } = self;
        from_relay.feed(bytes, |cell| take_cell(course, to_relay, circuit.circ_id(), cell))
    }
}

impl Drop for Through {
    /// Ends the circuit: its next hop closes the link to it.
    fn drop(&mut self) {
        self.echoes.end();
    }
}

impl std::fmt::Debug for Through {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Through").field("inside", &self.inside).finish_non_exhaustive()
    }
}

/// Handles one cell of tor-proto.
fn take_cell(
    course: &mut Course,
    to_relay: &mut Vec<u8>,
    circ_id: u32,
    cell: CellRef<'_>,
) -> Result<(), CircuitError> {
    if cell.circ_id != circ_id {
        return Ok(());
    }
    match course {
        Course::Building(building) => {
            let building = building.take().ok_or(CircuitError::Unexpected(cell.command))?;
            match building.handle(cell)? {
                Next::Send(building, cell) => {
                    to_relay.extend_from_slice(&cell[..]);
                    *course = Course::Building(Some(building));
                }
                Next::Open(passage) => *course = Course::Open(Box::new(keystream(&passage)?)),
            }
            Ok(())
        }
        Course::Open(_) if cell.command == CMD_DESTROY => {
            Err(CircuitError::Destroyed(cell.body.first().copied().unwrap_or(0)))
        }
        // The next hop sends nothing.
        Course::Open(_) => Ok(()),
    }
}

/// The keystream with which the relay decrypts the next cell.
fn keystream(passage: &Passage) -> Result<Keystream, CircuitError> {
    let ForwardKey::Aes128Ctr(key) = &passage.key else {
        return Err(CircuitError::Crypto(passage.key.crypto()));
    };
    let mut keystream = Keystream::new(key);
    keystream.seek(passage.first_cell * BODY_LEN as u64);
    Ok(keystream)
}

/// The address with which a circuit requests a link's next hop: one for benchmarks (RFC 2544),
/// which no host uses.
pub(super) fn address(link: LinkId) -> SocketAddr {
    let [.., a, b, c, d] = link.0.to_be_bytes();
    let port = u16::from_be_bytes([c, d]) | 1;
    let host = u16::from_be_bytes([a, b]);
    let [high, low] = host.to_be_bytes();
    let ip = Ipv4Addr::new(198, 18 + (d & 1), high, low);
    SocketAddr::new(IpAddr::V4(ip), port)
}
