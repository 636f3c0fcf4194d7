//! The kernel's data about a measurer's TCP connections: round trips, losses, and bytes that wait
//! in this host.
//!
//! Linux gives it for all connections to one port at once (`sock_diag`, `struct tcp_info`), without
//! privileges; on other systems, or if a sandbox forbids it, there is none. It is read once a
//! second, outside of the workers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

/// Size of the buffer for an answer in bytes: the kernel's largest answer has 32 KiB.
const ANSWER_LEN: usize = 65_536;
/// The largest number of answers that are read. 4096 links take 50; there are more only if the host
/// has many other connections to this port.
const MAX_ANSWERS: usize = 4096;

/// The sums over a measurer's TCP connections in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSecond {
    /// The number of connections with data from the kernel; 0 if it gives none.
    pub links: u16,
    /// The shortest round trip of a segment so far, of all connections, in microseconds.
    pub round_trip_micros: u64,
    /// The mean of the connections' smoothed round trips at the second's end, in microseconds.
    pub round_trip_now_micros: u64,
    /// Bytes of data in a full segment.
    pub segment_bytes: u64,
    /// Bytes that were acknowledged.
    pub acked_bytes: u64,
    /// Sent segments with data.
    pub sent_segments: u64,
    /// Of these, the retransmitted ones.
    pub resent_segments: u64,
    /// Received segments with data.
    pub received_segments: u64,
    /// Of these, those that arrived before one that had been sent earlier and was lost or
    /// overtaken.
    pub disordered_segments: u64,
    /// The number of connections with retransmissions.
    pub resending_links: u16,
    /// The number of connections on which segments arrived out of order.
    pub disordered_links: u16,
    /// Time in which data was in flight or waiting to be sent, summed over connections, in
    /// microseconds.
    pub busy_micros: u64,
    /// Of this, the time in which the target's window was full.
    pub window_full_micros: u64,
    /// Bytes that wait in this host at the second's end although the target reads: its window has
    /// room, or is full and as wide as it ever was. Then the path limits TCP, or the size of that
    /// window.
    pub unsent_bytes: u64,
    /// The longest time since the first echo in which none arrived on any connection, in
    /// microseconds: the part of it until the second's end, with what was before the second. The
    /// workers measure it while they run; of several it is the least, and may be longer than they
    /// were silent at once.
    pub silence_micros: u64,
}

/// A window of this number of tenths of the widest so far counts as fully open: then nothing waits
/// in the target's own buffer.
const WIDE_TENTHS: u64 = 9;

/// One part in this many of the received segments is out of order if about 0.2 % are lost: behind
/// each lost one, a congestion window of others arrives early, which is 1.2 / sqrt(loss) segments.
const DISORDERED_PART: u64 = 20;
/// Where it was so in the second before, one in this many is enough, so that links do not change
/// each second.
const STILL_DISORDERED_PART: u64 = 80;
/// Fewer segments out of order show nothing.
const LEAST_DISORDERED: u64 = 10;

impl TcpSecond {
    /// Whether segments from the target are lost often enough to keep its congestion windows small.
    pub(crate) const fn is_disordered(&self, was_disordered: bool) -> bool {
        let part = if was_disordered { STILL_DISORDERED_PART } else { DISORDERED_PART };
        let disordered = self.disordered_segments;
        disordered >= LEAST_DISORDERED && disordered * part > self.received_segments
    }

    /// Adds a connection's changes in the second.
    fn add(&mut self, before: &Counted, now: &Counted) {
        let shortest = now.round_trip_micros;
        self.round_trip_micros =
            if self.links == 0 { shortest } else { self.round_trip_micros.min(shortest) };
        let others = u64::from(self.links);
        let sum = self.round_trip_now_micros * others + now.round_trip_now_micros;
        self.round_trip_now_micros = sum / (others + 1);
        self.links = self.links.saturating_add(1);
        let is_more = |before, now| u16::from(now > before);
        self.resending_links += is_more(before.resent_segments, now.resent_segments);
        self.disordered_links += is_more(before.disordered_segments, now.disordered_segments);
        self.segment_bytes = self.segment_bytes.max(now.segment_bytes);
        let is_wide = now.window_bytes * 10 >= before.widest_window_bytes * WIDE_TENTHS;
        if now.window_has_room || is_wide {
            self.unsent_bytes += now.unsent_bytes;
        }
        for (sum, before, now) in [
            (&mut self.acked_bytes, before.acked_bytes, now.acked_bytes),
            (&mut self.sent_segments, before.sent_segments, now.sent_segments),
            (&mut self.resent_segments, before.resent_segments, now.resent_segments),
            (&mut self.received_segments, before.received_segments, now.received_segments),
            (&mut self.disordered_segments, before.disordered_segments, now.disordered_segments),
            (&mut self.busy_micros, before.busy_micros, now.busy_micros),
            (&mut self.window_full_micros, before.window_full_micros, now.window_full_micros),
        ] {
            *sum += now.saturating_sub(before);
        }
    }
}

