//! One measurement at a time, and how each of them ends.

use std::time::{Duration, Instant};

use ff_proto::msg::{ErrCode, MeasEnd, Msg};

use super::session::{
    Coordinator, MeasurementLink, Member, codes_until_closed, error_code, next_message, send,
};
use super::{LAB, Relay};

/// Links of a measurement made by hand.
const LINKS: u16 = 12;

/// Has a measurement granted, opens its links and echoes some cells on each.
async fn start(relay: &Relay<'_>, duration_secs: u16) -> (Coordinator, Vec<MeasurementLink>) {
    let (target, team) = (relay.target(), [Member::new(LINKS)]);
    let (coordinator, _) = Coordinator::granted(&target, relay.key(), duration_secs, &team).await;
    let mut links = Vec::new();
    for _ in 0..LINKS {
        let mut link = MeasurementLink::open(&target, coordinator.measurement, &team[0].key).await;
        link.echo(50).await;
        links.push(link);
    }
    (coordinator, links)
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_second_coordinator_finds_the_relay_busy() {
    LAB.run(async |lab| {
        let relay = lab.relay("busy");
        let (target, second) = (relay.target(), relay.key());
        let team = [Member::new(1)];
        let (first, _) = Coordinator::granted(&target, relay.key(), 10, &team).await;
        assert_eq!(Coordinator::refused(&target, second).await, ErrCode::BUSY);
        let mut link = MeasurementLink::open(&target, first.measurement, &team[0].key).await;
        link.echo(100).await;
        assert_eq!(Coordinator::refused(&target, second).await, ErrCode::BUSY);
        link.echo(100).await;
        first.end().await;
        // The refusals did not use up the second one's two grants.
        for _ in 0..2 {
            Coordinator::granted(&target, second, 10, &team).await.0.end().await;
        }
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn the_end_of_the_coordinators_link_ends_the_measurement_at_once() {
    LAB.run(async |lab| {
        let relay = lab.relay("gone");
        let (coordinator, links) = start(&relay, 30).await;
        let begin = Instant::now();
        drop(coordinator);
        for mut link in links {
            let message = next_message(&mut link.link).await.expect("a message at the end");
            assert_eq!(error_code(&message), Some(ErrCode::COORDINATOR_GONE));
        }
        relay.wait_until_no_link_is_open(Duration::from_secs(2)).await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        relay.node.wait_for_log("has ended early (coordinator_gone)", Duration::ZERO).expect("so");
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn the_relays_own_limit_ends_a_measurement() {
    LAB.run(async |lab| {
        let relay = lab.relay("cap");
        relay
            .node
            .control()
            .and_then(|mut tor| tor.setconf("FFMaxMeasurementDuration", "10"))
            .expect("a good value");
        let begin = Instant::now();
        let (mut coordinator, links) = start(&relay, 120).await;
        let mut reports = 0;
        let last = loop {
            match coordinator.next_message().await.expect("the link stays open") {
                Msg::Bg(report) => {
                    assert_eq!(report.second, reports);
                    reports += 1;
                }
                other => break other,
            }
        };
        let took = begin.elapsed().as_secs_f64();
        assert_eq!((reports, error_code(&last)), (10, None), "{last:?}");
        assert!((10.0..12.0).contains(&took), "{took} s");
        for mut link in links {
            assert_eq!(codes_until_closed(&mut link.link).await, []);
        }
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_measurers_that_go_on_sending_are_told_of_the_end() {
    LAB.run(async |lab| {
        let relay = lab.relay("gone");
        let (coordinator, mut links) = start(&relay, 30).await;
        for link in &mut links {
            let cells = link.cells(100);
            send(&mut link.link, &cells).await;
        }
        let end = Msg::End(MeasEnd { measurement: coordinator.measurement });
        coordinator.end().await;
        let begin = Instant::now();
        for link in &mut links {
            let cells = link.cells(100);
            send(&mut link.link, &cells).await;
        }
        // A reset would have overtaken what has not been read by now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for link in &mut links {
            assert_eq!(next_message(&mut link.link).await, Some(end.clone()));
        }
        // Measurers that do not close their links lose them all the same.
        for link in &mut links {
            assert_eq!(codes_until_closed(&mut link.link).await, []);
        }
        let took = begin.elapsed().as_secs_f64();
        assert!((1.5..5.0).contains(&took), "{took} s");
        relay.assert_in_order().await;
    });
}
