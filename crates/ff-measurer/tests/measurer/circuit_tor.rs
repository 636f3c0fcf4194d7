//! Circuits through a real tor, to another tor and to one of our sinks, with the crypto of current
//! clients and the older one.

use std::time::Duration;

use ff_lab::LoneRelay;
use ff_measurer::link::control::{ControlLink, OwnedCell};
use ff_measurer::link::{LinkIdentity, LinkOptions, TargetAddr, accept, open};
use ff_proto::cell::{BODY_LEN, CELL_LEN, Cell, CellRef, fixed_cell};
use ff_proto::circuit::{EphemeralKey, Passage};
use ff_proto::content::{Checker, Content};
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::onion::circuit::{Building, CircuitError, Step, Way};
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_CREATED2, CMD_RELAY, NextRelay, created, is_extensions, read_create,
};
use ff_proto::onion::ntor::{HANDSHAKE_TYPE, NtorServer, OnionKey};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// The time limit of each step, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Cells sent through a circuit in each direction: fewer than the windows of streams and circuits.
const CELLS: u64 = 400;

/// The keys of a relay that clients know.
fn onion_key(tor: &LoneRelay) -> OnionKey {
    OnionKey { id: Ed25519Id(tor.ed_identity()), key: tor.ntor_onion_key().expect("a key") }
}

/// The path through one relay to another.
fn way(first: &LoneRelay, second: &LoneRelay, crypto: CryptoKind) -> Way {
    let mut rsa_id = [0; 20];
    hex::decode_to_slice(second.rsa_fingerprint(), &mut rsa_id).expect("hex digits");
    let OnionKey { id, key } = onion_key(second);
    let next = NextRelay { addr: second.or_addr(), rsa_id, ed_id: id };
    Way { relay: onion_key(first), crypto, next, next_key: key }
}

async fn link_to(tor: &LoneRelay) -> ControlLink {
    let target = TargetAddr { addr: tor.or_addr(), ed_identity: tor.ed_identity().into() };
    let link = open(&target, &LinkOptions::default()).await.expect("a link");
    ControlLink::new(link).expect("a control link")
}

/// Builds a circuit with this id.
async fn build(
    link: &mut ControlLink,
    circ_id: u32,
    way: Way,
) -> Result<[Passage; 2], CircuitError> {
    let entropy = [rand::random(), rand::random()];
    let (mut building, create) = Building::new(circ_id, way, entropy)?;
    link.send_cells(&create).await.expect("sent");
    loop {
        let OwnedCell { circ_id: id, command, body } = link.recv_cell().await.expect("a cell");
        if id != circ_id {
            continue;
        }
        let cell = CellRef { circ_id, command, body: &body, wire_len: CELL_LEN };
        match building.handle(cell)? {
            Step::Send(next, cell) => {
                building = *next;
                link.send_cells(&*cell).await.expect("sent");
            }
            Step::Open(passages) => return Ok(*passages),
        }
    }
}

#[tokio::test]
async fn a_circuit_is_extended_from_one_tor_to_another() {
    let (first, second) = (LoneRelay::start().expect("a tor"), LoneRelay::start().expect("a tor"));
    let mut link = link_to(&first).await;
    for (circ_id, crypto) in
        [(0x8000_0001, CryptoKind::CGO_AES128), (0x8000_0002, CryptoKind::AES128_CTR)]
    {
        let way = way(&first, &second, crypto);
        let passages = build(&mut link, circ_id, way).await.expect("a circuit");
        for passage in &passages {
            assert_eq!(passage.key.crypto(), crypto);
            let has_gone_on = passage.first_cell == 1 || passage.tag != [0; 16];
            assert!(has_gone_on, "a cell was the relay's own: {passage:?}");
        }
    }
}

async fn next_of(link: &mut ControlLink, command: u8) -> OwnedCell {
    loop {
        let cell = timeout(PATIENCE, link.recv_cell()).await.expect("in time").expect("a cell");
        if cell.command == command {
            return cell;
        }
        assert!([0, 128].contains(&cell.command), "{cell:?} in place of command {command}");
    }
}

