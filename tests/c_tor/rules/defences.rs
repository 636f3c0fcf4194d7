//! The relay's defences and limits for single clients: lifted from measurement links, and from
//! nothing else.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ff_lab::RelayConfig;
use ff_measurer::link::TargetAddr;
use ff_measurer::link::control::ControlLink;
use ff_proto::cell::{CMD_CREATE_FAST, CMD_CREATED_FAST, Cell, fixed_cell};
use ff_proto::params::Params;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

use super::LAB;
use super::lab::{Relay, measure};
use super::session::{Coordinator, MeasurementLink, Member, next_cell, open, send, try_open};
use crate::support::{estimate, plan};

/// Links that the defences leave to one address. They refuse when there are more than 5 already.
const MOST_LINKS: usize = 6;
/// Links of the measurement: more than that, and more than the 40 that may come at once.
const MEASUREMENT_LINKS: u16 = 60;
/// What the limits for single clients leave to each of them.
const CLIENT_BYTES_PER_SEC: usize = 50_000;

/// A relay with defences against many links from one address.
pub(super) fn with_dos_defences(relay: RelayConfig) -> RelayConfig {
    // The second type closes links beyond the limit.
    relay
        .torrc("DoSConnectionEnabled 1")
        .torrc("DoSConnectionMaxConcurrentCount 5")
        .torrc("DoSConnectionDefenseType 2")
}

/// A relay that is slow to each single client.
pub(super) fn with_slow_clients(relay: RelayConfig) -> RelayConfig {
    relay
        .torrc(format!("PerConnBWRate {CLIENT_BYTES_PER_SEC} bytes"))
        .torrc(format!("PerConnBWBurst {CLIENT_BYTES_PER_SEC} bytes"))
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn measurers_are_exempt_from_the_defences_only_while_they_measure() {
    LAB.run(async |lab| {
        let relay = lab.relay("dos");
        // The network's own relays are at 127.0.0.1.
        let [measurer, bystander, coordinator] =
            [7, 8, 9].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let through = async |source| TargetAddr {
            addr: forward_from(source, relay.node.or_addr()).await,
            ..relay.target()
        };
        let (from_measurer, from_bystander) = (through(measurer).await, through(bystander).await);
        let from_coordinator = through(coordinator).await;
        assert_eq!(most_links(&relay, &from_measurer).await, MOST_LINKS, "before");

        let member =
            Member { address: Some(IpAddr::V4(measurer)), ..Member::new(MEASUREMENT_LINKS) };
        let team = [member];
        let (coordinator, _) =
            Coordinator::granted(&from_coordinator, relay.key(), 10, &team).await;
        let mut links = Vec::new();
        for _ in 0..MEASUREMENT_LINKS {
            let (id, key) = (coordinator.measurement, &team[0].key);
            links.push(MeasurementLink::open(&from_measurer, id, key).await);
        }
        for link in &mut links {
            link.echo(10).await;
        }
        assert_eq!(most_links(&relay, &from_bystander).await, MOST_LINKS, "of somebody else");
        coordinator.end().await;
        drop(links);
        assert_eq!(most_links(&relay, &from_measurer).await, MOST_LINKS, "after");
        let mut tor = relay.node.control().expect("a control connection");
        tor.setconf("DoSConnectionEnabled", "0").expect("a good value");
        relay.assert_in_order().await;
    });
}

/// How many links can be open at once. They are closed again when it returns.
async fn most_links(relay: &Relay<'_>, target: &TargetAddr) -> usize {
    settle(relay).await;
    let mut links = Vec::new();
    for _ in 0..MOST_LINKS + 3 {
        links.extend(try_open(target).await.ok());
    }
    let most = links.len();
    drop(links);
    settle(relay).await;
    most
}

/// Waits until the relay has noticed which links are closed.
async fn settle(relay: &Relay<'_>) {
    let count = || relay.node.open_connections().expect("the relay runs");
    let (mut last, mut same) = (count(), 0);
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = count();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
}

/// Passes connections on so that they come from `source`; the address to connect to.
async fn forward_from(source: Ipv4Addr, to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let addr = listener.local_addr().expect("it has an address");
    tokio::spawn(async move {
        while let Ok((mut inner, _)) = listener.accept().await {
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4()?;
                socket.bind((source, 0).into())?;
                let mut outer = socket.connect(to).await?;
                copy_bidirectional(&mut inner, &mut outer).await
            });
        }
    });
    addr
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn the_limit_for_single_clients_is_lifted_from_measurement_links_only() {
    LAB.run(async |lab| {
        let relay = lab.relay("slow");
        let mut client = open(&relay.target()).await;
        let before = created_circuits(&mut client, 0x8000_1000).await;

        let params = Params { sockets: 1, duration_secs: 2, ..Params::default() };
        let outcome = measure(&plan(relay.node, relay.key(), params)).await;
        let measured = estimate(&outcome).get();
        drop(client);
        let mut client = open(&relay.target()).await;
        let after = created_circuits(&mut client, 0x8001_0000).await;

        println!("{before} and {after} circuits for clients, {measured} B/s measured");
        assert!(measured > 20 * CLIENT_BYTES_PER_SEC as u64, "{measured} B/s");
        // In three seconds, and with the burst.
        let most = 5 * CLIENT_BYTES_PER_SEC / size_of::<Cell>();
        for created in [before, after] {
            assert!((most / 5..most).contains(&created), "{created} circuits");
        }
    });
}

/// Asks for a megabyte of circuits and counts those that the relay has created in three seconds.
async fn created_circuits(client: &mut ControlLink, first_id: u32) -> usize {
    let cells: Vec<_> = (first_id..first_id + 2000)
        .map(|id| fixed_cell(id, CMD_CREATE_FAST, &rand::random::<[u8; 20]>()))
        .collect::<Result<_, _>>()
        .expect("short bodies");
    for batch in cells.chunks(100) {
        // The sockets' buffers take them all, however slowly the relay reads.
        send(client, batch).await;
    }
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut created = 0;
    while let Ok(cell) =
        timeout(deadline.saturating_duration_since(Instant::now()), next_cell(client)).await
    {
        let cell = cell.expect("the link stays open");
        created += usize::from(cell.command == CMD_CREATED_FAST);
    }
    created
}
