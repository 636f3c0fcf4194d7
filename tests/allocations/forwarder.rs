//! A relay of one circuit instead of tor-proto: it forwards cells to the next hop, and allocates
//! nothing for them.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ff_proto::cell::{
    BODY_LEN, CELL_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_VERSIONS, Cell, CellAssembler,
    CellRef, HEADER_LEN, fixed_cell,
};
use ff_proto::keystream::Keystream;
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_RELAY, CMD_RELAY_EARLY, RELAY_EXTEND2, RELAY_EXTENDED2, create,
};
use ff_relay_ext::arti::extension::Extension;
use ff_relay_ext::arti::next_hop::NextHop;
use futures::io::AsyncWrite;
use sha1::{Digest, Sha1};

/// The relay's part of every key exchange.
const OURS: [u8; 20] = [9; 20];
/// The circuit's id on the link to the next hop.
const NEXT_CIRCUIT: u32 = 0x8000_0001;

/// The relay.
#[derive(Default)]
pub(crate) struct Forwarder {
    /// What has come.
    cells: CellAssembler,
    /// The circuit, once it is there.
    circuit: Option<Circuit>,
}

/// Its circuit.
struct Circuit {
    /// Keystreams of both directions.
    keys: [Keystream; 2],
    /// Of the cells towards the client.
    digest: Sha1,
    /// The link behind it, once it has been extended.
    next: Option<NextHop>,
}

impl Forwarder {
    /// Takes bytes of a link; gives the answer, if there is one.
    pub(crate) fn take(&mut self, bytes: &[u8], extension: &Extension) -> Option<Box<Cell>> {
        let Self { cells, circuit } = self;
        let mut answer = None;
        let taken: Result<(), std::convert::Infallible> = cells.feed(bytes, |cell| {
            match cell.command {
                CMD_CREATE_FAST => {
                    let (created, body) = Circuit::new(cell.body);
                    *circuit = Some(created);
                    answer = fixed_cell(cell.circ_id, CMD_CREATED_FAST, &body).ok().map(Box::new);
                }
                CMD_RELAY_EARLY => {
                    let circuit = circuit.as_mut().expect("a circuit");
                    answer = Some(Box::new(circuit.extend(cell, extension)));
                }
                CMD_RELAY => circuit.as_mut().expect("a circuit").forward(cell),
                _ => {}
            }
            Ok(())
        });
        taken.unwrap_or_else(|never| match never {});
        answer
    }
}

impl Forwarder {
    /// Whether its circuit's next hop takes cells.
    pub(crate) fn is_open(&mut self) -> bool {
        let next = self.circuit.as_mut().and_then(|circuit| circuit.next.as_mut());
        let mut cx = Context::from_waker(Waker::noop());
        next.is_some_and(|next| {
            matches!(Pin::new(next).poll_write(&mut cx, &[]), Poll::Ready(Ok(0)))
        })
    }
}

impl Circuit {
    /// Answers CREATE_FAST (tor-spec, KDF-TOR).
    fn new(theirs: &[u8]) -> (Self, Vec<u8>) {
        let block = |index: u8| {
            Sha1::new()
                .chain_update(&theirs[..20])
                .chain_update(OURS)
                .chain_update([index])
                .finalize()
        };
        let material: Vec<u8> = (0..5).flat_map(block).collect();
        let key = |at: usize| Keystream::new(material[at..at + 16].try_into().expect("16 bytes"));
        let digest = Sha1::new_with_prefix(&material[40..60]);
        let circuit = Self { keys: [key(60), key(76)], digest, next: None };
        (circuit, [&OURS[..], &material[..20]].concat())
    }

    /// Goes on to the next hop, and answers EXTEND2.
    fn extend(&mut self, cell: CellRef<'_>, extension: &Extension) -> Cell {
        let mut body: [u8; BODY_LEN] = cell.body.try_into().expect("a whole body");
        self.keys[0].apply(&mut body);
        // Command, recognized, stream, digest, length; then three link specifiers, of which the
        // address is the first.
        assert_eq!((body[0], &body[11..14]), (RELAY_EXTEND2, &[3, 0, 6][..]));
        let ip = Ipv4Addr::new(body[14], body[15], body[16], body[17]);
        let addr = SocketAddr::from((ip, u16::from_be_bytes([body[18], body[19]])));
        let mut next = extension.next_hop(addr).expect("the hop of this link");
        write(&mut next, &[0, 0, CMD_VERSIONS, 0, 2, 0, 5]);
        let handshake = create(3, &[]).expect("a handshake");
        write(&mut next, &fixed_cell(NEXT_CIRCUIT, CMD_CREATE2, &handshake).expect("a cell"));
        self.next = Some(next);

        let mut answer = [0; BODY_LEN];
        answer[0] = RELAY_EXTENDED2;
        answer[10] = 2;
        self.digest.update(answer);
        let digest = self.digest.clone().finalize();
        answer[5..9].copy_from_slice(&digest[..4]);
        self.keys[1].apply(&mut answer);
        fixed_cell(cell.circ_id, CMD_RELAY, &answer).expect("a cell")
    }

    /// Forwards a cell.
    fn forward(&mut self, cell: CellRef<'_>) {
        let mut forwarded: Cell = [0; CELL_LEN];
        forwarded[..4].copy_from_slice(&NEXT_CIRCUIT.to_be_bytes());
        forwarded[4] = CMD_RELAY;
        forwarded[HEADER_LEN..].copy_from_slice(cell.body);
        self.keys[0].apply(&mut forwarded[HEADER_LEN..]);
        write(self.next.as_mut().expect("the next hop"), &forwarded);
    }
}

/// Writes to the next hop, which has room.
fn write(next: &mut NextHop, bytes: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    let written = Pin::new(next).poll_write(&mut cx, bytes);
    assert!(matches!(written, Poll::Ready(Ok(len)) if len == bytes.len()), "{written:?}");
}
