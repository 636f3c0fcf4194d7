//! Exchanges among measurers that are services: what is refused, and what is left when somebody goes.

use std::net::UdpSocket;

use ff_measurer::exchange::{
    DEFAULT_PACKET_BYTES, ExchangeOrder, ExchangePeer, HostSecond, Said, WARM_UP_SECS, capacity,
};
use ff_measurer::service::client::{RemoteExchange, RemoteExchangeEvent};
use ff_measurer::service::wire::exchange::ExchangePart;
use zeroize::Zeroizing;

use super::*;

/// How fast hosts exchange here.
const RATE: BytesPerSec = BytesPerSec::from_mbit(16);

/// A part of an exchange that lasts so long.
fn part(duration_secs: u16) -> ExchangePart {
    ExchangePart { rate: RATE, duration_secs, packet_bytes: DEFAULT_PACKET_BYTES }
}

/// The order of a host with this index and these peers.
fn order(index: u8, peers: Vec<ExchangePeer>, secs: u16) -> ExchangeOrder {
    ExchangeOrder {
        session: [1; 16],
        key: Zeroizing::new([2; 32]),
        index,
        peers,
        rate: RATE,
        duration: Duration::from_secs(secs.into()),
        start_in: Duration::ZERO,
    }
}

/// The other host, at this port of loopback.
fn peer(index: u8, port: u16) -> ExchangePeer {
    ExchangePeer { index, addr: SocketAddr::from(([127, 0, 0, 1], port)), rate: RATE }
}

/// Begins soon.
fn begin(host: &mut RemoteExchange, order: &ExchangeOrder) {
    let at = Instant::now() + host.begin_lead();
    host.begin(order, at).expect("the stream is open");
}

/// All seconds of an exchange.
async fn seconds(mut host: RemoteExchange) -> Vec<HostSecond> {
    let mut seconds = Vec::new();
    loop {
        match timeout(PATIENCE, host.next_event()).await.expect("in time").expect("it goes well") {
            RemoteExchangeEvent::Second(second) => seconds.push(second),
            RemoteExchangeEvent::Done(totals) => {
                assert_eq!(totals.peers.len(), 1);
                assert_eq!(totals.peers[0].trouble(), None, "{totals:?}");
                return seconds;
            }
        }
    }
}

/// Waits until a service exchanges with nobody.
async fn until_free(lab: &Lab) {
    let ending = async {
        while lab.service.is_exchanging() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ending).await.expect("the exchange ends");
}

/// Why an exchange is refused.
async fn refused_exchange(client: &RemoteMeasurer) -> String {
    let asked = timeout(PATIENCE, client.exchange(part(3))).await.expect("an answer");
    asked.err().expect("it is refused").message
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_exchange_and_do_nothing_else_meanwhile() {
    let labs = [Lab::start(private()).await, Lab::start(private()).await];
    let clients = labs.each_ref().map(Lab::client);
    let mut hosts = Vec::new();
    for client in &clients {
        hosts.push(client.exchange(part(3)).await.expect("it listens"));
    }
    let ports: Vec<u16> = hosts.iter().map(RemoteExchange::port).collect();
    assert_eq!(ports, labs.each_ref().map(|lab| lab.addr.port()), "the service's own port");
    assert!(hosts.iter().all(|host| host.buffer_bytes() > 100_000));
    assert_eq!(clients[0].reached_at(), Some(labs[0].addr.ip()));
    for (index, host) in (0_u8..).zip(&mut hosts) {
        let other = 1 - index;
        begin(host, &order(index, vec![peer(other, ports[usize::from(other)])], 3));
    }
    let (addr, _relay) = silent_relay().await;
    assert!(refused(&clients[0], &task(addr)).await.contains("busy"));
    assert!(refused_exchange(&clients[0]).await.contains("busy"));
    let (one, other) = (hosts.remove(0), hosts.remove(0));
    let (one, other) = tokio::join!(seconds(one), seconds(other));
    let said = Said::from([(0, one), (1, other)]);
    for host in 0..2 {
        let capacity = capacity(host, &said, WARM_UP_SECS..3).expect("there is a second");
        let share = capacity.rate.mbit() / RATE.mbit();
        assert!((0.7..=1.01).contains(&share), "{share} of the rate: {capacity:?}");
    }
    for lab in &labs {
        until_free(lab).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_are_refused_to_strangers_and_beyond_the_operators_bounds() {
    let lab = Lab::start(Limits::default()).await;
    let stranger = lab.connect(&fresh_key(), &lab.key);
    assert!(refused_exchange(&stranger).await.contains("no connection"));
    // The other measurer's address is no public one.
    let mut host = lab.client().exchange(part(3)).await.expect("it listens");
    begin(&mut host, &order(0, vec![peer(1, 9)], 3));
    let failure = timeout(PATIENCE, host.next_event()).await.expect("in time");
    let message = failure.expect_err("it is refused").message;
    assert!(message.contains("private_targets"), "{message}");
    until_free(&lab).await;
    let limits = Limits { rate: Some(BytesPerSec::from_mbit(15)), ..private() };
    lab.service.set(settings(&lab.coordinator, limits));
    let message = refused_exchange(&lab.client()).await;
    assert!(message.contains("more than is left"), "{message}");
    lab.service.set(settings(&lab.coordinator, private()));
    // While a relay is measured there is no exchange.
    let (addr, relay) = silent_relay().await;
    let client = lab.client();
    let (same, _) = (client.clone(), client.describe().await);
    let preparing = tokio::spawn(async move { client.prepare(&task(addr)).await.map(drop) });
    let (_link, _) = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
    let message = refused_exchange(&same).await;
    assert!(message.contains("1 relays are being measured"), "{message}");
    preparing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_coordinator_goes_nothing_more_is_sent() {
    let lab = Lab::start(private()).await;
    let other = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = other.local_addr().expect("it is bound").port();
    other.set_read_timeout(Some(PATIENCE)).expect("a time that is not 0");
    let mut host = lab.client().exchange(part(600)).await.expect("it listens");
    begin(&mut host, &order(0, vec![peer(1, port)], 600));
    other.recv_from(&mut [0; 2000]).expect("it knocks");
    assert!(lab.service.is_exchanging());
    let cut = Instant::now();
    drop(host);
    until_free(&lab).await;
    assert!(cut.elapsed() < Duration::from_secs(2), "{:?}", cut.elapsed());
    // What was sent before is read; then nothing comes.
    other.set_read_timeout(Some(Duration::from_millis(500))).expect("a time that is not 0");
    let left = (0..100).take_while(|_| other.recv_from(&mut [0; 2000]).is_ok()).count();
    assert!(left <= 10, "{left} datagrams came after the end");
    lab.client().exchange(part(3)).await.expect("the port is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_ends_with_its_service_and_its_coordinators_right_to_it() {
    let lab = Lab::start(private()).await;
    let mut host = lab.client().exchange(part(600)).await.expect("it listens");
    lab.client().describe().await.expect("a newer connection");
    assert!(lab.service.is_exchanging(), "which ends nothing");
    lab.service.set(Settings { coordinators: Vec::new(), ..settings(&lab.coordinator, private()) });
    let failure = timeout(PATIENCE, host.next_event()).await.expect("in time");
    assert!(failure.expect_err("it is over").message.contains("may not give work any more"));
    until_free(&lab).await;
    lab.service.set(settings(&lab.coordinator, private()));
    let mut host = lab.client().exchange(part(600)).await.expect("it listens");
    lab.service.end();
    let failure = timeout(PATIENCE, host.next_event()).await.expect("in time");
    assert!(failure.expect_err("it is over").message.contains("shut down"));
}
