//! The two baselines: an echo over plain TCP, and one over TLS by rustls alone.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use rustls::{ConnectionCommon, SideData};

use super::{BenchError, Case, Run, io, pin, tls};
use crate::report::thread_cpu_time;
use crate::socket::{READ_LEN, WRITE_LEN};
use crate::window::MIN_NAP;

/// Largest number of bytes in flight on a socket.
const WINDOW: usize = 1 << 20;
/// Time before counting starts.
const WARM_UP: Duration = Duration::from_millis(300);

/// Converts plaintext to bytes on the wire, and back.
trait Channel {
    /// Appends the wire bytes of `plain`, which is one record.
    fn wrap(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), BenchError>;
    /// Takes wire bytes and passes their plaintext to `take`.
    fn unwrap(&mut self, wire: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<(), BenchError>;
}

/// Plain TCP.
struct Plain;

impl Channel for Plain {
    fn wrap(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), BenchError> {
        wire.extend_from_slice(plain);
        Ok(())
    }

    fn unwrap(&mut self, wire: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<(), BenchError> {
        take(wire);
        Ok(())
    }
}

/// TLS as in rustls's documentation, but with our own reading from the socket.
struct Tls<C> {
    connection: C,
    /// A buffer for received plaintext.
    plain: Box<[u8]>,
}

impl<C> Tls<C> {
    /// A channel over a connection whose handshake has ended.
    fn new(connection: C) -> Self {
        Self { connection, plain: vec![0; 16 * 1024].into_boxed_slice() }
    }
}

impl<C, S> Channel for Tls<C>
where
    C: Deref<Target = ConnectionCommon<S>> + DerefMut,
    S: SideData,
{
    fn wrap(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), BenchError> {
        self.connection.writer().write_all(plain).map_err(io("encrypting"))?;
        while self.connection.wants_write() {
            self.connection.write_tls(wire).map_err(io("encrypting"))?;
        }
        Ok(())
    }

    fn unwrap(&mut self, mut wire: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<(), BenchError> {
        while !wire.is_empty() {
            self.connection.read_tls(&mut wire).map_err(io("decrypting"))?;
            let mut left = self.connection.process_new_packets()?.plaintext_bytes_to_read();
            while left > 0 {
                let len =
                    self.connection.reader().read(&mut self.plain).map_err(io("decrypting"))?;
                take(&self.plain[..len]);
                left -= len;
            }
        }
        Ok(())
    }
}

/// One socket of an echo loop.
struct Socket<C> {
    tcp: mio::net::TcpStream,
    channel: C,
    /// Wire bytes that the kernel has not accepted yet.
    unsent: Vec<u8>,
    /// Plaintext bytes sent and not yet returned.
    in_flight: usize,
    /// Whether the socket may be readable.
    readable: bool,
    /// Whether the socket may be writable.
    writable: bool,
}

impl<C: Channel> Socket<C> {
    /// Writes unsent bytes; returns whether none are left.
    fn flush(&mut self) -> Result<bool, BenchError> {
        while self.writable && !self.unsent.is_empty() {
            match self.tcp.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(io("writing")(error)),
            }
        }
        Ok(self.unsent.is_empty())
    }

    /// Reads once; `None` at the end of the stream.
    fn read(
        &mut self,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<usize>, BenchError> {
        match self.tcp.read(buffer) {
            Ok(0) => Ok(None),
            Ok(len) => {
                self.readable = len == buffer.len();
                self.channel.unwrap(&buffer[..len], take)?;
                Ok(Some(len))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Some(0))
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(io("reading")(error)),
        }
    }
}

/// Several sockets with their poll.
struct Loop<C> {
    poll: Poll,
    sockets: Vec<Socket<C>>,
}

impl<C: Channel> Loop<C> {
    /// Takes over connected sockets.
    fn new(connected: Vec<(TcpStream, C)>) -> Result<Self, BenchError> {
        let poll = Poll::new().map_err(io("polling"))?;
        let mut sockets = Vec::new();
        for (index, (tcp, channel)) in connected.into_iter().enumerate() {
            tcp.set_nonblocking(true).map_err(io("setting a socket up"))?;
            let mut tcp = mio::net::TcpStream::from_std(tcp);
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut tcp, Token(index), both).map_err(io("polling"))?;
            let unsent = Vec::with_capacity(2 * WRITE_LEN);
            let (readable, writable) = (true, true);
            sockets.push(Socket { tcp, channel, unsent, in_flight: 0, readable, writable });
        }
        Ok(Self { poll, sockets })
    }

    /// Polls the sockets for readiness; sleeps first if there was nothing to do.
    fn wait(&mut self, events: &mut Events, busy: bool) -> Result<(), BenchError> {
        if !busy {
            std::thread::sleep(MIN_NAP);
        }
        let timeout = if busy { Duration::ZERO } else { Duration::from_millis(10) };
        self.poll.poll(events, Some(timeout)).map_err(io("polling"))?;
        for event in events.iter() {
            if let Some(socket) = self.sockets.get_mut(event.token().0) {
                socket.readable |= event.is_readable();
                socket.writable |= event.is_writable();
            }
        }
        Ok(())
    }

    /// The client: keeps the windows full for this time; counts after the warm-up.
    fn send(mut self, record: &[u8], time: Duration) -> Result<Run, BenchError> {
        let mut events = Events::with_capacity(256);
        let mut buffer = vec![0; READ_LEN];
        let (mut bytes, mut cpu) = (0, Duration::ZERO);
        let mut counting_since = None;
        let start = Instant::now();
        while start.elapsed() < WARM_UP + time {
            if counting_since.is_none() && start.elapsed() >= WARM_UP {
                counting_since = Some(thread_cpu_time());
                bytes = 0;
            }
            let mut busy = false;
            for socket in &mut self.sockets {
                if socket.readable {
                    let mut echoed = 0;
                    socket.read(&mut buffer, &mut |plain| echoed += plain.len())?;
                    socket.in_flight -= echoed;
                    bytes += echoed as u64;
                    busy |= socket.readable;
                }
                if socket.flush()? && socket.in_flight + WRITE_LEN <= WINDOW {
                    for _ in 0..WRITE_LEN / record.len() {
                        socket.channel.wrap(record, &mut socket.unsent)?;
                        socket.in_flight += record.len();
                    }
                    busy |= socket.flush()?;
                }
            }
            self.wait(&mut events, busy)?;
        }
        if let Some(since) = counting_since {
            cpu = thread_cpu_time() - since;
        }
        Ok((bytes, cpu))
    }

    /// The server: returns all bytes in records of the same size, until it is told to stop or a
    /// socket closes.
    fn echo(mut self, record_len: usize, stop: &AtomicBool) -> Result<(), BenchError> {
        let mut events = Events::with_capacity(256);
        let mut buffer = vec![0; READ_LEN];
        let mut plain: Vec<Vec<u8>> = self.sockets.iter().map(|_| Vec::new()).collect();
        while !stop.load(Ordering::Relaxed) {
            let mut busy = false;
            for (socket, plain) in self.sockets.iter_mut().zip(&mut plain) {
                if !socket.flush()? || !socket.readable {
                    continue;
                }
                let read = socket.read(&mut buffer, &mut |bytes| plain.extend_from_slice(bytes))?;
                if read.is_none() {
                    return Ok(());
                }
                let whole = plain.len() / record_len * record_len;
                for record in plain[..whole].chunks(record_len) {
                    socket.channel.wrap(record, &mut socket.unsent)?;
                }
                plain.drain(..whole);
                socket.flush()?;
                busy |= socket.readable;
            }
            self.wait(&mut events, busy)?;
        }
        Ok(())
    }
}

/// An echo over plain TCP.
pub(super) fn plain(case: &Case<'_>) -> Result<Run, BenchError> {
    echo_with(case, |_| Ok(Plain), |_| Ok(Plain))
}

/// An echo over TLS.
pub(super) fn tls(case: &Case<'_>) -> Result<Run, BenchError> {
    let config = tls::server_config()?;
    echo_with(
        case,
        |tcp| tls::client(tcp).map(Tls::new),
        move |tcp| tls::server(tcp, &config).map(Tls::new),
    )
}

/// Connects the sockets, runs the server in a thread and the client in another.
fn echo_with<A: Channel, B: Channel>(
    case: &Case<'_>,
    client: impl Fn(&mut TcpStream) -> Result<A, BenchError> + Send + 'static,
    server: impl Fn(&mut TcpStream) -> Result<B, BenchError> + Send + 'static,
) -> Result<Run, BenchError> {
    let listener = tls::listen()?;
    let addr = listener.local_addr().map_err(io("listening on loopback"))?;
    let (count, record_len, cores) = (case.options.sockets, case.record_len, case.cores);
    let time = case.options.run;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let serving = spawn("server", move || {
        pin(cores.server);
        let mut sockets = Vec::new();
        for _ in 0..count {
            let (mut tcp, _) = listener.accept().map_err(io("accepting"))?;
            tcp.set_nodelay(true).map_err(io("setting TCP_NODELAY"))?;
            let channel = server(&mut tcp)?;
            sockets.push((tcp, channel));
        }
        Loop::new(sockets)?.echo(record_len, &stopped)
    })?;
    let sending = spawn("client", move || {
        pin(cores.client);
        let mut sockets = Vec::new();
        for _ in 0..count {
            let mut tcp = tls::connect(addr)?;
            let channel = client(&mut tcp)?;
            sockets.push((tcp, channel));
        }
        Loop::new(sockets)?.send(&vec![0; record_len], time)
    })?;
    let run = join(sending)?;
    stop.store(true, Ordering::Relaxed);
    // An error of the server after the client's end does not matter.
    let _ = join(serving);
    run
}

/// Starts a thread with a name for profilers.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, BenchError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(io("starting a thread"))
}

/// Waits for a thread.
pub(super) fn join<T>(thread: JoinHandle<T>) -> Result<T, BenchError> {
    let panicked = || std::io::Error::other("a bench thread panicked");
    thread.join().map_err(|_| io("a thread of the bench")(panicked()))
}
