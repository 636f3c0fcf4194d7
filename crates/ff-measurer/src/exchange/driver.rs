//! The sockets of an exchange, and the thread that moves datagrams between them and [`Host`].
//!
//! One thread handles all sockets, with as many datagrams per system call as the kernel accepts
//! (`quinn-udp`: GSO, GRO, recvmmsg, and DF on all packets).

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ff_proto::units::MonoTime;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::host::{Host, Outgoing, PeerFate};
use super::order::{ExchangeBind, ExchangeError, ExchangeOrder};
use super::report::{HostSecond, PeerSecond};
use crate::report::thread_cpu_time;

/// The waker's token; a socket's is its index.
const WAKER: Token = Token(usize::MAX);
/// The requested size of a socket's buffers: several times a hundredth of a second at 10 Gbit/s,
/// because the kernel counts more than the packets' bytes.
const BUFFER_BYTES: usize = 32 << 20;
/// The number of buffers that one system call fills.
const RECEIVE_BUFFERS: usize = 16;
/// Bytes of each: the kernel joins packets up to this size.
const RECEIVE_BYTES: usize = 65_536;
/// Bytes of the send buffer.
const SEND_BYTES: usize = 65_536;
/// Largest number of system calls per turn for each direction, so that neither waits long for the
/// other.
const CALLS_PER_TURN: usize = 16;
/// The shortest wait; datagrams that arrive meanwhile make larger batches.
const LEAST_WAIT: Duration = Duration::from_micros(100);

/// A host that listens and does not know its peers yet.
#[derive(Debug)]
pub struct Exchange {
    sockets: Vec<Socket>,
    /// Bytes of a data packet.
    packet_bytes: u16,
}

/// A host's listening address with the properties of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The address with the port that was bound.
    pub addr: SocketAddr,
    /// The receive buffer that the kernel has granted, in bytes as the kernel counts them
    /// (`net.core.rmem_max`).
    pub receive_buffer_bytes: usize,
    /// The send buffer that the kernel has granted, in bytes as the kernel counts them
    /// (`net.core.wmem_max`).
    pub send_buffer_bytes: usize,
    /// Whether packets may be fragmented because the system cannot forbid it.
    pub may_fragment: bool,
}

/// The events of a host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExchangeEvent {
    /// A second, reported one second after its end.
    Second(HostSecond),
    /// The exchange has ended.
    Done(ExchangeTotals),
    /// A socket or thread of this host failed.
    Failed(Arc<ExchangeError>),
}

/// A host's totals of the whole exchange.
#[derive(Clone, Debug, Default)]
pub struct ExchangeTotals {
    /// Totals with each peer.
    pub peers: Vec<PeerTotals>,
    /// Datagrams of no peer.
    pub strangers: u64,
    /// CPU time of the thread, in microseconds.
    pub cpu_micros: u64,
    /// Failed system calls to send; their datagrams count as lost.
    pub send_errors: u64,
    /// The last such error.
    pub last_send_error: Option<String>,
}

/// A host's totals with a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTotals {
    /// The sums of its seconds.
    pub counts: PeerSecond,
    /// How the peer behaved.
    pub fate: PeerFate,
}

impl PeerTotals {
    /// The problem of the exchange with this peer, as text; `None` when data went both ways.
    #[must_use]
    pub fn trouble(&self) -> Option<&'static str> {
        let (fate, counts) = (&self.fate, &self.counts);
        if !fate.has_answered && fate.from_elsewhere > 0 {
            return Some("its packets come from another address than the coordinator has for it");
        }
        if !fate.has_answered {
            return Some("it did not answer: check that firewalls allow UDP between both hosts");
        }
        if counts.proven_bytes == 0 {
            return Some(
                "it answered but received no data: the path's MTU may be smaller than the packets",
            );
        }
        if counts.false_receipts > 0 {
            return Some("it acknowledged data that it did not receive");
        }
        (counts.received_bytes == 0).then_some("it received data but sent none")
    }
}

/// A running exchange. Dropping it ends it at once.
#[derive(Debug)]
pub struct RunningExchange {
    /// The events of the thread.
    events: UnboundedReceiver<ExchangeEvent>,
    stop: Arc<AtomicBool>,
    /// Wakes the thread.
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Exchange {
    /// Binds the sockets.
    ///
    /// # Errors
    /// [`ExchangeError`] when the order is not valid, or no port is available.
    pub fn bind(bind: &ExchangeBind) -> Result<Self, ExchangeError> {
        bind.check()?;
        let sockets = bind.addrs.iter().map(|addr| {
            let failed =
                |source| ExchangeError::Bind { addr: *addr, ports: bind.ports.clone(), source };
            let mut last = io::Error::other("there are no ports in the range");
            for port in bind.ports.clone() {
                match Socket::bind(SocketAddr::new(*addr, port)) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => last = error,
                }
            }
            Err(failed(last))
        });
        Ok(Self { sockets: sockets.collect::<Result<_, _>>()?, packet_bytes: bind.packet_bytes })
    }

