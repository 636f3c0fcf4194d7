//! Exchanges without sockets, over a simulated network with a fake clock.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::units::{BytesPerSec, MonoTime};
use proptest::prelude::*;

use super::super::host::{Host, Outgoing};
use super::super::*;
use super::loopback::order;

/// Step of the clock.
const STEP: Duration = Duration::from_micros(1000);
/// When data begins.
const START: Duration = Duration::from_millis(300);
/// Bytes of a data packet.
const PACKET: u16 = DEFAULT_PACKET_BYTES;

/// The behaviour of a host's link.
#[derive(Clone, Copy)]
struct Link {
    /// Its capacity.
    rate: BytesPerSec,
    /// The size of its queue; further bytes are dropped.
    queue_bytes: u64,
    /// The additional delay of the path.
    delay: Duration,
    /// One packet in this number is lost; 0 for none.
    loses_one_in: u64,
}

/// A link that does not limit anything.
const FAST: Link = Link {
    rate: BytesPerSec::from_mbit(100_000),
    queue_bytes: 1 << 30,
    delay: Duration::from_millis(20),
    loses_one_in: 0,
};

/// A test's change of a datagram on the way: returns the datagrams that arrive.
type Tamper = dyn FnMut(MonoTime, SocketAddr, SocketAddr, Vec<u8>) -> Vec<Datagram>;

/// A datagram: from, to, bytes.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

/// Hosts and the network between them.
struct Net {
    /// The hosts and their addresses.
    hosts: Vec<(SocketAddr, Host)>,
    /// Their links, each with the time until which it is busy.
    links: Vec<(Link, MonoTime)>,
    /// Datagrams in flight: when they arrive, and a number that keeps their order.
    on_the_way: BinaryHeap<Reverse<(MonoTime, u64, Datagram)>>,
    now: MonoTime,
    /// Number of datagrams so far.
    count: u64,
    /// Sent datagrams: time, sender, receiver, lengths.
    sent: Vec<(MonoTime, usize, SocketAddr, Outgoing)>,
    /// The hosts' reports.
    said: Said,
    /// The change of datagrams on the way.
    tamper: Box<Tamper>,
}

thread_local! {
    /// The state of the random number generator.
    static RANDOM: Cell<u64> = const { Cell::new(1) };
}

/// The same numbers in each run.
fn random() -> u64 {
    RANDOM.with(|state| {
        state.set(
            state
                .get()
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        );
        state.get().rotate_left(32)
    })
}

/// The address of a host.
fn addr(index: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(index).unwrap() + 1], 5000))
}

impl Net {
    /// Hosts with these links that exchange at these rates.
    fn new(links: &[Link], rates: &[BytesPerSec], secs: u64) -> Self {
        let addrs: Vec<_> = (0..links.len()).map(addr).collect();
        let begin = MonoTime::from(START);
        let host = |index| {
            let order = order(&addrs, index, rates, secs);
            (addrs[index], Host::new(&order, PACKET, random, MonoTime::default(), begin))
        };
        Self {
            hosts: (0..links.len()).map(host).collect(),
            links: links.iter().map(|link| (*link, MonoTime::default())).collect(),
            on_the_way: BinaryHeap::new(),
            now: MonoTime::default(),
            count: 0,
            sent: Vec::new(),
            said: Said::new(),
            tamper: Box::new(|_, from, to, bytes| vec![(from, to, bytes)]),
        }
    }

    /// Lets time pass until this moment after the beginning of data.
    fn run_until(&mut self, since_start: Duration) {
        let end = MonoTime::from(START + since_start);
        let mut buffer = vec![0; 1 << 16];
        while self.now < end {
            self.deliver();
            for index in 0..self.hosts.len() {
                self.transmit(index, &mut buffer);
            }
            self.now = self.now + STEP;
        }
    }

    /// Delivers the datagrams that have arrived by now.
    fn deliver(&mut self) {
        while self.on_the_way.peek().is_some_and(|Reverse(next)| next.0 <= self.now) {
            let Some(Reverse((at, _, (from, to, bytes)))) = self.on_the_way.pop() else { return };
            if let Some((_, host)) = self.hosts.iter_mut().find(|(addr, _)| *addr == to) {
                host.handle_datagram(from, &bytes, at.max(self.now));
            }
        }
    }

