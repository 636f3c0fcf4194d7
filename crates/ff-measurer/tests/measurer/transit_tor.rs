//! Cells in transit through a real tor, which does not know of measurements.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_lab::LoneRelay;
use ff_measurer::START_LEAD;
use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{LinkError, LinkOptions, TargetAddr, open};
use ff_measurer::transit::{Direction, Listening, Transit, TransitOrder, TransitSecond};
use ff_proto::cell::{CELL_LEN, CMD_DESTROY, fixed_cell};
use ff_proto::ids::CryptoKind;
use ff_proto::onion::extend::{CMD_CREATE2, create};
use ff_proto::onion::ntor::HANDSHAKE_TYPE;
use ff_proto::units::BytesPerSec;
use tokio::net::TcpSocket;

/// How long cells are sent through a tor: longer than a busy machine stops one of the processes and
/// threads.
const SECS: u64 = 3;
/// The rate each way.
const RATE: BytesPerSec = BytesPerSec::from_mbit(20);
/// The time without running that a worker may make up for.
const BURST: Duration = Duration::from_millis(100);

/// An order through this relay, over two links and four circuits to two sinks.
fn order(tor: &LoneRelay, crypto: CryptoKind, direction: Direction) -> TransitOrder {
    let target = TargetAddr { addr: tor.or_addr(), ed_identity: tor.ed_identity().into() };
    let (onion_key, sinks) =
        (tor.ntor_onion_key().expect("a key"), vec![([127, 0, 0, 1], 0).into(); 2]);
    TransitOrder {
        crypto,
        links: 2,
        circuits: 4,
        direction,
        rate: Some(RATE),
        duration: Duration::from_secs(SECS),
        check_probability: 0.01,
        ..TransitOrder::new(target, onion_key, sinks)
    }
}

/// The totals of one end.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Cells sent.
    sent: u64,
    /// Cells that arrived.
    arrived: u64,
    /// Checked cells among these.
    checked: u64,
}

/// Carries out an order; returns its seconds, and the totals of the measurer and the sinks.
async fn carry_out(mut transit: Transit) -> (Vec<TransitSecond>, [End; 2]) {
    transit.start(Instant::now() + START_LEAD);
    let mut seconds = Vec::new();
    let totals = transit.finish(|second| seconds.push(second)).await.expect("an honest relay");
    assert_eq!(seconds.len() as u64, SECS);
    let ends = totals.map(|end| End {
        sent: end.sent_cells,
        arrived: end.echoed_cells,
        checked: end.checked_cells,
    });
    (seconds, ends)
}

/// Fails unless cells arrived, and were no more than the rate allows. Cells in the queues of a
/// stopped tor at the end do not count.
fn assert_went(from: End, to: End) {
    let most = RATE.bytes_in(Duration::from_secs(SECS) + BURST) / CELL_LEN as u64;
    assert!((1..=most).contains(&from.sent), "{from:?}: at most {most} cells are due");
    assert!((1..=from.sent).contains(&to.arrived), "{to:?} of {from:?}");
}

#[tokio::test]
async fn cells_go_through_a_tor_both_ways_and_are_right() {
    let tor = LoneRelay::start().expect("a tor");
    for crypto in [CryptoKind::CGO_AES128, CryptoKind::AES128_CTR] {
        for direction in [Direction::Forward, Direction::Backward, Direction::Both] {
            let transit = Transit::prepare(&order(&tor, crypto, direction)).await;
            let (seconds, [ours, theirs]) = carry_out(transit.expect("circuits")).await;
            println!("{} {direction:?}: {seconds:?}, {ours:?}, {theirs:?}", crypto.name());
            // Cells in flight at the end arrive after the last second.
            assert!(seconds.iter().map(|s| s.forward_cells).sum::<u64>() <= theirs.arrived);
            assert!(seconds.iter().map(|s| s.backward_cells).sum::<u64>() <= ours.arrived);
            assert!(seconds.iter().map(|s| s.cpu_micros).sum::<u64>() > 0);
            for (from, to, is_used) in [
                (ours, theirs, direction != Direction::Backward),
                (theirs, ours, direction != Direction::Forward),
            ] {
                if !is_used {
                    assert_eq!((from.sent, to.arrived, to.checked), (0, 0, 0));
                    continue;
                }
                assert_went(from, to);
                // All of the first 300 of both links together, then 300 / n of them. Cells that
                // arrive before an end has been told to start are not counted.
                let least = if to.arrived == from.sent { to.arrived.min(300) } else { 1 };
                assert!((least..=2200).contains(&to.checked), "{} checked", to.checked);
            }
        }
    }
}