/// The kernel's counters of one connection since it was opened, and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// This and the following fields: as in [`TcpSecond`].
    round_trip_micros: u64,
    round_trip_now_micros: u64,
    segment_bytes: u64,
    acked_bytes: u64,
    sent_segments: u64,
    resent_segments: u64,
    received_segments: u64,
    disordered_segments: u64,
    busy_micros: u64,
    window_full_micros: u64,
    /// Bytes that wait in this host.
    unsent_bytes: u64,
    /// Whether the target's window has room for another segment.
    window_has_room: bool,
    /// The size of that window, including the bytes in flight.
    window_bytes: u64,
    /// The largest size of that window so far.
    widest_window_bytes: u64,
}

impl From<&TcpInfo> for Counted {
    fn from(info: &TcpInfo) -> Self {
        let segment_bytes = u64::from(info.snd_mss);
        let first_sent = info.bytes_sent.saturating_sub(info.bytes_retrans);
        let on_way = first_sent.saturating_sub(info.bytes_acked);
        let window_bytes = u64::from(info.snd_wnd);
        Self {
            round_trip_micros: info.min_rtt.into(),
            round_trip_now_micros: info.rtt.into(),
            segment_bytes,
            acked_bytes: info.bytes_acked,
            sent_segments: info.data_segs_out.into(),
            resent_segments: info.total_retrans.into(),
            received_segments: info.data_segs_in.into(),
            disordered_segments: info.rcv_ooopack.into(),
            busy_micros: info.busy_time,
            window_full_micros: info.rwnd_limited,
            unsent_bytes: info.notsent_bytes.into(),
            window_has_room: on_way + segment_bytes <= window_bytes,
            window_bytes,
            widest_window_bytes: window_bytes,
        }
    }
}

/// Reads the kernel's data about one measurer's connections.
#[derive(Debug)]
pub(crate) struct TcpWatch {
    /// The connections' remote address.
    peer: Option<SocketAddr>,
    /// Their local ports, with the counters at the last reading.
    ports: HashMap<u16, Counted>,
}

impl TcpWatch {
    /// Watches connections with these local and remote addresses; the remote address is the same
    /// for all.
    pub(crate) fn new(ends: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Self {
        let mut watch = Self { peer: None, ports: HashMap::new() };
        for (local, peer) in ends {
            watch.peer = Some(peer);
            watch.ports.insert(local.port(), Counted::default());
        }
        // The handshakes' counts belong to no second.
        watch.look();
        watch
    }

    /// The changes since the last call; nothing if the kernel gives no data.
    pub(crate) fn look(&mut self) -> TcpSecond {
        let mut second = TcpSecond::default();
        let Some(peer) = self.peer else { return second };
        let connections = ask(peer).inspect_err(|error| {
            tracing::debug!(%error, "the kernel tells nothing of TCP connections");
        });
        for (port, now) in connections.unwrap_or_default() {
            if let Some(counted) = self.ports.get_mut(&port) {
                second.add(counted, &now);
                let widest_window_bytes = counted.widest_window_bytes.max(now.window_bytes);
                *counted = Counted { widest_window_bytes, ..now };
            }
        }
        second
    }
}

/// The shortest round trip of one connection so far; `None` if the kernel gives no data.
pub(crate) fn round_trip(local: SocketAddr, peer: SocketAddr) -> Option<Duration> {
    let tcp = TcpWatch::new([(local, peer)]).look();
    (tcp.links > 0).then(|| Duration::from_micros(tcp.round_trip_micros))
}

/// The open connections to this address: their local ports and counters.
fn ask(peer: SocketAddr) -> io::Result<Vec<(u16, Counted)>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    // The kernel makes the answer during the request, so no waiting is needed.
    socket.set_non_blocking(true)?;
    socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
    socket.send(&request(peer), 0)?;
    let mut connections = Vec::new();
    let mut answer = Vec::with_capacity(ANSWER_LEN);
    for _ in 0..MAX_ANSWERS {
        answer.clear();
        socket.recv(&mut answer, 0)?;
        if take(&answer, peer.ip(), &mut connections)? {
            return Ok(connections);
        }
    }
    Err(io::Error::other("there is no end of answers"))
}