    /// The bound sockets, in the order of the addresses.
    #[must_use]
    pub fn bound(&self) -> Vec<Bound> {
        self.sockets.iter().map(|socket| socket.bound).collect()
    }

    /// Starts a thread that carries out the order.
    ///
    /// # Errors
    /// [`ExchangeError`] when the order is not valid, or no thread can be started.
    pub fn begin(mut self, order: &ExchangeOrder) -> Result<RunningExchange, ExchangeError> {
        let listening: Vec<_> = self.bound().iter().map(|bound| bound.addr).collect();
        order.check(&listening)?;
        let failed = |what| move |source| ExchangeError::Host { what, source };
        let poll = Poll::new().map_err(failed("its sockets cannot be waited for"))?;
        for (place, socket) in self.sockets.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registered = poll.registry().register(&mut socket.udp, Token(place), interest);
            registered.map_err(failed("its sockets cannot be waited for"))?;
        }
        let waker = Waker::new(poll.registry(), WAKER).map_err(failed("it cannot be woken"))?;
        let (waker, stop) = (Arc::new(waker), Arc::new(AtomicBool::new(false)));
        let (to, events) = unbounded_channel();
        let zero = Instant::now();
        let begin = MonoTime::from(order.start_in);
        let host = Host::new(order, self.packet_bytes, rand::random, MonoTime::default(), begin);
        let turn = Turn { host, sockets: self.sockets, poll, zero, stop: stop.clone(), to };
        let thread = std::thread::Builder::new().name("ff-exchange".to_owned());
        let thread =
            thread.spawn(move || turn.run()).map_err(failed("a thread cannot be started"))?;
        Ok(RunningExchange { events, stop, waker, thread: Some(thread) })
    }
}

impl RunningExchange {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<ExchangeEvent> {
        self.events.recv().await
    }

    /// As [`Self::next`], but blocks the thread.
    pub fn blocking_next(&mut self) -> Option<ExchangeEvent> {
        self.events.blocking_recv()
    }
}

impl Drop for RunningExchange {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Waking fails only if the poll has been dropped, and then the thread has ended.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed already.
            let _ = thread.join();
        }
    }
}

/// A socket of one family.
#[derive(Debug)]
struct Socket {
    udp: UdpSocket,
    /// The kernel's features for it.
    state: UdpSocketState,
    /// Its listening address.
    bound: Bound,
}

impl Socket {
    /// Binds an address, with buffers as large as the system allows.
    fn bind(addr: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(addr)?;
        let state = UdpSocketState::new(UdpSockRef::from(&udp))?;
        // The granted size is reported, so an error here needs no report.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&udp), BUFFER_BYTES);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&udp), BUFFER_BYTES);
        let bound = Bound {
            addr: udp.local_addr()?,
            receive_buffer_bytes: state.recv_buffer_size(UdpSockRef::from(&udp))?,
            send_buffer_bytes: state.send_buffer_size(UdpSockRef::from(&udp))?,
            may_fragment: state.may_fragment(),
        };
        Ok(Self { udp, state, bound })
    }

    /// Sends the datagrams in the buffer.
    fn send(&self, outgoing: Outgoing, buffer: &[u8]) -> io::Result<()> {
        let transmit = Transmit {
            destination: outgoing.to,
            ecn: None,
            contents: &buffer[..outgoing.len],
            segment_size: (outgoing.each < outgoing.len).then_some(outgoing.each),
            src_ip: None,
        };
        self.state.try_send(UdpSockRef::from(&self.udp), &transmit)
    }
}

/// The thread's data.
struct Turn {
    host: Host,
    sockets: Vec<Socket>,
    poll: Poll,
    /// The start of the exchange's clock.
    zero: Instant,
    stop: Arc<AtomicBool>,
    /// The receiver of events.
    to: UnboundedSender<ExchangeEvent>,
}

