//! One measurement at a time, and how each of them ends.

use std::time::{Duration, Instant};

use ff_proto::cell::CMD_MEAS_ECHO;
use ff_proto::msg::{ErrCode, MeasEnd, Msg};
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, PATIENCE, codes_until_closed, error_code,
    next_cell, next_message, send,
};
use super::{LAB, Relay};

/// Links of a measurement made by hand.
const LINKS: u16 = 12;

/// Has a measurement granted, opens its links and echoes some cells on each.
async fn start(relay: &Relay<'_>) -> (Coordinator, Vec<MeasurementLink>) {
    let (target, team) = (relay.target(), [Member::new(LINKS)]);
    let (coordinator, _) = Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
    let open = |_| MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
    let mut links = join_all((0..LINKS).map(open)).await;
    join_all(links.iter_mut().map(|link| link.echo(50))).await;
    (coordinator, links)
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn a_second_coordinator_finds_the_relay_busy() {
    LAB.run(async |lab| {
        let relay = lab.relay("busy");
        let (target, second) = (relay.target(), relay.key());
        let team = [Member::new(1)];
        let (first, _) = Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
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
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn the_end_of_the_coordinators_link_ends_the_measurement() {
    LAB.run(async |lab| {
        let relay = lab.relay("gone");
        let (coordinator, links) = start(&relay).await;
        drop(coordinator);
        for mut link in links {
            let message = next_message(&mut link.link).await.expect("a message at the end");
            assert_eq!(error_code(&message), Some(ErrCode::COORDINATOR_GONE));
        }
        relay.wait_until_no_link_is_open().await;
        relay.wait_for_early_end(ErrCode::COORDINATOR_GONE);
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn the_relays_own_limit_ends_a_measurement() {
    LAB.run(async |lab| {
        let relay = lab.relay("cap");
        relay.limit_measurements_to_ten_seconds();
        let (mut coordinator, mut links) = start(&relay).await;
        let mut reports = 0;
        let reporting = async {
            loop {
                match coordinator.next_message().await.expect("the link stays open") {
                    Msg::Bg(report) => {
                        assert_eq!(report.second, reports);
                        reports += 1;
                    }
                    other => break other,
                }
            }
        };
        // One that brings nothing while others want something would be ended before.
        let (last, ()) = tokio::join!(reporting, echo_until_told(&mut links[0]));
        assert_eq!((reports, error_code(&last)), (10, None), "{last:?}");
        for mut link in links {
            assert_eq!(codes_until_closed(&mut link.link).await, []);
        }
        relay.assert_in_order().await;
    });
}

/// Sends echo cells and takes them back until a message comes, which is the end.
async fn echo_until_told(link: &mut MeasurementLink) {
    loop {
        let cells = link.cells(20);
        let _ = timeout(PATIENCE, link.link.send_cells(cells.as_flattened())).await;
        for _ in cells {
            match next_cell(&mut link.link).await {
                Some(cell) if cell.command == CMD_MEAS_ECHO => {}
                _ => return,
            }
        }
    }
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn issue_11_measurers_that_go_on_sending_are_told_of_the_end() {
    LAB.run(async |lab| {
        let relay = lab.relay("gone");
        let (coordinator, mut links) = start(&relay).await;
        for link in &mut links {
            let cells = link.cells(100);
            send(&mut link.link, &cells).await;
        }
        let end = Msg::End(MeasEnd { measurement: coordinator.measurement });
        let begin = Instant::now();
        coordinator.end().await;
        for link in &mut links {
            let cells = link.cells(100);
            // After two seconds the relay has closed it.
            let _ = timeout(PATIENCE, link.link.send_cells(cells.as_flattened())).await;
        }
        // A reset would have overtaken what has not been read by now.
        sleep(Duration::from_millis(500)).await;
        for link in &mut links {
            assert_eq!(next_message(&mut link.link).await, Some(end.clone()));
        }
        // Measurers that do not close their links lose them all the same.
        for link in &mut links {
            assert_eq!(codes_until_closed(&mut link.link).await, []);
        }
        assert!(begin.elapsed() > Duration::from_millis(1500), "{:?}", begin.elapsed());
        relay.assert_in_order().await;
    });
}
