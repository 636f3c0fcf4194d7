//! A loopback server that sends as many bytes as requested, as fast as they are read.
//!
//! A connection sends one line: `GET n` for n bytes or `GET` for endless bytes, which are all
//! zeros; `PUT` to send bytes itself; `ECHO` to get back what it sends. Each connection has a
//! thread. Bytes are written from a constant buffer. All of them can be paused at once; little is
//! then in flight, because little is written at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt;

use crate::error::{Error, Result};
use crate::hosts::{Host, inside};

/// A running server; dropping it closes all connections.
#[derive(Debug)]
pub struct SourceServer {
    /// Listening address.
    addr: SocketAddr,
    /// `None` for this machine.
    host: Option<Host>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// State that the threads of a [`SourceServer`] share.
#[derive(Debug, Default)]
struct Shared {
    is_ending: AtomicBool,
    /// Bytes given to the system so far.
    sent_bytes: AtomicU64,
    /// Open connections by number, to close them.
    connections: Mutex<Vec<(u64, TcpStream)>>,
    is_paused: Mutex<bool>,
    /// Wakes threads at the end of a pause.
    resumed: Condvar,
}

impl SourceServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port or thread is available.
    pub fn start() -> Result<Self> {
        Self::start_at(None)
    }

    /// Starts a server on a host; otherwise as [`Self::start`].
    pub(crate) fn start_at(host: Option<Host>) -> Result<Self> {
        let failed = || Error::io("start a source of bytes");
        let address = host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address);
        let bind = || TcpListener::bind((address, 0));
        let listener = inside(host.as_ref(), bind)?.map_err(failed())?;
        let addr = listener.local_addr().map_err(failed())?;
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        let acceptor = thread::Builder::new()
            .name("source".to_owned())
            .spawn(move || accept(&listener, &accepting))
            .map_err(failed())?;
        Ok(Self { addr, host, shared, acceptor: Some(acceptor) })
    }

    /// Listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes given to the system on all connections so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Stops sending on all connections until [`Self::resume`]. Bytes given to the system still
    /// arrive.
    pub fn pause(&self) {
        self.shared.set_paused(true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.shared.set_paused(false);
    }
}

impl Drop for SourceServer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.resume();
        // A connection wakes the acceptor.
        let woken = inside(self.host.as_ref(), || TcpStream::connect(self.addr).is_ok());
        if let (Ok(true), Some(acceptor)) = (woken, self.acceptor.take()) {
            let _ = acceptor.join();
        }
        for (_, connection) in &*self.shared.lock() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_paused(&self, is_paused: bool) {
        *self.is_paused.lock().unwrap_or_else(PoisonError::into_inner) = is_paused;
        self.resumed.notify_all();
    }

    /// Waits for the end of a pause, if any.
    fn wait_while_paused(&self) {
        let is_paused = self.is_paused.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_while(is_paused, |is_paused| *is_paused));
    }
}

/// Buffer sent; large enough for few system calls, small enough for prompt pauses.
static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];
/// Size of a connection's send buffer in the system.
const SEND_BUFFER_BYTES: usize = 32 * 1024;

/// Accepts connections and starts a thread for each.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, connection) in (0_u64..).zip(listener.incoming()) {
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        let Ok(connection) = connection else { continue };
        let Ok(handle) = connection.try_clone() else { continue };
        shared.lock().push((number, handle));
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("source".to_owned()).spawn(move || {
            // Most connections end because the peer closes them.
            let _ = serve(&connection, &of_thread);
            let _ = connection.shutdown(Shutdown::Both);
            of_thread.lock().retain(|(other, _)| *other != number);
        });
        if thread.is_err() {
            shared.lock().retain(|(other, _)| *other != number);
        }
    }
}

/// Longest valid request, in bytes. There is no timeout: a stream may be held for hours before it
/// sends its request.
const MOST_REQUEST: u64 = 64;

/// Reads the request and sends the bytes.
fn serve(mut connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(connection, SEND_BUFFER_BYTES)?;
    let mut line = String::new();
    // Of one byte, so that it takes nothing of what follows the line.
    BufReader::with_capacity(1, connection.take(MOST_REQUEST)).read_line(&mut line)?;
    match request(&line)? {
        Request::Get(bytes) => send(connection, bytes, shared),
        Request::Put => io::copy(&mut connection, &mut io::sink()).map(drop),
        Request::Echo => echo(connection),
    }
}

/// Sends back each byte that comes.
fn echo(mut connection: &TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut buffer = [0; 1024];
    loop {
        let length = connection.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..length])?;
    }
}

/// Sends this number of bytes.
fn send(mut connection: &TcpStream, bytes: u64, shared: &Shared) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        shared.wait_while_paused();
        let length = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        let sent = connection.write(&ZEROS[..length])?;
        left = left.saturating_sub(sent as u64);
        shared.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
    }
    connection.shutdown(Shutdown::Write)
}

/// What a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// This number of bytes.
    Get(u64),
    /// To send bytes.
    Put,
    /// Its own bytes.
    Echo,
}

/// Parses a request.
fn request(line: &str) -> io::Result<Request> {
    let bad = || io::Error::other(format!("bad request {line:?}"));
    match line.trim_end() {
        "PUT" => Ok(Request::Put),
        "ECHO" => Ok(Request::Echo),
        other => match other.strip_prefix("GET").ok_or_else(bad)?.trim() {
            "" => Ok(Request::Get(u64::MAX)),
            count => count.parse().map(Request::Get).map_err(|_| bad()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_are_understood() {
        assert_eq!(request("GET 12\n").unwrap(), Request::Get(12));
        assert_eq!(request("GET\r\n").unwrap(), Request::Get(u64::MAX));
        assert_eq!(request("PUT\n").unwrap(), Request::Put);
        assert_eq!(request("ECHO\n").unwrap(), Request::Echo);
        assert!(request("PUT 1\n").is_err());
        assert!(request("GET -1\n").is_err());
    }

    #[test]
    fn a_source_takes_bytes_and_returns_them() {
        let source = SourceServer::start().unwrap();
        let mut echo = TcpStream::connect(source.addr()).unwrap();
        echo.write_all(b"ECHO\nab").unwrap();
        let mut bytes = [0; 2];
        echo.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ab");
        let mut put = TcpStream::connect(source.addr()).unwrap();
        put.write_all(b"PUT\n").unwrap();
        put.write_all(&[1; 300_000]).unwrap();
        put.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        put.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }

    #[test]
    fn a_source_sends_what_was_asked_for_and_ends_with_its_value() {
        let source = SourceServer::start().unwrap();
        let mut limited = TcpStream::connect(source.addr()).unwrap();
        limited.write_all(b"GET 300000\n").unwrap();
        let mut bytes = Vec::new();
        limited.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 300_000);
        let mut endless = TcpStream::connect(source.addr()).unwrap();
        endless.write_all(b"GET\n").unwrap();
        endless.read_exact(&mut bytes).unwrap();
        source.pause();
        // One buffer may have been on its way to the system.
        let most = source.sent_bytes() + ZEROS.len() as u64;
        let sent = || {
            assert!(source.sent_bytes() <= most, "something was sent during the pause");
            source.sent_bytes()
        };
        endless.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        while endless.read(&mut bytes).is_ok_and(|length| length > 0 && sent() > 0) {}
        let before = sent();
        source.resume();
        endless.set_read_timeout(None).unwrap();
        endless.read_exact(&mut bytes).unwrap();
        assert!(source.sent_bytes() > before);
        source.pause();
        drop(source);
        while endless.read(&mut bytes).is_ok_and(|length| length > 0) {}
    }
}