impl Turn {
    /// Moves datagrams until the exchange is over.
    fn run(mut self) {
        let mut outbox = Outbox::new();
        let mut inbox = vec![0; RECEIVE_BUFFERS * RECEIVE_BYTES];
        let mut totals = ExchangeTotals::default();
        let mut events = Events::with_capacity(8);
        while !self.stop.load(Ordering::Relaxed) {
            let has_received = self.receive(&mut inbox);
            let has_sent = self.transmit(&mut outbox, &mut totals);
            let now = self.now();
            while let Some(second) = self.host.poll_second(now) {
                totals.add(&second);
                if self.to.send(ExchangeEvent::Second(second)).is_err() {
                    return;
                }
            }
            if self.host.is_over(now) {
                return self.finish(totals);
            }
            if has_received || has_sent {
                continue;
            }
            let wait = self.host.poll_timeout(now).max(LEAST_WAIT);
            if let Err(source) = self.poll.poll(&mut events, Some(wait))
                && source.kind() != io::ErrorKind::Interrupted
            {
                let error =
                    ExchangeError::Host { what: "its sockets cannot be waited for", source };
                // There may be no receiver any more.
                let _ = self.to.send(ExchangeEvent::Failed(Arc::new(error)));
                return;
            }
        }
    }

    /// Reports the totals.
    fn finish(self, mut totals: ExchangeTotals) {
        for (total, (index, fate)) in totals.peers.iter_mut().zip(self.host.fates()) {
            debug_assert_eq!(total.counts.index, index, "both are in the order's order");
            total.fate = fate;
        }
        totals.cpu_micros = MonoTime::from(thread_cpu_time()).micros();
        // There may be no receiver any more.
        let _ = self.to.send(ExchangeEvent::Done(totals));
    }

    /// Receives datagrams; returns whether there may be more.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let mut is_more = false;
        for socket in 0..self.sockets.len() {
            is_more |= (0..CALLS_PER_TURN).all(|_| self.receive_once(socket, buffer));
        }
        is_more
    }

    /// Receives the datagrams of one system call; returns whether there may be more.
    fn receive_once(&mut self, socket: usize, buffer: &mut [u8]) -> bool {
        let mut chunks = buffer.chunks_exact_mut(RECEIVE_BYTES);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let mut metas = [RecvMeta::default(); RECEIVE_BUFFERS];
        let Socket { udp, state, .. } = &self.sockets[socket];
        let count = match state.recv(UdpSockRef::from(udp), &mut slices, &mut metas) {
            Ok(count) => count,
            // Errors of datagrams sent earlier are reported here, each once.
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        };
        let now = self.now();
        for (meta, slice) in metas.iter().zip(&slices).take(count) {
            for datagram in slice[..meta.len].chunks(meta.stride.max(1)) {
                self.host.handle_datagram(meta.addr, datagram, now);
            }
        }
        true
    }

    /// Sends datagrams; returns whether there may be more.
    fn transmit(&mut self, outbox: &mut Outbox, totals: &mut ExchangeTotals) -> bool {
        for _ in 0..CALLS_PER_TURN {
            let now = self.now();
            let Some(outgoing) = outbox.next(&mut self.host, &self.sockets, now) else {
                return false;
            };
            let socket = self
                .sockets
                .iter()
                .find(|socket| socket.bound.addr.is_ipv4() == outgoing.to.is_ipv4());
            let Some(socket) = socket else { continue };
            match socket.send(outgoing, &outbox.buffer) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    outbox.kept = Some(outgoing);
                    return false;
                }
                Err(error) => {
                    totals.send_errors += 1;
                    totals.last_send_error = Some(format!("{}: {error}", outgoing.to));
                }
            }
        }
        true
    }

    /// The time since the exchange's start.
    fn now(&self) -> MonoTime {
        MonoTime::from(self.zero.elapsed())
    }
}

/// The datagrams on their way to the socket.
struct Outbox {
    /// The datagrams.
    buffer: Vec<u8>,
    /// Datagrams that the socket did not accept the last time.
    kept: Option<Outgoing>,
}

impl Outbox {
    /// Empty, with the packets' filling in the buffer.
    fn new() -> Self {
        let mut buffer = vec![0; SEND_BYTES];
        rand::fill(&mut buffer[..]);
        Self { buffer, kept: None }
    }

    /// The next datagram to send.
    fn next(&mut self, host: &mut Host, sockets: &[Socket], now: MonoTime) -> Option<Outgoing> {
        let segments = sockets.iter().map(|socket| socket.state.max_gso_segments()).min();
        let poll = || host.poll_transmit(now, segments.unwrap_or(1), &mut self.buffer);
        self.kept.take().or_else(poll)
    }
}

impl ExchangeTotals {
    pub(crate) fn add(&mut self, second: &HostSecond) {
        self.strangers += second.strangers;
        if self.peers.is_empty() {
            self.peers = second
                .peers
                .iter()
                .map(|peer| PeerTotals {
                    counts: PeerSecond { index: peer.index, ..PeerSecond::default() },
                    fate: PeerFate::default(),
                })
                .collect();
        }
        for (total, peer) in self.peers.iter_mut().zip(&second.peers) {
            total.counts.add(peer);
        }
    }
}
