//! Cells in transit through a real tor that knows nothing of it.

use std::time::{Duration, Instant};

use ff_measurer::link::TargetAddr;
use ff_measurer::transit::{Direction, Transit, TransitEvent, TransitOrder, TransitSecond};
use ff_proto::ids::CryptoKind;
use ff_proto::units::BytesPerSec;
use tornet::LoneRelay;

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
            let due = 2 * 20_000_000 / 8 / 514;
            for ((sent, ..), (_, arrived, checked), is_used) in [
                (ours, theirs, direction != Direction::Backward),
                (theirs, ours, direction != Direction::Forward),
            ] {
                assert_eq!(arrived, sent, "what was on the way has come");
                let expected = if is_used { due * 9 / 10..=due * 11 / 10 } else { 0..=0 };
                assert!(expected.contains(&sent), "{sent} cells");
                assert!(!is_used || checked >= 300, "{checked} checked");
            }
        }
    }
}