    /// Sends a host's datagrams, and collects its reports.
    fn transmit(&mut self, index: usize, buffer: &mut [u8]) {
        while let Some(outgoing) = self.hosts[index].1.poll_transmit(self.now, 64, buffer) {
            let from = self.hosts[index].0;
            self.sent.push((self.now, index, outgoing.to, outgoing));
            for datagram in buffer[..outgoing.len].chunks(outgoing.each) {
                for (from, to, bytes) in
                    (self.tamper)(self.now, from, outgoing.to, datagram.to_vec())
                {
                    self.carry(index, from, to, bytes);
                }
            }
        }
        while let Some(second) = self.hosts[index].1.poll_second(self.now) {
            self.said.entry(u8::try_from(index).unwrap()).or_default().push(second);
        }
    }

    /// Puts a datagram on a host's link, or drops it.
    fn carry(&mut self, index: usize, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.count += 1;
        let (link, busy_until) = &mut self.links[index];
        let start = (*busy_until).max(self.now);
        let waiting = link.rate.bytes_in(start.since(self.now));
        let is_lost = link.loses_one_in > 0 && random().is_multiple_of(link.loses_one_in);
        if waiting + bytes.len() as u64 > link.queue_bytes || is_lost {
            return;
        }
        let nanos = bytes.len() as u64 * 1_000_000_000 / link.rate.get();
        // Microseconds are too coarse for one packet, so the rest is rounded at random.
        let micros = nanos / 1000 + u64::from(random() % 1000 < nanos % 1000);
        *busy_until = start + Duration::from_micros(micros);
        let at = *busy_until + link.delay;
        self.on_the_way.push(Reverse((at, self.count, (from, to, bytes))));
    }

    /// The data that a host sent to another since this time.
    fn data_sent(&self, from: usize, to: usize, since: Duration) -> u64 {
        let since = MonoTime::from(START + since);
        let is_it = |(at, index, peer, _): &&(MonoTime, usize, SocketAddr, Outgoing)| {
            *at >= since && *index == from && *peer == addr(to)
        };
        let data = |(_, _, _, outgoing): &(MonoTime, usize, SocketAddr, Outgoing)| {
            if outgoing.each == usize::from(PACKET) { outgoing.len as u64 } else { 0 }
        };
        self.sent.iter().filter(is_it).map(data).sum()
    }

    /// The sum of one of a host's counts over seconds and peers.
    fn sum(&self, host: u8, count: impl Fn(&PeerSecond) -> u64) -> u64 {
        self.said[&host].iter().flat_map(|second| &second.peers).map(count).sum()
    }
}

/// Hosts with these rates.
fn mbit(rates: &[u64]) -> Vec<BytesPerSec> {
    rates.iter().map(|rate| BytesPerSec::from_mbit(*rate)).collect()
}

#[test]
fn the_median_is_that_of_a_bottleneck_with_tail_drop() {
    for delay in [1, 40, 150] {
        let slow = Link {
            rate: BytesPerSec::from_mbit(12),
            queue_bytes: 60_000,
            delay: Duration::from_millis(delay),
            ..FAST
        };
        let mut net = Net::new(&[slow, FAST, FAST], &mbit(&[40; 3]), 20);
        net.run_until(Duration::from_secs(22));
        let capacity = capacity(0, &net.said, WARM_UP_SECS..20).unwrap();
        let share = capacity.rate.mbit() / 12.0;
        assert!((0.97..=1.005).contains(&share), "{share} at {delay} ms: {capacity:?}");
        let data = net.data_sent(0, 1, Duration::from_secs(8))
            + net.data_sent(0, 2, Duration::from_secs(8));
        let over = data as f64 / (12.0 * 1_500_000.0);
        assert!(over < 1.04, "it sends {over} of what the path carries, {delay} ms");
    }
}

#[test]
fn hosts_that_nothing_slows_reach_their_rates() {
    let mut net = Net::new(&[FAST; 3], &mbit(&[20, 20, 4]), 8);
    net.run_until(Duration::from_secs(10));
    for (host, mbit) in [(0, 20.0), (1, 20.0), (2, 4.0)] {
        let capacity = capacity(host, &net.said, WARM_UP_SECS..8).unwrap();
        let share = capacity.rate.mbit() / mbit;
        assert!((0.97..=1.0).contains(&share), "{share} of host {host}'s: {capacity:?}");
        assert!(!capacity.is_lossy && capacity.worst_peer.is_none(), "{capacity:?}");
    }
}

