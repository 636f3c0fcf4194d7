//! The relay's defences and limits for single clients: lifted from measurement links, and from
//! nothing else.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ff_lab::RelayConfig;
use ff_measurer::link::TargetAddr;
use ff_proto::cell::{CMD_CREATE_FAST, CMD_CREATED_FAST, fixed_cell};
use ff_proto::msg::ErrCode;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket};

use super::LAB;
use super::lab::Relay;
use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, next_cell, open, send, try_open,
};

/// Links that the defences leave to one address. They refuse when there are more than 5 already.
const MOST_LINKS: usize = 6;
/// Links of the measurement: more than that, and more than the 40 that may come at once.
const MEASUREMENT_LINKS: u16 = 60;
/// The rate that the limits for single clients leave to each.
const CLIENT_BYTES_PER_SEC: u64 = 50_000;
/// The longest record of TLS.
const RECORD_BYTES: u64 = 1 << 14;
/// Echo cells that are sent before it is looked whether there are enough.
const BATCH: u64 = 32;

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
        assert_eq!(most_links(&relay, &from_measurer, 0).await, MOST_LINKS, "before");

        let member =
            Member { address: Some(IpAddr::V4(measurer)), ..Member::new(MEASUREMENT_LINKS) };
        let team = [member];
        let (coordinator, mut links) =
            open_all(&relay, &from_coordinator, &from_measurer, &team).await;
        for link in &mut links {
            link.echo(10).await;
        }
        let open = links.len() + 1;
        assert_eq!(most_links(&relay, &from_bystander, open).await, MOST_LINKS, "of another");
        coordinator.end().await;
        drop(links);
        assert_eq!(most_links(&relay, &from_measurer, 0).await, MOST_LINKS, "after");
        let mut tor = relay.node.control().expect("a control connection");
        tor.setconf("DoSConnectionEnabled", "0").expect("a good value");
        relay.assert_in_order().await;
    });
}

/// Has a measurement granted and opens all of its links. If its time is over before they are, it is
/// granted anew.
async fn open_all(
    relay: &Relay<'_>,
    from_coordinator: &TargetAddr,
    from_measurer: &TargetAddr,
    team: &[Member],
) -> (Coordinator, Vec<MeasurementLink>) {
    'grants: loop {
        let key = relay.key();
        let (coordinator, _) =
            Coordinator::granted(from_coordinator, key, LONGEST_SECS, team).await;
        let mut links: Vec<MeasurementLink> = Vec::new();
        while links.len() < team[0].sockets.into() {
            let (id, key) = (coordinator.measurement, &team[0].key);
            match MeasurementLink::try_open(from_measurer, id, key).await {
                Ok(mut link) => {
                    // The grant waits for the first cell, and what brings fewer bytes than others
                    // ends.
                    link.echo(BATCH).await;
                    links.push(link);
                }
                Err(ErrCode::UNKNOWN_MEASUREMENT) => continue 'grants,
                Err(code) => panic!("MEAS_CREATE is refused: {}", code.name()),
            }
        }
        return (coordinator, links);
    }
}

/// The number of links that can be opened in addition to the open ones. They are closed again when
/// it returns.
async fn most_links(relay: &Relay<'_>, target: &TargetAddr, open: usize) -> usize {
    relay.wait_for_links(open).await;
    let mut links = Vec::new();
    for _ in 0..MOST_LINKS + 3 {
        links.extend(try_open(target).await.ok());
    }
    let most = links.len();
    drop(links);
    relay.wait_for_links(open).await;
    most
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
        assert_limited(&relay, 0x8000_1000).await;
        let (target, team) = (relay.target(), [Member::new(1)]);
        let (coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
        let id = coordinator.measurement;
        let mut link = MeasurementLink::open(&target, id, &team[0].key).await;
        let (begin, mut echoed) = (Instant::now(), 0);
        // However slow the machine is: with the limit it never comes to that.
        while echoed < 2 * most_cells(begin.elapsed()) {
            link.echo(BATCH).await;
            echoed += BATCH;
        }
        println!("{echoed} echo cells in {:.2?}", begin.elapsed());
        coordinator.end().await;
        assert_limited(&relay, 0x8001_0000).await;
    });
}

/// The most cells that come through a limited link in some time, and with what it has saved.
fn most_cells(time: Duration) -> u64 {
    // Its bucket is as deep as a second, and a record is read whole.
    let millis = 1001 + u64::try_from(time.as_millis()).expect("a short time");
    (CLIENT_BYTES_PER_SEC * millis / 1000 + RECORD_BYTES) / 514
}

/// Asks for a megabyte of circuits on a new link. Fails unless the relay takes them no faster than
/// a client may send.
async fn assert_limited(relay: &Relay<'_>, first_id: u32) {
    let client = &mut open(&relay.target()).await;
    let cells: Vec<_> = (first_id..first_id + 2000)
        .map(|id| fixed_cell(id, CMD_CREATE_FAST, &rand::random::<[u8; 20]>()))
        .collect::<Result<_, _>>()
        .expect("short bodies");
    let begin = Instant::now();
    for batch in cells.chunks(100) {
        // The sockets' buffers take them all, however slowly the relay reads.
        send(client, batch).await;
    }
    // Twice what it has saved, at least.
    let enough = 2 * most_cells(Duration::ZERO);
    let mut created = 0;
    while created < enough {
        let cell = next_cell(client).await.expect("the link stays open");
        created += u64::from(cell.command == CMD_CREATED_FAST);
        let most = most_cells(begin.elapsed());
        assert!(created <= most, "{created} circuits, and not {most}");
    }
    eprintln!("{created} circuits in {:.2?}", begin.elapsed());
}
