//! Real traffic from the left host to the right host.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::time::{ClockId, clock_gettime};

use super::arrival::{note_arrivals, now, receive};
use crate::error::{Error, Result};
use crate::net::{Emulation, Priority, become_real_time};

/// The two hosts of a run.
pub(super) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// UDP payload of a packet of 1,500 bytes.
const FULL_PAYLOAD: usize = 1472;

/// TCP payload of a packet of 1,500 bytes, with timestamps.
const TCP_PAYLOAD: f64 = 1448.0;

/// Bytes of a full IP packet.
const FULL_PACKET: f64 = 1500.0;

/// Time without a packet after which a receiver gives up; longer than any queue and delay of the
/// check.
const SILENCE: Duration = Duration::from_secs(1);

/// Round trips in ms of probes that a thread on the right host returns.
///
/// One is sent at a random time in each gap. At equal distances, over a delay that is a multiple of
/// the gap, all would be due while others are sent, and wait for the emulator's round.
///
/// Excludes the time until the measuring threads wake: the kernel notes arrival times on both
/// hosts.
pub(super) fn round_trips_ms(
    emulation: &Emulation,
    probes: u32,
    gap: Duration,
    seed: u64,
) -> Result<Vec<f64>> {
    let (left, right) = udp_pair(emulation)?;
    let done = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        note_arrivals(&left)?;
        note_arrivals(&right)?;
        scope.spawn(|| echo(&right, &done));
        let receiver = scope.spawn(|| receive_echoes(&left, probes));
        let sent = send_stamped(&left, probes, gap, seed);
        let found = receiver.join().unwrap_or_else(|_| Err(panicked()));
        done.store(true, Ordering::Relaxed);
        sent.and(found)
    });
    found.map_err(Error::io("measure round trips"))
}

/// Arriving rate in bytes of IP per second, while more is offered.
pub(super) fn flood(emulation: &Emulation, bytes_per_sec: f64, time: Duration) -> Result<f64> {
    let (left, right) = udp_pair(emulation)?;
    let gap = Duration::from_secs_f64(FULL_PACKET / bytes_per_sec);
    let found = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrival_rate(&right));
        send_paced(&left, &[0; FULL_PAYLOAD], gap, |_, elapsed| elapsed < time)?;
        receiver.join().unwrap_or_else(|_| Err(panicked()))
    });
    found.map_err(Error::io("measure a rate"))
}

/// Sends `packets` packets and counts arrivals.
pub(super) fn count(emulation: &Emulation, packets: u32) -> Result<u32> {
    let (left, right) = udp_pair(emulation)?;
    let found = thread::scope(|scope| {
        let receiver = scope.spawn(|| count_arrivals(&right));
        let gap = Duration::from_micros(40);
        send_paced(&left, &[0; 72], gap, |sent, _| sent < packets)?;
        receiver.join().unwrap_or_else(|_| Err(panicked()))
    });
    found.map_err(Error::io("count packets"))
}

/// Rate of a TCP stream after its first `skip_secs`, in bytes of IP per second, to a receiver that
/// sleeps after each read.
pub(super) fn stream(
    emulation: &Emulation,
    time: Duration,
    skip_secs: f64,
    sleeps: Duration,
) -> Result<f64> {
    let listen = || TcpListener::bind((RIGHT, 0));
    let connected = emulation.namespace(1).run(listen)?.and_then(|listener| {
        let address = listener.local_addr()?;
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(5));
        let sender = emulation.namespace(0).run(connect).map_err(io::Error::other)??;
        Ok((sender, listener.accept()?.0))
    });
    let (sender, receiver) = connected.map_err(Error::io("open a TCP connection"))?;
    let found = thread::scope(|scope| {
        let receiver = scope.spawn(|| read_rate(receiver, skip_secs, sleeps));
        write_for(sender, time)?;
        receiver.join().unwrap_or_else(|_| Err(panicked()))
    });
    found.map_err(Error::io("measure a TCP stream"))
}

/// CPU seconds that this machine needs to write 10^9 bytes in packets of 1,500 bytes to a socket
/// and to read them again: the minimum of a few tries, as disturbances only add.
pub(super) fn plain_cpu_s_per_gb() -> Result<f64> {
    const PACKETS: u32 = 40_000;
    const TRIES: u32 = 5;
    let measure = || -> io::Result<f64> {
        let (to, from) = UnixDatagram::pair()?;
        let mut packet = [0; 1500];
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let begin = cpu_secs();
            for _ in 0..PACKETS {
                to.send(&packet)?;
                from.recv(&mut packet)?;
            }
            least = least.min(cpu_secs() - begin);
        }
        Ok(least * 1e9 / (f64::from(PACKETS) * packet.len() as f64))
    };
    measure().map_err(Error::io("measure a plain loop"))
}

/// CPU time of this thread in seconds.
fn cpu_secs() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Sockets on both hosts; the left one sends to the right one.
fn udp_pair(emulation: &Emulation) -> Result<(UdpSocket, UdpSocket)> {
    let bind = |host: usize, address: Ipv4Addr| {
        let socket = emulation.namespace(host).run(|| UdpSocket::bind((address, 0)))?;
        socket.map_err(Error::io(format!("open a UDP socket at {address}")))
    };
    let (left, right) = (bind(0, LEFT)?, bind(1, RIGHT)?);
    let connect = || {
        left.connect(right.local_addr()?)?;
        right.set_read_timeout(Some(SILENCE))?;
        left.set_read_timeout(Some(SILENCE))
    };
    connect().map_err(Error::io("connect UDP sockets"))?;
    Ok((left, right))
}

