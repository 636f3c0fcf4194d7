//! Peers that take nothing back of what they send, or send what nobody wants.

use std::cell::Cell;
use std::time::Duration;

use ff_proto::cell::{CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_MEASUREMENT, fixed_cell};
use futures::future::join_all;
use tokio::time::sleep;

use super::session::{Coordinator, LONGEST_SECS, MeasurementLink, Member, next_cell, open, send};
use super::{LAB, Relay};

/// Links that send and never read.
const LINKS: u16 = 20;
/// What the relay would take from them if it went on reading: more than all sockets' buffers hold.
const FAR_TOO_MUCH_BYTES: u64 = 4 << 30;
/// The number of answers to somebody else without a cell that it takes from them, after which it
/// counts as not reading. It looks at each link at least once for each answer.
const ANSWERS: u32 = 100;
/// How long nobody is asked between two of them.
const PAUSE: Duration = Duration::from_millis(20);
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
        let key = relay.key();
        let (coordinator, _) = Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
        let open = |_| MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
        let mut links = join_all((0..LINKS).map(open)).await;

        let sent = Cell::new(0);
        let grown = tokio::select! {
            grown = watch(&relay, &sent, idle) => grown,
            _ = join_all(links.iter_mut().map(|link| send_on(link, &sent))) => unreachable!(),
        };
        let sent = sent.get() * 514;
        println!("{sent} bytes sent; the relay grew by {grown} bytes");
        // What the kernel did not take off its hands would show.
        assert!(sent > MOST_BYTES, "too few to fill anything: {sent} bytes");
        assert!(grown < MOST_BYTES, "{grown} bytes more");

        drop(coordinator);
        // The measurers still neither read nor close.
        relay.wait_until_no_link_is_open().await;
        let left = rss().saturating_sub(idle);
        assert!(left < MOST_BYTES_AFTER, "{left} bytes stay");
        drop(links);
        relay.assert_in_order().await;
    });
}

/// Sends as much as the link takes, and reads nothing. Adds the cells up.
async fn send_on(link: &mut MeasurementLink, sent: &Cell<u64>) {
    loop {
        let cells = link.cells(62);
        link.link.send_cells(cells.as_flattened()).await.expect("the link stays open");
        sent.set(sent.get() + 62);
        assert!(sent.get() * 514 < FAR_TOO_MUCH_BYTES, "the relay goes on reading");
    }
}

/// Has the relay answer somebody else until it takes nothing from those who only send. Returns
/// by how much its memory has grown at most.
async fn watch(relay: &Relay<'_>, sent: &Cell<u64>, idle: u64) -> u64 {
    let mut client = open(&relay.target()).await;
    let (mut grown, mut before, mut same) = (0, 0, 0);
    for id in 0x8000_1000.. {
        let create = fixed_cell(id, CMD_CREATE_FAST, &[7; 20]).expect("a short body");
        send(&mut client, &[create]).await;
        let answer = next_cell(&mut client).await.expect("the link stays open");
        assert_eq!((answer.command, answer.circ_id), (CMD_CREATED_FAST, id));
        let now = relay.node.rss_bytes().expect("the relay runs");
        grown = now.saturating_sub(idle).max(grown);
        same = if sent.get() == before { same + 1 } else { 0 };
        before = sent.get();
        if same == ANSWERS && before > 0 {
            break;
        }
        sleep(PAUSE).await;
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
        let (target, key) = (relay.target(), relay.key());
        let (coordinator, _) = Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
        coordinator.end().await;
        let before = rss();
        let (mut coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
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
        relay.wait_until_no_link_is_open().await;
        relay.assert_in_order().await;
    });
}