#[test]
fn nobody_is_sent_data_who_does_not_answer() {
    let mut net = Net::new(&[FAST; 2], &mbit(&[20; 2]), 5);
    // The other address only echoes: each datagram comes back unchanged.
    net.hosts.truncate(1);
    net.tamper = Box::new(|_, from, to, bytes| vec![(to, from, bytes)]);
    net.run_until(Duration::from_secs(3));
    let echo: Vec<_> = net.sent.iter().map(|(_, _, to, outgoing)| (*to, *outgoing)).collect();
    assert!(
        !echo.is_empty() && echo.iter().all(|(to, outgoing)| *to == addr(1) && outgoing.len < 60)
    );
    let sent: usize = echo.iter().map(|(_, outgoing)| outgoing.len).sum();
    assert!(sent < 300 * 5 * 4, "{sent} bytes in 3 s to somebody who never asked");
}

#[test]
fn replayed_hellos_make_nobody_answer_more_often() {
    let mut net = Net::new(&[FAST; 2], &mbit(&[20; 2]), 5);
    net.tamper = Box::new(|_, from, to, bytes| vec![(from, to, bytes); 500]);
    net.run_until(Duration::ZERO);
    let welcomes = net.sent.iter().filter(|(_, index, _, _)| *index == 1).count();
    assert!(welcomes < 20, "{welcomes} datagrams in 0.3 s");
}

#[test]
fn a_peer_that_stops_gets_nothing_more_within_a_second() {
    let mut net = Net::new(&[FAST; 3], &mbit(&[20; 3]), 10);
    net.run_until(Duration::from_secs(4));
    net.hosts.retain(|(at, _)| *at != addr(2));
    net.run_until(Duration::from_secs(9));
    assert!(net.data_sent(0, 2, Duration::from_secs(3)) > 1_000_000);
    assert_eq!(net.data_sent(0, 2, Duration::from_secs(5)), 0);
    assert!(net.data_sent(0, 1, Duration::from_secs(5)) > 4_000_000, "the others go on");
    let fates: Vec<_> = net.hosts[0].1.fates().collect();
    assert_eq!((fates[1].1.silences, fates[0].1.silences), (1, 0));
}

#[test]
fn a_peer_that_comes_back_gets_data_again() {
    let mut net = Net::new(&[FAST; 2], &mbit(&[20; 2]), 10);
    let cut = MonoTime::from(Duration::from_secs(3) + START);
    let mended = MonoTime::from(Duration::from_secs(5) + START);
    net.tamper = Box::new(move |now, at, to, bytes| {
        let is_cut = now >= cut && now < mended;
        if is_cut { vec![] } else { vec![(at, to, bytes)] }
    });
    net.run_until(Duration::from_secs(10));
    assert_eq!(
        net.data_sent(0, 1, Duration::from_secs(4)) - net.data_sent(0, 1, Duration::from_secs(5)),
        0
    );
    assert!(net.data_sent(0, 1, Duration::from_secs(6)) > 4_000_000);
}

#[test]
fn a_peer_that_claims_what_it_lost_gains_nothing_and_is_named() {
    // A tenth of the packets to host 1 is lost. Host 1 knows the session's key, and writes receipts
    // as if all had arrived.
    let lossy = Link { loses_one_in: 10, ..FAST };
    let mut net = Net::new(&[lossy, FAST], &mbit(&[10; 2]), 6);
    let seal = packet::Seal::new([7; 16], &[3; 32]);
    net.tamper = Box::new(move |_, from, to, bytes| {
        let opened = seal.open(&bytes).map(|(header, said)| (header, said.collect::<Vec<_>>()));
        let Some((header, said)) = opened else { return vec![(from, to, bytes)] };
        if from != addr(1) || header.kind != packet::Kind::Receipt {
            return vec![(from, to, bytes)];
        }
        let all = |said: statement::Statement| statement::Statement {
            bits: said.bits.map(|bits| bits | bits >> 1),
            ..said
        };
        let mut buffer = vec![0; packet::MAX_CONTROL_LEN];
        let len =
            seal.seal_control(&header, &said.into_iter().map(all).collect::<Vec<_>>(), &mut buffer);
        vec![(from, to, buffer[..len].to_vec())]
    });
    net.run_until(Duration::from_secs(8));
    let (sent, proven) = (net.sum(0, |peer| peer.sent_bytes), net.sum(0, |peer| peer.proven_bytes));
    assert!(proven < sent * 9 / 10, "{proven} of {sent} bytes are proven");
    assert!(net.sum(0, |peer| peer.false_receipts) > 0);
}

