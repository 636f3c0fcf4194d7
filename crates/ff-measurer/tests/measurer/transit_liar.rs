//! Cells in transit through relays that cheat.
//!
//! The relay here is minimal: one incoming link, one circuit with the older crypto, one outgoing
//! link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_measurer::link::control::{ControlLink, OwnedCell};
use ff_measurer::link::{LinkIdentity, LinkOptions, TargetAddr, accept, open};
use ff_measurer::transit::{Transit, TransitError, TransitOrder};
use ff_measurer::{MeasurerError, START_LEAD, WorkerTotals};
use ff_proto::cell::{Body, fixed_cell};
use ff_proto::circuit::EphemeralKey;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::keystream::Keystream;
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_CREATED2, CMD_RELAY, CMD_RELAY_EARLY, Format, RELAY_EXTENDED2, RelayMessage,
    created, read_create, read_created,
};
use ff_proto::onion::ntor::{NtorServer, OnionKey};
use ff_proto::session::{PeerViolation, SessionFailure};
use ff_proto::units::BytesPerSec;
use sha1::{Digest, Sha1};
use tokio::net::TcpListener;

/// The time limit of a handshake, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long cells are sent: longer than a busy machine stops one of the threads.
const SECS: u64 = 4;
/// The offsets of fields in cells of the older crypto.
const FORMAT: Format = Format { command_at: 0, len_at: 9 };
/// Bytes before the handshake in EXTEND2 to an IPv4 address with both identities.
const SPECIFIERS_LEN: usize = 1 + (2 + 6) + (2 + 20) + (2 + 32);

/// How the relay violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Nothing,
    /// Returns the measurer's cells itself.
    Return,
    /// Drops one cell in a hundred.
    Drop,
    /// Swaps two cells of a hundred.
    Swap,
    /// Forwards cells unchanged.
    SkipCrypto,
    /// Forwards no cells to the measurer.
    OneWay,
}

/// The keys that relay and client have derived for one direction, and its count of cells.
struct Lane {
    keystream: Keystream,
    /// The digest of the relay's own cells.
    digest: Sha1,
    /// Cells forwarded.
    count: u32,
    /// The cell that waits to be swapped.
    waiting: Option<Body>,
}

impl Lane {
    /// The cells to forward in place of this one.
    fn pass(&mut self, mut body: Body, lie: Lie) -> Vec<Body> {
        if lie != Lie::SkipCrypto {
            self.keystream.apply(&mut body);
        }
        self.count += 1;
        match (lie, self.count % 100) {
            (Lie::Drop, 50) => Vec::new(),
            (Lie::Swap, 50) => {
                self.waiting = Some(body);
                Vec::new()
            }
            _ => [Some(body), self.waiting.take()].into_iter().flatten().collect(),
        }
    }
}

/// A whole cell's body.
fn body_of(cell: &OwnedCell) -> Body {
    cell.body[..].try_into().expect("509 bytes")
}

async fn next_of(link: &mut ControlLink, command: u8) -> OwnedCell {
    loop {
        let cell = link.recv_cell().await.expect("a cell");
        if cell.command == command {
            return cell;
        }
    }
}

/// Extends a circuit by an EXTEND2: opens the next link, and returns the handshake of the answer.
async fn extend(data: &[u8]) -> (ControlLink, Vec<u8>) {
    let addr: [u8; 6] = data[3..9].try_into().expect("an IPv4 address");
    let [a, b, c, d, high, low] = addr;
    let addr = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    let ed_identity: [u8; 32] =
        data[SPECIFIERS_LEN - 32..SPECIFIERS_LEN].try_into().expect("an id");
    let target = TargetAddr { addr, ed_identity: ed_identity.into() };
    let link = open(&target, &LinkOptions::default()).await.expect("a link");
    let mut link = ControlLink::new(link).expect("a socket for tokio");
    let create = fixed_cell(0x8000_0009, CMD_CREATE2, &data[SPECIFIERS_LEN..]).expect("it fits");
    link.send_cells(&create).await.expect("sent");
    let answer = next_of(&mut link, CMD_CREATED2).await;
    (link, read_created(&answer.body).expect("a handshake").to_vec())
}