/// The request for all connections to this port.
fn request(peer: SocketAddr) -> Vec<u8> {
    let (family, any) = match peer {
        SocketAddr::V4(_) => (AF_INET, SocketId::new_v4()),
        SocketAddr::V6(_) => (AF_INET6, SocketId::new_v6()),
    };
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT,
        socket_id: SocketId { destination_port: peer.port(), ..any },
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Reads the connections to this address from one answer. Returns whether it was the last.
fn take(answer: &[u8], peer: IpAddr, connections: &mut Vec<(u16, Counted)>) -> io::Result<bool> {
    let mut rest = answer;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| io::Error::other(error.to_string()))?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(one)) => {
                let id = &one.header.socket_id;
                let info = one.nlas.iter().find_map(|nla| match nla {
                    Nla::TcpInfo(info) => Some(Counted::from(info)),
                    _ => None,
                });
                let is_ours = id.destination_address.to_canonical() == peer.to_canonical();
                if let Some(info) = info.filter(|_| is_ours) {
                    connections.push((id.source_port, info));
                }
            }
            _ => {}
        }
        // Messages begin at multiples of four bytes.
        let len = message.header.length as usize;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    /// A connection over loopback, with both ends.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Both addresses of a socket.
    fn ends(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
        (socket.local_addr().unwrap(), socket.peer_addr().unwrap())
    }

    #[test]
    fn what_connections_carry_is_counted_and_what_others_carry_is_not() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let (mut ours, mut far) = connection(&listener);
            let (mut others, _far) = connection(&listener);
            let mut watch = TcpWatch::new([ends(&ours)]);
            others.write_all(&[0; 100_000]).unwrap();
            ours.write_all(&[0; 30_000]).unwrap();
            far.read_exact(&mut [0; 30_000]).unwrap();
            far.write_all(&[0; 10]).unwrap();
            ours.read_exact(&mut [0; 10]).unwrap();
            let second = watch.look();
            assert_eq!(second.links, 1, "{second:?}");
            // The other connection has sent at least this much more.
            assert!((1..100_000).contains(&second.acked_bytes), "{second:?}");
            assert!(second.sent_segments > 0 && second.received_segments > 0, "{second:?}");
            assert!(second.segment_bytes > 500, "{second:?}");
            // An idle host may retransmit the last segment.
            let again = watch.look();
            assert!(again.links == 1 && again.sent_segments <= 1, "{again:?}");
        }
    }

    #[test]
    fn a_twentieth_out_of_order_is_much() {
        let is_much = |disordered_segments, received_segments, before| {
            TcpSecond { disordered_segments, received_segments, ..TcpSecond::default() }
                .is_disordered(before)
        };
        for (disordered, at_first, still) in [
            (0, false, false),
            (12, false, false),
            (13, false, true),
            (50, false, true),
            (51, true, true),
        ] {
            let found = [false, true].map(|before| is_much(disordered, 1000, before));
            assert_eq!(found, [at_first, still], "{disordered}");
        }
        assert!(!is_much(9, 10, true), "a few segments");
        assert!(!TcpSecond::default().is_disordered(true), "the kernel gives no data");
    }

    #[test]
    fn what_a_full_window_holds_back_is_the_targets_doing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut ours, far) = connection(&listener);
        let mut watch = TcpWatch::new([ends(&ours)]);
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65_536]).is_ok() {}
        // The window is full when all bytes that fit into it have arrived.
        let deadline = Instant::now() + Duration::from_secs(60);
        while watch.look().unsent_bytes > 0 {
            assert!(Instant::now() < deadline, "the window is not full");
        }
        drop(far);
    }

    #[test]
    fn a_full_window_that_is_as_wide_as_ever_is_a_limit_by_itself() {
        let full = |window_bytes, widest_window_bytes| Counted {
            unsent_bytes: 1000,
            window_bytes,
            widest_window_bytes,
            ..Counted::default()
        };
        for (now, widest, unsent_bytes) in [
            (65_536, 65_536, 1000),
            (131_072, 65_536, 1000),
            (60_000, 65_536, 1000),
            (50_000, 65_536, 0),
            (0, 65_536, 0),
        ] {
            let mut second = TcpSecond::default();
            second.add(&full(0, widest), &full(now, now));
            assert_eq!(second.unsent_bytes, unsent_bytes, "{now} of {widest}");
        }
    }

    #[test]
    fn many_connections_come_in_several_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<_> = (0..300).map(|_| connection(&listener)).collect();
        let mut watch = TcpWatch::new(sockets.iter().map(|(near, _)| ends(near)));
        assert_eq!(watch.look().links, 300);
    }

    #[test]
    fn where_nothing_is_connected_nothing_is_known() {
        assert_eq!(TcpWatch::new([]).look(), TcpSecond::default());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(TcpWatch::new([(nowhere, nowhere)]).look(), TcpSecond::default());
    }
}