#[test]
fn strangers_and_replays_are_not_counted() {
    let mut net = Net::new(&[FAST; 3], &mbit(&[10; 3]), 4);
    let mut old = VecDeque::new();
    let stranger: SocketAddr = "203.0.113.9:9".parse().unwrap();
    net.tamper = Box::new(move |_, from, to, bytes| {
        old.push_back((from, to, bytes.clone()));
        let mut all = vec![
            (from, to, bytes.clone()),
            (stranger, to, bytes.clone()),
            (from, to, bytes.clone()),
        ];
        all.push((from, to, [&bytes[..], b"x"].concat()));
        if old.len() > 300 {
            all.extend(old.pop_front());
        }
        all
    });
    net.run_until(Duration::from_secs(6));
    let sent: u64 = (0..3).map(|host| net.sum(host, |peer| peer.sent_bytes)).sum();
    let received: u64 = (0..3).map(|host| net.sum(host, |peer| peer.received_bytes)).sum();
    assert!(received <= sent && received * 100 > sent * 97, "{received} of {sent} bytes");
    assert!(net.sum(0, |peer| peer.duplicated_packets) > 1000);
    assert!(net.said[&0].iter().map(|second| second.strangers).sum::<u64>() > 1000);
    assert!(net.hosts[0].1.fates().all(|(_, fate)| fate.from_elsewhere > 1000));
}

#[test]
fn a_host_that_exchanges_at_another_time_is_not_counted() {
    let mut net = Net::new(&[FAST; 2], &mbit(&[10; 2]), 8);
    let addrs = [addr(0), addr(1)];
    let late = MonoTime::from(START + Duration::from_secs(4));
    net.hosts[1].1 =
        Host::new(&order(&addrs, 1, &mbit(&[10; 2]), 8), PACKET, random, MonoTime::default(), late);
    net.run_until(Duration::from_secs(10));
    assert_eq!(net.sum(0, |peer| peer.received_bytes), 0);
    assert!(net.sum(0, |peer| peer.stale_packets) > 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_host_never_sends_more_than_its_rate_and_a_burst(
        mbits in proptest::collection::vec(1_u64..30, 2..5),
        loses_one_in in 0_u64..40,
        step in 1_u64..40,
    ) {
        let links = vec![Link { loses_one_in, ..FAST }; mbits.len()];
        let rates = mbit(&mbits);
        let mut net = Net::new(&links, &rates, 3);
        // A process that is scheduled only now and then.
        for turn in 0.. {
            let at = Duration::from_millis(turn * step);
            if at > Duration::from_secs(3) { break; }
            net.run_until(at);
            net.now = net.now + Duration::from_millis(step);
        }
        for (host, rate) in rates.iter().enumerate() {
            let sent: Vec<_> = net.sent.iter().filter(|(_, index, _, _)| *index == host)
                .map(|(at, _, _, outgoing)| (at.micros(), outgoing.len as u64)).collect();
            // Hellos, welcomes and receipts are sent at once; data waits for the bucket later.
            let control = 20 * 532 * mbits.len() as u64;
            let burst = pace::Pacer::new(*rate, PACKET.into(), MonoTime::default()).burst_bytes();
            for first in (0..sent.len()).step_by(7) {
                let mut bytes = 0;
                for (at, len) in &sent[first..] {
                    bytes += len;
                    let most = rate.bytes_in(Duration::from_micros(at - sent[first].0)) + burst + control;
                    prop_assert!(bytes <= most, "{} bytes where {} are allowed", bytes, most);
                }
            }
        }
    }
}