/// A sink's end of a circuit: the link from the relay, and the circuit's id on it.
async fn answer(
    listener: &TcpListener,
    identity: &LinkIdentity,
    server: &NtorServer,
) -> (ControlLink, u32) {
    let (tcp, _) = listener.accept().await.expect("a connection");
    let link = accept(tcp, identity, PATIENCE).await.expect("a link");
    let mut link = ControlLink::new(link).expect("a control link");
    let asked = next_of(&mut link, CMD_CREATE2).await;
    let (kind, handshake) = read_create(&asked.body).expect("CREATE2");
    assert_eq!(kind, HANDSHAKE_TYPE);
    let ephemeral = EphemeralKey::new(rand::random());
    let respond = |message: &[u8]| is_extensions(message).then(|| vec![0]);
    let (reply, _) = server.answer(handshake, &ephemeral, respond).expect("a handshake");
    let cell = fixed_cell(asked.circ_id, CMD_CREATED2, &created(&reply).expect("it fits"));
    link.send_cells(&cell.expect("it fits")).await.expect("sent");
    (link, asked.circ_id)
}

/// Sends cells with this content on a circuit.
async fn send(link: &mut ControlLink, circ_id: u32, secret: &[u8; 16]) {
    let mut content = Content::new(secret);
    for _ in 0..CELLS / 50 {
        let cells: Vec<Cell> = (0..50)
            .map(|_| {
                let mut body = [0; BODY_LEN];
                content.fill(&mut body);
                fixed_cell(circ_id, CMD_RELAY, &body).expect("it fits")
            })
            .collect();
        link.send_cells(cells.as_flattened()).await.expect("sent");
    }
}

/// Receives the cells at the other end, and fails unless the relay has handled each this way.
async fn check(link: &mut ControlLink, circ_id: u32, secret: &[u8; 16], passage: &Passage) {
    let (mut checker, mut tag) = (Checker::new(secret, passage), passage.tag);
    for index in 0..CELLS {
        let cell = next_of(link, CMD_RELAY).await;
        assert_eq!(cell.circ_id, circ_id);
        assert!(checker.expected(index, &tag)[..] == cell.body[..], "cell {index}");
        tag = *cell.body.first_chunk().expect("a whole cell");
    }
}

#[tokio::test]
async fn what_a_tor_does_with_cells_in_transit_is_known() {
    for crypto in [CryptoKind::CGO_AES128, CryptoKind::AES128_CTR] {
        let tor = LoneRelay::start().expect("a tor");
        let identity = LinkIdentity::generate().expect("an identity");
        let ed_id = Ed25519Id(identity.ed_identity().into());
        let server = NtorServer { id: ed_id, key: EphemeralKey::new(rand::random()) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let rsa_id = identity.rsa_identity().as_bytes().try_into().expect("20 bytes");
        let next = NextRelay { addr: listener.local_addr().expect("a port"), rsa_id, ed_id };
        let way = Way { relay: onion_key(&tor), crypto, next, next_key: server.public().key };

        let (said, circ_id) = (tor.log().len(), 0x8000_0007);
        let mut link = link_to(&tor).await;
        let (passages, (mut sink, sink_id)) =
            tokio::join!(build(&mut link, circ_id, way), answer(&listener, &identity, &server));
        let [forward, backward] = passages.expect("a circuit");
        let (there, back) = ([1; 16], [2; 16]);
        tokio::join!(send(&mut link, circ_id, &there), check(&mut sink, sink_id, &there, &forward));
        tokio::join!(send(&mut sink, sink_id, &back), check(&mut link, circ_id, &back, &backward));
        // A tor that a busy machine stops logs warnings about its clock and a slow computer.
        let (log, meant) = (tor.log(), ["cell", "Closing circuit", "Bug"]);
        let warnings = log[said..].lines().filter(|line| line.contains("[warn]"));
        let of_cells = warnings.filter(|line| meant.iter().any(|word| line.contains(word)));
        assert_eq!(of_cells.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn what_does_not_open_is_said() {
    let (first, second) = (LoneRelay::start().expect("a tor"), LoneRelay::start().expect("a tor"));
    let mut link = link_to(&first).await;
    let good = way(&first, &second, CryptoKind::CGO_AES128);

    let mut other_key = good;
    other_key.relay.key = onion_key(&second).key;
    let error = build(&mut link, 0x8000_0001, other_key).await.expect_err("another key");
    assert!(matches!(error, CircuitError::Destroyed(1)), "{error}");

    let mut other_identity = good;
    other_identity.next.ed_id = good.relay.id;
    let error = build(&mut link, 0x8000_0002, other_identity).await.expect_err("an identity");
    assert!(matches!(error, CircuitError::Destroyed(_)), "{error}");

    let mut nobody = good;
    nobody.next.addr.set_port(1);
    nobody.next.rsa_id[0] ^= 1;
    nobody.next.ed_id.0[0] ^= 1;
    let error = build(&mut link, 0x8000_0003, nobody).await.expect_err("a closed port");
    assert!(matches!(error, CircuitError::Destroyed(_)), "{error}");

    build(&mut link, 0x8000_0004, good).await.expect("the link goes on");
}
