//! Exchanges over a link of a known rate, and their cost compared with a plain loop.
//!
//! Both tests are ignored: the first needs root and Debian's iproute2, the second needs two cores.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ff_measurer::exchange::{
    DEFAULT_PACKET_BYTES, Exchange, ExchangeBind, ExchangeEvent, ExchangeOrder, ExchangePeer,
    ExchangeTotals, HostSecond, RunningExchange, Said, WARM_UP_SECS, capacity,
};
use ff_measurer::thread_cpu_time;
use ff_proto::units::BytesPerSec;
use zeroize::Zeroizing;

/// Bytes of the Ethernet, IP and UDP headers, which TBF also counts.
const HEADER_BYTES: f64 = 42.0;

/// Two network namespaces joined by a link; deleted when this is dropped.
struct Hosts([String; 2]);

impl Hosts {
    /// Creates them, with a link that carries `rate` each way and has a queue for it.
    fn new(rate: &str) -> Self {
        let hosts = Self(["a", "b"].map(|end| format!("ff-exchange-{}-{end}", std::process::id())));
        let [a, b] = &hosts.0;
        for name in &hosts.0 {
            ip(&["netns", "add", name]);
        }
        ip(&["-n", a, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", b]);
        for (place, name) in hosts.0.iter().enumerate() {
            ip(&["-n", name, "addr", "add", &format!("{}/24", address(place)), "dev", "v0"]);
            ip(&["-n", name, "link", "set", "dev", "v0", "up"]);
            let tbf = "tbf rate RATE burst 32k latency 50ms".replace("RATE", rate);
            let qdisc = format!("-n {name} qdisc add dev v0 root {tbf}");
            run("tc", &qdisc.split(' ').collect::<Vec<_>>());
        }
        hosts
    }

    /// Listens in one of them.
    fn bind(&self, place: usize) -> Exchange {
        let path = format!("/run/netns/{}", self.0[place]);
        thread::spawn(move || {
            let namespace = File::open(path).expect("ip has made it");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                .expect("this needs root: run it with sudo, or let .ci/run do it");
            bind(address(place))
        })
        .join()
        .expect("the thread has not panicked")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// The address of a host.
fn address(place: usize) -> IpAddr {
    Ipv4Addr::new(198, 18, 0, u8::try_from(place).expect("two hosts") + 1).into()
}

/// Runs `ip`.
fn ip(args: &[&str]) {
    run("ip", args);
}

/// Runs a program that must succeed.
fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status();
    let status =
        status.unwrap_or_else(|e| panic!("{program} (Debian: iproute2) does not run: {e}"));
    assert!(status.success(), "{program} {args:?} failed: network namespaces need root");
}

/// Listens at an address.
fn bind(addr: IpAddr) -> Exchange {
    let packet_bytes = DEFAULT_PACKET_BYTES;
    let bind = ExchangeBind { addrs: vec![addr], ports: 0..=0, packet_bytes };
    Exchange::bind(&bind).expect("there is a free port")
}

/// Lets two hosts exchange packets.
fn exchange(hosts: [Exchange; 2], rate: BytesPerSec, secs: u64) -> (Said, Vec<ExchangeTotals>) {
    let addrs = hosts.each_ref().map(|host| host.bound()[0].addr);
    let mut running = Vec::new();
    for (index, host) in (0..).zip(hosts) {
        let other = 1 - index;
        let peer = ExchangePeer { index: other, addr: addrs[usize::from(other)], rate };
        let order = ExchangeOrder {
            session: [1; 16],
            key: Zeroizing::new([2; 32]),
            index,
            peers: vec![peer],
            rate,
            duration: Duration::from_secs(secs),
            start_in: Duration::from_millis(300),
        };
        running.push(host.begin(&order).expect("the order is a good one"));
    }
    let (seconds, totals): (Vec<_>, Vec<_>) = running.into_iter().map(drain).unzip();
    ((0..).zip(seconds).collect(), totals)
}

/// All seconds and the totals of an exchange.
fn drain(mut running: RunningExchange) -> (Vec<HostSecond>, ExchangeTotals) {
    let mut seconds = Vec::new();
    loop {
        match running.blocking_next() {
            Some(ExchangeEvent::Second(second)) => seconds.push(second),
            Some(ExchangeEvent::Done(totals)) => return (seconds, totals),
            event => panic!("{event:?} is no end"),
        }
    }
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn a_link_of_a_known_rate_is_measured_at_it() {
    for mbit in [20, 100] {
        let hosts = Hosts::new(&format!("{mbit}mbit"));
        let ends = [hosts.bind(0), hosts.bind(1)];
        let (said, totals) = exchange(ends, BytesPerSec::from_mbit(mbit * 4), 14);
        for host in 0..2 {
            let capacity = capacity(host, &said, WARM_UP_SECS..14).expect("there are seconds");
            let share = capacity.rate.mbit() / BytesPerSec::from_mbit(mbit).mbit();
            let share = share * (1.0 + HEADER_BYTES / f64::from(DEFAULT_PACKET_BYTES));
            println!("figure: exchange over {mbit} Mbit/s / rate | 0.95..1.005 | {share:.3} | -");
            assert!(capacity.is_lossy, "the pace found its bound: {capacity:?}");
            assert!((0.95..1.005).contains(&share), "{share}: {capacity:?} {totals:?}");
        }
    }
}

#[test]
#[ignore = "takes two cores for half a minute: for people, who want to know what an exchange costs"]
fn what_a_gigabyte_costs_beside_a_plain_loop() {
    for gbit in [1, 2, 4] {
        let hosts = [bind(Ipv4Addr::LOCALHOST.into()), bind(Ipv4Addr::LOCALHOST.into())];
        println!("buffers: {:?}", hosts[0].bound());
        let (said, totals) = exchange(hosts, BytesPerSec::from_mbit(gbit * 1000), 5);
        let capacity = capacity(0, &said, WARM_UP_SECS..5).expect("there are seconds");
        let counts = totals[0].peers[0].counts;
        let bytes = counts.sent_bytes + counts.received_bytes;
        println!(
            "{gbit} Gbit/s wanted: {} each way, {} permille lost, {:.3} CPU s per GB sent or received",
            capacity.rate,
            capacity.loss_permille,
            totals[0].cpu_micros as f64 * 1e3 / bytes as f64,
        );
    }
    let (rate, send, receive) = plain_loop();
    println!("plain loop: {rate} one way, CPU s per GB: send {send:.3}, receive {receive:.3}");
}

/// Sends one datagram per system call without a rate limit; returns the received rate, and CPU s
/// per GB.
fn plain_loop() -> (BytesPerSec, f64, f64) {
    const RUN: Duration = Duration::from_secs(3);
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("there is a free port"));
    let to: SocketAddr = sockets[1].local_addr().expect("it is bound");
    let [from, into] = sockets;
    into.set_read_timeout(Some(Duration::from_millis(200))).expect("a time that is not 0");
    let receiver = thread::spawn(move || {
        let (mut bytes, mut buffer) = (0, [0; 2000]);
        while let Ok(len) = into.recv(&mut buffer) {
            bytes += len as u64;
        }
        (bytes, thread_cpu_time())
    });
    let (mut sent, began, cpu) = (0_u64, Instant::now(), thread_cpu_time());
    let packet = [0x5a; DEFAULT_PACKET_BYTES as usize];
    while began.elapsed() < RUN {
        sent += from.send_to(&packet, to).expect("loopback takes it") as u64;
    }
    let send = (thread_cpu_time() - cpu).as_secs_f64() * 1e9 / sent as f64;
    let (received, cpu) = receiver.join().expect("the thread has not panicked");
    let receive = cpu.as_secs_f64() * 1e9 / received as f64;
    (BytesPerSec::new(received / RUN.as_secs()), send, receive)
}