/// Asks for a high priority of the measuring thread. If that fails, the figures show it.
fn as_probe() {
    let _ = become_real_time(Priority::Probe);
}

/// Bytes of time stamps in a probe, in nanoseconds: departure; on the way back, duration of the
/// first way and departure of the second.
const STAMPS: usize = 16;

/// Returns each packet with its one-way time and the time of its return, until `done`.
fn echo(socket: &UdpSocket, done: &AtomicBool) -> io::Result<()> {
    as_probe();
    let mut buffer = [0; STAMPS];
    while !done.load(Ordering::Relaxed) {
        match receive(socket, &mut buffer) {
            Ok((_, arrived, from)) => {
                let there = arrived.saturating_sub(time_in(&buffer[..8]));
                buffer[..8].copy_from_slice(&nanos(there));
                buffer[8..].copy_from_slice(&nanos(now()));
                if let Some(from) = from {
                    socket.send_to(&buffer, SocketAddrV4::from(from))?;
                }
            }
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends packets with their departure times.
fn send_stamped(socket: &UdpSocket, probes: u32, gap: Duration, seed: u64) -> io::Result<()> {
    as_probe();
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let start = Instant::now();
    for probe in 0..probes {
        sleep_until(start + gap.mul_f64(f64::from(probe) + rng.random::<f64>()));
        let mut stamps = [0; STAMPS];
        stamps[..8].copy_from_slice(&nanos(now()));
        socket.send(&stamps)?;
    }
    Ok(())
}

/// Round trips in ms of returned probes, until all have returned or no more come.
fn receive_echoes(socket: &UdpSocket, probes: u32) -> io::Result<Vec<f64>> {
    as_probe();
    let mut found = Vec::new();
    let mut buffer = [0; STAMPS];
    for _ in 0..probes {
        match receive(socket, &mut buffer) {
            Ok((_, arrived, _)) => {
                let back = arrived.saturating_sub(time_in(&buffer[8..]));
                found.push((time_in(&buffer[..8]) + back).as_secs_f64() * 1e3);
            }
            Err(error) if is_silence(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Encodes a time.
fn nanos(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_be_bytes()
}

/// Decodes a time.
fn time_in(bytes: &[u8]) -> Duration {
    Duration::from_nanos(bytes.try_into().map_or(0, u64::from_be_bytes))
}

/// Sends packets at even distances, or several at once after too long a sleep, while
/// `goes_on(number, time)`.
fn send_paced(
    socket: &UdpSocket,
    payload: &[u8],
    gap: Duration,
    goes_on: impl Fn(u32, Duration) -> bool,
) -> io::Result<()> {
    as_probe();
    let start = Instant::now();
    let mut sent = 0;
    while goes_on(sent, start.elapsed()) {
        socket.send(payload)?;
        sent += 1;
        let next = start + gap * sent;
        if next > Instant::now() + Duration::from_millis(1) || gap > Duration::from_millis(1) {
            sleep_until(next);
        }
    }
    Ok(())
}

/// Bytes of IP per second between the first packet and the last.
fn arrival_rate(socket: &UdpSocket) -> io::Result<f64> {
    let mut times: Option<(Instant, Instant)> = None;
    let mut bytes = 0.0;
    each_arrival(socket, |length| {
        let now = Instant::now();
        match &mut times {
            None => times = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                // 20 bytes of IP and 8 of UDP.
                bytes += length as f64 + 28.0;
            }
        }
    })?;
    let (first, last) = times.ok_or_else(|| io::Error::other("nothing arrived"))?;
    Ok(bytes / (last - first).as_secs_f64())
}

/// Counts packets until no more arrive.
fn count_arrivals(socket: &UdpSocket) -> io::Result<u32> {
    let mut count = 0;
    each_arrival(socket, |_| count += 1)?;
    Ok(count)
}

/// Calls `on_packet` with the length of each packet until no more arrive.
fn each_arrival(socket: &UdpSocket, mut on_packet: impl FnMut(usize)) -> io::Result<()> {
    as_probe();
    let mut buffer = [0; FULL_PAYLOAD];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => on_packet(length),
            Err(error) if is_silence(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Writes as much as the stream takes, for `time`.
fn write_for(mut stream: TcpStream, time: Duration) -> io::Result<()> {
    set_tcp_congestion(&stream, "cubic")?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let start = Instant::now();
    while start.elapsed() < time {
        stream.write_all(&[0; 16_384])?;
    }
    Ok(())
}

/// Bytes of IP per second after the first `skip_secs`.
///
/// Without a high priority: the thread would be woken for each packet, and that would be counted as
/// the emulator's CPU time.
fn read_rate(mut stream: TcpStream, skip_secs: f64, sleeps: Duration) -> io::Result<f64> {
    let mut buffer = vec![0; 1 << 18];
    let (start, mut bytes, mut last) = (Instant::now(), 0.0, skip_secs);
    loop {
        let length = stream.read(&mut buffer)?;
        let now = start.elapsed().as_secs_f64();
        if length == 0 {
            return Ok(bytes / (last - skip_secs) * FULL_PACKET / TCP_PAYLOAD);
        }
        if now > skip_secs {
            bytes += length as f64;
            last = now;
        }
        if !sleeps.is_zero() {
            thread::sleep(sleeps);
        }
    }
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Whether a read timed out.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Error of a thread that panicked.
fn panicked() -> io::Error {
    io::Error::other("a measuring thread panicked")
}
