//! Cells in transit through a real tor that knows nothing of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_lab::LoneRelay;
use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{LinkError, LinkOptions, TargetAddr, open};
use ff_measurer::transit::{Direction, Transit, TransitEvent, TransitOrder, TransitSecond};
use ff_proto::cell::fixed_cell;
use ff_proto::ids::CryptoKind;
use ff_proto::onion::extend::{CMD_CREATE2, create};
use ff_proto::onion::ntor::HANDSHAKE_TYPE;
use ff_proto::units::BytesPerSec;
use tokio::net::TcpSocket;
use tokio::time::sleep;

/// Through this relay, over two links and four circuits to two sinks, for two seconds.
fn order(tor: &LoneRelay, crypto: CryptoKind, direction: Direction) -> TransitOrder {
    let target = TargetAddr { addr: tor.or_addr(), ed_identity: tor.ed_identity().into() };
    let (onion_key, sinks) =
        (tor.ntor_onion_key().expect("a key"), vec![([127, 0, 0, 1], 0).into(); 2]);
    TransitOrder {
        crypto,
        links: 2,
        circuits: 4,
        direction,
        rate: Some(BytesPerSec::from_mbit(20)),
        duration: Duration::from_secs(2),
        check_probability: 0.01,
        ..TransitOrder::new(target, onion_key, sinks)
    }
}

/// Carries an order out: its seconds, and the cells that were sent and that arrived, for each end.
async fn carry_out(order: &TransitOrder) -> (Vec<TransitSecond>, [(u64, u64, u64); 2]) {
    let mut transit = Transit::prepare(order).await.expect("circuits");
    transit.start(Instant::now());
    let mut seconds = Vec::new();
    loop {
        match transit.next_event().await.expect("an honest relay") {
            TransitEvent::Second(second) => seconds.push(second),
            TransitEvent::Done(totals) => {
                let of_end = |end: &ff_measurer::WorkerTotals| {
                    (end.sent_cells, end.echoed_cells, end.checked_cells)
                };
                return (seconds, [of_end(&totals[0]), of_end(&totals[1])]);
            }
        }
    }
}

#[tokio::test]
async fn cells_go_through_a_tor_both_ways_and_are_right() {
    let tor = LoneRelay::start().expect("a tor");
    for crypto in [CryptoKind::CGO_AES128, CryptoKind::AES128_CTR] {
        for direction in [Direction::Forward, Direction::Backward, Direction::Both] {
            let (seconds, [ours, theirs]) = carry_out(&order(&tor, crypto, direction)).await;
            println!("{} {direction:?}: {seconds:?}, {ours:?}, {theirs:?}", crypto.name());
            assert_eq!(seconds.len(), 2);
            for (in_seconds, arrived) in [
                (seconds.iter().map(|s| s.forward_cells).sum::<u64>(), theirs.1),
                (seconds.iter().map(|s| s.backward_cells).sum(), ours.1),
            ] {
                // What is on the way at the end comes behind the last second.
                assert!(in_seconds <= arrived && in_seconds >= arrived * 9 / 10, "{in_seconds}");
            }
            assert!(seconds.iter().all(|second| second.cpu_micros > 0));
            let due = 2 * 20_000_000 / 8 / 514;
            for ((sent, ..), (_, arrived, checked), is_used) in [
                (ours, theirs, direction != Direction::Backward),
                (theirs, ours, direction != Direction::Forward),
            ] {
                // A tor that a busy machine stops for a second keeps what was on the way.
                let lost = sent.checked_sub(arrived).expect("no more comes than was sent");
                assert!(lost <= sent / 100, "{lost} of {sent} have not come");
                let expected = if is_used { due * 9 / 10..=due * 11 / 10 } else { 0..=0 };
                assert!(expected.contains(&sent), "{sent} cells");
                // All of the first 300 of both links together, then 300 / n of them.
                assert!(!is_used || (300..=2000).contains(&checked), "{checked} checked");
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
    let (_, ends) = carry_out(&order).await;
    let (sent, arrived, checked) = ends[0];
    assert_eq!(checked, arrived, "all that have come are right");
    assert!(arrived <= ends[1].0 && arrived >= ends[1].0 * 99 / 100, "{arrived} of {}", ends[1].0);
    assert!(sent >= 2 * 20_000_000 / 8 / 514 * 9 / 10, "{sent} cells");
}

/// A port that is free.
fn free_port() -> SocketAddr {
    let place = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    place.local_addr().expect("a port")
}

/// A link to a sink whose identity nobody has told; it says who it is when it is asked for another.
async fn stranger(sink: SocketAddr) -> ControlLink {
    let mut target = TargetAddr { addr: sink, ed_identity: [9; 32].into() };
    loop {
        match open(&target, &LinkOptions::default()).await {
            Ok(link) => return ControlLink::new(link).expect("a socket for tokio"),
            Err(LinkError::WrongIdentity { found: Some(found), .. }) => target.ed_identity = found,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Asks for circuits that nobody expects until it is cut off; how often it asked.
async fn flood(mut link: ControlLink) -> u32 {
    let handshake = [7; 200];
    let body = create(HANDSHAKE_TYPE, &handshake).expect("it fits");
    let cell = fixed_cell(0x8000_0001, CMD_CREATE2, &body).expect("it fits");
    let mut asked = 0;
    while link.send_cells(&cell).await.is_ok() {
        asked += 1;
        sleep(Duration::from_millis(1)).await;
    }
    asked
}

#[tokio::test]
async fn strangers_with_links_are_no_part_of_a_measurement() {
    let (tor, sink) = (LoneRelay::start().expect("a tor"), free_port());
    let idle = tokio::spawn(async move {
        let link = stranger(sink).await;
        // It is gone when cells are on the way.
        sleep(Duration::from_millis(3500)).await;
        drop(link);
    });
    let flooding = tokio::spawn(async move { flood(stranger(sink).await).await });
    let order = TransitOrder {
        sinks: vec![sink],
        circuits_per_sec: Some(2),
        ..order(&tor, CryptoKind::CGO_AES128, Direction::Both)
    };
    let (seconds, [ours, theirs]) = carry_out(&order).await;
    assert_eq!(seconds.len(), 2);
    // A tor that a busy machine stops for a second keeps what was on the way, and nothing of a stranger counts.
    for (sent, arrived) in [(ours.0, theirs.1), (theirs.0, ours.1)] {
        assert!(arrived <= sent && arrived >= sent * 99 / 100, "{arrived} of {sent}");
    }
    let asked = flooding.await.expect("it has ended");
    assert!(asked < 1000, "cut off after {asked} cells");
    idle.await.expect("it has ended");
}

#[tokio::test]
async fn strangers_do_not_keep_the_relay_from_a_sink() {
    let (tor, sink) = (LoneRelay::start().expect("a tor"), free_port());
    let strangers = tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(([127, 0, 0, 2], 0).into()).expect("another address");
            match socket.connect(sink).await {
                Ok(stream) => silent.push(stream),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    let order =
        TransitOrder { sinks: vec![sink], ..order(&tor, CryptoKind::CGO_AES128, Direction::Both) };
    let (seconds, _) = carry_out(&order).await;
    assert_eq!(seconds.len(), 2);
    strangers.abort();
}