#[tokio::test]
async fn quiet_circuits_are_checked_and_take_their_part() {
    let tor = LoneRelay::start().expect("a tor");
    let order = TransitOrder {
        circuits: 40,
        busy_circuits: 2,
        quiet_one_in: Some(10),
        check_probability: 1.0,
        ..order(&tor, CryptoKind::CGO_AES128, Direction::Both)
    };
    let transit = Transit::prepare(&order).await.expect("circuits");
    let (_, [ours, theirs]) = carry_out(transit).await;
    assert_went(ours, theirs);
    assert_went(theirs, ours);
    assert_eq!(ours.checked, ours.arrived, "all that have come are right");
    assert_eq!(theirs.checked, theirs.arrived, "all that have come are right");
}

/// A link to a sink of unknown identity; a sink answers with its own identity if asked for another
/// one.
async fn stranger(sink: SocketAddr) -> ControlLink {
    let mut target = TargetAddr { addr: sink, ed_identity: [9; 32].into() };
    loop {
        match open(&target, &LinkOptions::default()).await {
            Ok(link) => return ControlLink::new(link).expect("a socket for tokio"),
            Err(LinkError::WrongIdentity { found: Some(found), .. }) => target.ed_identity = found,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Asks for unexpected circuits until the link is closed; returns the number of refusals.
async fn flood(mut link: ControlLink) -> u32 {
    let handshake = [7; 200];
    let body = create(HANDSHAKE_TYPE, &handshake).expect("it fits");
    let cell = fixed_cell(0x8000_0001, CMD_CREATE2, &body).expect("it fits");
    let mut refused = 0;
    while refused < 1000 && link.send_cells(&cell).await.is_ok() {
        match link.recv_cell().await {
            Ok(answer) => {
                assert_eq!(answer.command, CMD_DESTROY, "{answer:?}");
                refused += 1;
            }
            Err(_) => break,
        }
    }
    refused
}

/// An order through this relay, listening at its only sink.
async fn listen(tor: &LoneRelay) -> (Listening, SocketAddr) {
    let order = TransitOrder {
        sinks: vec![([127, 0, 0, 1], 0).into()],
        ..order(tor, CryptoKind::CGO_AES128, Direction::Both)
    };
    let listening = Listening::start(&order).await.expect("a sink");
    let sink = listening.addrs().next().expect("a sink");
    (listening, sink)
}

#[tokio::test]
async fn strangers_with_links_are_no_part_of_a_measurement() {
    let tor = LoneRelay::start().expect("a tor");
    let (listening, sink) = listen(&tor).await;
    let mut idle = stranger(sink).await;
    assert_eq!(flood(stranger(sink).await).await, 1, "cut off after the first");
    let transit = listening.open().await.expect("circuits");
    // The sink keeps links with circuits.
    idle.recv_cell().await.expect_err("the sink says nothing and hangs up");
    let (_, [ours, theirs]) = carry_out(transit).await;
    assert_went(ours, theirs);
    assert_went(theirs, ours);
}

#[tokio::test]
async fn strangers_do_not_keep_the_relay_from_a_sink() {
    let tor = LoneRelay::start().expect("a tor");
    let (listening, sink) = listen(&tor).await;
    // More links than a sink has places, from another address, before the relay's.
    let mut silent = Vec::new();
    for _ in 0..100 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 2], 0).into()).expect("another address");
        silent.push(socket.connect(sink).await.expect("it listens"));
    }
    let transit = listening.open().await.expect("circuits");
    drop(silent);
    let (_, [ours, theirs]) = carry_out(transit).await;
    assert_went(ours, theirs);
    assert_went(theirs, ours);
}
