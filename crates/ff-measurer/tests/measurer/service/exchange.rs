//! Exchanges between measurers that are services: refusals, and the state after a peer has left.

use std::net::UdpSocket;
use std::time::Instant;

use ff_measurer::exchange::{
    DEFAULT_PACKET_BYTES, ExchangeOrder, ExchangePeer, ExchangeTotals, HostSecond, Said,
    WARM_UP_SECS, capacity,
};
use ff_measurer::service::client::{RemoteExchange, RemoteExchangeEvent};
use ff_measurer::service::wire::exchange::ExchangePart;
use zeroize::Zeroizing;

use super::*;

/// The rate of the exchanges.
const RATE: BytesPerSec = BytesPerSec::from_mbit(16);
/// Their duration: longer than a busy machine stops a host.
const SECS: u16 = 6;
/// The time without running that a host may make up for.
const BURST: Duration = Duration::from_millis(10);
/// The time from the order to the beginning.
const LEAD: Duration = Duration::from_secs(3);

/// A part of an exchange of this duration.
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

/// The other host, on this port of loopback.
fn peer(index: u8, port: u16) -> ExchangePeer {
    ExchangePeer { index, addr: SocketAddr::from(([127, 0, 0, 1], port)), rate: RATE }
}

/// Begins as soon as possible.
fn begin(host: &mut RemoteExchange, order: &ExchangeOrder) {
    let at = Instant::now() + host.begin_lead();
    host.begin(order, at).expect("the stream is open");
}

/// All seconds and the totals of an exchange with one peer.
async fn finish(mut host: RemoteExchange) -> (Vec<HostSecond>, ExchangeTotals) {
    let mut seconds = Vec::new();
    loop {
        match timeout(PATIENCE, host.next_event()).await.expect("in time").expect("it goes well") {
            RemoteExchangeEvent::Second(second) => seconds.push(second),
            RemoteExchangeEvent::Done(totals) => {
                assert_eq!(totals.peers.len(), 1);
                assert_eq!(totals.peers[0].trouble(), None, "{totals:?}");
                return (seconds, totals);
            }
        }
    }
}

/// Lets two hosts listen for this number of seconds; each is to exchange with the other, by these
/// orders.
async fn listen(
    clients: &[RemoteMeasurer; 2],
    secs: u16,
) -> ([RemoteExchange; 2], [ExchangeOrder; 2]) {
    let hosts = [
        clients[0].exchange(part(secs)).await.expect("it listens"),
        clients[1].exchange(part(secs)).await.expect("it listens"),
    ];
    let orders = [
        order(0, vec![peer(1, hosts[1].port())], secs),
        order(1, vec![peer(0, hosts[0].port())], secs),
    ];
    (hosts, orders)
}

/// Waits until a service has no exchange.
async fn until_free(lab: &Lab) {
    let ending = async {
        while lab.service.is_exchanging() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ending).await.expect("the exchange ends");
}

/// The message of a refused exchange.
async fn refused_exchange(client: &RemoteMeasurer) -> String {
    let asked = timeout(PATIENCE, client.exchange(part(3))).await.expect("an answer");
    asked.err().expect("it is refused").message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_exchanges_does_nothing_else_meanwhile() {
    let labs = [Lab::start(private()).await, Lab::start(private()).await];
    let clients = labs.each_ref().map(Lab::client);
    let (mut hosts, orders) = listen(&clients, 600).await;
    let ports = hosts.each_ref().map(RemoteExchange::port);
    assert_eq!(ports, labs.each_ref().map(|lab| lab.addr.port()), "the service's own port");
    assert!(hosts.iter().all(|host| host.buffer_bytes() > 100_000));
    assert_eq!(clients[0].reached_at(), Some(labs[0].addr.ip()));
    for (host, order) in hosts.iter_mut().zip(&orders) {
        begin(host, order);
    }
    let (addr, _relay) = silent_relay().await;
    assert!(refused(&clients[0], &task(addr)).await.contains("busy"));
    assert!(refused_exchange(&clients[0]).await.contains("busy"));
    drop(hosts);
    for lab in &labs {
        until_free(lab).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_exchange_no_more_than_their_rate_and_count_the_same() {
    let labs = [Lab::start(private()).await, Lab::start(private()).await];
    let (hosts, orders) = listen(&labs.each_ref().map(Lab::client), SECS).await;
    let [mut one, mut other] = hosts;
    // Both begin at once, however long it takes to tell them.
    let at = Instant::now() + LEAD;
    one.begin(&orders[0], at).expect("the stream is open");
    other.begin(&orders[1], at).expect("the stream is open");
    let ((one, of_one), (other, of_other)) = tokio::join!(finish(one), finish(other));
    let counts = [of_one.peers[0].counts, of_other.peers[0].counts];
    for (from, to) in [(counts[0], counts[1]), (counts[1], counts[0])] {
        assert!(to.received_bytes <= from.sent_bytes, "{counts:?}");
        assert!(from.proven_bytes <= from.sent_bytes, "{counts:?}");
    }
    // The pacer's bound is exact; how much a host on a busy machine sends in a second is not.
    let most = RATE.bytes_in(Duration::from_secs(1) + BURST);
    let said = Said::from([(0, one), (1, other)]);
    for (host, seconds) in &said {
        assert_eq!(seconds.len(), usize::from(SECS));
        for second in seconds {
            assert!(second.peers[0].sent_bytes <= most, "{second:?}, at most {most}");
        }
        let capacity = capacity(*host, &said, WARM_UP_SECS..SECS).expect("there are seconds");
        assert!(capacity.rate.get() <= most, "{capacity:?}");
    }
    for lab in &labs {
        until_free(lab).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_are_refused_to_strangers_and_beyond_the_operators_bounds() {
    let lab = Lab::start(AdmissionLimits::default()).await;
    let stranger = lab.connect(&fresh_key(), &lab.key);
    assert!(refused_exchange(&stranger).await.contains("no connection"));
    // The other measurer's address is not public.
    let mut host = lab.client().exchange(part(3)).await.expect("it listens");
    begin(&mut host, &order(0, vec![peer(1, 9)], 3));
    let failure = timeout(PATIENCE, host.next_event()).await.expect("in time");
    let message = failure.expect_err("it is refused").message;
    assert!(message.contains("private_targets"), "{message}");
    until_free(&lab).await;
    let limits = AdmissionLimits { rate: Some(BytesPerSec::from_mbit(15)), ..private() };
    lab.service.set(settings(&lab.coordinator, limits));
    let message = refused_exchange(&lab.client()).await;
    assert!(message.contains("more than this measurer has left"), "{message}");
    lab.service.set(settings(&lab.coordinator, private()));
    // While a relay is measured exchanges are refused.
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
    drop(host);
    until_free(&lab).await;
    // Earlier packets are read first. A host that continued would ask every 200 ms, so this pause
    // would not occur.
    other.set_read_timeout(Some(Duration::from_secs(1))).expect("a time that is not 0");
    let left = (0..100).take_while(|_| other.recv_from(&mut [0; 2000]).is_ok()).count();
    assert!(left < 100, "it goes on");
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
    assert!(failure.expect_err("it is over").message.contains("was removed from the config"));
    until_free(&lab).await;
    lab.service.set(settings(&lab.coordinator, private()));
    let mut host = lab.client().exchange(part(600)).await.expect("it listens");
    lab.service.end();
    let failure = timeout(PATIENCE, host.next_event()).await.expect("in time");
    assert!(failure.expect_err("it is over").message.contains("shut down"));
}
