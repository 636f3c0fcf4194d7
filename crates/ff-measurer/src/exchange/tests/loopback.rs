//! Exchanges over real sockets on loopback.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ff_proto::units::{BytesPerSec, MonoTime};
use zeroize::Zeroizing;

use super::super::*;

/// A host that listens on loopback.
pub(super) fn bind() -> Exchange {
    let bind = ExchangeBind {
        addrs: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        ports: 0..=0,
        packet_bytes: DEFAULT_PACKET_BYTES,
    };
    Exchange::bind(&bind).expect("loopback has a free port")
}

/// The order for one of these hosts, which exchange at these rates.
pub(super) fn order(
    addrs: &[SocketAddr],
    index: usize,
    rates: &[BytesPerSec],
    secs: u64,
) -> ExchangeOrder {
    let rate = pair_rates(rates);
    let peer = |(place, addr): (usize, &SocketAddr)| ExchangePeer {
        index: u8::try_from(place).expect("few hosts"),
        addr: *addr,
        rate: rate[index][place],
    };
    ExchangeOrder {
        session: [7; 16],
        key: Zeroizing::new([3; 32]),
        index: u8::try_from(index).expect("few hosts"),
        peers: addrs.iter().enumerate().filter(|(place, _)| *place != index).map(peer).collect(),
        rate: rates[index],
        duration: Duration::from_secs(secs),
        start_in: Duration::from_millis(300),
    }
}

/// All seconds and the totals of an exchange.
pub(super) fn drain(mut running: RunningExchange) -> (Vec<HostSecond>, ExchangeTotals) {
    let mut seconds = Vec::new();
    loop {
        match running.blocking_next().expect("an exchange ends with its totals") {
            ExchangeEvent::Second(second) => seconds.push(second),
            ExchangeEvent::Done(totals) => return (seconds, totals),
            ExchangeEvent::Failed(error) => panic!("{error}"),
        }
    }
}

#[test]
fn three_measurers_exchange_no_more_than_their_rate_and_count_the_same() {
    // Longer than a busy machine stops a thread.
    const SECS: u16 = 6;
    let rate = BytesPerSec::from_mbit(40);
    let hosts = [bind(), bind(), bind()];
    let addrs = hosts.each_ref().map(|host| host.bound()[0].addr);
    // All begin at the same time, however long each call takes.
    let at = Instant::now() + Duration::from_secs(3);
    let mut index = 0;
    let running = hosts.map(|host| {
        let order = order(&addrs, index, &[rate; 3], SECS.into());
        index += 1;
        let start_in = at.saturating_duration_since(Instant::now());
        host.begin(&ExchangeOrder { start_in, ..order }).expect("the order is a good one")
    });
    let mut said = Said::new();
    let mut counts = Vec::new();
    for (index, running) in (0..).zip(running) {
        let (seconds, totals) = drain(running);
        assert!(seconds.iter().map(|second| second.second).eq(0..SECS), "{seconds:?}");
        for peer in &totals.peers {
            assert_eq!(peer.trouble(), None, "{totals:?}");
        }
        assert_eq!((totals.strangers, totals.send_errors), (0, 0), "{totals:?}");
        said.insert(index, seconds);
        counts.extend(totals.peers.iter().map(|peer| ((index, peer.counts.index), peer.counts)));
    }
    let counts: BTreeMap<_, _> = counts.into_iter().collect();
    for (&(from, to), there) in &counts {
        // A receiver counts nothing that arrives before its first or after its last second.
        let back = &counts[&(to, from)];
        assert!(back.received_bytes <= there.sent_bytes, "{from} to {to}: {there:?}, {back:?}");
        assert!(there.proven_bytes <= there.sent_bytes, "{from} to {to}: {there:?}");
    }
    // The pacer's bound is exact; a busy machine may use only a part of it.
    let burst = pace::Pacer::new(rate, DEFAULT_PACKET_BYTES.into(), MonoTime::default());
    let most = rate.bytes_in(Duration::from_secs(1)) + burst.burst_bytes();
    for (host, seconds) in &said {
        for second in seconds {
            let sent: u64 = second.peers.iter().map(|peer| peer.sent_bytes).sum();
            assert!(sent <= most, "{sent} bytes in a second, at most {most}: {second:?}");
        }
        let capacity = capacity(*host, &said, WARM_UP_SECS..SECS).expect("there are seconds");
        assert!(capacity.rate.get() <= most, "at most {most}: {capacity:?}");
    }
}

#[test]
fn an_exchange_that_is_dropped_sends_nothing_more() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
    let host = bind();
    let addrs = [host.bound()[0].addr, peer.local_addr().expect("it is bound")];
    let order = order(&addrs, 0, &[BytesPerSec::from_mbit(10); 2], 600);
    let running = host.begin(&order).expect("the order is a good one");
    peer.recv_from(&mut [0; 2000]).expect("the host knocks");
    let dropped = Instant::now();
    drop(running);
    assert!(dropped.elapsed() < order.duration / 2, "it does not wait for its end");
    // Reads what was sent before. A host that continued would ask every 200 ms, so this pause would
    // not occur.
    peer.set_read_timeout(Some(Duration::from_secs(1))).expect("a time that is not 0");
    let left = (0..100).take_while(|_| peer.recv_from(&mut [0; 2000]).is_ok()).count();
    assert!(left < 100, "it goes on");
}

#[test]
fn ports_come_from_the_range_and_a_used_one_is_said() {
    let first = bind();
    let port = first.bound()[0].addr.port();
    let bound = first.bound()[0];
    assert!(bound.receive_buffer_bytes > 100_000 && !bound.may_fragment, "{bound:?}");
    let addrs = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let bind = ExchangeBind { addrs, ports: port..=port, packet_bytes: DEFAULT_PACKET_BYTES };
    let error = Exchange::bind(&bind).expect_err("the port is taken").to_string();
    assert!(error.contains(&format!("{port}..={port} of 127.0.0.1")), "{error}");
    let bind = ExchangeBind { packet_bytes: 100, ..bind };
    assert!(Exchange::bind(&bind).is_err());
}

#[test]
fn who_does_not_answer_is_named_with_what_to_look_at() {
    let host = bind();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
    let addrs = [host.bound()[0].addr, nobody.local_addr().expect("it is bound")];
    let running = host.begin(&order(&addrs, 0, &[BytesPerSec::from_mbit(10); 2], 1));
    let (seconds, totals) = drain(running.expect("the order is a good one"));
    assert_eq!((seconds.len(), totals.peers[0].counts.sent_bytes), (1, 0));
    assert!(totals.peers[0].trouble().is_some_and(|trouble| trouble.contains("did not answer")));
}