/// Serves one link with one circuit until either end is gone.
async fn serve(listener: TcpListener, identity: LinkIdentity, server: NtorServer, lie: Lie) {
    let (tcp, _) = listener.accept().await.expect("a connection");
    let link = accept(tcp, &identity, PATIENCE).await.expect("a link");
    let mut near = ControlLink::new(link).expect("a socket for tokio");
    let asked = next_of(&mut near, CMD_CREATE2).await;
    let (circ_id, (_, handshake)) = (asked.circ_id, read_create(&asked.body).expect("CREATE2"));
    let ephemeral = EphemeralKey::new(rand::random());
    let answered = server.answer(handshake, &ephemeral, |_| Some(vec![0]));
    let (reply, mut keys) = answered.expect("a handshake");
    let reply = created(&reply).expect("it fits");
    let cell = fixed_cell(circ_id, CMD_CREATED2, &reply).expect("it fits");
    near.send_cells(&cell).await.expect("sent");
    let mut seeds = [[0; 20]; 2];
    seeds.iter_mut().for_each(|seed| keys.fill(seed));
    let [mut forward, mut backward] = seeds.map(|seed| {
        let mut key = [0; 16];
        keys.fill(&mut key);
        let (keystream, digest) = (Keystream::new(&key), Sha1::new_with_prefix(seed));
        Lane { keystream, digest, count: 0, waiting: None }
    });

    let mut body = body_of(&next_of(&mut near, CMD_RELAY_EARLY).await);
    forward.keystream.apply(&mut body);
    let message = RelayMessage::decode(&body, FORMAT).expect("EXTEND2");
    let (mut far, handshake) = extend(message.data).await;
    let data = created(&handshake).expect("it fits");
    let message = RelayMessage { command: RELAY_EXTENDED2, data: &data };
    let mut body = message.encode(FORMAT).expect("it fits");
    backward.digest.update(body);
    body[5..9].copy_from_slice(&backward.digest.clone().finalize()[..4]);
    backward.keystream.apply(&mut body);
    let cell = fixed_cell(circ_id, CMD_RELAY, &body).expect("it fits");
    near.send_cells(&cell).await.expect("sent");

    loop {
        let (cells, is_forward) = tokio::select! {
            Ok(cell) = near.recv_cell() => (forward.pass(body_of(&cell), lie), true),
            Ok(cell) = far.recv_cell() => (backward.pass(body_of(&cell), lie), false),
            else => return,
        };
        let to_sink = is_forward && lie != Lie::Return;
        if !is_forward && matches!(lie, Lie::OneWay | Lie::Return) {
            continue;
        }
        for body in cells {
            let id = if to_sink { 0x8000_0009 } else { circ_id };
            let cell = fixed_cell(id, CMD_RELAY, &body).expect("it fits");
            let link = if to_sink { &mut far } else { &mut near };
            if link.send_cells(&cell).await.is_err() {
                return;
            }
        }
    }
}

/// Sends 5 Mbit/s each way through such a relay; returns the totals of the measurer and of the
/// sink.
async fn transit(lie: Lie) -> Result<Box<[WorkerTotals; 2]>, TransitError> {
    let identity = LinkIdentity::generate().expect("an identity");
    let ed_identity = identity.ed_identity();
    let server =
        NtorServer { id: Ed25519Id(ed_identity.into()), key: EphemeralKey::new(rand::random()) };
    let OnionKey { key: onion_key, .. } = server.public();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("a port");
    let relay = tokio::spawn(serve(listener, identity, server, lie));
    let target = TargetAddr { addr, ed_identity };
    let order = TransitOrder {
        crypto: CryptoKind::AES128_CTR,
        links: 1,
        circuits: 1,
        rate: Some(BytesPerSec::from_mbit(5)),
        duration: Duration::from_secs(SECS),
        check_probability: 0.01,
        ..TransitOrder::new(target, onion_key, vec![([127, 0, 0, 1], 0).into()])
    };
    let mut transit = Transit::prepare(&order).await?;
    transit.start(Instant::now() + START_LEAD);
    let totals = transit.finish(|second| eprintln!("{lie:?}: {second:?}")).await?;
    relay.abort();
    Ok(totals)
}

/// Fails unless the check detects it.
async fn assert_found(lie: Lie) {
    let error = transit(lie).await.expect_err("it is found");
    let TransitError::Measurer(MeasurerError::Session(SessionFailure::Violation(violation))) =
        &error
    else {
        panic!("{lie:?}: {error:?}");
    };
    let is_expected = match lie {
        Lie::Drop | Lie::Swap => matches!(violation, PeerViolation::OutOfOrder { .. }),
        _ => matches!(violation, PeerViolation::WrongContent { .. }),
    };
    assert!(is_expected, "{lie:?}: {violation:?}");
}

#[tokio::test]
async fn an_honest_relay_passes() {
    let [ours, theirs] = *transit(Lie::Nothing).await.expect("an honest relay");
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        // How many are in flight at the end depends on the machine.
        let (sent, arrived) = (from.sent_cells, to.echoed_cells);
        assert!((1..=sent).contains(&arrived), "{arrived} of {sent} have arrived");
        assert!((1..=arrived).contains(&to.checked_cells), "{to:?}");
    }
}

#[tokio::test]
async fn cells_that_are_returned_are_found() {
    assert_found(Lie::Return).await;
}

#[tokio::test]
async fn a_cell_that_is_missing_is_found_by_the_next() {
    assert_found(Lie::Drop).await;
}

#[tokio::test]
async fn cells_in_another_order_are_found() {
    assert_found(Lie::Swap).await;
}

#[tokio::test]
async fn cells_without_the_relays_crypto_are_found() {
    assert_found(Lie::SkipCrypto).await;
}

#[tokio::test]
async fn a_direction_that_does_not_work_is_found() {
    let error = transit(Lie::OneWay).await.expect_err("half of a relay is none");
    let is_found =
        matches!(&error, TransitError::NothingArrived(way) if way.contains("to the measurer"));
    assert!(is_found, "{error:?}");
}
