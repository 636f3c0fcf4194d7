//! Peers that take nothing back of what they send, or send what nobody wants.

use std::time::{Duration, Instant};

use ff_proto::cell::{CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_MEASUREMENT, fixed_cell};
use futures::future::join_all;
use tokio::time::{sleep, timeout_at};

use super::session::{Coordinator, MeasurementLink, Member, next_cell, open, send};
use super::{LAB, Relay};

/// Links that send and never read.
const LINKS: u16 = 20;
/// How long they do.
const SENDING: Duration = Duration::from_secs(8);
/// How much memory that may cost the relay meanwhile.
const MOST_BYTES: u64 = 64 << 20;
/// How much of it may stay: what the allocator keeps for later, and no 16 MB of cells.
const MOST_BYTES_AFTER: u64 = 12 << 20;
/// What a coordinator sends that nobody wants, and how much memory it may cost.
const GARBAGE_BYTES: usize = 40 << 20;
const GARBAGE_COSTS: u64 = 2 << 20;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn measurers_that_do_not_read_cost_the_relay_little_memory() {
    LAB.run(async |lab| {
        let relay = lab.relay("deaf");
        let rss = || relay.node.rss_bytes().expect("the relay runs");
        let idle = rss();
        let (target, team) = (relay.target(), [Member::new(LINKS)]);
        let (coordinator, _) = Coordinator::granted(&target, relay.key(), 30, &team).await;
        let mut links = Vec::new();
        for _ in 0..LINKS {
            links.push(MeasurementLink::open(&target, coordinator.measurement, &team[0].key).await);
        }

        let until = Instant::now() + SENDING;
        let sending = join_all(links.iter_mut().map(|link| send_until(link, until)));
        let watching = watch(&relay, until, idle);
        let (sent, grown) = tokio::join!(sending, watching);
        let (total, late): (u64, u64) =
            sent.iter().fold((0, 0), |(total, late), sent| (total + sent.0, late + sent.1));
        println!("{total} cells sent, {late} of them late; the relay grew by {grown} bytes");
        // What the kernel did not take off its hands would show.
        assert!(total * 514 > MOST_BYTES, "too few to fill anything: {total} cells");
        assert_eq!(late, 0, "the relay goes on reading");
        assert!(grown < MOST_BYTES, "{grown} bytes more");

        drop(coordinator);
        // The measurers still neither read nor close.
        relay.wait_until_no_link_is_open(Duration::from_secs(10)).await;
        let left = rss().saturating_sub(idle);
        assert!(left < MOST_BYTES_AFTER, "{left} bytes stay");
        drop(links);
        relay.assert_in_order().await;
    });
}

/// Sends as much as the link takes, and reads nothing. How many cells it was in all, and how many
/// in the last second.
async fn send_until(link: &mut MeasurementLink, until: Instant) -> (u64, u64) {
    let late = until - Duration::from_secs(1);
    let mut sent = (0, 0);
    loop {
        let cells = link.cells(62);
        let sending = link.link.send_cells(cells.as_flattened());
        match timeout_at(until.into(), sending).await {
            Ok(result) => result.expect("the link stays open"),
            Err(_) => return sent,
        }
        sent.0 += 62;
        sent.1 += if Instant::now() > late { 62 } else { 0 };
    }
}

/// Has the relay answer somebody else all the time. By how much its memory has grown at most.
async fn watch(relay: &Relay<'_>, until: Instant, idle: u64) -> u64 {
    let mut client = open(&relay.target()).await;
    let mut grown = 0;
    for id in 0x8000_1000.. {
        let begin = Instant::now();
        let create = fixed_cell(id, CMD_CREATE_FAST, &[7; 20]).expect("a short body");
        send(&mut client, &[create]).await;
        let answer = next_cell(&mut client).await.expect("the link stays open");
        assert_eq!((answer.command, answer.circ_id), (CMD_CREATED_FAST, id));
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        let now = relay.node.rss_bytes().expect("the relay runs");
        grown = now.saturating_sub(idle).max(grown);
        if begin > until {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    grown
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_a_coordinator_that_sends_garbage_and_reads_nothing_costs_no_memory() {
    LAB.run(async |lab| {
        let relay = lab.relay("flood");
        let rss = || relay.node.rss_bytes().expect("the relay runs");
        let team = [Member::new(1)];
        let (coordinator, _) = Coordinator::granted(&relay.target(), relay.key(), 30, &team).await;
        coordinator.end().await;
        let before = rss();
        let (mut coordinator, _) =
            Coordinator::granted(&relay.target(), relay.key(), 30, &team).await;
        // A message that does not exist.
        let garbage = fixed_cell(0, CMD_MEASUREMENT, &[1, 99, 0, 0]).expect("a short body");
        let cells = [garbage; 100];
        let mut sent = 0;
        let mut most = before;
        while sent < GARBAGE_BYTES
            && coordinator.link.send_cells(cells.as_flattened()).await.is_ok()
        {
            sent += cells.as_flattened().len();
            most = most.max(rss());
        }
        let grown = most - before;
        println!("{sent} bytes sent, the relay grew by {grown}");
        assert!(sent < GARBAGE_BYTES, "the link is still open");
        assert!(grown <= GARBAGE_COSTS, "{grown} bytes more");
        drop(coordinator);
        relay.wait_until_no_link_is_open(Duration::from_secs(5)).await;
        relay.assert_in_order().await;
    });
}
